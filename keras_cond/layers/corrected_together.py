"""The polar factors of an attention layer's kernels, computed in one go."""

import contextlib
import threading

from keras import ops

from keras_cond.backends import recorded_by_torch
from keras_cond.ops import condition

_current = threading.local()


@contextlib.contextmanager
def corrected_together(projections):
    """Within it, the first projection that is called corrects the kernels of all.

    On PyTorch, where each operation is started by itself, the start of a hundred small
    ones for each kernel takes longer than they do. XLA has a third to compile.

    Args:
        projections: List of `CorrectedEinsumDense` with the polar correction and one
            `per_head`. They are called with these kernels until the context ends.
    """
    before = getattr(_current, "group", None)
    _current.group = _Group(projections)
    try:
        yield
    finally:
        _current.group = before


def can_be_corrected_together(layers):
    """Returns whether the call of an attention layer may use `corrected_together`.

    Under `keras.RematScope` a layer is computed again by itself on the way back, and so
    must not share what it keeps. `torch.compile` and exporters do not follow the state
    of a thread.

    Args:
        layers: The attention layer and its projections.
    """
    return not recorded_by_torch() and not any(
        getattr(layer, "_remat_mode", None) for layer in layers
    )


def shared_kernel(projection):
    """Returns W + C of a projection in `corrected_together`, or None outside."""
    group = getattr(_current, "group", None)
    return group and group.kernel(projection)


class _Group:
    def __init__(self, projections):
        self.projections = projections
        self.kernels = {}

    def kernel(self, projection):
        if not any(projection is one for one in self.projections):
            return None
        if not self.kernels:
            corrected = polar_kernels(self.projections)
            for one, kernel in zip(self.projections, corrected, strict=True):
                self.kernels[id(one)] = kernel
        return self.kernels[id(projection)]


def polar_kernels(projections):
    """Returns W + σ_max(W) polar(W) of each projection, of the shapes of the kernels.

    Matrices of one shape are corrected in one batch. It has one axis, for which PyTorch
    has products that take a sum along (`backends.add_product`).
    """
    raw = [one.matrices() for one in projections]
    kernels = [None] * len(projections)
    for size in dict.fromkeys(tuple(x.shape[1:]) for x in raw):
        alike = [i for i, x in enumerate(raw) if tuple(x.shape[1:]) == size]
        corrected = condition(ops.concatenate([raw[i] for i in alike]))
        start = 0
        for i in alike:
            end = start + raw[i].shape[0]
            kernels[i] = projections[i].kernel_of(corrected[start:end])
            start = end
    return kernels
