"""The polar factors of an attention layer's kernels, computed in one go."""

import contextlib
import threading

from keras import ops

from keras_cond.backends import runs_operation_by_operation
from keras_cond.ops import condition

_current = threading.local()


@contextlib.contextmanager
def corrected_together(projections):
    """Within it, the first projection that is called corrects the kernels of all.

    Where each operation is started by itself, the start of a hundred small ones for
    each kernel takes longer than they do. XLA gains nothing by it.

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
    must not share what it keeps.

    Args:
        layers: The attention layer and its projections.
    """
    return runs_operation_by_operation() and not any(
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
            self.kernels = self._correct()
        return self.kernels[id(projection)]

    def _correct(self):
        raw = [(one, one.matrices()) for one in self.projections]
        kernels = {}
        for size in dict.fromkeys(tuple(x.shape[1:]) for _, x in raw):
            alike = [(one, x) for one, x in raw if tuple(x.shape[1:]) == size]
            corrected = condition(ops.concatenate([x for _, x in alike]))
            start = 0
            for one, x in alike:
                end = start + x.shape[0]
                kernels[id(one)] = one.kernel_of(corrected[start:end])
                start = end
        return kernels
