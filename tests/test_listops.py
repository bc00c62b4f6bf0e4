"""ListOps: every expression is well formed, new, and worth what its label says."""

import itertools
import statistics

import numpy as np
import pytest
from common.listops import OPERATORS, SIZES, TOKENS, decode, generate_listops


def parse(words):
    """Take an expression from the front of a list of words, as nested lists."""
    word = words.pop(0)
    if not word.startswith("["):
        return int(word)
    arguments = []
    while words[0] != "]":
        arguments.append(parse(words))
    words.pop(0)
    return [word[1:], *arguments]


def evaluate(tree):
    if isinstance(tree, int):
        return tree
    operator, *arguments = tree
    values = [evaluate(argument) for argument in arguments]
    return {
        "MIN": min(values),
        "MAX": max(values),
        "MED": int(statistics.median(values)),
        "SM": sum(values) % 10,
    }[operator]


def depth(tree):
    return 1 if isinstance(tree, int) else 1 + max(map(depth, tree[1:]))


def operations(tree):
    """All operators with their arguments, the outermost first."""
    if not isinstance(tree, int):
        yield tree
        for argument in tree[1:]:
            yield from operations(argument)


def parse_rows(expressions):
    """The trees of all rows, each of which is one expression and then zeros."""
    trees = []
    for row in expressions.tokens:
        words = decode(row).split(" ")
        assert np.all(row[len(words) :] == 0) and np.all(row[: len(words)] > 0)
        trees.append(parse(words))
        assert not words
    return trees


@pytest.mark.parametrize(
    "min_length, max_length, max_depth, max_args",
    [(500, 2000, 10, 10), (20, 60, 4, 3), (10, 100, 10, 10)],
)
def test_labels_are_the_values_of_expressions_within_the_bounds(
    min_length, max_length, max_depth, max_args
):
    sizes = {"validation": 40, "train": 300}
    splits = generate_listops(sizes, min_length, max_length, max_depth, max_args)
    assert list(splits) == list(sizes)
    seen, operators, depths, counts = set(), [], set(), set()
    for name, expressions in splits.items():
        tokens, labels = expressions.tokens, expressions.labels
        assert tokens.shape == (sizes[name], max_length) and tokens.dtype == "uint8"
        assert labels.shape == (sizes[name],) and labels.dtype == "int32"
        lengths = (tokens > 0).sum(axis=-1)
        assert min_length < lengths.min() and lengths.max() < max_length
        trees = parse_rows(expressions)
        np.testing.assert_array_equal(labels, [evaluate(tree) for tree in trees])
        seen |= {decode(row) for row in tokens}
        depths |= {depth(tree) for tree in trees}
        for operation in itertools.chain(*map(operations, trees)):
            operators.append(operation[0])
            counts.add(len(operation) - 1)
    assert len(seen) == sum(sizes.values())
    assert max(depths) == max_depth
    assert counts == set(range(2, max_args + 1))
    for operator in OPERATORS:
        assert operators.count(operator[1:]) / len(operators) == pytest.approx(
            0.25, abs=0.05
        )


def test_a_short_task_is_drawn_to_the_last_expression():
    every = {
        f"[{operator} {a} {b} ]"
        for operator in ("MIN", "MAX", "MED", "SM")
        for a in range(10)
        for b in range(10)
    }
    drawn = generate_listops({"all": 400}, 3, 5, max_depth=2, max_args=2)["all"]
    assert {decode(row) for row in drawn.tokens} == every
    with pytest.raises(ValueError, match=r"got 401 expressions .*, found 400 of more"):
        generate_listops({"all": 401}, 3, 5, max_depth=2, max_args=2)


def test_choices_are_as_likely_as_published():
    # Each expression has an operator; those that are drawn twice are few.
    trees = parse_rows(generate_listops({"all": 3000}, 1, 200, max_depth=3)["all"])
    counts = np.bincount([len(tree) - 1 for tree in trees], minlength=11)
    np.testing.assert_allclose(counts[2:] / len(trees), 1 / 9, atol=0.025)
    arguments = [argument for tree in trees for argument in tree[1:]]
    digits = [argument for argument in arguments if isinstance(argument, int)]
    assert len(digits) / len(arguments) == pytest.approx(0.75, abs=0.02)
    np.testing.assert_allclose(np.bincount(digits) / len(digits), 0.1, atol=0.01)


def test_expressions_follow_the_seed_and_the_splits_before():
    def draw(seed=0, **sizes):
        return generate_listops(sizes, 10, 40, seed=seed)

    first = draw(validation=20, train=30)
    again, longer = draw(validation=20, train=30), draw(validation=20, train=50)
    for name, size in (("validation", 20), ("train", 30)):
        for other in (again, longer):
            np.testing.assert_array_equal(first[name].tokens, other[name].tokens[:size])
            np.testing.assert_array_equal(first[name].labels, other[name].labels[:size])
    other = draw(seed=1, validation=20)["validation"].tokens
    assert not np.array_equal(first["validation"].tokens, other)


def test_tokens_and_sizes_are_those_of_the_benchmark():
    assert len(set(TOKENS)) == 16 and decode([0, 2, 15, 6, 5, 0]) == "[MAX 9 0 ]"
    assert SIZES == {"validation": 2000, "test": 2000, "train": 96_000}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"sizes": {}}, "sizes: got {}, expected at least 1"),
        ({"sizes": {"train": 0}}, "sizes: got .*expected at least 1 for each split"),
        ({"min_length": 9, "max_length": 10}, "got min_length 9, max_length 10"),
        ({"min_length": -1}, "got min_length -1"),
        ({"max_args": 1}, "max_args 1, expected .* at least 2 arguments"),
        ({"max_depth": 0}, "max_depth 0 .*expected .* depth of at least 1"),
        ({"max_depth": 1, "sizes": {"a": 5}}, "found 0 of more than 500 and fewer"),
    ],
)
def test_impossible_tasks_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate_listops(**arguments)
