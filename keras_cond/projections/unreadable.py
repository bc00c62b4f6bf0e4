"""The reason why a layer is named in a warning instead of being read."""


class UnreadableError(ValueError):
    """A layer whose projections cannot be read without guessing; says why."""
