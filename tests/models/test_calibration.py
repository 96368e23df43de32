"""Probabilities: what scikit-learn counts of them, and how near they come to calibration in hindsight."""

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, precision_recall_fscore_support

import palearn
from palearn import datasets
from palearn.engine.bucket import Bucket
from palearn.models import calibration, codec
from palearn.models.counters import CALIBRATION
from tests.streams import chunk, learner, plan, rows, run

TABLES = frozenset(("models", "metrics", "predictions"))


def records(n, seed=0, classes=2):
    """Return records of three keys whose labels depend on their features, with noise."""
    random = np.random.default_rng(seed)
    items = []
    for i in range(n):
        x = random.normal(size=4)
        scores = np.array([x[0] + x[1], x[2] - x[0], -x[1]])[:classes] if classes > 2 else np.array([0.0, x[0] + x[1]])
        label = int(np.argmax(scores + random.normal(size=classes)))
        value = {"label": label, "features": {f"f{j}": float(v) for j, v in enumerate(x)}}
        items.append((f"k{i % 3}", value))
    return rows(items)


def told(made, stream, **more):
    """Return predictions and metrics by key and learner."""
    ran = run(made, stream, **more)
    found = {}
    for row in sorted(ran.tables["predictions"], key=lambda row: row["offset"]):
        found.setdefault((row["key"], row["learner"]), []).append(row)
    return found, {(row["key"], row["learner"]): row for row in ran.tables["metrics"]}


@pytest.mark.parametrize("algorithm", ["perceptron", "pa1", "arow", "cw", "sop"])
def test_binary_figures_are_those_of_scikit_learn(algorithm):
    made = plan(learner(algorithm), tables=TABLES)
    predictions, metrics = told(made, records(300))
    for pair, said in predictions.items():
        y = np.array([int(row["label"]) for row in said])
        p = np.array([row["probability"] if row["predicted"] == "1" else 1 - row["probability"] for row in said])
        # Before its first record a key calls its classes -1 and 1: the names of the rows are these until both came.
        p = np.where([row["predicted"] in ("0", "1", "-1") for row in said], p, np.nan)
        row = metrics[pair]
        assert math.isclose(row["log_loss"], log_loss(y, p, labels=[0, 1]), rel_tol=1e-12)
        assert math.isclose(row["brier"], brier_score_loss(y, p, pos_label=1), rel_tol=1e-12)
        predicted = [1 if x["predicted"] == "1" else 0 for x in said]
        precision, recall, _, _ = precision_recall_fscore_support(y, predicted, labels=[0, 1], zero_division=np.nan)
        for label in (0, 1):
            for name, expected in (("precision", precision[label]), ("recall", recall[label])):
                got = dict(row[name])[str(label)]
                assert got is None if math.isnan(expected) else math.isclose(got, expected, rel_tol=1e-12)


def test_figures_of_many_classes_are_their_definition():
    made = plan(learner("arow", task="multiclass"), task="multiclass", tables=TABLES)
    stream = records(240, classes=3)
    blob, losses, squares = None, {}, {}
    for at, row in enumerate(stream):
        bucket = Bucket(made, blob, at)
        key, y = row.key.decode(), str(json.loads(row.value)["label"])
        if key in bucket.models.index:
            from palearn.engine import scoring

            found = scoring.score(bucket.models, chunk([row]))
            labels = scoring.label_texts(bucket.models, int(found.key[0]))
            p = dict(zip(labels, found.probabilities[0][0].tolist(), strict=False))
            assert math.isclose(sum(p.values()), 1.0, rel_tol=1e-9)
            if y in p:
                losses.setdefault(key, []).append(-math.log(p[y]))
                squares.setdefault(key, []).append(sum((q - (label == y)) ** 2 for label, q in p.items()))
        bucket.learn(chunk([row]))
        metrics = {x["key"]: x for x in bucket.results()["metrics"].to_pylist()}
        if losses.get(key):
            assert math.isclose(metrics[key]["log_loss"], np.mean(losses[key]), rel_tol=1e-12)
            assert math.isclose(metrics[key]["brier"], np.mean(squares[key]), rel_tol=1e-12)
        blob = bucket.to_bytes()


@pytest.mark.parametrize(("algorithm", "options"), [("perceptron", {}), ("pa1", {"C": 0.1}), ("arow", {}), ("cw", {})])
def test_it_comes_near_a_calibration_in_hindsight(algorithm, options):
    """Scores of UCI Adult, test-then-train, beside a logistic regression fitted to the same scores afterwards."""
    model = palearn.make(algorithm, **options)
    scores, labels = [], []
    for record in list(datasets.a9a())[:3000]:
        scores.append(model.score_one(record.features))
        labels.append(record.label > 0)
        model.learn_one(record.features, record.label)
    s, y = np.array(scores), np.array(labels)
    hindsight = LogisticRegression(C=1e6).fit(s[:, None], y).predict_proba(s[:, None])[:, 1]
    n, state = s.size, np.zeros((1, 13))
    p, counts = np.zeros(n), np.zeros((1, 5), np.int64)
    nothing = np.zeros(n, np.bool_)
    calibration.binary(np.zeros(n, np.int64), y.astype(np.int64), s, np.ones(n, np.int64), nothing, counts, state, p)
    assert log_loss(y, p) < log_loss(y, hindsight) + 0.01
    assert log_loss(y, p) < log_loss(y, np.full(n, y.mean())) - 0.05
    bins = np.digitize(p, np.linspace(0, 1, 6)[1:-1])
    off = [(bins == b).mean() * abs(p[bins == b].mean() - y[bins == b].mean()) for b in set(bins.tolist())]
    assert sum(off) < 0.07


def test_huge_scores_and_surprises_stay_finite():
    s = np.array([1e300, -1e300, 1e8, -1e8, 0.0] * 200)
    for flip in (0, 1):
        y = ((s > 0).astype(np.int64) + flip) % 2
        state, counts, p = np.zeros((1, 13)), np.zeros((1, 5), np.int64), np.zeros(s.size)
        calibration.binary(
            np.zeros(s.size, np.int64), y, s, np.ones(s.size, np.int64), np.zeros(s.size, np.bool_), counts, state, p
        )
        assert np.isfinite(state).all()
        assert ((p > 0) & (p < 1)).all()


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_batches_and_buckets_change_no_bit(task):
    made = plan(learner("arow", task=task), learner("pa1", task=task), task=task, tables=TABLES)
    stream = records(200, classes=2 if task == "binary" else 3)
    expected = run(made, stream)
    for buckets, cuts in ((1, [7, 90]), (3, []), (2, list(range(0, 200, 13))[1:])):
        got = run(made, stream, buckets=buckets, cuts=cuts)
        assert got.metrics == expected.metrics
        assert got.models == expected.models
        assert got.in_order("predictions") == expected.in_order("predictions")


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_one_example_at_a_time_is_the_stream(task):
    model = palearn.make("arow", task=task)
    stream = [row for row in records(90, classes=3) if row.key == b"k0"]
    items = [json.loads(row.value) for row in stream]
    labels = [x["label"] if task == "multiclass" else x["label"] % 2 for x in items]
    for x, y in zip(items, labels, strict=True):
        model.learn_one(x["features"], y)
    bucket = Bucket(plan(learner("arow", task=task), task=task))
    bucket.learn(chunk(rows([("k", {**x, "label": y}) for x, y in zip(items, labels, strict=True)])))
    mine, theirs = codec.decode(model.to_bytes()).states[0].sums, bucket.models.states[0].sums
    assert mine.tobytes() == theirs.tobytes()
    assert np.any(mine[:, CALIBRATION])


def test_a_restart_begins_a_new_calibration():
    drift = {"action": "restart", "threshold": 2.0, "min_records": 3}
    made = plan(learner("pa1", drift=drift), tables=TABLES | {"drifts"})
    noise = np.random.default_rng(3).integers(2, size=100).tolist()
    items = [("k", {"label": noise[i] if i > 60 else i % 2, "features": {"f": i % 2 - 0.5}}) for i in range(100)]
    stream = rows(items)
    ran = run(made, stream, cuts=list(range(1, 100)))
    drifts = [row["offset"] for row in ran.tables["drifts"]]
    assert drifts
    by_offset = {row["offset"]: row for row in ran.tables["predictions"]}
    assert by_offset[drifts[0] + 1]["probability"] == 0.5
    assert ran.newest("metrics", "drift") == run(made, stream).newest("metrics", "drift")
