"""Text from a GPT, one token at a time, without reading earlier tokens again."""

import numpy as np
from keras import ops

import keras_cond

from .rotary_attention import RotaryAttention, rotate


def generate(model, tokenizer, prompt="", num_tokens=64, temperature=0.0, seed=0):
    """Continue a text up to its end or a number of tokens.

    Args:
        model: From `gpt.build_gpt`.
        tokenizer: The model's `tokenizers.Tokenizer`, whose token 0 ends a text.
        prompt: The beginning; it may be empty.
        num_tokens: Largest number of tokens to add, at least 1. The prompt and they
            have to fit into the context of the model.
        temperature: 0 takes the likeliest token each time; a larger number draws it,
            from the logits divided by it.
        seed: Integer; fixes what is drawn.

    Returns:
        The prompt and what follows.

    Raises:
        ValueError: If an argument is not as above.
    """
    # A text begins after the end of another one.
    ids = [0, *tokenizer.encode(prompt).ids]
    added = generate_ids(model, ids, num_tokens, temperature, seed, end=0)
    return prompt + tokenizer.decode(added)


def generate_ids(model, ids, num_tokens, temperature=0.0, seed=0, end=None):
    """Continue a row of tokens.

    Args:
        model: From `gpt.build_gpt`.
        ids: List of integers, at least one.
        num_tokens: Number of tokens to add, at least 1.
        temperature: As in `generate`.
        seed: As in `generate`.
        end: Token at which to stop, which is not returned; `None` never stops.

    Returns:
        List of the added tokens.

    Raises:
        ValueError: If an argument is not as above.
    """
    if num_tokens < 1:
        raise ValueError(f"num_tokens: got {num_tokens}, expected a number from 1.")
    if not 0 <= temperature < float("inf"):
        raise ValueError(
            f"temperature: got {temperature}, expected a finite number from 0."
        )
    rng = np.random.default_rng(seed)
    reader = CachedReader(model, len(ids) + num_tokens)
    added, unread = [], list(ids)
    while len(added) < num_tokens:
        token = choose(reader(unread)[-1], temperature, rng)
        if token == end:
            break
        added.append(token)
        unread = [token]
    return added


def choose(logits, temperature, rng):
    """Choose a token.

    Args:
        logits: NumPy array `(vocabulary size,)`.
        temperature: As in `generate`.
        rng: `numpy.random.Generator`; a temperature of 0 does not use it.

    Returns:
        The token, an int.
    """
    if temperature == 0:
        return int(logits.argmax())
    # The largest of logits with Gumbel noise is a draw from their softmax.
    return int((logits / temperature + rng.gumbel(size=len(logits))).argmax())


def token_tables(embedding):
    """Tables of the lookup and of the head, both `(V, D)` and without gradient.

    Args:
        embedding: `keras_cond.ConditionedReversibleEmbedding`, which computes its table
            once until the weight changes, or `keras.layers.ReversibleEmbedding`.
    """
    raw = ops.stop_gradient(ops.convert_to_tensor(embedding.embeddings))
    if not isinstance(embedding, keras_cond.ConditionedReversibleEmbedding):
        return raw, raw
    conditioned = embedding.conditioned_table()
    return conditioned, raw if embedding.head_table == "raw" else conditioned


class CachedReader:
    """Reads tokens in parts, and keeps the keys and values of those it has read.

    What does not depend on the tokens is computed once: the table that they are looked
    up in, and that of the head. A weight that changes later is not noticed.

    Args:
        model: From `gpt.build_gpt`.
        length: Largest number of tokens it will read.

    Raises:
        ValueError: If the model cannot read so many.
    """

    def __init__(self, model, length):
        self._layers = {layer.name: layer for layer in model.layers}
        self._num_blocks = sum(name.endswith("_mlp_in") for name in self._layers)
        positions = self._layers.get("positions")
        if positions is not None and length > positions.input_dim:
            raise ValueError(
                f"prompt and new tokens: got {length}, expected at most the "
                f"{positions.input_dim} that the model can read. Ask for fewer."
            )
        embedding = self._layers["token_embedding"]
        self._table, self._head = token_tables(embedding)
        self._dtype = embedding.compute_dtype
        self._length = length
        self._num_read = 0
        self._caches = [self._empty_cache(i) for i in range(self._num_blocks)]

    def __call__(self, ids):
        """Read tokens.

        Args:
            ids: List of the next tokens, at least one.

        Returns:
            float32 NumPy array `(len(ids), vocabulary size)`: the logits after each.
        """
        places = np.arange(self._num_read, self._num_read + len(ids))
        x = ops.cast(ops.take(self._table, np.array([ids]), axis=0), self._dtype)
        if "positions" in self._layers:
            x = x + self._layers["positions"](places[None])
        for index in range(self._num_blocks):
            x = self._block(index, x, places)
        self._num_read += len(ids)
        x = ops.cast(self._layers["head_norm"](x), "float32")
        head = ops.cast(self._head, "float32")
        return ops.convert_to_numpy(ops.matmul(x, ops.transpose(head)))[0]

    def _block(self, index, x, places):
        def layer(name):
            return self._layers[f"block_{index}_{name}"]

        x = x + self._attend(index, layer("attention_norm")(x), places)
        return x + layer("mlp_out")(layer("mlp_in")(layer("mlp_norm")(x)))

    def _attend(self, index, x, places):
        attention = self._layers[f"block_{index}_attention"]
        query, key = attention.query_dense(x), attention.key_dense(x)
        if isinstance(attention, RotaryAttention):
            query, key = (rotate(part, self._num_read) for part in (query, key))
        new = key, attention.value_dense(x)
        start = (0, self._num_read, 0, 0)
        # Nothing is learned here, so no step keeps what its gradient would need.
        self._caches[index] = keys, values = [
            ops.slice_update(cache, start, ops.stop_gradient(part))
            for cache, part in zip(self._caches[index], new, strict=True)
        ]
        seen = np.arange(self._length) <= places[:, None]  # (new tokens, length)
        y = ops.dot_product_attention(
            query,
            keys,
            values,
            mask=ops.convert_to_tensor(seen[None, None]),
            scale=attention.key_dim**-0.5,
        )
        return attention.output_dense(y)

    def _empty_cache(self, index):
        attention = self._layers[f"block_{index}_attention"]
        shape = (1, self._length, attention.num_heads, attention.key_dim)
        return [ops.zeros(shape, attention.compute_dtype) for _ in range(2)]
