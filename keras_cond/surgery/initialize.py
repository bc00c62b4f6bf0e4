"""Re-initializing the attention of a built model."""

import keras
import numpy as np

from keras_cond.initializers.seeds import draw_seed
from keras_cond.ops.validation import boolean, finite_number
from keras_cond.surgery import schemes
from keras_cond.surgery.changes import (
    CORRECTED,
    ROLES,
    change_projections,
    refuse_corrected,
    refuse_twice,
)

# The projections that a scheme writes unless told otherwise.
USUAL = {
    "conditioned": ("query", "key", "value"),
    "gaussian": ("query", "key", "value"),
    "mimetic": ROLES,
    # The paper replaces one of three; the key gained most in two of its three models.
    "dct": ("key",),
    "spectral": ("query", "key", "value"),
}


def initialize(
    model,
    scheme="conditioned",
    seed=None,
    projections=None,
    per_head=True,
    correction_scale=10.0,
    include_frozen=False,
    trained_ok=False,
):
    """Re-initializes the attention projections of a built model, in place.

    Only values of kernels change: the model keeps its class, its files, its export and
    what was compiled. Schemes, for each attention layer with D channels and heads of
    width d:

    - `"conditioned"`: W_V is the rectangular identity I_{D×d}; the W_Q and W_K of each
      head are semi-orthogonal, independent, of gain 1 ("Conditioned Initialization").
    - `"gaussian"`: noise with the same Frobenius norms. It is the control that tells
      whether conditioning helps, or scale.
    - `"mimetic"`: for each head W_Q W_Kᵀ is the best approximation, of rank d, to
      0.7 Z + 0.7 I, and W_V W_O = 0.4 Z − 0.4 I over all heads; Z is noise of standard
      deviation 1/√D.
    - `"dct"`: the D × (heads · d) matrix is the orthonormal DCT basis; for the keys
      alone unless `projections` says otherwise.
    - `"spectral"`: λ times the rectangular identity is added to W_Q, W_K and W_V.
      Without weight decay this trains exactly like `SpectralAttention`.
    - `keras_cond.weights_from(larger_model)`: weights of a larger model.
    - a function (attention, index, rng) → dict from `"query"`, `"key"`, `"value"` or
      `"output"` to arrays of the shape of that projection; see
      `keras_cond.projections.find_attention`.

    Args:
        model: A built Keras model or layer: your own, or one of KerasHub. Separate,
            fused and grouped-query kernels are written alike; layers that are used
            several times once.
        scheme: As above.
        seed: int or None. The same int gives the same weights on every backend; every
            layer, projection and head gets values of its own. None draws one as
            `keras.utils.set_random_seed` determines.
        projections: None, or those of `("query", "key", "value", "output")` to write.
        per_head: bool, whether the identity is made for each head's D × d matrix (the
            default, the papers' notation: every head reads the first d channels) or for
            the D × (heads · d) one (head h reads its own slice).
        correction_scale: float ≥ 0, λ of `"spectral"`; 10 is the paper's.
        include_frozen: bool. If False, kernels that are not trainable stay.
        trained_ok: bool. If False, a model whose optimizer has stepped is refused.

    Returns:
        A `keras_cond.diagnostics.Comparison` of κ before and after: print it.

    Raises:
        ValueError: If an argument is not as above, the model is not built, has been
            trained, or has no attention layer to initialize.

    Warns:
        UserWarning: Once, naming every layer that was left alone, with the reason; and
            on PyTorch if weights have equal paths, which Keras cannot train.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> model = keras.Model(inputs, layer(inputs, inputs))
    >>> report = keras_cond.initialize(model, seed=0)
    >>> print(report)  # κ of the heads' Q, K and V: 1

    References: "Conditioned Initialization for Attention", ICLR 2026, algorithm 1;
    A. Trockman, J. Kolter, "Mimetic Initialization of Self-Attention Layers", 2023,
    arXiv:2305.09828; "DCT decorrelated attention", arXiv:2405.13901; "Spectral
    Conditioning of Attention", NeurIPS 2025, arXiv:2603.07162.
    """
    per_head = boolean(per_head, "per_head")
    include_frozen = boolean(include_frozen, "include_frozen")
    correction_scale = finite_number(correction_scale, "correction_scale")
    function = _function(scheme, per_head, correction_scale)
    roles = _roles(projections, scheme)
    _check_seed(seed)
    _refuse_trained(model, boolean(trained_ok, "trained_ok"))
    seed = draw_seed(seed)

    def matrices(attention, index):
        if scheme == "spectral":
            refuse_corrected(attention)
            for role in roles:
                refuse_twice(getattr(attention, role))
        new = function(attention, index, np.random.default_rng([seed, index]))
        _check_matrices(new, scheme)
        return {role: new[role] for role in roles if role in new}

    comparison, written = change_projections(
        model, matrices, include_frozen, "initialize"
    )
    for projection in written:
        CORRECTED.discard(projection.dense)
        if scheme == "spectral":
            CORRECTED.add(projection.dense)
    return comparison


def _check_matrices(new, scheme):
    if not isinstance(new, dict) or not new or not set(new) <= set(ROLES):
        got = sorted(new) if isinstance(new, dict) else type(new).__name__
        raise ValueError(
            "A scheme returns a dict from projections to matrices. Received: "
            f"{got} from scheme={scheme!r}. Expected keys among {ROLES}."
        )


def _function(scheme, per_head, correction_scale):
    if isinstance(scheme, keras.initializers.Initializer):
        raise ValueError(
            "A scheme initializes whole attention layers. Received: the initializer "
            f"{type(scheme).__name__}. Expected a name such as 'conditioned'; pass "
            "an initializer to a layer as `kernel_initializer`."
        )
    if callable(scheme):
        return scheme
    functions = {
        "conditioned": schemes.conditioned(per_head),
        "gaussian": schemes.gaussian(per_head),
        "mimetic": schemes.mimetic,
        "dct": schemes.dct,
        "spectral": schemes.spectral(correction_scale, per_head),
    }
    if not isinstance(scheme, str) or scheme not in functions:
        raise ValueError(
            f"Unknown `scheme`. Received: scheme={scheme!r}. Expected one of "
            f"{tuple(functions)}, `keras_cond.weights_from(larger_model)`, or a "
            "function."
        )
    return functions[scheme]


def _roles(projections, scheme):
    if projections is None:
        return ROLES if callable(scheme) else USUAL[scheme]
    if isinstance(projections, str):
        projections = (projections,)
    roles = tuple(projections)
    if not roles or not set(roles) <= set(ROLES):
        raise ValueError(
            "`projections` names those to write. Received: "
            f"projections={projections!r}. Expected some of {ROLES}, or None."
        )
    known = ROLES if callable(scheme) or scheme == "mimetic" else ROLES[:3]
    if not set(roles) <= set(known):
        raise ValueError(
            f"The scheme {scheme!r} has no values for all of these projections. "
            f"Received: projections={projections!r}. Expected some of {known}."
        )
    return roles


def _check_seed(seed):
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if seed is not None and (not whole or seed < 0):
        raise ValueError(
            f"`seed` must be an integer from 0, or None. Received: seed={seed!r}."
        )


def _refuse_trained(model, trained_ok):
    optimizer = getattr(model, "optimizer", None)
    steps = 0 if optimizer is None else int(optimizer.iterations)
    if steps and not trained_ok:
        raise ValueError(
            "`initialize` overwrites what attention has learned. Received: the model "
            f"{model.name!r}, whose optimizer has made {steps} steps. Initialize a "
            "model before you train it, or pass `trained_ok=True`."
        )
