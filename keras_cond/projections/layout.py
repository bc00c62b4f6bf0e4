"""How a stored kernel is one matrix a head."""

import dataclasses
import math

import numpy as np

from keras_cond.projections.unreadable import UnreadableError


@dataclasses.dataclass(frozen=True)
class Layout:
    """Reads a kernel as matrices of shape (heads, D, d), or (heads, d, D) for outputs.

    matrices = kernel.reshape(split).transpose(order), and of a kernel that several
    projections share, the part at index `part` of the first axis.

    Args:
        split: tuple of ints, the shape of the kernel with the heads an axis of its own.
        order: tuple of ints, the axes of `split` in the order (heads, D, d).
        bias_split: tuple of ints, the same for the bias.
        bias_order: tuple of ints, the axes of `bias_split` in the order (heads, d).
        part: int or None, the index of the projection in a fused kernel.
    """

    split: tuple
    order: tuple
    bias_split: tuple
    bias_order: tuple
    part: int | None = None

    @property
    def shape(self):
        """The shape of the matrices."""
        shape = tuple(self.split[axis] for axis in self.order)
        return shape if self.part is None else shape[1:]

    def matrices(self, kernel):
        """Returns the matrices as a view of a contiguous NumPy kernel."""
        return self._ordered(kernel.reshape(self.split), self.order)

    def bias(self, bias):
        """Returns a NumPy bias as (heads, d), or (D,) for outputs."""
        if bias.size == math.prod(self.bias_split):
            bias = bias.reshape(self.bias_split)
        else:  # one for all heads
            bias = np.broadcast_to(bias, self.bias_split)
        return self._ordered(bias, self.bias_order)

    def _ordered(self, array, order):
        array = array.transpose(order)
        return array if self.part is None else array[self.part]


def input_layout(dense, num_heads):
    """Returns the layout of a query, key or value projection.

    Args:
        dense: Built `Dense`, with a kernel of shape (D, heads · d), or `EinsumDense`,
            whose equation says which axis is which.
        num_heads: int or None, needed where the kernel has no axis of heads.

    Raises:
        UnreadableError: If the kernel cannot be read without guessing.
    """
    shape, summed, made = _axes(dense)
    shape, made, summed = _with_heads(dense, shape, made, summed, num_heads)
    heads, width = made
    sizes = (shape[heads], shape[width])
    return Layout(shape, (heads, summed, width), sizes, (0, 1))


def output_layout(dense, num_heads):
    """Returns the layout of an output projection, of kernel (heads, d, D) or alike.

    Args:
        dense: As in `input_layout`.
        num_heads: As in `input_layout`.

    Raises:
        UnreadableError: If the kernel cannot be read without guessing.
    """
    shape, summed, made = _axes(dense)
    shape, summed, made = _with_heads(dense, shape, summed, made, num_heads)
    return Layout(shape, (*summed, made), (shape[made],), (0,))


def _axes(dense):
    """Returns the shape of a kernel, the axes it sums over and those it makes.

    Both are in the order of the activations, in which heads come before widths.
    """
    equation = getattr(dense, "equation", "ab,bc->ac").replace(" ", "")
    inputs, rest = equation.replace("...", "").split(",")
    weights, outputs = rest.split("->")
    summed = [weights.index(c) for c in inputs if c in weights and c not in outputs]
    made = [weights.index(c) for c in outputs if c in weights and c not in inputs]
    if len(summed) + len(made) != len(weights):
        raise UnreadableError(f"the equation {equation!r} is not a matrix product")
    return tuple(dense.kernel.shape), summed, made


def _with_heads(dense, shape, inner, outer, num_heads):
    """Splits the one inner axis into heads and width, unless there are two already.

    Returns:
        The new shape, the axes of heads and width, and the one outer axis.
    """
    if len(outer) != 1 or len(inner) not in (1, 2):
        raise UnreadableError(f"its kernel of shape {shape} is no matrix a head")
    outer = outer[0]
    if len(inner) == 1:
        axis = inner[0]
        if num_heads is None:
            raise UnreadableError("no attribute such as `num_heads` counts the heads")
        if shape[axis] % num_heads:
            raise UnreadableError(
                f"{num_heads} heads do not divide its kernel of shape {shape}"
            )
        width = shape[axis] // num_heads
        shape = (*shape[:axis], num_heads, width, *shape[axis + 1 :])
        inner = (axis, axis + 1)
        outer += outer > axis
    return shape, tuple(inner), outer
