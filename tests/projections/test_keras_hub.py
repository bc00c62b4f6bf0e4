"""KerasHub's layers, on tiny backbones with random weights."""

import math
import warnings

import numpy as np
import pytest
from keras import ops

from keras_cond.projections import find_attention
from tests.autodiff import to_numpy
from tests.projections import laws

keras_hub = pytest.importorskip("keras_hub")

# Two layers show the order. Few distinct shapes: JAX compiles each initializer anew.
BASE = {"vocabulary_size": 50, "hidden_dim": 8, "intermediate_dim": 16, "num_layers": 2}
TEXT = {**BASE, "num_heads": 2}
SHORT = {**TEXT, "max_sequence_length": 8}
GROUPED = {**BASE, "num_query_heads": 4, "num_key_value_heads": 2}
BACKBONES = {
    "ViT": {
        "image_shape": (8, 8, 3),
        "patch_size": (4, 4),
        "num_layers": 2,
        "num_heads": 2,
        "hidden_dim": 8,
        "mlp_dim": 16,
    },
    "Bert": SHORT,
    "GPT2": SHORT,
    "Gemma": {**GROUPED, "head_dim": 6},
    "Llama": GROUPED,
    "SwinTransformer": {
        "image_shape": (32, 32, 3),
        "embed_dim": 8,
        "depths": (1, 1),
        "num_heads": (2, 4),
        "window_size": 4,
    },
    "T5": TEXT,
    "GPTNeoX": {**SHORT, "rotary_percentage": 0.0},
    "DebertaV3": SHORT,
    "Falcon": {**BASE, "num_attention_heads": 2},
    "ViTDet": {
        "image_shape": (32, 32, 3),
        "patch_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "hidden_size": 8,
        "intermediate_dim": 16,
        "num_output_channels": 8,
        "window_size": 1,
        "global_attention_layer_indices": [1],
    },
}
# The paths of the attention layers of block 0 and, where told apart, of block 1.
PATHS = {
    "ViT": [
        "vit_encoder/transformer_block_1/mha",
        "vit_encoder/transformer_block_2/mha",
    ],
    "Bert": ["transformer_layer_{}/self_attention_layer"],
    "GPT2": ["transformer_layer_{}/self_attention"],
    "Gemma": ["decoder_block_{}/attention"],
    "Llama": ["transformer_layer_{}/self_attention"],
    "SwinTransformer": ["stage_{}/blocks_0/attn"],
    "T5": [
        "transformer_encoder_layer_0/self_attention",
        "transformer_encoder_layer_1/self_attention",
        "transformer_decoder_layer_0/self_attention",
        "transformer_decoder_layer_0/cross_attention",
        "transformer_decoder_layer_1/self_attention",
        "transformer_decoder_layer_1/cross_attention",
    ],
    "GPTNeoX": ["transformer_layer_{}/self_attention"],
    "DebertaV3": ["disentangled_attention_encoder_layer_{}/self_attention_layer"],
    "Falcon": ["transformer_layer_{}/attention"],
}
# Query heads, key and value heads, d, D.
SIZES = {
    "Gemma": [(4, 2, 6, 8)] * 2,
    "Llama": [(4, 2, 2, 8)] * 2,
    "SwinTransformer": [(2, 2, 4, 8), (4, 4, 4, 16)],
    "T5": [(2, 2, 4, 8)] * 6,
}
FUSED = ("SwinTransformer", "GPTNeoX", "ViTDet")
# A layer without bias of positions: its index, the shape of its tokens, its scale if
# that is not 1 / √d.
BY_HAND = {
    "SwinTransformer": (0, (16,), None),
    "T5": (1, (5,), 1.0),
    "GPTNeoX": (0, (5,), None),
    "ViTDet": (1, (2, 2), None),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_every_attention_layer_is_found_and_acts_as_read(name):
    # One test, because JAX takes seconds to make a backbone.
    model = getattr(keras_hub.models, f"{name}Backbone")(**BACKBONES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = find_attention(model)
    assert_found(name, found)
    for attention in found:
        laws.randomize(attention)
        if name in FUSED:
            assert_parts_are_written_alone(attention)
        else:
            laws.assert_each_computes_the_product(attention)
    if name in BY_HAND:
        index, shape, scale = BY_HAND[name]
        assert_attention_by_hand(found[index], shape, scale)


def assert_found(name, found):
    sizes = [
        (a.num_heads, a.num_key_value_heads, a.head_dim, a.model_dim) for a in found
    ]
    assert sizes == SIZES.get(name, [(2, 2, 4, 8)] * 2)
    assert all(attention.output is not None for attention in found)
    if name in PATHS:  # the names in ViTDet count the layers of the process
        paths = PATHS[name]
        if len(paths) == 1:
            paths = [paths[0].format(block) for block in range(2)]
        assert [attention.path for attention in found] == paths


def assert_parts_are_written_alone(attention):
    parts = laws.projections(attention)
    for part in parts[:3]:
        before = [other.read() for other in parts]
        part.write(2 * part.read())
        for other, matrices in zip(parts, before, strict=True):
            factor = 2 if other is part else 1
            np.testing.assert_array_equal(other.read(), factor * matrices)
    assert attention.query.variable is attention.value.variable
    laws.randomize(attention)


def assert_attention_by_hand(attention, shape, scale):
    for weight in attention.layer.weights:
        if weight.name == "relative_position_bias_table":
            weight.assign(np.zeros(weight.shape))
    width, length = attention.model_dim, math.prod(shape)
    x = laws.tokens(width, (2, length))
    arguments = {}
    if type(attention.layer).__name__ == "GPTNeoXAttention":
        # On TensorFlow it fails without a mask.
        arguments["attention_mask"] = np.ones((2, length, length), bool)
    inputs = ops.convert_to_tensor(x.reshape(2, *shape, width))
    outputs = attention.layer(inputs, **arguments)
    if isinstance(outputs, tuple):  # with a cache or a bias
        outputs = outputs[0]
    expected = laws.by_hand(attention, x, scale=scale)
    got = to_numpy(outputs).reshape(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_quantized_fused_kernel_is_named():
    model = keras_hub.models.GPTNeoXBackbone(**{**SHORT, "num_layers": 1})
    (attention,) = find_attention(model)
    attention.query.dense.quantize("int8")
    with pytest.warns(UserWarning, match="`_qkv_dense` is quantized to int8"):
        assert find_attention(model) == []


def test_layers_that_mix_tokens_otherwise_are_named():
    layer = keras_hub.layers.FNetEncoder(16, name="mixer")
    layer.build((None, 5, 8))
    with pytest.warns(UserWarning, match=r"'mixer' \(FNetEncoder: .* Fourier"):
        assert find_attention(layer) == []
