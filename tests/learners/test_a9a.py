"""Published counts: one pass over the a9a training file, file order, no bias, C = 1 and r = 1.

They agree with the printed accuracies of SOL 1.1.0, the C++ library of Hoi's group, run on the same file: it
predicts the positive class where the score is 0.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import palearn
from palearn import datasets
from palearn.evaluate.prequential import evaluate

ROWS = 32_561
COVARIANCE = {"r": 1.0, "covariance": "diagonal", "projection": "covariance"}
PRECISION = {"r": 1.0, "covariance": "diagonal", "projection": "precision"}
PUBLISHED: list[tuple[str, dict[str, Any], str, int, int]] = [
    # learner, parameters, tie, mistakes, updates
    ("perceptron", {}, "positive", 6_723, 6_723),
    ("pa", {}, "positive", 6_801, 12_911),
    ("pa1", {"C": 1.0}, "positive", 6_801, 12_911),
    ("pa2", {"C": 1.0}, "positive", 6_754, 13_101),
    ("arow", COVARIANCE, "positive", 5_091, 19_367),
    ("arow", PRECISION, "positive", 5_068, 19_597),
    # A score of 0 as negative: only the perceptron, whose weights are whole numbers, meets one after the first row.
    ("perceptron", {}, "negative", 6_801, 6_801),
    ("pa", {}, "negative", 6_800, 12_911),
    ("pa1", {"C": 1.0}, "negative", 6_800, 12_911),
    ("pa2", {"C": 1.0}, "negative", 6_753, 13_101),
    ("arow", COVARIANCE, "negative", 5_090, 19_367),
    ("arow", PRECISION, "negative", 5_067, 19_597),
]


@pytest.mark.parametrize(("learner", "params", "tie", "mistakes", "updates"), PUBLISHED)
def test_a9a_gives_the_published_counts(
    learner: str, params: dict[str, Any], tie: str, mistakes: int, updates: int
) -> None:
    result = evaluate(datasets.path("a9a"), learner, params, bias=False, tie=tie)
    assert (result["n"], result["mistakes"], result["updates"]) == (ROWS, mistakes, updates)
    assert result["error"] == mistakes / ROWS


@pytest.mark.parametrize("learner", ["spa", "pam1", "arow"])
def test_evaluate_scores_each_example_before_it_learns_it(learner: str) -> None:
    """The same rows one by one: predict, compare, learn."""
    records = list(islice(datasets.a9a(), 800))
    model = palearn.make(learner, bias=False)
    mistakes = 0
    for record in records:
        x, y = record.features or {}, record.label or 0
        mistakes += model.predict_one(x) != y
        model.learn_one(x, y)
    result = evaluate(records, learner, bias=False)
    assert (result["n"], result["mistakes"], result["updates"]) == (800, mistakes, model.n_updates)
    squares = sum(w * w for w in model.weights().values())
    assert result["weight_l2"] == pytest.approx(squares**0.5, rel=1e-12)
