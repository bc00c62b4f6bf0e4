"""What the two spectral attention layers share."""

import keras

from keras_cond.initializers.seeds import for_next_use, with_derived_seed
from keras_cond.layers.corrected_einsum_dense import CORRECTIONS, CorrectedEinsumDense
from keras_cond.layers.corrected_together import (
    can_be_corrected_together,
    corrected_together,
)
from keras_cond.ops.validation import boolean, finite_number

# The order is the index that derives a seed, so it must not change.
ROLES = ("query", "key", "value", "gate", "output")


def correction_factor(value):
    """Returns λ as a float; raises ValueError unless it is finite and not negative."""
    value = finite_number(value, "correction_scale")
    if value < 0:
        raise ValueError(
            "`correction_scale` is the factor λ of the identity. Received: "
            f"correction_scale={value}. Expected 0 (no correction) or more."
        )
    return value


class SpectralCorrection:
    """Mixin for a Keras attention layer: corrected projections, an initializer a role.

    It relies on three facts about the layer it is mixed into, which hold for
    `MultiHeadAttention` and `GroupQueryAttention` and are tested: the projections are
    the attributes `_query_dense`, `_key_dense`, `_gate_dense`, `_value_dense` and
    `_output_dense`; each is created with the arguments that
    `_get_common_kwargs_for_sublayer` returns just before; and `_kernel_initializer` or
    `kernel_initializer` is the shared initializer.
    """

    def _set_correction(self, correction, correction_scale, per_head, initializers):
        """Checks and stores the arguments that the layer adds to its parent's.

        Args:
            correction: `"identity"` or `"polar"`.
            correction_scale: float, λ.
            per_head: bool.
            initializers: dict of role → initializer or None.
        """
        if correction not in CORRECTIONS:
            raise ValueError(
                "Unknown `correction`. Received: "
                f"correction={correction!r}. Expected one of {CORRECTIONS}; for none, "
                "pass `correction_scale=0`."
            )
        self.correction = correction
        self._correction_scale = correction_factor(correction_scale)
        self.per_head = boolean(per_head, "per_head")
        self._role_initializers = {
            role: initializer and for_next_use(keras.initializers.get(initializer))
            for role, initializer in initializers.items()
        }

    @property
    def correction_scale(self):
        """Factor λ of the identity, a float ≥ 0; 0 switches either correction off.

        Assigning it changes what the layer computes from then on. Functions that were
        compiled before keep the old value: compile the model again, or let
        `keras_cond.callbacks.ConditioningSchedule` do both.
        """
        return self._correction_scale

    @correction_scale.setter
    def correction_scale(self, value):
        self._correction_scale = correction_factor(value)
        if self.built:
            self._correct_projections()

    def _correct_projections(self):
        for dense in self._projections():
            if self._correction_scale:
                CorrectedEinsumDense.correct(
                    dense, self.correction, self._correction_scale, self.per_head
                )
            elif isinstance(dense, CorrectedEinsumDense):
                dense.uncorrect()

    def _projections(self):
        return [self._query_dense, self._key_dense, self._value_dense]

    def __call__(self, *args, **kwargs):
        if self._correct_together():
            with corrected_together(self._projections()):
                return super().__call__(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _correct_together(self):
        return (
            self.built
            and self.correction == "polar"
            and self._correction_scale > 0
            and can_be_corrected_together([self, *self._projections()])
        )

    def _get_common_kwargs_for_sublayer(self):
        kwargs = super()._get_common_kwargs_for_sublayer()
        built = [role for role in ROLES if hasattr(self, f"_{role}_dense")]
        order = ["query", "key", "value", "output"]
        if getattr(self, "_use_gate", False) or getattr(self, "use_gate", False):
            order.insert(2, "gate")
        if len(built) == len(order):  # Built before: the parent refuses that.
            return kwargs
        role = order[len(built)]
        initializer = self._role_initializers.get(role)
        if initializer is None:
            initializer = kwargs["kernel_initializer"]
        kwargs["kernel_initializer"] = with_derived_seed(initializer, ROLES.index(role))
        return kwargs

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self._correct_projections()

    def get_config(self):
        config = super().get_config()
        for role, initializer in self._role_initializers.items():
            config[f"{role}_initializer"] = (
                initializer and keras.initializers.serialize(initializer)
            )
        return {
            **config,
            "correction": self.correction,
            "correction_scale": self.correction_scale,
            "per_head": self.per_head,
        }
