"""Rankings: metrics at k and ranks follow their definitions, a row and a place at a time."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from sklearn import metrics as reference

from manyclass.metrics import (
    RankDistribution,
    class_counts,
    inverse_propensity,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    rank_distribution,
)

NAN = float("nan")


@st.composite
def indicators(draw):
    """Two 0/1 matrices of one shape, with empty rows and columns."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(2, 6))
    cells = st.lists(st.integers(0, 1), min_size=n * k, max_size=n * k)
    return (np.array(draw(cells)).reshape(n, k), np.array(draw(cells)).reshape(n, k))


# -- rankings ------------------------------------------------------------------------------------------------


@st.composite
def rankings(draw):
    """Sets of true classes, lists of distinct classes, a k, and what each class is worth."""
    n, n_classes = draw(st.integers(1, 8)), draw(st.integers(1, 7))
    truth = [draw(st.sets(st.integers(0, n_classes - 1))) for _ in range(n)]
    width = draw(st.integers(1, n_classes))
    lists = [draw(st.permutations(range(n_classes)))[:width] for _ in range(n)]
    worth = draw(st.lists(st.floats(1.0, 50.0), min_size=n_classes, max_size=n_classes))
    return truth, lists, draw(st.integers(1, width)), worth


def by_definition(truth, lists, k, worth):
    """P@k, nDCG@k, PSP@k and PSnDCG@k, a row and a place at a time."""
    n = len(truth)
    found = dict.fromkeys(["p", "ndcg", "psp", "psndcg"], 0.0)
    best = dict.fromkeys(["psp", "psndcg"], 0.0)
    for labels, ranked in zip(truth, lists):
        attainable = sum(1 / math.log2(j + 2) for j in range(min(k, len(labels))))
        for j, c in enumerate(ranked[:k]):
            if c in labels:
                found["p"] += 1 / k / n
                found["ndcg"] += 1 / math.log2(j + 2) / attainable / n
                found["psp"] += worth[c]
                found["psndcg"] += worth[c] / math.log2(j + 2) / attainable
        for j, value in enumerate(sorted((worth[c] for c in labels), reverse=True)[:k]):
            best["psp"] += value
            best["psndcg"] += value / math.log2(j + 2) / attainable
    for name, value in best.items():
        found[name] = found[name] / value if value else 0.0
    return found


def as_indicator(truth, n_classes):
    dense = np.zeros((len(truth), n_classes), dtype=int)
    for i, labels in enumerate(truth):
        dense[i, list(labels)] = 1
    return dense


def ours_at_k(y_true, lists, k, worth, **classes):
    return {
        "p": precision_at_k(y_true, lists, k, **classes),
        "ndcg": ndcg_at_k(y_true, lists, k, **classes),
        "psp": psp_at_k(y_true, lists, k, worth, **classes),
        "psndcg": psndcg_at_k(y_true, lists, k, worth, **classes),
    }


@settings(max_examples=200, deadline=None)
@given(case=rankings())
def test_rankings_of_sets_follow_the_definitions(case):
    truth, lists, k, worth = case
    expected = pytest.approx(by_definition(*case), rel=1e-12, abs=1e-15)
    dense = as_indicator(truth, len(worth))
    assert ours_at_k(dense, lists, k, worth) == expected
    assert ours_at_k(sparse.csr_matrix(dense), lists, k, worth) == expected
    names = np.array([f"c{7 * c % 11}" for c in range(len(worth))])  # not in the order of the columns
    assert ours_at_k(dense, names[np.array(lists)], k, worth, classes=names) == expected


@settings(max_examples=200, deadline=None)
@given(case=rankings(), data=st.data())
def test_rankings_of_single_labels_follow_the_definitions(case, data):
    _, lists, k, worth = case
    labels = [data.draw(st.integers(0, len(worth) - 1)) for _ in lists]
    expected = by_definition([{label} for label in labels], lists, k, worth)
    assert ours_at_k(labels, lists, k, worth) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    names = np.array([f"c{7 * c % 11}" for c in range(len(worth))])
    text, listed = names[labels], names[np.array(lists)]
    assert psp_at_k(text, listed, k, worth, classes=names) == pytest.approx(expected["psp"], rel=1e-12)
    assert ndcg_at_k(text, listed, k) == pytest.approx(expected["ndcg"], rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(case=rankings())
def test_weights_are_repetitions(case):
    truth, lists, k, worth = case
    dense = as_indicator(truth, len(worth))
    times = np.arange(len(truth)) % 3 + 1
    repeated = np.repeat(dense, times, axis=0), np.repeat(lists, times, axis=0)
    for metric, extra in (
        (precision_at_k, ()),
        (ndcg_at_k, ()),
        (psp_at_k, (worth,)),
        (psndcg_at_k, (worth,)),
    ):
        weighted = metric(dense, lists, k, *extra, sample_weight=times)
        assert weighted == pytest.approx(metric(*repeated, k, *extra), rel=1e-12, abs=1e-15)


@settings(max_examples=100, deadline=None)
@given(pair=indicators(), data=st.data())
def test_ndcg_equals_scikit_learn(pair, data):
    y_true = pair[0]
    n, n_classes = y_true.shape
    order = np.array([data.draw(st.permutations(range(n_classes))) for _ in range(n)])
    scores = np.empty((n, n_classes))
    np.put_along_axis(scores, order, np.arange(n_classes, 0, -1.0)[np.newaxis], axis=1)
    for k in range(1, n_classes + 1):
        assert ndcg_at_k(y_true, order, k) == pytest.approx(reference.ndcg_score(y_true, scores, k=k), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(case=rankings())
def test_ideal_lists_score_one(case):
    truth, _, _, worth = case
    truth = [labels or {0} for labels in truth]
    everything = range(len(worth))
    lists = [sorted(everything, key=lambda c: (c not in labels, -worth[c])) for labels in truth]
    dense = as_indicator(truth, len(worth))
    for k in (1, len(worth)):
        scores = ours_at_k(dense, lists, k, worth)
        assert [scores[name] for name in ("ndcg", "psp", "psndcg")] == pytest.approx([1, 1, 1])


def test_unsorted_and_repeated_entries_of_an_indicator():
    # Row 0 names columns 4, 0, 2 in this order; row 1 column 3 twice.
    indices, indptr, lists = np.array([4, 0, 2, 3, 3]), np.array([0, 3, 5]), [[2, 4, 0], [3, 1, 2]]
    untidy = sparse.csr_matrix((np.ones(5, dtype=bool), indices, indptr), shape=(2, 5))
    assert precision_at_k(untidy, lists, 3) == pytest.approx((1 + 1 / 3) / 2)
    assert class_counts(untidy).tolist() == [1, 0, 1, 1, 1]
    assert untidy.indices.tolist() == [4, 0, 2, 3, 3]
    twice = sparse.csr_matrix((np.ones(5), indices, indptr), shape=(2, 5))
    with pytest.raises(ValueError, match="with the value 2"):
        precision_at_k(twice, lists, 3)


def test_classes_far_apart_and_in_any_order():
    classes = np.array([3, -1, 2, 0]) * 10**17
    labels, worth = classes[[2, 0, 3, 3]], [2.0, 3.0, 4.0, 5.0]
    assert class_counts(labels, classes=classes).tolist() == [1, 0, 1, 2]
    lists = np.array([classes[2], 5, 6 * 10**17, classes[3]])[:, np.newaxis]
    assert psp_at_k(labels, lists, 1, worth, classes=classes) == pytest.approx((4 + 5) / (4 + 2 + 5 + 5))
    with pytest.raises(ValueError, match=f"y has the label {10**17}"):
        class_counts([10**17], classes=classes)


def test_fillers_and_unknown_classes_in_lists_are_misses():
    lists = [[-1, 1], [7, -1]]
    assert precision_at_k([1, 7], lists, 2) == 0.5
    assert precision_at_k([[0, 1], [1, 1]], lists, 2) == 0.25
    assert psp_at_k([[0, 1], [1, 1]], lists, 1, [1.0, 2.0]) == 0.0


def test_inverse_propensity_is_the_formula_of_the_paper():
    counts, n, a, b = [0, 1, 50, 900], 1000, 0.6, 2.6
    c = (math.log(n) - 1) * (b + 1) ** a
    expected = [1 + c * math.exp(-a * math.log(count + b)) for count in counts]
    weights = inverse_propensity(counts, n, A=a, B=b)
    assert weights == pytest.approx(expected, rel=1e-12)
    assert all(rarer > commoner >= 1 for rarer, commoner in pairwise(weights))


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.sampled_from("bca"), min_size=1))
def test_class_counts_count(labels):
    tally = Counter(labels)
    assert class_counts(labels, classes=["c", "a", "b"]).tolist() == [tally["c"], tally["a"], tally["b"]]
    codes = ["abc".index(label) for label in labels]
    counts = class_counts(codes)
    assert counts.tolist() == [codes.count(c) for c in range(max(codes) + 1)]
    dense = as_indicator([{c} for c in codes], 4)
    assert class_counts(dense).tolist() == class_counts(sparse.csc_matrix(dense)).tolist() == dense.sum(0).tolist()


# -- ranks ---------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ranks_from_scores_follow_the_definition(data):
    n, k = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 6))
    cell = st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0, math.inf])
    scores = np.array(data.draw(st.lists(cell, min_size=n * k, max_size=n * k))).reshape(n, k)
    y = np.array(data.draw(st.lists(st.integers(0, k), min_size=n, max_size=n)))  # k itself has no column
    ranks = [sum(scores[i] >= scores[i, c]) if c < k else math.inf for i, c in enumerate(y)]
    result = rank_distribution(y, scores=scores)
    assert result.counts.tolist() == [ranks.count(r) for r in range(1, k + 1)]
    assert result.beyond == ranks.count(math.inf)
    assert result.n == n
    assert result.median == np.sort(ranks)[[(n - 1) // 2, n // 2]].mean()
    assert result.mean_reciprocal_rank == pytest.approx(np.mean([1 / r for r in ranks]))
    assert result.recall.tolist() == [np.mean(np.array(ranks) <= r) for r in range(1, k + 1)]
    assert result.recall_at(k) == result.recall[-1]


def test_ranks_from_scores_are_the_same_in_chunks_of_any_size(monkeypatch):
    rng = np.random.default_rng(0)
    scores, y = rng.integers(0, 9, (57, 13)), rng.integers(0, 13, 57)
    whole = rank_distribution(y, scores=scores)
    parts = [rank_distribution(y[s], scores=scores[s]) for s in (slice(0, 20), slice(20, 21), slice(21, 57))]
    added = sum(parts[1:], parts[0])
    monkeypatch.setattr("manyclass.metrics.ranks._BLOCK", 40)
    blocked = rank_distribution(y, scores=scores)
    assert whole.counts.tolist() == added.counts.tolist() == blocked.counts.tolist()
    assert whole.n == added.n == blocked.n == 57


@pytest.mark.parametrize("dtype", [np.int32, "U2", object])
def test_ranks_from_lists_are_those_from_untied_scores_cut_at_k(dtype):
    rng = np.random.default_rng(1)
    n, n_classes, k = 80, 12, 4
    scores, y = rng.random((n, n_classes)), rng.integers(0, n_classes, n)
    names = np.arange(n_classes).astype("U2").astype(dtype)
    full = rank_distribution(names[y], scores=scores, classes=names)
    cut = rank_distribution(names[y], topk=names[np.argsort(-scores, axis=1)[:, :k]])
    assert cut.counts.tolist() == full.counts[:k].tolist()
    assert cut.beyond == full.counts[k:].sum() > 0
    assert cut.mean_reciprocal_rank < full.mean_reciprocal_rank


def test_equal_scores_give_the_last_rank_and_medians_reach_infinity():
    constant = rank_distribution([0, 1, 2], scores=np.zeros((3, 3)))
    assert constant.counts.tolist() == [0, 0, 3]
    assert rank_distribution([0, 1, 2], topk=[[0], [0], [0]]).median == math.inf
    assert rank_distribution([0, 0], topk=[[0], [1]]).median == math.inf
    assert RankDistribution(np.array([1, 1])).median == 1.5


LISTS = [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: precision_at_k([0, 1], LISTS, 3), "k is 3; expected 1 to 2, the number of columns of topk_classes"),
        (lambda: precision_at_k([0, 1], LISTS, 0), "k is 0"),
        (lambda: precision_at_k([0, 1], LISTS, 1.5), "k is 1.5"),
        (lambda: precision_at_k([0, 1, 2], LISTS, 1), "y_true has 3 rows but topk_classes has 2"),
        (lambda: precision_at_k([0, 1], [0, 1], 1), "topk_classes has shape"),
        (lambda: precision_at_k(["a", "b"], LISTS, 1), "y_true has strings but topk_classes has"),
        (lambda: precision_at_k([0, 1], [[0, 0], [1, 0]], 2), "row 0 twice"),
        (lambda: precision_at_k([[1, 0], [0, 1]], [[0, 1], [1, 1]], 2), "row 1 twice"),
        (lambda: precision_at_k([[1, 0], [0, 1]], [["a"], ["b"]], 1), "pass classes="),
        (lambda: precision_at_k([[1, 0]], [[0]], 1, classes=[0, 0]), "classes has a class more than once"),
        (lambda: psp_at_k([0, 2], LISTS, 1, [1, 2]), "y_true has the label 2"),
        (lambda: psp_at_k([0, 1], LISTS, 1, [1, 0]), "inv_propensity must be"),
        (lambda: psp_at_k([[0, 1], [1, 0]], LISTS, 1, [1]), "inv_propensity has 1 entries"),
        (lambda: inverse_propensity([1, 2], 2), "n_samples is 2"),
        (lambda: inverse_propensity([-1], 9), "non-negative"),
        (lambda: inverse_propensity([[1]], 9), "label_counts has shape"),
        (lambda: inverse_propensity([1], 9, B=0), "must be positive"),
        (lambda: class_counts(["a"]), "pass classes="),
        (lambda: class_counts(["a"], classes=["b"]), "y has the label 'a'"),
        (lambda: class_counts([-1, 0]), "y has the label -1"),
        (lambda: class_counts([[1, 0]], classes=["a"]), "classes has 1 entries"),
        (lambda: rank_distribution([0, 1]), "exactly one of scores and topk"),
        (lambda: rank_distribution([0], scores=[[1]], topk=[[0]]), "exactly one of scores and topk"),
        (lambda: rank_distribution([0], scores=[[NAN, 1]]), "scores has NaN"),
        (lambda: rank_distribution([0], scores=[1.0]), "scores has shape"),
        (lambda: rank_distribution([0, 1], scores=[[1.0]]), "scores has 1"),
        (lambda: rank_distribution([0], topk=[[0, 0]]), "topk has a true class of row 0 twice"),
        (lambda: RankDistribution(np.array([0])), "at least one row"),
        (lambda: RankDistribution(np.array([-1, 2])), "non-negative"),
        (lambda: RankDistribution(np.array([1])).recall_at(2), "k is 2"),
        (lambda: RankDistribution(np.array([1])) + RankDistribution(np.array([1, 2])), "the same number of ranks"),
    ],
)
def test_refusals_say_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()
