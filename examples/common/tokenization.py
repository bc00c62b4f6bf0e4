"""Byte-level tokenizers: any text in, the same text back."""

from .text_files import END_OF_TEXT

# One token for each byte, and the end of a text.
NUM_BYTE_TOKENS = 257
TOKENIZERS = ("bpe", "bytes")


def train_tokenizer(texts, vocabulary_size):
    """Learn byte pairs (GPT-2's tokenizer) from training texts.

    Args:
        texts: Iterable of strings, none of them from the validation split.
        vocabulary_size: Largest number of tokens, at least `NUM_BYTE_TOKENS`, which
            are then all: plain bytes.

    Returns:
        A `tokenizers.Tokenizer`. Token 0 is `<|endoftext|>`.

    Raises:
        ValueError: If the vocabulary does not hold the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocabulary_size < NUM_BYTE_TOKENS:
        raise ValueError(
            f"vocabulary size: got {vocabulary_size}, expected at least "
            f"{NUM_BYTE_TOKENS}: the bytes and {END_OF_TEXT}. Raise it."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Plain bytes need no text, only their alphabet.
    plain_bytes = vocabulary_size == NUM_BYTE_TOKENS
    tokenizer.train_from_iterator(() if plain_bytes else texts, trainer)
    return tokenizer
