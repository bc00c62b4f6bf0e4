"""A model with conditioned tokens, made from another one."""

import keras
from keras import ops

from keras_cond.surgery.conditioned_lookup import ConditionedLookup
from keras_cond.surgery.graph import is_graph, layers_of, rebuild
from keras_cond.surgery.reloading import reloaded


@keras.saving.register_keras_serializable(package="keras_cond")
class ConditionedModel(keras.Model):
    """A model on the layers of another, with its tokens conditioned: made by `apply`.

    Its configuration is that of the other model and what was put where, so it loads
    wherever that model does, classes of KerasHub included.

    Args:
        model: The model whose layers are used.
        tokens: A layer to call on the output of the layer `after`, or None for a lookup
            in a conditioned table in place of that embedding.
        after: int, the place of a layer among `layers_of` the model. Names will not
            do: some of KerasHub's count the layers of the process.
        mask: str or None, the name of the input that marks real tokens.
        name: str or None.
    """

    def __init__(self, model, tokens, after, mask=None, name=None):
        target = layer_at(model, after)
        inputs, outputs, lookup = graph_with(model, tokens, target, mask)
        super().__init__(inputs=inputs, outputs=outputs, name=name or model.name)
        self.tokens = tokens
        self.lookup = lookup
        self.after = after
        self.mask = mask
        # In a function, because Keras would track the model itself.
        self._base = lambda: model

    def base_model(self):
        """Returns a new model like the one it was made from, with its weights."""
        return reloaded(self._base())

    def copy_of_tokens(self):
        """Returns a new layer like `tokens`, with its initial weights, or None."""
        if self.tokens is None:
            return None
        return type(self.tokens).from_config(self.tokens.get_config())

    def get_config(self):
        return {
            "model": keras.saving.serialize_keras_object(self._base()),
            "tokens": self.tokens and keras.saving.serialize_keras_object(self.tokens),
            "after": self.after,
            "mask": self.mask,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        def restored(part):
            return part and keras.saving.deserialize_keras_object(
                part, custom_objects=custom_objects
            )

        return cls(
            restored(config["model"]),
            restored(config["tokens"]),
            config["after"],
            config["mask"],
            config["name"],
        )


def layer_at(model, place):
    """Returns the layer at a place among `layers_of` the model."""
    return list(layers_of(model))[place][1]


def graph_with(model, tokens, target, mask):
    """The graph of `model` with its tokens conditioned at the layer `target`.

    Args:
        model: A model that `is_graph`.
        tokens: As in `ConditionedModel`.
        target: The layer object, in the model or in models inside it.
        mask: As in `ConditionedModel`.

    Returns:
        Tuple of inputs, outputs, and the `ConditionedLookup` in place of the target, or
        None.
    """
    lookup = ConditionedLookup(target, name=target.name) if tokens is None else None

    def swap(layer):
        if layer is target and lookup is not None:
            return lookup
        if is_graph(layer) and any(inner is target for _, inner, _ in layers_of(layer)):
            return keras.Model(*graph(layer), name=layer.name)
        return layer

    def after_call(layer, kwargs, output, inputs):
        if layer is not target or kwargs.get("reverse"):
            return output
        if mask not in inputs:
            return tokens(output)
        # The product drops the mask, which the model's own tokens do not carry.
        return ops.multiply(tokens(output, mask=inputs[mask]), 1)

    def graph(part):
        return rebuild(part, swap, None if tokens is None else after_call)

    return *graph(model), lookup
