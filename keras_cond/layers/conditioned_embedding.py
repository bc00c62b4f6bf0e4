"""Embedding that returns conditioned tokens."""

import keras
import numpy as np
from keras import ops

from keras_cond.backends import exportable, known_values
from keras_cond.ops import condition as condition_tokens
from keras_cond.ops.validation import boolean, check_floor, check_method, token_mask

TARGETS = ("sequence", "table")


@keras.saving.register_keras_serializable(package="keras_cond")
class ConditionedEmbedding(keras.layers.Embedding):
    """`keras.layers.Embedding` whose result is conditioned: X + σ_max(X) · polar(X).

    - `condition="sequence"` (the paper's): X holds the tokens of one sequence, N × D.
      κ of each sequence is at most 2, but each token depends on all the others: for
      encoders only.
    - `condition="table"`: X is the table, V × D, and its rows are looked up. A token
      depends on its own id alone, so nothing leaks from the future: for causal models.

    The weight is the raw table in either case. Conditioning a table costs some ten
    products of D × D by D × V a training step, whatever the batch and the length of its
    sequences, and nothing after `keras_cond.fold`.

    Args:
        input_dim: int, size V of the vocabulary.
        output_dim: int, number D of channels.
        condition: `"sequence"` (default) or `"table"`.
        method: `"newton_schulz"` (default, matrix products) or `"svd"`.
        floor: float in (0, 1), a fraction of σ_max below which a direction is not
            lifted in full; 1e-3 is what float32 carries.
        stop_gradient: bool. If True, the correction counts as constant in the backward
            pass. The default is the exact gradient; the paper does not say.
        **kwargs: The further arguments of `keras.layers.Embedding`, among them
            `mask_zero`.

    Call arguments:
        inputs: Integer tensor of shape (batch, ..., tokens), 0 ≤ id < V.
        mask: Optional, of the shape of the inputs, true at real tokens. With
            `mask_zero`, tokens of id 0 are masked too. Masked tokens take no part in
            the conditioning of a sequence and get their raw embedding.

    Returns:
        Tensor of shape (batch, ..., tokens, D) in the layer's compute dtype; computed
        in the precision of the table, float32 or wider.

    Raises:
        ValueError: If an argument is not as above; if ids are outside the table (where
            their values are known, which is outside compiled code); if single ids
            rather than sequences are to be conditioned per sequence; or if the table
            target is asked of a layer with a quantized dtype.

    Example:

    >>> layer = keras_cond.ConditionedEmbedding(100, 8, condition="sequence")
    >>> tokens = layer(np.array([[5, 17, 3, 42]]))
    >>> keras_cond.ops.condition_number(tokens)  # at most 2

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, theorem 4.4;
    the table target is not in the paper.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        condition="sequence",
        method="newton_schulz",
        floor=1e-3,
        stop_gradient=False,
        **kwargs,
    ):
        if condition not in TARGETS:
            raise ValueError(
                f"Unknown `condition`. Received: condition={condition!r}. Expected one "
                f"of {TARGETS}: 'sequence' for encoders, 'table' for causal models."
            )
        check_method(method)
        check_floor(floor)
        super().__init__(input_dim, output_dim, **kwargs)
        self.supports_masking = True
        self.condition = condition
        self.method = method
        self.floor = float(floor)
        self.stop_gradient = boolean(stop_gradient, "stop_gradient")
        self._last_tables = None, None  # Raw and conditioned.
        self._check_float_table()

    def call(self, inputs, mask=None):
        inputs = self._checked_ids(inputs)
        real = self.compute_mask(inputs, mask)
        with exportable(self.method, inputs):
            if self.condition == "table":
                outputs = ops.take(self._conditioned(self.embeddings), inputs, axis=0)
            else:
                tokens = ops.take(self.embeddings, inputs, axis=0)
                outputs = self._conditioned(tokens, real)
        return ops.cast(outputs, self.compute_dtype)

    def quantized_call(self, inputs, mask=None):
        self._check_float_table()
        inputs = self._checked_ids(inputs)
        tokens = super().quantized_call(inputs)
        with exportable(self.method, inputs):
            return self._conditioned(tokens, self.compute_mask(inputs, mask))

    def compute_mask(self, inputs, mask=None):
        if mask is not None:
            mask = token_mask(mask, ops.expand_dims(inputs, -1))[..., 0]
        if not self.mask_zero:
            return mask
        nonzero = ops.not_equal(inputs, 0)
        return nonzero if mask is None else ops.logical_and(nonzero, mask)

    def compute_output_spec(self, inputs, mask=None):
        self._check_rank(inputs)
        return super().compute_output_spec(inputs)

    def conditioned_table(self):
        """Returns the table that `condition="table"` looks tokens up in.

        For what reads a finished table, as generation does token by token: it is
        computed once and kept until the weight changes, outside compiled code. It
        carries no gradient.

        Returns:
            Tensor (V, D), in the precision of the table, float32 or wider.

        Example:

        >>> layer = keras_cond.ConditionedEmbedding(100, 8, condition="table")
        >>> layer.build()
        >>> layer.conditioned_table().shape  # (100, 8)
        """
        raw, conditioned = self._last_tables
        # A copy: the array may share its memory with the weight.
        current = np.array(ops.convert_to_numpy(self.embeddings))
        if raw is None or not np.array_equal(raw, current):
            conditioned = ops.stop_gradient(self._conditioned(self.embeddings))
            self._last_tables = current, conditioned
        return conditioned

    def _conditioned(self, x, mask=None):
        return condition_tokens(
            x,
            mask=mask,
            method=self.method,
            floor=self.floor,
            stop_gradient=self.stop_gradient,
        )

    def _check_float_table(self):
        if self.condition == "table" and self.quantization_mode is not None:
            raise ValueError(
                "Conditioning the table needs it in floating point. Received: "
                f"dtype={self.dtype_policy.name!r}. Use a float dtype, or "
                "`condition='sequence'`."
            )

    def _check_rank(self, inputs):
        if self.condition == "sequence" and len(inputs.shape) < 2:
            raise ValueError(
                "`ConditionedEmbedding(condition='sequence')` conditions sequences. "
                f"Received ids of shape {tuple(inputs.shape)}. Expected (batch, ..., "
                "tokens); add the batch axis with `keras.ops.expand_dims(ids, 0)`."
            )

    def _checked_ids(self, inputs):
        self._check_rank(inputs)
        if keras.backend.standardize_dtype(inputs.dtype) not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")
        ids = known_values(inputs)
        if ids is not None and ids.size:
            smallest, largest = int(ids.min()), int(ids.max())
            if smallest < 0 or largest >= self.input_dim:
                raise ValueError(
                    "Token ids must be rows of the table. Received ids from "
                    f"{smallest} to {largest}. Expected 0 <= id < "
                    f"{self.input_dim}; raise `input_dim`, or check the tokenizer."
                )
        return inputs

    def get_config(self):
        return {
            **super().get_config(),
            "condition": self.condition,
            "method": self.method,
            "floor": self.floor,
            "stop_gradient": self.stop_gradient,
        }
