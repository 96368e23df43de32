"""Rows of the output tables, by hand."""

import json
from typing import Any

import pytest

from palearn.engine.bucket import Bucket, BucketConfig
from palearn.errors import StateFormatError
from tests.streams import Row, chunk, learner, plan, rows, run


def table(stream: list[Row], name: str, *learners: Any, **settings: Any) -> list[dict[str, Any]]:
    return run(plan(*learners, **settings), stream).tables[name]


def test_predictions_are_made_before_learning() -> None:
    stream = rows(
        [
            ("k", {"id": "first", "label": 1, "features": {"f": 2}}),
            ("k", {"id": 7, "label": 1, "features": {"f": 1}}),
            ("k", {"features": {"f": -4}}),
            ("k", {"label": -1, "features": {"g": 1}}),
        ],
        topic="news",
        partition=5,
        first=40,
    )
    # PA: 0; then w_f = 1/4 * 2 = 1/2; then loss 1/2 on x = 1 gives w_f = 1.
    found = table(stream, "predictions", learner("pa"), bias=False)
    names = ("id", "score", "predicted", "label", "correct")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("first", 0.0, "-1", "1", False),
        ("7", 0.5, "1", "1", True),
        (None, -4.0, "-1", None, None),
        (None, 0.0, "-1", "-1", True),
    ]
    assert {(row["key"], row["learner"], row["topic"], row["partition"]) for row in found} == {("k", "pa", "news", 5)}
    assert [row["offset"] for row in found] == [40, 41, 42, 43]


def test_predictions_of_classes() -> None:
    stream = rows([("k", {"label": label, "features": {"f": 1}}) for label in ("x", "y", "x")])
    found = table(stream, "predictions", learner("pa", task="multiclass"), task="multiclass", bias=False)
    # Nothing is known, then only x; then y has 1/2 and x has -1/2.
    assert [(row["score"], row["predicted"], row["correct"]) for row in found] == [
        (0.0, None, False),
        (0.0, "x", False),
        (0.5, "y", False),
    ]


def test_tie_positive() -> None:
    (row,) = table(rows([("k", {"label": 1, "x": [1]})]), "predictions", learner("pa", tie="positive"))
    assert (row["score"], row["predicted"], row["correct"]) == (0.0, "1", True)


def test_model_row_of_arow() -> None:
    stream = rows([("k", {"label": 1, "features": {"a": 1, "b": 2}})], topic="news", partition=5, first=40)
    for covariance in ("diagonal", "full"):
        made = learner("arow", "mine", covariance=covariance)
        (row,) = table(stream, "models", made, bias=False)
        # v = 5, r = 1: step 1/6, variances 1 - x^2/6.
        assert row["weights"] == pytest.approx([1 / 6, 2 / 6], rel=1e-15)
        assert row["variances"] == pytest.approx([5 / 6, 2 / 6], rel=1e-15)
        assert row["features"] == ["a", "b"]
        assert (row["learner"], row["algorithm"], row["labels"]) == ("mine", "arow", ["-1", "1"])
        assert (row["last_topic"], row["last_partition"], row["last_offset"]) == ("news", 5, 40)
        params = json.loads(row["params"])
        assert (params["r"], params["covariance"], params["bias"], params["tie"]) == (
            1.0,
            covariance,
            False,
            "negative",
        )


def test_model_row_of_classes_is_label_major() -> None:
    stream = rows([("k", {"label": "x", "features": {"a": 1}}), ("k", {"label": 2, "features": {"b": 2, "a": 1}})])
    (row,) = table(stream, "models", learner("pa", task="multiclass"), task="multiclass", bias=False)
    # v = 5, loss 1, so tau = 1/(2 * 5).
    assert (row["labels"], row["features"]) == (["x", "2"], ["a", "b"])
    assert row["weights"] == pytest.approx([-0.1, -0.2, 0.1, 0.2], rel=1e-15)
    assert row["variances"] is None
    assert (row["n_seen"], row["n_learned"], row["n_updates"]) == (2, 2, 1)


def test_variances_of_classes_are_label_major() -> None:
    stream = rows([("k", {"label": "x", "features": {"a": 1}}), ("k", {"label": "y", "features": {"b": 2, "a": 1}})])
    stream += rows([("k", {"label": "z", "features": {"c": 1}})], first=2)
    for covariance in ("diagonal", "full"):
        made = learner("arow", task="multiclass", covariance=covariance)
        (row,) = table(stream, "models", made, task="multiclass", bias=False)
        # y against x: beta = 1/(1 + 5 + 5) on both; z against x: beta = 1/(1 + 1 + 1) on both.
        first, second = [10 / 11, 7 / 11], 2 / 3
        assert row["variances"] == pytest.approx([*first, second, *first, 1, 1, 1, second], rel=1e-15)


def test_models_name_the_views() -> None:
    value = {"label": 1, "views": {"link": {"g": 1}, "page": {"f": 1}}}
    made = (learner("two_view_pa"), learner("pa", "all"), learner("pa", "page", view="page"))
    found = table(rows([("k", value)]), "models", *made, views=("page", "link"))
    assert {row["learner"]: set(row["features"]) for row in found} == {
        "two_view_pa": {"page:(bias)", "page:f", "link:(bias)", "link:g"},
        "all": {"(bias)", "page:f", "link:g"},
        "page": {"(bias)", "page:f"},
    }
    weights = {row["learner"]: dict(zip(row["features"], row["weights"], strict=True)) for row in found}
    assert weights["all"] == pytest.approx(dict.fromkeys(("(bias)", "page:f", "link:g"), 1 / 3))
    assert weights["page"] == pytest.approx({"(bias)": 0.5, "page:f": 0.5})


def test_the_last_record_is_the_last_in_order_of_topic_partition_offset() -> None:
    value = {"label": 1, "features": {"f": 1}}
    stream = [
        *rows([("k", value)], topic="b", partition=0, first=1),
        *rows([("k", value)], topic="a", partition=9, first=3),
        *rows([("k", value)], topic="b", partition=1, first=0),
        *rows([("k", value)], topic="a", partition=10, first=2),
    ]
    (row,) = table(stream, "models", learner("pa1"))
    assert (row["last_topic"], row["last_partition"], row["last_offset"]) == ("b", 1, 0)
    found = table(stream, "predictions", learner("pa1"))
    places = [(row["topic"], row["partition"], row["offset"]) for row in found]
    assert places == [("a", 9, 3), ("a", 10, 2), ("b", 0, 1), ("b", 1, 0)]


def test_models_are_written_when_asked_and_only_those_changed() -> None:
    made = plan(learner("pa1"))
    value = {"label": 1, "features": {"f": 1}}
    blob = None
    written = []
    for batch_id, (keys, ask) in enumerate([("ab", False), ("b", False), ("c", True), ("a", True), ("", True)]):
        bucket = Bucket(made, blob, batch_id)
        bucket.learn(chunk(rows([(key, value) for key in keys], first=10 * batch_id)))
        tables = bucket.results(models=ask)
        assert sorted({row["key"] for row in tables["metrics"].to_pylist()} if keys else []) == list(keys)
        models = tables["models"].to_pylist() if "models" in tables else []
        written.append({row["key"]: row["updated_batch"] for row in models})
        blob = bucket.to_bytes()
    assert written == [{}, {}, {"a": 0, "b": 1, "c": 2}, {"a": 3}, {}]


def test_tables_not_wanted_are_not_made() -> None:
    bucket = Bucket(plan(learner("pa1"), tables=frozenset()))
    bucket.learn(chunk(rows([("k", {"label": 1, "x": [1]}), ("k", b"{")])))
    assert bucket.results() == {}
    assert bucket.summary.reasons == {"not_json": 1}


@pytest.mark.parametrize(
    "other",
    [
        plan(learner("pa1", C=0.5)),
        plan(learner("pa1", "renamed")),
        plan(learner("pa1", tie="positive")),
        plan(learner("pa1"), learner("arow")),
        plan(learner("pa1"), bias=False),
        plan(learner("pa1"), window=7),
    ],
    ids=["option", "name", "tie", "more", "bias", "window"],
)
def test_state_of_another_configuration_is_refused(other: BucketConfig) -> None:
    bucket = Bucket(plan(learner("pa1")))
    bucket.learn(chunk(rows([("k", {"label": 1, "x": [1]})])))
    with pytest.raises(StateFormatError, match="other learners or settings"):
        Bucket(other, bucket.to_bytes())
