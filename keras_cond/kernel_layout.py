"""How a kernel of an attention projection is read as one matrix a head."""

from numbers import Integral

from keras import ops


def head_axis(shape, num_heads, reader):
    """Returns which axis of a kernel counts heads, or None for a plain matrix.

    Args:
        shape: Sequence of ints, the shape of the kernel.
        num_heads: Number of heads, or None if unknown.
        reader: The initializer, constraint or regularizer that asks, named in the
            error.

    Returns:
        1 for (D, heads, d), the layout of query, key and value projections; 0 for
        (heads, d, D), that of output projections; None for rank 2. Without
        `num_heads`, rank 3 is (D, heads, d), unless heads · d = D and heads ≤ d for the
        reading as (heads, d, D), which in practice only an output projection has.

    Raises:
        ValueError: If the kernel cannot be meant.
    """
    shape = tuple(shape)
    name = type(reader).__name__
    if len(shape) == 2:
        if num_heads is not None and shape[1] % num_heads:
            raise ValueError(
                f"`{name}(num_heads={num_heads})` reads a kernel of rank 2 as "
                "(D, num_heads · d), so `num_heads` must divide its columns. Received: "
                f"shape={shape}. Change `num_heads`, or leave it out to treat the "
                "kernel as one matrix."
            )
        return None
    if len(shape) != 3:
        raise ValueError(
            f"`{name}` is for kernels of shape (D, heads, d), (heads, d, D) or "
            f"(D, E). Received: shape={shape}, of rank {len(shape)}. Leave it out for "
            "this kernel."
        )
    if num_heads is None:
        first, second, last = shape
        return 0 if first * second == last and first <= second else 1
    if shape == (num_heads, num_heads, num_heads**2):
        return 0  # As above: as many heads as channels in each.
    if shape[1] == num_heads:
        return 1
    if shape[0] == num_heads:
        return 0
    raise ValueError(
        f"`{name}(num_heads={num_heads})` found no axis of heads. Received: "
        f"shape={shape}. Expected (D, {num_heads}, d), the kernel of a query, key or "
        f"value projection, or ({num_heads}, d, D), that of an output projection. "
        "Grouped keys and values have fewer heads than queries: give each projection "
        f"a `{name}` of its own, or leave out `num_heads`."
    )


def per_head(matrices, shape, num_heads, axis):
    """Assembles a kernel from one matrix a head.

    Args:
        matrices: Tensor of shape (heads, rows, columns).
        shape: Shape of the kernel.
        num_heads: Number of heads of a kernel of rank 2, or None.
        axis: As returned by `head_axis`.
    """
    if axis == 0:
        return matrices
    if axis is None and num_heads is None:
        return matrices[0]
    return ops.reshape(ops.transpose(matrices, (1, 0, 2)), shape)


def matrices(kernel, num_heads, axis):
    """Reads a kernel as one matrix a head; the inverse of `per_head`.

    Args:
        kernel: Tensor of rank 2 or 3.
        num_heads: Number of heads of a kernel of rank 2, or None.
        axis: As returned by `head_axis`.

    Returns:
        Tensor of shape (heads, rows, columns).
    """
    if axis == 0:
        return kernel
    if axis is None:
        heads, rows, columns = matrix_shape(kernel.shape, num_heads, axis)
        kernel = ops.reshape(kernel, (rows, heads, columns))
    return ops.transpose(kernel, (1, 0, 2))


def joint(kernel, axis):
    """Reads a kernel as one matrix, the heads side by side.

    Args:
        kernel: Tensor of rank 2 or 3.
        axis: As returned by `head_axis`.

    Returns:
        Tensor of shape (1, rows, columns), of `joint_shape`. Reshaping it to the shape
        of the kernel is the inverse.
    """
    return ops.reshape(kernel, (1, *joint_shape(kernel.shape, axis)))


def matrix_shape(shape, num_heads, axis):
    """Returns (heads, rows, columns) for the arguments of `per_head`."""
    if axis == 0:
        return tuple(shape)
    if axis == 1:
        return shape[1], shape[0], shape[2]
    heads = num_heads or 1
    return heads, shape[0], shape[1] // heads


def joint_shape(shape, axis):
    """Returns (rows, columns) of a kernel as one matrix, the heads side by side."""
    if axis == 0:
        return shape[0] * shape[1], shape[2]
    if axis == 1:
        return shape[0], shape[1] * shape[2]
    return tuple(shape)


def head_count(num_heads):
    """Returns `num_heads` as an int or None; raises ValueError unless positive."""
    if num_heads is None:
        return None
    whole = isinstance(num_heads, Integral) and not isinstance(num_heads, bool)
    if not whole or num_heads < 1:
        raise ValueError(
            "`num_heads` must be a positive integer or None. Received: "
            f"num_heads={num_heads!r}."
        )
    return int(num_heads)
