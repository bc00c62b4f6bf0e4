"""ListOps, the task of nested lists of the Long Range Arena, generated as published.

An expression is a digit or an operator with its arguments, which are expressions:
`[MAX 2 9 [MIN 4 7 ] 0 ]` is 9. The operators are the minimum, the maximum, the median
(halves rounded down) and the sum modulo 10 (Nangia & Bowman, 2018, arXiv:1804.06028).
A model reads the tokens and says which of the ten digits the expression is.

The lengths are those of the Long Range Arena (Tay et al., 2020, arXiv:2011.04006),
whose generator is followed: a node is a digit with probability 3/4 or at the greatest
depth, else an operator of 2 to 10 arguments, all choices uniform; a tree is taken if
its length is between the bounds and it is new. Here the trees of a batch grow together,
a depth at a time, so that NumPy handles all their nodes of one depth at once.
"""

import dataclasses
import itertools

import numpy as np

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
# Token 0 fills up a row.
TOKENS = ("", *OPERATORS, "]", *"0123456789")
# As the Long Range Arena.
SIZES = {"validation": 2_000, "test": 2_000, "train": 96_000}

_CLOSE = TOKENS.index("]")
_ZERO = TOKENS.index("0")
_OPERATOR_SHARE = 0.25
_TREES_AT_ONCE = 10_000
_MOST_BARREN_BATCHES = 10


@dataclasses.dataclass(frozen=True)
class Expressions:
    """Expressions and their values.

    Attributes:
        tokens: uint8 array `(n, max_length)` of indices into `TOKENS`, each row filled
            up with 0.
        labels: int32 array `(n,)`: the values, 0 to 9.
    """

    tokens: np.ndarray
    labels: np.ndarray


def generate_listops(
    sizes=None, min_length=500, max_length=2000, max_depth=10, max_args=10, seed=0
):
    """Generate expressions, no two of them equal.

    Args:
        sizes: Split -> number of expressions, drawn in this order; the splits before
            one do not depend on its size. `None` is `SIZES`.
        min_length: Expressions have more tokens than this.
        max_length: Expressions have fewer tokens than this. Lower both for a shorter
            task.
        max_depth: Depth at which there are only digits; the outermost expression is
            at depth 1.
        max_args: Largest number of arguments, at least 2.
        seed: Integer; fixes the expressions.

    Returns:
        Split -> `Expressions`.

    Raises:
        ValueError: If a size or the bounds leave nothing, or there are fewer different
            expressions than asked for.
    """
    sizes = SIZES if sizes is None else sizes
    if not sizes or min(sizes.values()) < 1:
        raise ValueError(f"sizes: got {sizes}, expected at least 1 for each split.")
    if not 0 <= min_length < max_length - 1 or max_args < 2 or max_depth < 1:
        raise ValueError(
            f"got min_length {min_length}, max_length {max_length}, max_depth "
            f"{max_depth} and max_args {max_args}, expected lengths between the first "
            "two, a depth of at least 1 and at least 2 arguments. Move them apart."
        )
    rng = np.random.default_rng(seed)
    number = sum(sizes.values())
    values_of, barren = {}, 0
    while len(values_of) < number:
        before = len(values_of)
        levels = _grow(rng, _TREES_AT_ONCE, max_depth, max_args)
        tokens, values = _write(levels, min_length, max_length)
        rows = (row.tobytes().rstrip(b"\0") for row in tokens)
        for row, value in zip(rows, values.tolist(), strict=True):
            values_of.setdefault(row, value)
        barren = barren + 1 if len(values_of) == before else 0
        if barren == _MOST_BARREN_BATCHES:
            raise ValueError(
                f"sizes: got {number} expressions to generate, found {before} of more "
                f"than {min_length} and fewer than {max_length} tokens. Ask for fewer, "
                "or move the lengths apart."
            )
    drawn = iter(values_of.items())
    return {name: _take(drawn, size, max_length) for name, size in sizes.items()}


def decode(tokens):
    """Return a row of tokens as text, like `"[MAX 2 9 ]"`."""
    return " ".join(TOKENS[token] for token in tokens if token)


@dataclasses.dataclass
class _Level:
    """The nodes of one depth, tree by tree and from left to right.

    Attributes:
        operators: 0 to 3, or -1 for a digit.
        values: Digits, 0 to 9; those of operators are set from their arguments.
        num_args: Number of arguments, 0 for a digit.
        lengths: Number of tokens.
    """

    operators: np.ndarray
    values: np.ndarray
    num_args: np.ndarray
    lengths: np.ndarray


def _grow(rng, num_trees, max_depth, max_args):
    """Draw trees and evaluate them. Returns their levels, the roots first."""
    levels, num_nodes = [], num_trees
    for depth in range(1, max_depth + 1):
        is_operator = rng.random(num_nodes) < _OPERATOR_SHARE * (depth < max_depth)
        num_args = is_operator * rng.integers(2, max_args + 1, num_nodes)
        operators = np.where(
            is_operator, rng.integers(len(OPERATORS), size=num_nodes), -1
        )
        digits = rng.integers(10, size=num_nodes)
        levels.append(_Level(operators, digits, num_args, np.ones(num_nodes, int)))
        num_nodes = num_args.sum()
        if not num_nodes:
            break
    for level, arguments in zip(levels[-2::-1], levels[:0:-1], strict=True):
        _evaluate(level, arguments)
    return levels


def _evaluate(level, arguments):
    """Set the values and lengths of operators from those of their arguments."""
    is_operator = level.num_args > 0
    counts = level.num_args[is_operator]
    starts = np.cumsum(counts) - counts
    values = arguments.values
    # Sorted within each operator's arguments.
    ranked = values[np.lexsort((values, np.repeat(np.arange(len(counts)), counts)))]
    medians = (ranked[starts + (counts - 1) // 2] + ranked[starts + counts // 2]) // 2
    results = [
        ranked[starts],
        ranked[starts + counts - 1],
        medians,
        np.add.reduceat(values, starts) % 10,
    ]
    level.values[is_operator] = np.choose(level.operators[is_operator], results)
    level.lengths[is_operator] = 2 + np.add.reduceat(arguments.lengths, starts)


def _write(levels, min_length, max_length):
    """The tokens and values of the trees whose length is between the bounds."""
    roots = levels[0]
    taken = (roots.lengths > min_length) & (roots.lengths < max_length)
    tokens = np.zeros((taken.sum(), max_length), "uint8")
    # The row of a node, -1 if its tree is not taken, and its place in the row.
    rows = np.where(taken, np.cumsum(taken) - 1, -1)
    places = np.zeros(len(rows), int)
    for level, arguments in zip(levels, [*levels[1:], None], strict=True):
        kept, is_operator = rows >= 0, level.operators >= 0
        first = np.where(is_operator, 1 + level.operators, _ZERO + level.values)
        tokens[rows[kept], places[kept]] = first[kept]
        closed = kept & is_operator
        tokens[rows[closed], (places + level.lengths - 1)[closed]] = _CLOSE
        if arguments is not None:
            counts = level.num_args
            rows = np.repeat(rows, counts)
            # An argument stands behind its operator and the arguments before it.
            ends = np.cumsum(arguments.lengths)
            before = np.concatenate([[0], ends])[np.cumsum(counts) - counts]
            starts = ends - arguments.lengths
            places = np.repeat(places + 1 - before, counts) + starts
    return tokens, roots.values[taken]


def _take(drawn, size, max_length):
    """The next expressions, as arrays."""
    tokens = np.zeros((size, max_length), "uint8")
    labels = np.zeros(size, "int32")
    for place, (row, value) in enumerate(itertools.islice(drawn, size)):
        tokens[place, : len(row)] = np.frombuffer(row, "uint8")
        labels[place] = value
    return Expressions(tokens, labels)
