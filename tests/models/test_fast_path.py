"""The short way of an example into a model changes no bit: a bucket of one key, which has only the long way, agrees."""

from typing import Any

import numpy as np
import pytest

import palearn
from palearn.engine.bucket import Bucket
from palearn.errors import LearnerError, RecordError
from palearn.learners import LEARNERS
from palearn.models import codec
from tests.streams import bits, chunk, learner, plan, rows

EVERY = [
    *((name, task, {}) for name, row in LEARNERS.items() for task in row.tasks if not row.views),
    ("arow", "binary", {"covariance": "full"}),
    ("arow", "multiclass", {"covariance": "joint", "constraints": "all"}),
    ("pam1", "multiclass", {"projection": "precision", "constraints": 2}),
    ("pa_mean1", "binary", {"queue": 3, "freeze_mean_after": 20}),
]
#: Values that a record turns into other numbers, or that make a norm of no use.
ODD = [True, False, 0, -0.0, 3, 2**60 + 1, 1e-170, 1e160, 5e-324]


def examples(task: str, n: int) -> list[tuple[dict[str, Any], Any, float | None]]:
    """Features come one by one and in any order; now and then one is text, or all are gone."""
    dice = np.random.default_rng(1)
    labels: list[Any] = [True, False, 1, 0, 0.0, 1.0] if task == "binary" else ["x", "y", 3, 3.0, "3", False]
    out: list[tuple[dict[str, Any], Any, float | None]] = []
    for i in range(n):
        names = dice.permutation(3 + i // 10)[: dice.integers(0, 8)]
        x: dict[str, Any] = {f"f{j}": float(dice.normal()) for j in names}
        if i % 7 == 0:
            x[f"f{dice.integers(6)}"] = ODD[dice.integers(len(ODD))]
        if i % 11 == 0:
            x["lang"] = "en"
        known = labels[: 1 + i // 5]
        out.append((x, known[dice.integers(len(known))], [None, 0.5, 3.0][dice.integers(3)]))
    return out


def values_of(batch: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [("k", {"label": y, "features": x} | ({} if w is None else {"weight": w})) for x, y, w in batch]


def state_of(blob: bytes) -> dict[str, Any]:
    """What a model has learned and counted, to the last bit."""
    models = codec.decode(blob)
    (state,) = models.states
    tables = ("counts", "sums", "hits", "predictions", "ring")
    arrays = dict(state.arrays) | {name: getattr(state, name) for name in tables}
    return {
        "labels": models.labels,
        "features": [models.vocabulary.names[j] for j in models.feature.tolist()],
        "counts": models.counts[:, :5].tolist(),
        **{name: array.tobytes() for name, array in arrays.items()},
    }


@pytest.mark.parametrize(("name", "task", "options"), EVERY)
@pytest.mark.parametrize("bias", [True, False])
def test_every_bit_is_as_on_the_long_way(name: str, task: str, options: dict[str, Any], bias: bool) -> None:
    m = palearn.make(name, task=task, bias=bias, **options)
    bucket = Bucket(plan(learner(name, task=task, **options), task=task, bias=bias, max_features=None))
    stream, scores = examples(task, 150), []
    for x, y, weight in stream:
        scores.append(m.score_one(x))
        m.learn_one(x, y, weight)
    bucket.learn(chunk(rows(values_of(stream))))
    assert state_of(m.to_bytes()) == state_of(bucket.to_bytes())
    assert m.n_updates > 10
    found = [row["score"] for row in bucket.results()["predictions"].to_pylist()]
    best = scores if task == "binary" else [max(score.values(), default=0.0) for score in scores]
    assert bits(found) == bits(best)


def test_features_that_left_are_not_missed() -> None:
    stream = examples("binary", 150)
    bucket = Bucket(plan(learner("arow"), max_features=12))
    bucket.learn(chunk(rows(values_of(stream[:50]))))
    m = palearn.from_bytes(bucket.to_bytes())
    for i, (x, y, weight) in enumerate(stream[50:], start=50):
        m.learn_one(x, y, weight)
        bucket.learn(chunk(rows(values_of([(x, y, weight)]), first=i)))
        assert state_of(m.to_bytes()) == state_of(bucket.to_bytes())
    assert len(m.weights()) <= 13


def test_true_is_not_the_class_1() -> None:
    m = palearn.make("pa", task="multiclass")
    bucket = Bucket(plan(learner("pa", task="multiclass"), task="multiclass", max_features=None))
    stream = [({"f": float(i % 3), "g": 1.0}, label, None) for i, label in enumerate([True, 1, 1.0, "1", "true"] * 3)]
    for x, y, _ in stream:
        m.learn_one(x, y)
    bucket.learn(chunk(rows(values_of(stream))))
    assert m.labels == [True, 1]
    assert state_of(m.to_bytes()) == state_of(bucket.to_bytes())


def warm(name: str = "pa1", **options: Any) -> palearn.Model:
    """A model that knows two features and both labels."""
    m = palearn.make(name, **options)
    return m.learn_one({"a": 1, "b": 2}, 1).learn_one({"a": 2, "b": -1}, -1)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_known_features_need_no_record(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    m = warm(task=task)
    monkeypatch.setattr("palearn.models.single.of_records", None)
    for value in (1, 1.5, True, np.float64(1), np.float32(1), np.int64(1), np.int32(1), np.bool_(True)):
        m.learn_one({"b": value}, 1)
        m.learn_one({"new": value, "a": 0.5}, -1, weight=2)
        m.predict_one({"a": value, "unseen": 1})
        m.score_one({"b": value})
    assert m.n_seen == 18
    assert "new" in m.weights() if task == "binary" else m.weights()[1]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"a": float("nan")}, "non_finite"),
        ({"a": 1, "new": float("inf")}, "non_finite"),
        ({"a": 10**400}, "non_finite"),
        ({"a": {"b": 1}}, "views"),
        ({"a": [1]}, "bag holds text"),
        ({"a": 1, 3: 1}, "name must be text"),
        ({"a": 1, "x" * 513: 1}, "name_too_long"),
        ({"a": 1, "(bias)": 1}, "reserved_name"),
        (["a"], "must be a mapping"),
        ([], "must be a mapping"),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_wrong_is_said_as_on_the_long_way(x: Any, message: str, bias: bool) -> None:
    m = warm(bias=bias)
    before = m.to_bytes()
    for _ in range(2):
        for call in (m.predict_one, m.score_one, lambda x: m.learn_one(x, 1)):
            with pytest.raises(RecordError, match=message):
                call(x)
    assert m.to_bytes() == before


def test_a_full_covariance_holds_no_more_than_it_may() -> None:
    m = warm("arow", covariance="full", max_full_features=3).learn_one({"c": 1}, 1)
    before = m.to_bytes()
    with pytest.raises(LearnerError, match="at most 3 features"):
        m.learn_one({"a": 1, "d": 1}, 1)
    assert m.to_bytes() == before
    assert m.score_one({"a": 1, "d": 9}) == m.score_one({"a": 1})


def test_a_model_that_refused_its_first_example_is_as_good_as_new() -> None:
    m = palearn.make("arow", covariance="full", max_full_features=3)
    with pytest.raises(LearnerError, match="at most 3 features"):
        m.learn_one({"a": 1, "b": 1, "c": 1, "d": 1}, 1)
    fresh = palearn.make("arow", covariance="full", max_full_features=3)
    for x, y in (({"a": 1}, 1), ({"b": 1}, 1), ({"a": 2}, -1), ({"a": 1, "c": 1}, -1)):
        m.learn_one(x, y)
        fresh.learn_one(x, y)
    assert m.to_bytes() == fresh.to_bytes()


def test_an_example_that_cannot_be_learned_brings_no_features() -> None:
    m = warm(bias=False)
    for x in ({"new": 0.0}, {"new": 1e-170}, {"new": 1e200}, {}):
        m.learn_one(x, 1)
    assert list(m.weights()) == ["a", "b"]
    assert (m.n_seen, m.n_learned) == (6, 2)


def test_a_model_that_only_predicts_does_not_grow() -> None:
    model = palearn.make("pa1").learn_one({"a": 1.0}, 1)
    names = list(model._models.vocabulary.names)
    for i in range(100):
        assert model.predict_one({"a": 1.0, f"new{i}": 2.0}) == 1
    assert model._models.vocabulary.names == names
    for name, reason in (("x" * 513, "name_too_long"), ("(bias)", "reserved_name")):
        with pytest.raises(RecordError) as caught:
            model.predict_one({"a": 1.0, name: 2.0})
        assert caught.value.reason == reason
