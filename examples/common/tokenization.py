"""Byte-level tokenizers: any text in, the same text back."""

from .text_files import END_OF_TEXT

NUM_BYTES = 256
# One token for each byte, and the end of a text.
NUM_BYTE_TOKENS = NUM_BYTES + 1
TOKENIZERS = ("bpe", "bytes")
PADDING, MASK = "[PAD]", "[MASK]"
# The special tokens of a model of masked tokens; padding is id 0.
MASKED_MODEL_TOKENS = (PADDING, END_OF_TEXT, MASK)


def train_tokenizer(texts, vocabulary_size, special_tokens=(END_OF_TEXT,)):
    """Learn byte pairs (GPT-2's tokenizer) from training texts.

    Args:
        texts: Iterable of strings, none of them from the validation split.
        vocabulary_size: Largest number of tokens, at least the special ones and
            `NUM_BYTES`, which are then all: plain bytes.
        special_tokens: Tokens that no text holds; they get the first ids. A text that
            spells one is encoded letter by letter.

    Returns:
        A `tokenizers.Tokenizer`.

    Raises:
        ValueError: If the vocabulary does not hold the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    num_byte_tokens = NUM_BYTES + len(special_tokens)
    if vocabulary_size < num_byte_tokens:
        raise ValueError(
            f"vocabulary size: got {vocabulary_size}, expected at least "
            f"{num_byte_tokens}: the bytes and {', '.join(special_tokens)}. Raise it."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Plain bytes need no text, only their alphabet.
    plain_bytes = vocabulary_size == num_byte_tokens
    tokenizer.train_from_iterator(() if plain_bytes else texts, trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer
