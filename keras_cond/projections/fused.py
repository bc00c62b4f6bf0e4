"""Attention layers of KerasHub with one kernel for several projections.

The order of the parts inside such a kernel is not in its shape, so these layers are
known by class name. Tests compute each one's attention from the parts.
"""

from keras_cond.projections.layout import Layout
from keras_cond.projections.projection import Projection
from keras_cond.projections.separate import (
    QUERY_HEADS,
    check_dense,
    count,
    output_projection,
)
from keras_cond.projections.unreadable import UnreadableError

# Class name: attribute of the fused kernel, of the output, and order of the kernel.
# "parts first" is (D, 3 · heads · d) in the order (3, heads, d); "heads first" is
# (D, heads, 3 · d), query, key and value side by side in each head.
FUSED = {
    "WindowAttention": ("qkv", "proj", "parts first"),
    "MultiHeadAttentionWithRelativePE": ("qkv", "projection", "parts first"),
    "GPTNeoXAttention": ("_qkv_dense", "_output_dense", "heads first"),
}


def read_fused(layer):
    """Returns the projections of a layer of the registry.

    Args:
        layer: Keras layer.

    Returns:
        Tuple of query, key, value and output `Projection`, the last one maybe None; or
        None if the layer, and every class it inherits from, is another one.

    Raises:
        UnreadableError: If it is not built, quantized or of an unknown shape.
    """
    name = next((c.__name__ for c in type(layer).__mro__ if _is_known(c)), None)
    if name is None:
        return None
    fused, output, order = FUSED[name]
    dense = getattr(layer, fused, None)
    check_dense(dense, fused)
    heads = count(layer, QUERY_HEADS)
    size, *rest = dense.kernel.shape
    columns = rest[-1] if order == "heads first" else rest[0] // (heads or 1)
    expected = [heads, columns] if order == "heads first" else [columns * (heads or 1)]
    if not heads or rest != expected or columns % 3:
        raise UnreadableError(
            f"its fused kernel of shape {tuple(dense.kernel.shape)} is not three "
            f"matrices for each of {heads} heads"
        )
    width = columns // 3
    if order == "parts first":
        axes = (size, 3, heads, width), (1, 2, 0, 3), (3, heads, width), (0, 1, 2)
    else:
        axes = (size, heads, 3, width), (2, 1, 0, 3), (heads, 3, width), (1, 0, 2)
    projections = [Projection(dense, Layout(*axes, part=part)) for part in range(3)]
    return (*projections, output_projection(layer, (output,), projections))


def _is_known(layer_class):
    # Another library's layer of that name may have another order.
    library = layer_class.__module__.partition(".")[0]
    return library == "keras_hub" and layer_class.__name__ in FUSED
