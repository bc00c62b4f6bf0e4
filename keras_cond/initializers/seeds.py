"""Seeds of initializers, and new ones derived from them."""

import random
import weakref
from numbers import Integral

import keras
import numpy as np


def seed_or_none(seed):
    """Returns `seed`, restored if it comes from a configuration.

    Raises:
        ValueError: If `seed` is not None, an int or a `keras.random.SeedGenerator`.
    """
    if isinstance(seed, dict):
        seed = keras.saving.deserialize_keras_object(seed)
    if isinstance(seed, Integral) and not isinstance(seed, bool):
        return int(seed)
    if not isinstance(seed, (keras.random.SeedGenerator, type(None))):
        raise ValueError(
            "`seed` must be an integer, a `keras.random.SeedGenerator` or None. "
            f"Received: seed={seed!r}."
        )
    return seed


def draw_seed(seed):
    """Returns a seed to draw with: `seed`, or a random int in place of None.

    The int comes from Python's generator, which `keras.utils.set_random_seed` sets.
    """
    return random.randint(1, 10**9) if seed is None else seed


def with_derived_seed(initializer, index):
    """Returns a copy of an initializer whose seed depends on `index` as well.

    Args:
        initializer: A Keras initializer. If its configuration has no seed, or None, the
            copy differs from it by itself or has nothing to differ in.
        index: int; 0 keeps the seed.

    Returns:
        A new initializer of the same class.
    """
    config = initializer.get_config()
    seed = config.get("seed")
    if isinstance(seed, dict):
        seed = seed["config"]["seed"]
    if index and seed is not None:
        sign = [1] if seed < 0 else []
        sequence = np.random.SeedSequence([abs(seed), index, *sign])
        config["seed"] = int(sequence.generate_state(1)[0] // 2)
    return type(initializer).from_config(config)


_USES = weakref.WeakKeyDictionary()


def for_next_use(initializer):
    """Returns a copy of an initializer whose seed no earlier use of it had.

    The first use keeps the seed; the n-th derives one from it and n. So one seeded
    instance gives every block of a model other values, and the same construction with
    a new instance gives the same model. Initializers that share a `SeedGenerator` count
    as one instance.

    Args:
        initializer: A Keras initializer.
    """
    seed = getattr(initializer, "seed", None)
    source = seed if isinstance(seed, keras.random.SeedGenerator) else initializer
    use = _USES.get(source, 0)
    _USES[source] = use + 1
    # A prime far above the number of roles keeps (use, role) apart after two steps.
    return with_derived_seed(initializer, 7919 * use)
