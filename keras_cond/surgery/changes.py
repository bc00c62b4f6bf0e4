"""What `initialize` and `apply` share: assigning projections, and reporting it."""

import warnings
import weakref

from keras_cond.backends import on_torch
from keras_cond.diagnostics import inspect
from keras_cond.layers.corrected_einsum_dense import CorrectedEinsumDense
from keras_cond.projections.find import frames_outside, left_out, search
from keras_cond.projections.unreadable import UnreadableError

ROLES = ("query", "key", "value", "output")
# Projections whose kernels a correction has been added into.
CORRECTED = weakref.WeakSet()


def change_projections(model, matrices, include_frozen, caller):
    """Writes new matrices into the attention layers of a model and reports κ.

    All are computed before the first one is written, so an error changes nothing.

    Args:
        model: A built Keras model.
        matrices: Function (attention, index) → dict from role to matrices. It may raise
            `UnreadableError` for a layer that it cannot do.
        include_frozen: bool, whether kernels that are not trainable are written too.
        caller: str, the name of the public function, for messages.

    Returns:
        Tuple of the `Comparison` of the reports before and after, and the list of the
        `Projection`s that were written.

    Raises:
        ValueError: If the model is not built, has no attention layer that can be
            changed, or the matrices are not finite.

    Warns:
        UserWarning: Once, naming every layer that was left alone, with the reason.
    """
    attentions, unreadable = search(model)
    reasons = [left_out(unreadable)] if unreadable else []
    planned, left = [], []
    for index, attention in enumerate(attentions):
        frozen = _frozen(attention, include_frozen)
        try:
            new = matrices(attention, index)
        except UnreadableError as error:
            left.append(
                f"{attention.path!r} ({type(attention.layer).__name__}: {error})"
            )
            continue
        wanted = [
            (getattr(attention, role), new[role]) for role in ROLES if role in new
        ]
        if any(projection is None for projection, _ in wanted):
            reason = "its output projection is not one matrix a head"
            left.append(
                f"{attention.path!r} ({type(attention.layer).__name__}: {reason})"
            )
            continue
        if any(id(projection.variable) in frozen for projection, _ in wanted):
            left.append(f"{attention.path!r} (frozen: pass `include_frozen=True`)")
            continue
        for projection, values in wanted:
            projection.checked(values)
        planned += wanted
    if left:
        reasons.append("Left as they were: " + "; ".join(left) + ".")
    if not planned:
        raise ValueError(
            f"`{caller}` found no attention layer to change in the model "
            f"{model.name!r}. " + " ".join(reasons or ["It has none of a known kind."])
        )
    if reasons:
        warnings.warn(" ".join(reasons), UserWarning, stacklevel=frames_outside())
    warn_about_equal_paths(model)
    before = _report(model)
    for projection, new in planned:
        projection.write(new)
    return before.compare(_report(model)), [projection for projection, _ in planned]


def refuse_corrected(attention):
    """Raises UnreadableError if a layer of ours corrects its projections itself."""
    if isinstance(attention.query.dense, CorrectedEinsumDense):
        raise UnreadableError("it corrects its own projections already")


def refuse_twice(projection):
    """Raises ValueError if a correction has been added into a projection before."""
    if projection.dense in CORRECTED:
        raise ValueError(
            f"The projection {projection.dense.path!r} has been corrected before. "
            "Received: a second correction, which would be added to the first. "
            "`initialize` it with another scheme first; or, if you have put other "
            "weights into it since, save and load the model."
        )


def warn_about_equal_paths(model):
    """Warns where Keras on PyTorch would lose gradients of a model.

    There it keys parameters by their path, and of several with one path `zero_grad`
    resets the last alone: the gradients of the others add up from step to step.
    """
    if not on_torch():
        return
    paths = [variable.path for variable in model.trainable_variables]
    equal = sorted({path for path in paths if paths.count(path) > 1})
    if equal:
        warnings.warn(
            f"{len(equal)} paths belong to several weights of the model "
            f"{model.name!r}, the first {equal[0]!r}. On PyTorch, Keras keeps one "
            "parameter for each path, and the gradients of the others add up from "
            "step to step. Give the layers unique names.",
            UserWarning,
            stacklevel=frames_outside(),
        )


def _frozen(attention, include_frozen):
    """Ids of the kernels that are not to be written; LoRA freezes its own."""
    if include_frozen:
        return set()
    projections = [getattr(attention, role) for role in ROLES]
    return {
        id(projection.variable)
        for projection in projections
        if projection is not None
        and not projection.variable.trainable
        and not getattr(projection.dense, "lora_enabled", False)
    }


def _report(model):
    with warnings.catch_warnings():  # said before
        warnings.simplefilter("ignore", UserWarning)
        return inspect(model)
