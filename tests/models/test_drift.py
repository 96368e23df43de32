"""Drift: the test beside River's, and what a learner does, beside learners that begin anew by hand."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift import PageHinkley

import palearn
from palearn import datasets
from palearn.errors import LearnerError
from palearn.evaluate.prequential import evaluate
from palearn.learners import Learner, drift_response, drift_test
from palearn.models import codec
from palearn.records import Record
from tests import streams
from tests.streams import ALL_TABLES, Row, assert_same, plan, rows
from tests.streams import run as run_stream

#: Tells of drifts within few examples.
QUICK = {"threshold": 3.0, "delta": 0.01, "min_records": 5}
TABLES = ALL_TABLES | {"drifts"}


def rivers() -> PageHinkley:
    return PageHinkley(
        min_instances=QUICK["min_records"], delta=QUICK["delta"], threshold=QUICK["threshold"], alpha=1.0, mode="up"
    )


def examples(seed: int, n: int, every: int, classes: int = 2) -> Iterator[tuple[dict[str, float], int]]:
    """Yield examples of a concept that turns round every so many."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(classes, 4))
    for i in range(n):
        x = rng.normal(size=4)
        y = int(np.argmax(truth @ x))
        y = (y + i // every) % classes
        yield {f"f{j}": float(v) for j, v in enumerate(x)}, y if classes > 2 else 2 * y - 1


def learner(algorithm: str, action: str, **options: Any) -> Learner:
    task = options.pop("task", "binary")
    name = f"{algorithm}-{action}"
    return streams.learner(algorithm, name, task=task, drift={"action": action, **QUICK}, **options)


def stream(seed: int, n: int, every: int, classes: int = 2) -> list[Row]:
    """Return records of three keys, each of a concept of its own that turns round."""
    keys = [list(examples(seed + k, n // 3, every, classes)) for k in range(3)]
    mixed = [(f"k{k}", {"label": keys[k][i][1], "features": keys[k][i][0]}) for i in range(n // 3) for k in range(3)]
    return rows(mixed)


# -- the test -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_it_tells_where_rivers_page_hinkley_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mistakes = rng.random(3000) < np.repeat(rng.random(6), 500)
    other, told = rivers(), []
    for i, mistake in enumerate(mistakes):
        other.update(float(mistake))
        if other.drift_detected:
            told.append(i)
    assert len(told) > 1
    state, found = np.zeros(4), np.zeros(mistakes.size, np.int64)
    zeros = np.zeros(mistakes.size, np.int64)
    for part in np.split(np.arange(mistakes.size), [1, 700, 701]):  # it goes on from its four numbers
        run_ = mistakes[part].astype(np.int64)
        piece = found[part]
        drift_test.test(zeros[part], run_, zeros[part], QUICK["threshold"], QUICK["delta"], 5, state, piece)
        found[part] = piece
    assert np.flatnonzero(found).tolist() == told
    assert np.cumsum(found[told]).tolist() == [i + 1 for i in told]


# -- what a learner does ------------------------------------------------------------------------------------


class ByHand:
    """A model that a test throws away, or makes unsure again, at each of River's drifts."""

    def __init__(self, algorithm: str, action: str) -> None:
        self.algorithm, self.action, self.test, self.drifts = algorithm, action, rivers(), 0
        self.model = palearn.make(algorithm)

    def learn(self, x: dict[str, float], y: int) -> int:
        predicted = self.model.predict_one(x)
        self.model.learn_one(x, y)
        self.test.update(float(predicted != y))
        if self.test.drift_detected:
            self.drifts += 1
            if self.action == "restart":
                self.model = palearn.make(self.algorithm)
        return int(predicted)


@pytest.mark.parametrize("algorithm", ["pa1", "arow", "pa_mean1", "adagrad_rda", "sop"])
def test_a_restart_is_a_new_model(algorithm: str) -> None:
    found = list(examples(1, 900, 150))
    stream_ = rows(("k", {"label": y, "features": x}) for x, y in found)
    made = plan(learner(algorithm, "restart"), learner(algorithm, "note"), tables=TABLES)
    ran = run_stream(made, stream_, cuts=[400])
    for action in ("restart", "note"):
        hand = ByHand(algorithm, action)
        expected = [hand.learn(x, y) for x, y in found]
        mine = [row for row in ran.in_order("predictions") if row["learner"] == f"{algorithm}-{action}"]
        assert [int(row["predicted"]) for row in mine] == expected
        assert hand.drifts > 2
        assert sum(row["learner"] == f"{algorithm}-{action}" for row in ran.tables["drifts"]) == hand.drifts
        features = ran.models["k", f"{algorithm}-{action}"]
        weights = dict(zip(features["features"], features["weights"], strict=True))
        assert weights == {name: float(w).hex() for name, w in hand.model.weights().items()}


def diagonal_arow(found: list[tuple[dict[str, float], int]], r: float = 1.0) -> tuple[list[int], int]:
    """Return the predictions of AROW (Crammer et al. 2013, figure 1) whose variances are 1 again after a drift."""
    w, sigma, other, predicted, drifts = np.zeros(5), np.ones(5), rivers(), [], 0
    for features, y in found:
        x = np.array([1.0, *features.values()])
        score = w @ x
        predicted.append(1 if score > 0 else -1)
        if y * score < 1:
            beta = 1.0 / (sigma @ (x * x) + r)
            w = w + max(0.0, 1.0 - y * score) * beta * y * sigma * x
            sigma = sigma - beta * (sigma * x) ** 2
        other.update(float(predicted[-1] != y))
        if other.drift_detected:
            sigma, drifts = np.ones(5), drifts + 1
    return predicted, drifts


def test_relaxed_variances_reset_and_weights_do_not() -> None:
    found = list(examples(2, 900, 150))
    stream_ = rows(("k", {"label": y, "features": x}) for x, y in found)
    ran = run_stream(plan(learner("arow", "relax", r=1.0), tables=TABLES), stream_, cuts=[1, 500])
    expected, drifts = diagonal_arow(found)
    assert [int(row["predicted"]) for row in ran.in_order("predictions")] == expected
    assert len(ran.tables["drifts"]) == drifts > 2


@pytest.mark.parametrize("covariance", ["full", "joint"])
def test_relaxed_triangles_are_those_of_a_new_model(covariance: str) -> None:
    made = Learner("x", "arow", task="multiclass", options={"covariance": covariance}, drift="relax")
    stream_ = stream(3, 300, 50, classes=3)
    bucket = codec.decode(run_stream(plan(made, task="multiclass"), stream_).blobs[0])
    arrays, layout = bucket.states[0].arrays, bucket.layout
    before = {name: array.copy() for name, array in arrays.items()}
    drift_response.reset(bucket.learners[0], layout, 1, arrays)
    variances = np.split(np.asarray(made.variances(layout, arrays, np.arange(3))), layout.start[1:-1])
    assert (variances[1] == 1.0).all()
    assert (variances[0] < 1.0).any()
    assert (arrays["w"] == before["w"]).all()


# -- whatever the batches -----------------------------------------------------------------------------------

MANY = [
    learner("pa1", "restart"),
    learner("arow", "relax"),
    learner("arow", "restart", covariance="full"),
    learner("pam1", "note"),
]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 360), max_size=5).map(sorted), st.integers(1, 3), st.integers(0, 9))
def test_drifts_do_not_depend_on_batches(cuts: list[int], buckets: int, seed: int) -> None:
    found = stream(5, 360, 30)
    made = plan(*{x.name: x for x in MANY}.values(), tables=TABLES, window=20)
    whole = run_stream(made, found)
    cut = run_stream(made, found, cuts=cuts, buckets=buckets, shuffle=seed)
    assert_told_of_drifts(whole)
    assert cut.in_order("drifts") == whole.in_order("drifts")
    assert cut.models == whole.models
    assert cut.in_order("predictions") == whole.in_order("predictions")
    ignored = {key: row | {"drift": None} for key, row in whole.metrics.items()}  # seen in the batch
    assert {key: row | {"drift": None} for key, row in cut.metrics.items()} == ignored


def assert_told_of_drifts(ran: Any) -> None:
    assert {row["learner"] for row in ran.tables["drifts"]} == {x.name for x in MANY}


def test_a_multiclass_stream_in_pieces_is_the_whole() -> None:
    made = plan(
        learner("arow", "restart", task="multiclass", covariance="joint"),
        learner("spa1", "restart", task="multiclass"),
        task="multiclass", tables=TABLES,
    )  # fmt: skip
    found = stream(7, 450, 60, classes=3)
    whole = run_stream(made, found)
    assert len(whole.tables["drifts"]) > 4
    assert run_stream(made, found, cuts=[*range(1, 450, 13)]).in_order("drifts") == whole.in_order("drifts")
    in_memory = run_stream(made, found, cuts=[100, 200], in_memory=True)
    assert_same(in_memory, run_stream(made, found, cuts=[100, 200]))


def test_labels_that_come_later_are_tested_when_they_come() -> None:
    found = list(examples(8, 300, 60))
    late = 20
    order: list[dict[str, Any]] = []
    for i, (x, _) in enumerate(found):
        order.append({"id": str(i), "features": x})
        if i >= late:
            order.append({"id": str(i - late), "label": found[i - late][1]})
    stream_ = rows(("k", value) for value in order)
    made = plan(learner("pa1", "restart"), learner("arow", "relax"), tables=TABLES)
    whole = run_stream(made, stream_)
    assert len(whole.tables["drifts"]) > 2
    for cuts in ([1, 2, 3, 200], [*range(5, 560, 5)]):
        cut = run_stream(made, stream_, cuts=cuts)
        assert cut.in_order("drifts") == whole.in_order("drifts")
        assert cut.models == whole.models
    # The test sees mistakes of the score that an example had when it came, in the order of the labels.
    test, model, told, scored = rivers(), palearn.make("pa1"), [], {}
    for value in order:
        if "features" in value:
            scored[value["id"]] = (value["features"], model.predict_one(value["features"]))
            continue
        x, predicted = scored.pop(value["id"])
        model.learn_one(x, value["label"])
        test.update(float(predicted != value["label"]))
        if test.drift_detected:
            told.append(value["id"])
            model = palearn.make("pa1")
    offsets = [row["offset"] for row in whole.tables["drifts"] if row["learner"] == "pa1-restart"]
    assert [order[at]["id"] for at in offsets] == told


def test_metrics_flag_the_batch_of_a_drift() -> None:
    found = stream(5, 360, 30)
    cuts = [*range(20, 360, 20)]
    ran = run_stream(plan(learner("pa1", "restart"), Learner("plain", "pa1"), tables=TABLES), found, cuts=cuts)
    flagged = [row for row in ran.tables["metrics"] if row["drift"]]
    batches = {(row["key"], int(np.searchsorted(cuts, row["offset"], side="right"))) for row in ran.tables["drifts"]}
    assert len(flagged) == len(batches) > 3
    assert {row["drift"] for row in ran.tables["metrics"] if row["learner"] == "plain"} == {None}
    assert {row["drift"] for row in ran.tables["metrics"] if row["learner"] == "pa1-restart"} == {True, False}


# -- one model, and evaluate --------------------------------------------------------------------------------


def test_one_model_and_evaluate_agree() -> None:
    found = list(examples(4, 600, 100))
    options = {"action": "restart", **QUICK}
    model, mistakes = palearn.make("arow", drift=options), 0
    for i, (x, y) in enumerate(found):
        mistakes += model.predict_one(x) != y
        model.learn_one(x, y)
        if i == 250:
            model = palearn.from_bytes(model.to_bytes())
    given = [Record(label=y, features=x) for x, y in found]
    report = evaluate(given, "arow", drift=options)
    assert report["mistakes"] == mistakes
    assert report["drifts"] > 2
    assert report["error"] < evaluate(given, "arow")["error"] / 2
    assert "drifts" not in evaluate(given, "arow")


def test_the_command_line_takes_an_action_or_its_options(run: Any) -> None:
    for word, drift_ in (("relax", "relax"), ("{action: relax, threshold: 5e0}", {"action": "relax", "threshold": 5})):
        status, out, _ = run("evaluate", "internet_ads", "--learner", "arow", "--drift", word, "--json")
        expected = evaluate(datasets.path("internet_ads"), "arow", drift=drift_)
        found = json.loads(out)
        assert (status, found["drifts"], found["mistakes"]) == (0, expected["drifts"], expected["mistakes"])
    assert expected["drifts"] > 0
    status, _, err = run("evaluate", "internet_ads", "--drift", "{action: ")
    assert (status, "--drift" in err, "Traceback" in err) == (2, True, False)
    status, _, err = run("evaluate", "internet_ads", "--drift", "forget")
    assert (status, "action must be 'note' or 'restart' or 'relax'" in err) == (1, True)


@pytest.mark.parametrize(
    ("algorithm", "given", "words"),
    [
        ("pa1", "relax", "pa1 keeps no variances that drift could relax"),
        ("arow", "forget", "drift: action must be 'note' or 'restart' or 'relax', got 'forget'"),
        ("arow", {"treshold": 1}, "unknown option 'treshold'; did you mean threshold"),
        ("arow", {"threshold": 0}, "threshold must be a finite number > 0, got 0"),
        ("arow", 3, "drift must be one of note, restart, relax, or its options, got 3"),
    ],
    ids=["relax", "action", "typo", "range", "number"],
)
def test_what_cannot_be_is_refused(algorithm: str, given: object, words: str) -> None:
    with pytest.raises(LearnerError, match=words.replace("(", r"\(")):
        palearn.make(algorithm, drift=given)
