"""What an attention layer was called with: its tokens and which of them are real."""

import numpy as np
from keras import ops

MASKS = ("attention_mask", "mask", "padding_mask")


def to_numpy(tensor):
    """Returns a tensor as an array of float32, or float64 if it was that."""
    array = np.asarray(ops.convert_to_numpy(tensor))
    return array if array.dtype == np.float64 else array.astype("float32")


def as_tokens(tensor):
    """Returns a tensor (batch, ..., D) as an array (batch, N, D); None if it is none.

    A grid of tokens, as in windowed vision models, is one sequence of them.
    """
    if tensor is None or len(getattr(tensor, "shape", ())) < 3:
        return None
    array = to_numpy(tensor)
    return array.reshape(len(array), -1, array.shape[-1])


def real_tokens(arguments, num_samples, num_queries, num_keys):
    """Which tokens are real, from the masks that a layer was called with.

    A key is padding where its mask says so, or where no query may attend to it. In
    self-attention the queries are the keys, so both views are joined.

    Args:
        arguments: dict of the call's arguments by name.
        num_samples: int, the size B of the batch.
        num_queries: int, N.
        num_keys: int, S.

    Returns:
        Tuple of boolean arrays of shape (B, N) and (B, S).
    """
    queries = np.ones((num_samples, num_queries), bool)
    keys = np.ones((num_samples, num_keys), bool)
    _narrow(queries, arguments.get("query_mask"))
    _narrow(keys, arguments.get("key_mask"))
    _narrow(keys, arguments.get("value_mask"))
    for name in MASKS:
        allowed = allowed_pairs(arguments.get(name), num_samples, num_queries, num_keys)
        if allowed is not None:
            keys &= allowed.any(axis=-2)
    if num_queries == num_keys:
        queries &= keys
        keys &= queries
    return queries, keys


def allowed(arguments, queries, keys):
    """Which token may attend to which, as far as the arguments of a call tell.

    Args:
        arguments: dict of the call's arguments by name.
        queries: Booleans of shape (B, N), the real queries.
        keys: Booleans of shape (B, S), the real keys.

    Returns:
        Booleans of shape (B, N, S).
    """
    pairs = np.repeat(keys[:, None, :], queries.shape[1], axis=1)
    if arguments.get("use_causal_mask"):
        pairs &= np.tri(*pairs.shape[1:], dtype=bool)
    for name in MASKS:
        mask = allowed_pairs(arguments.get(name), *pairs.shape)
        if mask is not None:
            pairs &= mask
    return pairs


def allowed_pairs(mask, num_samples, num_queries, num_keys):
    """Returns a mask of any of the usual shapes as booleans (B, N, S), or None.

    Args:
        mask: None, or booleans or integers of shape (B, S), (B or 1, N or 1, S), or
            with an axis of heads before the last two. Anything else (an additive mask
            of floats, say) is not understood.
        num_samples: int, B.
        num_queries: int, N.
        num_keys: int, S.
    """
    if mask is None or len(getattr(mask, "shape", ())) not in (2, 3, 4):
        return None
    mask = np.asarray(ops.convert_to_numpy(mask))
    if mask.dtype.kind not in "biu" and not np.isin(mask, (0, 1)).all():
        return None
    mask = mask.astype(bool)
    if mask.ndim == 4:
        mask = mask.any(axis=1)
    if mask.ndim == 2 and mask.shape == (num_samples, num_keys):
        mask = mask[:, None, :]
    shape = (num_samples, num_queries, num_keys)
    fits = all(m in (1, s) for m, s in zip(mask.shape[-3:], shape, strict=False))
    if mask.ndim != 3 or not fits or mask.shape[-1] != num_keys:
        return None
    return np.broadcast_to(mask, shape)


def _narrow(real, mask):
    if mask is not None and tuple(mask.shape) == real.shape:
        real &= np.asarray(ops.convert_to_numpy(mask)).astype(bool)
