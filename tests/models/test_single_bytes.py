"""Options are checked when a model is made; its bytes are the stream's."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palearn
from palearn.engine.bucket import Bucket
from palearn.errors import LearnerError, PalearnError, StateFormatError
from palearn.learners import LEARNERS
from tests.streams import bits, chunk, learner, plan, rows

X = {"free": 1, "len": 0.3}
EVERY = [(name, task) for name, row in LEARNERS.items() for task in row.tasks]


def example(name: str) -> dict[str, Any]:
    return {"page": X, "link": {"cs": 1}} if LEARNERS[name].views else X


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("arrow", {}, "arrow.*arow"),
        ("pa1", {"C": 0}, "C must be .*> 0, got 0"),
        ("pa1", {"C": -1.0}, r"C must be .*> 0, got -1\.0"),
        ("pa1", {"C": float("nan")}, "C must be"),
        ("pa1", {"C": "1"}, "C must be"),
        ("pa1", {"c": 1}, "unknown option 'c'.*C"),
        ("pa", {"C": 1}, "unknown option"),
        ("arow", {"r": 0}, "r must be"),
        ("arow", {"constraints": 0}, "constraints must be .*>= 1"),
        ("arow", {"constraints": 1.5}, "constraints must be an integer"),
        ("arow", {"constraints": "some"}, "constraints must be .*'all'"),
        ("arow", {"covariance": "diag"}, "covariance must be .*'diagonal'"),
        ("arow", {"initial_variance": 0}, "initial_variance must be"),
        ("two_view_pa", {"gamma": -0.1}, "gamma must be .*>= 0"),
        ("sop", {"task": "multiclass"}, "task must be binary"),
        ("arow", {"covariance": "joint"}, "joint.*multiclass"),
        ("pa1", {"as_printed": 1}, "as_printed must be True or False"),
        ("cw", {"eta": 0.5}, r"eta must be .*> 0\.5 and < 1"),
        ("cw", {"phi": 1.0, "eta": 0.9}, "phi or eta, not both"),
        ("cw", {"eta": None}, "phi or eta must be given"),
        ("pa", {"task": "regression"}, "task must be"),
        ("pa", {"tie": "both"}, "tie must be"),
        ("pa", {"bias": 1}, "bias must be"),
        ("pa", {"task": "multiclass", "positive": "spam"}, "positive"),
        ("pa", {"positive": ["spam"]}, r"positive must be a label .*, got \['spam'\]"),
        ("pa", {"positive": float("nan")}, "positive must be a label .*, got nan"),
        ("pa", {"positive": 2**70}, "positive must be a label"),
        ("pa", {"positive": b"spam"}, "positive must be a label"),
    ],
)
def test_options_are_checked_when_made(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        palearn.make(name, **options)


def test_learners_lists_every_name_with_domains_and_defaults() -> None:
    table = {row["name"]: row for row in palearn.learners()}
    assert set(table) >= {"pa", "pa1", "pa2", "pam", "pam1", "pam2", "arow", "spa", "spa1", "spa2", "two_view_pa"}
    json.dumps(palearn.learners())
    for name, row in table.items():
        assert row["source"]
        assert row["summary"]
        defaults = {p["name"]: p["default"] for p in row["parameters"]}
        assert all(p["domain"] and p["meaning"] for p in row["parameters"])
        palearn.make(name, task=row["tasks"][0], **defaults)


# -- bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "task"), EVERY)
def test_bytes_hold_the_model(name: str, task: str) -> None:
    labels = [1, -1] if task == "binary" else ["x", 2]
    m = palearn.make(name, task=task, tie="positive" if task == "binary" else "negative", bias=False)
    for label in labels * 3:
        m.learn_one(example(name), label)
    again = palearn.from_bytes(m.to_bytes())
    assert again.to_bytes() == m.to_bytes()
    assert bits(again.weights()) == bits(m.weights())
    assert bits(again.variances()) == bits(m.variances())
    assert (again.labels, again.n_seen, again.n_updates, repr(again)) == (m.labels, m.n_seen, m.n_updates, repr(m))
    x = {"page": {"free": 2}, "link": {}} if LEARNERS[name].views else {"free": 2}
    assert again.predict_one(x) == m.predict_one(x)
    assert again.learn_one(x, labels[0]).to_bytes() == m.learn_one(x, labels[0]).to_bytes()


@pytest.mark.parametrize(("name", "task"), EVERY)
def test_bytes_of_a_new_model(name: str, task: str) -> None:
    m = palearn.make(name, task=task)
    again = palearn.from_bytes(m.to_bytes())
    assert again.to_bytes() == m.to_bytes()
    assert again.predict_one(example(name)) == m.predict_one(example(name))


FEATURES = st.dictionaries(
    st.sampled_from("abcdef"), st.floats(-3, 3) | st.sampled_from(["red", "blue", True]), max_size=4
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(FEATURES, st.sampled_from(["x", "y", "z"]), st.sampled_from([None, 0.5, 2.0])), max_size=15))
def test_one_model_is_a_bucket_of_one_key(examples: list[Any]) -> None:
    m = palearn.make("arow", task="multiclass", constraints="all")
    bucket = Bucket(plan(learner("arow", task="multiclass", constraints="all"), task="multiclass"))
    values = []
    for x, y, weight in examples:
        m.learn_one(x, y, weight=weight)
        values.append(("k", {"label": y, "features": x} | ({} if weight is None else {"weight": weight})))
    bucket.learn(chunk(rows(values)))
    stored = palearn.from_bytes(bucket.to_bytes())
    assert bits(stored.weights()) == bits(m.weights())
    assert bits(stored.variances()) == bits(m.variances())
    assert (stored.labels, stored.n_seen, stored.n_learned, stored.n_updates) == (
        m.labels,
        m.n_seen,
        m.n_learned,
        m.n_updates,
    )
    if not examples:
        return
    (row,) = bucket.results()["models"].to_pylist()
    weights = m.weights()
    assert row["labels"] == list(weights)
    assert bits(row["weights"]) == bits([w for label in weights for w in weights[label].values()])
    assert row["features"] == list(weights[row["labels"][0]])
    # What the stream has learned so far can be learned on from Python.
    assert bits(stored.learn_one({"a": 1}, "x").weights()) == bits(m.learn_one({"a": 1}, "x").weights())


def test_a_bucket_s_model_that_has_seen_no_label() -> None:
    bucket = Bucket(plan(learner("pa1", task="multiclass"), task="multiclass"))
    bucket.learn(chunk(rows([("k", {"features": {"f": 1}})])))
    m = palearn.from_bytes(bucket.to_bytes())
    assert m.predict_one({"f": 1}) is None
    assert m.score_one({"f": 1}) == {}
    assert m.learn_one({"f": 1}, "x").predict_one({"f": 1}) == "x"


def test_bytes_of_several_models_are_refused() -> None:
    for learners, keys in (((learner("pa1"), learner("arow")), "k"), ((learner("pa1"),), "kl")):
        bucket = Bucket(plan(*learners))
        bucket.learn(chunk(rows([(key, {"label": 1, "x": [1]}) for key in keys])))
        with pytest.raises(StateFormatError, match="one model"):
            palearn.from_bytes(bucket.to_bytes())


def test_errors_are_palearn_s_and_value_errors() -> None:
    for call in (
        lambda: palearn.make("no"),
        lambda: palearn.from_bytes(b""),
        lambda: palearn.make("pa").learn_one({"f": "x" * 600}, 1),
    ):
        with pytest.raises(PalearnError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
