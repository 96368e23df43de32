"""Every figure of the metrics table against its definition, computed from the predictions table in plain Python."""

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from palearn.engine.bucket import BucketConfig
from tests.streams import Ran, Row, even_cuts, learner, plan, rows, run

BINARY = (learner("pa1", C=0.3), learner("arow"))
CLASSES = (learner("spa1", task="multiclass", C=0.3), learner("arow", task="multiclass", covariance="full"))


def random_rows(seed: int, labels: list[Any], n: int = 400, views: bool = False) -> list[Row]:
    """Records of three keys: labels that often repeat, features that say something of them, some without label."""
    dice = random.Random(seed)
    items = []
    last: dict[str, int] = {}
    for _ in range(n):
        key = dice.choice("abbccc")
        c = last[key] if key in last and dice.random() < 0.5 else dice.randrange(len(labels))
        last[key] = c
        features = {f"f{(c + dice.choice([0, 0, 0, 1])) % len(labels)}": 1.0, "noise": dice.gauss(0, 1)}
        value: dict[str, Any] = {"label": labels[c], "features": features}
        if views:
            other = {} if dice.random() < 0.1 else {f"g{c}": dice.gauss(1, 1)}
            value["views"] = {"left": value.pop("features"), "right": other}
        if dice.random() < 0.15:
            del value["label"]
        if dice.random() < 0.05:
            value["features" if not views else "weight"] = {} if not views else 2
        items.append((key, value))
    return rows(items)


def faded(mistakes: list[bool], fading: float) -> float:
    ages = range(len(mistakes) - 1, -1, -1)
    return sum(fading**age * m for age, m in zip(ages, mistakes, strict=True)) / sum(fading**age for age in ages)


def kappa(truth: list[str], predicted: list[str | None]) -> float:
    """Cohen (1960), from the confusion matrix; "nothing known yet" is a prediction that no label agrees with."""
    n = len(truth)
    matrix = Counter(zip(truth, predicted, strict=True))
    names = {*truth, *predicted}
    observed = sum(matrix[name, name] for name in names if name is not None) / n
    chance = sum(
        sum(matrix[name, other] for other in names) / n * sum(matrix[other, name] for other in names) / n
        for name in names
    )
    return 0.0 if chance == 1.0 else (observed - chance) / (1.0 - chance)


def f1(name: str, truth: list[str], predicted: list[str | None]) -> float | None:
    """Harmonic mean of precision and recall; None for a label never met and never predicted."""
    hits = sum(t == p == name for t, p in zip(truth, predicted, strict=True))
    said, there = predicted.count(name), truth.count(name)
    if said + there == 0:
        return None
    if hits == 0:
        return 0.0
    precision, recall = hits / said, hits / there
    return 2 * precision * recall / (precision + recall)


def expected(predictions: list[dict[str, Any]], window: int, fading: float) -> dict[str, Any]:
    """All figures of one key and learner from its predictions, in order."""
    labelled = [row for row in predictions if row["label"] is not None]
    mistakes = [row["predicted"] != row["label"] for row in labelled]
    truth, predicted = [row["label"] for row in labelled], [row["predicted"] for row in labelled]
    recent = mistakes[-window:]
    before = [None, *truth[:-1]]
    return {
        "n": len(labelled),
        "mistakes": sum(mistakes),
        "error": sum(mistakes) / len(mistakes),
        "window_n": len(recent),
        "window_error": sum(recent) / len(recent),
        "faded_error": faded(mistakes, fading),
        "baseline_error": sum(a != b for a, b in zip(before, truth, strict=True)) / len(truth),
        "kappa": kappa(truth, predicted),
        "f1": {name: f1(name, truth, predicted) for name in {*truth, *predicted} - {None}},
    }


def check(made: BucketConfig, ran: Ran) -> None:
    keys = {(row["key"], row["learner"]) for row in ran.tables["metrics"]}
    assert len(keys) == 3 * len(made.learners)
    newest = {(row["key"], row["learner"]): row for row in ran.tables["metrics"]}
    for pair in keys:
        mine = [row for row in ran.tables["predictions"] if (row["key"], row["learner"]) == pair]
        mine.sort(key=lambda row: row["offset"])
        wanted = expected(mine, made.settings.window, made.settings.fading)
        found = newest[pair]
        f1_wanted, f1_found = wanted.pop("f1"), dict(found["f1"])
        for name, value in f1_found.items():
            assert value == pytest.approx(f1_wanted.get(name), rel=1e-12), (pair, name)
        assert f1_wanted.keys() <= f1_found.keys()
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), (pair, name)


@pytest.mark.parametrize("window", [1, 7, 1000])
@pytest.mark.parametrize("batches", [1, 13])
def test_binary_figures(window: int, batches: int) -> None:
    made = plan(*BINARY, window=window, fading=0.95)
    stream = random_rows(window, [-1, 1])
    ran = run(made, stream, cuts=even_cuts(len(stream), batches), shuffle=1)
    check(made, ran)
    assert all(row["view_difference"] is None for row in ran.tables["metrics"])


@pytest.mark.parametrize("window", [1, 7, 1000])
@pytest.mark.parametrize("batches", [1, 13])
def test_figures_of_classes(window: int, batches: int) -> None:
    made = plan(*CLASSES, task="multiclass", window=window, fading=0.9)
    stream = random_rows(window, ["x", "y", "z", "w"])
    check(made, run(made, stream, cuts=even_cuts(len(stream), batches), shuffle=1))


@pytest.mark.parametrize("window", [1, 8, 9, 64])
def test_every_window_error_on_the_way(window: int) -> None:
    """The ring of bits at every position, not only at the end: one record a batch."""
    made = plan(learner("pa"), window=window, fading=1.0)
    stream = [row for row in random_rows(5, [-1, 1], n=120) if row.key == b"c"]
    ran = run(made, stream, cuts=range(1, len(stream)))
    mistakes: list[bool] = []
    for prediction, row in zip(ran.tables["predictions"], ran.tables["metrics"], strict=True):
        if prediction["label"] is not None:
            mistakes.append(not prediction["correct"])
        recent = mistakes[-window:]
        assert row["window_n"] == len(recent)
        assert row["window_error"] == (sum(recent) / len(recent) if recent else None)
        # Without fading the faded error is the error.
        assert row["faded_error"] == pytest.approx(row["error"])
        assert row["mistakes"] == sum(mistakes)
    assert len(mistakes) > window or window == 64


def test_window_of_positions_past_one_turn() -> None:
    # pa1 without bias, every record a new feature: score 0, so +1 is always a mistake and -1 never is.
    labels = [1, 1, -1, 1, -1, -1, -1, 1, 1, -1]
    stream = rows(("k", {"label": label, "features": {f"f{i}": 1}}) for i, label in enumerate(labels))
    ran = run(plan(learner("pa1"), window=3, bias=False), stream, cuts=range(1, 10))
    seen = [round(row["window_error"] * row["window_n"]) for row in ran.tables["metrics"]]
    assert seen == [1, 2, 2, 2, 1, 1, 0, 1, 2, 2]


def test_hinge_and_updates_by_hand() -> None:
    values = [(1, 2.0), (1, 1.0), (-1, 1.0), (None, 1.0), (1, 4.0)]
    stream = rows(
        ("k", {"features": {"f": x}} if label is None else {"label": label, "features": {"f": x}})
        for label, x in values
    )
    (row,) = run(plan(learner("pa"), bias=False), stream).tables["metrics"]
    # w: 0 -> 1/2 -> 1 -> -1 -> (no label) -> 1/4; losses 1, 1/2, 2, and 5 at score -4.
    assert row["hinge"] == pytest.approx((1 + 0.5 + 2 + 5) / 4)
    assert (row["n"], row["updates"], row["mistakes"]) == (4, 4, 3)
    (again,) = run(plan(learner("pa"), bias=False), stream[:1] + rows([("k", {"label": 1, "x": [0]})], first=9)).tables[
        "metrics"
    ]
    assert (again["n"], again["updates"]) == (2, 1)


def test_hinge_from_the_scores() -> None:
    stream = random_rows(3, [-1, 1])
    ran = run(plan(*BINARY), stream)
    for row in ran.tables["metrics"]:
        mine = [p for p in ran.tables["predictions"] if (p["key"], p["learner"]) == (row["key"], row["learner"])]
        losses = [max(0.0, 1.0 - int(p["label"]) * p["score"]) for p in mine if p["label"] is not None]
        assert row["hinge"] == pytest.approx(sum(losses) / len(losses))
        # A PA learner moves exactly where a record with features has a loss.
        with_features = [p for p in mine if p["label"] is not None and stream[p["offset"]].value.find(b'"f') > 0]
        moved = sum(
            1.0 - int(p["label"]) * p["score"] > 1e-10
            for p in with_features
            if b'"features":{}' not in stream[p["offset"]].value
        )
        assert row["updates"] == moved


def test_hinge_of_classes_is_against_the_best_wrong_class() -> None:
    stream = rows([("k", {"label": label, "features": {"f": 1}}) for label in ("x", "y", "x")])
    (row,) = run(plan(learner("pa", task="multiclass"), task="multiclass", bias=False), stream).tables["metrics"]
    # No wrong class; then a tie, loss 1; then y has 1/2 and x -1/2: loss 2.
    assert row["hinge"] == pytest.approx((0 + 1 + 2) / 3)
    assert row["updates"] == 2


def test_view_difference() -> None:
    made = plan(learner("two_view_pa", C=0.4), learner("pa1"), views=("left", "right"), bias=False)
    stream = random_rows(8, [-1, 1], n=200, views=True)
    ran = run(made, stream, cuts=[100])
    newest = {(row["key"], row["learner"]): row for row in ran.tables["metrics"]}
    assert all(row["view_difference"] is None for (_, name), row in newest.items() if name == "pa1")
    # From models alone, one record at a time: the weights before each record, times its views.
    stepwise = run(made, stream, cuts=range(1, len(stream)))
    models = {
        (row["key"], row["last_offset"]): row for row in stepwise.tables["models"] if row["learner"] == "two_view_pa"
    }
    last: dict[str, dict[str, float]] = {}
    apart: dict[str, list[float]] = {}
    for row in stream:
        key, value = (row.key or b"").decode(), json.loads(row.value)
        if "label" in value and value["views"]["right"]:
            scores = [
                sum(last.get(key, {}).get(f"{view}:{name}", 0.0) * x for name, x in value["views"][view].items())
                for view in ("left", "right")
            ]
            apart.setdefault(key, []).append(abs(scores[0] - scores[1]))
        model = models[key, row.offset]
        last[key] = dict(zip(model["features"], model["weights"], strict=True))
    for key, differences in apart.items():
        row = newest[key, "two_view_pa"]
        assert row["view_difference"] == pytest.approx(sum(differences) / len(differences))
        faded = made.settings.fading ** np.arange(len(differences))[::-1]
        assert row["faded_view_difference"] == pytest.approx(faded @ differences / faded.sum())
    assert sum(map(sum, apart.values())) > 1


def test_nothing_labelled_has_no_error() -> None:
    (row,) = run(plan(learner("pa1")), rows([("k", {"features": {"f": 1}})])).tables["metrics"]
    assert (row["n"], row["mistakes"], row["window_n"], row["updates"]) == (0, 0, 0, 0)
    for name in ("error", "window_error", "faded_error", "baseline_error", "hinge", "kappa"):
        assert row[name] is None
    assert dict(row["f1"]) == {"-1": None, "1": None}


@pytest.mark.parametrize(
    ("truth", "kappa_wanted", "f1_wanted"),
    [
        # Only new features, no bias: always predicts -1.
        ([1, 1, 1, 1], 0.0, {"-1": 0.0, "1": 0.0}),
        ([-1, -1, -1], 0.0, {"-1": 1.0, "1": None}),
        ([-1, 1, -1, 1], 0.0, {"-1": 2 / 3, "1": 0.0}),
    ],
)
def test_kappa_and_f1_at_the_edges(truth: list[int], kappa_wanted: float, f1_wanted: dict[str, Any]) -> None:
    stream = rows(("k", {"label": label, "features": {f"f{i}": 1}}) for i, label in enumerate(truth))
    (row,) = run(plan(learner("pa1"), bias=False), stream).tables["metrics"]
    assert row["kappa"] == kappa_wanted
    assert dict(row["f1"]) == pytest.approx(f1_wanted)


def test_perfect_agreement_is_kappa_one() -> None:
    # -1 is said at a score of 0; +1 once its own feature is known.
    values = [(1, "up")] + [(-1, "down"), (1, "up")] * 50
    stream = rows(("k", {"label": label, "features": {name: 1}}) for label, name in values)
    (row,) = run(plan(learner("pa"), bias=False), stream).tables["metrics"]
    assert row["mistakes"] == 1
    n, said = 101, 50
    chance = (51 * said + 50 * (n - said)) / n**2
    assert row["kappa"] == pytest.approx((100 / n - chance) / (1 - chance))


def test_totals_over_keys() -> None:
    stream = random_rows(2, [-1, 1])
    ran = run(plan(*BINARY), stream, buckets=3, cuts=[100, 250])
    newest = ran.newest("metrics")
    for name in ("pa1", "arow"):
        mine = [row for (_, learner_name), row in newest.items() if learner_name == name]
        assert ran.total.mistakes[name] == sum(row["mistakes"] for row in mine)
        assert ran.total.n == sum(row["n"] for row in mine)
