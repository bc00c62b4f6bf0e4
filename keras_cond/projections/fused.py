"""Attention layers of KerasHub with one kernel for several projections.

The order of the parts inside such a kernel is not in its shape, so these layers are
known by class name. Tests compute each one's attention from the parts.
"""

import math

from keras_cond.projections.layout import Layout
from keras_cond.projections.projection import Projection
from keras_cond.projections.separate import (
    QUERY_HEADS,
    check_dense,
    count,
    output_projection,
)
from keras_cond.projections.unreadable import UnreadableError

# Class name: attribute of the fused kernel, of the output, and order of the columns.
FUSED = {
    "GPTNeoXAttention": ("_qkv_dense", "_output_dense", "(heads, 3, d)"),
    "MultiHeadAttentionWithRelativePE": ("qkv", "projection", "(3, heads, d)"),
    "WindowAttention": ("qkv", "proj", "(3, heads, d)"),
}
LIBRARY = "keras_hub"


def read_fused(layer):
    """Returns the projections of a layer of the registry.

    Args:
        layer: Keras layer.

    Returns:
        Tuple of query, key, value and output `Projection`, the last one maybe None; or
        None if the layer is not in the registry, nor of a subclass.

    Raises:
        UnreadableError: If it is not built, quantized or of an unknown shape.
    """
    for known in type(layer).__mro__:
        # Another library's layer of the same name may have another order.
        if known.__name__ in FUSED and known.__module__.split(".")[0] == LIBRARY:
            break
    else:
        return None
    fused, output, order = FUSED[known.__name__]
    dense = getattr(layer, fused, None)
    check_dense(dense, fused)
    heads = count(layer, QUERY_HEADS)
    size, columns = dense.kernel.shape[0], math.prod(dense.kernel.shape[1:])
    if heads is None or columns % (3 * heads):
        raise UnreadableError(
            f"its fused kernel of shape {tuple(dense.kernel.shape)} is not three "
            f"matrices for each of {heads} heads"
        )
    width = columns // (3 * heads)
    if order == "(3, heads, d)":
        axes = (size, 3, heads, width), (1, 2, 0, 3), (3, heads, width), (0, 1, 2)
    else:
        axes = (size, heads, 3, width), (2, 1, 0, 3), (heads, 3, width), (1, 0, 2)
    projections = [Projection(dense, Layout(*axes, part=part)) for part in range(3)]
    return (*projections, output_projection(layer, (output,), projections))
