"""Metrics of hierarchies follow their definitions, a row and a level at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from manyclass.metrics import level_accuracy, roll_up


@st.composite
def hierarchies(draw):
    """Parents in any numbering."""
    n = draw(st.integers(1, 12))
    up = [draw(st.integers(-1, node - 1)) for node in range(n)]
    name = draw(st.permutations(range(n)))
    parents = [-1] * n
    for node, parent in enumerate(up):
        parents[name[node]] = -1 if parent < 0 else name[parent]
    return parents


def path(node, parents):
    """From the root to the node."""
    found = [node]
    while parents[found[0]] >= 0:
        found.insert(0, parents[found[0]])
    return found


def ancestor(node, parents, level):
    line = path(node, parents)
    return line[min(level, len(line) - 1)]


@settings(max_examples=100, deadline=None)
@given(parents=hierarchies(), data=st.data())
def test_hierarchies_follow_the_definitions(parents, data):
    m, n = len(parents), data.draw(st.integers(1, 6))
    node = st.integers(0, m - 1)
    truth, guess = (data.draw(st.lists(node, min_size=n, max_size=n)) for _ in range(2))
    weights = np.arange(1.0, n + 1)
    levels = max(len(path(one, parents)) for one in range(m))
    expected = [
        np.average([ancestor(a, parents, v) == ancestor(b, parents, v) for a, b in zip(truth, guess)], weights=weights)
        for v in range(levels)
    ]
    np.testing.assert_allclose(level_accuracy(truth, guess, parents, sample_weight=weights), expected)

    k, level = data.draw(st.integers(1, m)), data.draw(st.integers(0, 4))
    nodes = np.array([data.draw(st.permutations(range(m)))[:k] for _ in range(n)])
    chances = np.array([[data.draw(st.integers(0, 8)) / 8 for _ in range(k)] for _ in range(n)])  # exact sums
    ancestors, sums = roll_up(nodes, chances, parents, level)
    for i in range(n):
        total = {}
        for one, p in zip(nodes[i].tolist(), chances[i]):
            top = ancestor(one, parents, level)
            total[top] = total.get(top, 0.0) + p
        ranked = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))
        assert ancestors[i].tolist() == [top for top, _ in ranked] + [-1] * (k - len(ranked))
        assert sums[i].tolist() == [p for _, p in ranked] + [0.0] * (k - len(ranked))


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([-1, 2, 1], "cycle: node 1"),
        ([0], "cycle"),
        ([-1, 2], "2 for node 1"),
        ([-2], "-2 for node 0"),
        ([], "shape"),
        ([-1.0], "float64"),
    ],
)
def test_hierarchies_that_are_none_are_refused(parents, message):
    with pytest.raises(ValueError, match=message):
        level_accuracy([0], [0], parents)


def test_nodes_that_are_none_are_refused():
    with pytest.raises(ValueError, match="y_pred has nodes from 2 to 2, expected 0 to 1"):
        level_accuracy([0], [2], [-1, 0])
    with pytest.raises(ValueError, match="positions among the nodes"):
        level_accuracy(["a"], ["a"], [-1])
    with pytest.raises(ValueError, match="level must be"):
        roll_up([[0]], [[1.0]], [-1], -1)
    with pytest.raises(ValueError, match="not scores"):
        roll_up([[0]], [[-1.0]], [-1])
    with pytest.raises(ValueError, match="one shape"):
        roll_up([[0]], [[1.0, 0.0]], [-1])
