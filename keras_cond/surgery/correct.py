"""Adding a correction into the attention kernels of a model."""

import numpy as np
from keras import ops

from keras_cond.ops import condition
from keras_cond.surgery.changes import (
    CORRECTED,
    change_projections,
    refuse_corrected,
    refuse_twice,
)
from keras_cond.surgery.schemes import identities, side_by_side

ROLES = ("query", "key", "value")
# A rise of κ above this is counted; below it may be rounding.
NOTABLE = 1.01


def correct_projections(model, correction, scale, per_head, include_frozen):
    """Assigns W + C to query, key and value kernels and prints κ before and after.

    Args:
        model: A built Keras model.
        correction: `"identity"` or `"polar"`.
        scale: float, λ.
        per_head: bool.
        include_frozen: bool.

    Raises:
        ValueError: If nothing can be corrected, or kernels have been before.
    """

    def matrices(attention, index):
        refuse_corrected(attention)
        new = {}
        for role in ROLES:
            projection = getattr(attention, role)
            refuse_twice(projection)
            stored = projection.read()
            if correction == "identity":
                added = scale * identities(projection.shape, per_head)
            else:
                acting = projection.effective()
                added = _polar_correction(acting, per_head)
            new[role] = stored + added
        return new

    comparison, written = change_projections(model, matrices, include_frozen, "apply")
    CORRECTED.update(projection.dense for projection in written)
    print(comparison)
    print(_verdict(comparison))


def _polar_correction(matrices, per_head):
    if per_head:
        return ops.convert_to_numpy(condition(matrices)) - matrices
    heads, size, width = matrices.shape
    joint = matrices.transpose(1, 0, 2).reshape(size, heads * width)
    conditioned = ops.convert_to_numpy(condition(joint))
    return side_by_side(np.asarray(conditioned) - joint, heads)


def _verdict(comparison):
    pairs = [
        (
            float(np.max(getattr(before, role).joint)),
            float(np.max(getattr(after, role).joint)),
        )
        for before, after in zip(
            comparison.before.layers, comparison.after.layers, strict=True
        )
        for role in ROLES
    ]
    worse = sum(after > NOTABLE * before for before, after in pairs)
    return f"κ of the joint matrix rose in {worse} of {len(pairs)} projections."
