"""What the two token graying layers share."""

import keras

from keras_cond.layers.token_layer import TokenLayer
from keras_cond.ops.validation import boolean, check_epsilon, check_floor


class TokenGraying(TokenLayer):
    """Base of the grayings: an exponent held in a weight, a floor, a rescaling.

    Args:
        epsilon: float in (0, 1], where the exponent starts.
        rescale: bool.
        floor: float in (0, 1).
        **kwargs: Those of `keras.layers.Layer`.
    """

    def __init__(self, epsilon=0.95, rescale=False, floor=1e-3, **kwargs):
        super().__init__(**kwargs)
        check_epsilon(epsilon)
        check_floor(floor)
        self._initial_epsilon = float(epsilon)
        self.rescale = boolean(rescale, "rescale")
        self.floor = float(floor)

    def build(self, input_shape):
        self.epsilon = self.add_weight(
            name="epsilon",
            shape=(),
            initializer=keras.initializers.Constant(self._initial_epsilon),
            dtype="float64" if self.variable_dtype == "float64" else "float32",
            trainable=False,
            autocast=False,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "epsilon": self._initial_epsilon,
            "rescale": self.rescale,
            "floor": self.floor,
        }
