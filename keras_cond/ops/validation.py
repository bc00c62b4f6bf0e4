"""Checks of arguments, shared by the functions of this package and the layers."""

import math
import numbers
import warnings

import keras
import numpy as np
from keras import ops

METHODS = ("newton_schulz", "svd")


def check_method(method):
    """Raises ValueError unless `method` is a known way to compute."""
    if method not in METHODS:
        raise ValueError(
            f"Unknown `method`. Received: method={method!r}. Expected one of "
            f"{METHODS}: 'newton_schulz' (matrix products, the default) or 'svd'."
        )


def check_floor(floor):
    """Raises ValueError unless 0 < floor < 1."""
    if not isinstance(floor, numbers.Real) or not 0 < floor < 1:
        raise ValueError(
            "`floor` is a fraction of the largest singular value (or coefficient). "
            f"Received: floor={floor!r}. Expected a number with 0 < floor < 1, for "
            "example the default 1e-3."
        )


def penalty_floor(floor):
    """Returns the floor of a penalty as a float; raises ValueError outside [2e-3, 1).

    Its square is added to a Gram matrix of norm 1, and must outweigh rounding errors.
    """
    check_floor(floor)
    if floor < 2e-3:
        raise ValueError(
            "`floor` is squared, and its square must outweigh the rounding of float32. "
            f"Received: floor={floor!r}. Expected 2e-3 <= floor < 1, for example the "
            "default 1e-2."
        )
    return float(floor)


def check_limit(limit):
    """Returns a limit of κ as a float; raises ValueError unless 1 < limit <= 1e4."""
    limit = finite_number(limit, "limit")
    if not 1 < limit <= 1e4:
        raise ValueError(
            "`limit` is the largest condition number allowed. Received: "
            f"limit={limit}. Expected 1 < limit <= 1e4: float32 does not carry more, "
            "and 1 would leave orthogonal matrices alone."
        )
    return limit


def check_epsilon(epsilon):
    """Raises ValueError unless `epsilon` is a number in (0, 1], or a scalar tensor.

    The value of a tensor or variable may not be known yet, and is not looked at.
    """
    if isinstance(epsilon, (bool, np.bool_)):
        wrong = True
    elif isinstance(epsilon, (numbers.Real, np.ndarray)):
        wrong = np.ndim(epsilon) > 0 or not 0 < epsilon <= 1
    else:
        wrong = getattr(epsilon, "shape", None) is None or len(epsilon.shape) > 0
    if wrong:
        raise ValueError(
            "`epsilon` is the exponent of the graying. Received: "
            f"epsilon={epsilon!r}. Expected a number with 0 < epsilon <= 1, for "
            "example the default 0.95 (1 changes nothing)."
        )


def finite_number(value, name):
    """Returns `value` as a float; raises ValueError unless it is finite and real."""
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real)
        or not math.isfinite(value)
    ):
        raise ValueError(
            f"`{name}` must be a finite number. Received: {name}={value!r}."
        )
    return float(value)


def boolean(value, name):
    """Returns `value` as a bool; raises ValueError unless it is one."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}.")
    return bool(value)


def float_tensor(x, rank=2):
    """Returns `x` in the precision to compute in, and its own dtype.

    Args:
        x: Float tensor or array of at least `rank` dimensions.
        rank: int, the least number of dimensions.

    Returns:
        Tuple `(x, dtype)`: the tensor as float64 if it was float64, else as float32
        (half precision has no range for squares), and the name of its own dtype.

    Raises:
        ValueError: If `x` is not a float tensor or has too few dimensions.
    """
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        # Keras on torch would make it float32. JAX without x64 does, and warns.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = ops.convert_to_tensor(x, dtype="float64")
    elif not isinstance(x, keras.KerasTensor):
        x = ops.convert_to_tensor(x)
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"Expected a tensor of floats. Received: dtype={dtype}, "
            f"shape={tuple(x.shape)}. Token ids must be embedded first; other "
            "integers can be cast with `keras.ops.cast(x, 'float32')`."
        )
    if len(x.shape) < rank:
        raise ValueError(
            f"Expected a tensor of rank {rank} or more (..., N, D). Received: "
            f"shape={tuple(x.shape)}. Add the missing axis with "
            "`keras.ops.expand_dims`."
        )
    return ops.cast(x, dtype if dtype == "float64" else "float32"), dtype


def token_mask(mask, x):
    """Returns a mask of tokens as booleans of shape (..., N, 1), or None.

    Args:
        mask: None, or a tensor of shape (..., N), true or nonzero at real tokens.
        x: The tokens, of shape (..., N, D).

    Raises:
        ValueError: If the shape of the mask is not that of the tokens.
    """
    if mask is None:
        return None
    if not isinstance(mask, keras.KerasTensor):
        mask = ops.convert_to_tensor(mask)
    got, expected = tuple(mask.shape), tuple(x.shape[:-1])
    differs = any(
        isinstance(g, int) and isinstance(e, int) and g != e
        for g, e in zip(got, expected, strict=False)
    )
    if len(got) != len(expected) or differs:
        raise ValueError(
            "The mask has one entry a token. Received: mask of shape "
            f"{got} with tokens of shape {tuple(x.shape)}. Expected a mask of shape "
            f"{expected}."
        )
    return ops.expand_dims(ops.cast(mask, "bool"), -1)


def is_empty(x):
    """Returns whether a tensor is known to have no entries.

    A size may be a tensor while PyTorch traces a call; asking for its value then would
    make it a constant of what is exported.
    """
    return any(isinstance(size, int) and size == 0 for size in x.shape)
