"""Every record has a status, and a bad one changes nothing: each reason, alone and among others."""

from typing import Any

import pytest

from palearn.engine.bucket import Bucket, BucketConfig
from palearn.errors import RecordError
from palearn.records import REASONS
from tests.streams import assert_accounts, chunk, learner, plan, rows, run


def big(features: int, name: str = "f{}") -> dict[str, Any]:
    return {"label": 1, "features": {name.format(i): 1 for i in range(features)}}


def deep(levels: int) -> bytes:
    return b'{"label": 1, "features": {"f": ' + b"[" * levels + b"]" * levels + b"}}"


FINE = {"f": 1, "g": 2}
#: What arrives on a binary stream without `positive`, and the reason it is refused for.
REFUSED: list[tuple[str, str, Any, Any]] = [
    ("text", "not_json", "k", b"hello"),
    ("nothing", "not_json", "k", b""),
    ("tombstone", "not_json", "k", None),
    ("cut off", "not_json", "k", b'{"label": 1, "features": {"f": 1'),
    ("trailing", "not_json", "k", b'{"label": 1, "features": {"f": 1}} x'),
    ("two objects", "not_json", "k", b'{"label": 1, "features": {"f": 1}}{}'),
    ("bomb", "not_json", "k", deep(100_000)),
    ("bomb outside", "not_json", "k", b"[" * 100_000),
    ("list", "not_object", "k", [1, {"f": 1}]),
    ("number", "not_object", "k", b"7"),
    ("null", "not_object", "k", b"null"),
    ("latin-1", "not_utf8", "k", '{"label": 1, "features": {"f\u00e4": 1}}'.encode("latin-1")),
    ("lone surrogate", "not_utf8", "k", b'{"label": 1, "features": {"f\\ud800": 1}}'),
    ("surrogate bytes", "not_utf8", "k", b'{"label": 1, "features": {"f\xed\xa0\x80": 1}}'),
    ("surrogate label", "not_utf8", "k", b'{"label": "\\udfff", "features": {"f": 1}}'),
    ("key of bytes", "not_utf8", b"\xff\xfe", {"label": 1, "features": FINE}),
    ("null key", "no_key", None, {"label": 1, "features": FINE}),
    ("empty key", "no_key", b"", {"label": 1, "features": FINE}),
    ("no features", "no_features", "k", {"label": 1}),
    ("null features", "no_features", "k", {"label": 1, "features": None}),
    ("features list", "bad_features", "k", {"label": 1, "features": [1, 2]}),
    ("nested value", "bad_features", "k", {"label": 1, "features": {"f": {"g": 1}}}),
    ("bag of numbers", "bad_features", "k", {"label": 1, "features": {"f": ["a", 1]}}),
    ("shallow bomb", "bad_features", "k", deep(50)),
    ("LIBSVM without index", "bad_features", "k", {"label": 1, "features": "3:1 0.5"}),
    ("LIBSVM twice", "bad_features", "k", {"label": 1, "features": "3:1 3:2"}),
    ("x of text", "bad_features", "k", {"label": 1, "x": "1 2"}),
    ("label list", "bad_label", "k", {"label": [1], "features": FINE}),
    ("label object", "bad_label", "k", {"label": {"a": 1}, "features": FINE}),
    ("label text", "bad_label", "k", {"label": "spam", "features": FINE}),
    ("label of 400 digits", "bad_label", "k", b'{"label": ' + b"9" * 400 + b', "features": {"f": 1}}'),
    ("label infinite", "bad_label", "k", b'{"label": 1e400, "features": {"f": 1}}'),
    ("NaN", "non_finite", "k", b'{"label": 1, "features": {"f": NaN}}'),
    ("infinity", "non_finite", "k", b'{"label": 1, "features": {"f": -Infinity}}'),
    ("1e400", "non_finite", "k", b'{"label": 1, "features": {"f": 1e400}}'),
    ("400 digits", "non_finite", "k", b'{"label": 1, "features": {"f": ' + b"9" * 400 + b"}}"),
    ("LIBSVM nan", "non_finite", "k", {"label": 1, "features": "3:nan"}),
    ("NaN in x", "non_finite", "k", b'{"label": 1, "x": [1, NaN]}'),
    ("100,000 features", "too_many_features", "k", big(100_000, "{}")),
    ("10,001 features", "too_many_features", "k", big(10_001)),
    ("name of 10 kB", "name_too_long", "k", big(1, "n" * 10_000)),
    ("one-hot of 10 kB", "name_too_long", "k", {"label": 1, "features": {"f": "v" * 10_000}}),
    ("name taken", "reserved_name", "k", {"label": 1, "features": {"f": 1, "(bias)": 1}}),
    ("2 MB", "too_large", "k", {"label": 1, "features": FINE, "note": "n" * 2**21}),
    ("views unasked", "bad_view", "k", {"label": 1, "views": {"page": {"f": 1}}}),
    ("views of a list", "bad_view", "k", {"label": 1, "views": [1]}),
    ("weight 0", "bad_weight", "k", {"label": 1, "features": FINE, "weight": 0}),
    ("weight -1", "bad_weight", "k", {"label": 1, "features": FINE, "weight": -1}),
    ("weight true", "bad_weight", "k", {"label": 1, "features": FINE, "weight": True}),
    ("weight text", "bad_weight", "k", {"label": 1, "features": FINE, "weight": "2"}),
    ("id list", "bad_id", "k", {"id": [1], "label": 1, "features": FINE}),
    ("id bool", "bad_id", "k", {"id": True, "label": 1, "features": FINE}),
    ("line of a file", "bad_line", "k", RecordError("bad_line", "line 3 has no label")),
]
GOOD = [
    ("k", {"label": 1, "features": {"f": 1, "h": 0.5}}),
    ("other", {"label": -1, "features": {"g": 1}}),
    ("k", {"label": -1, "features": {"g": 1, "f": 0.25}}),
    ("k", {"features": {"f": 1}}),
]


def refused_rows(made: BucketConfig, bad: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Run bad records among good ones; check that they change nothing, and return the rejected table."""
    plain = [value for _, value in bad]
    before, after = rows(GOOD[:2], first=0), rows(GOOD[2:], first=1000)
    middle = [
        row._replace(value=value if isinstance(value, RecordError) else row.value, topic="bad", partition=3)
        for row, value in zip(
            rows([(key, None if isinstance(v, RecordError) else v) for key, v in bad]), plain, strict=True
        )
    ]
    # "bad" sorts before "t": every bad record is met before the good ones, in the same batch.
    ran = run(made, middle + before + after, cuts=[len(middle) + 1], shuffle=0)
    clean = run(made, before + after, cuts=[1])
    assert ran.models == clean.models
    assert ran.metrics == clean.metrics
    assert ran.in_order("predictions") == clean.in_order("predictions")
    assert_accounts(ran)
    assert ran.total.statuses["learned"] + ran.total.statuses["scored"] == len(GOOD)
    found = sorted(ran.tables.get("rejected", []), key=lambda row: row["offset"])
    assert [(row["key"], row["topic"], row["partition"], row["offset"]) for row in found] == [
        (row.key, "bad", 3, row.offset) for row in middle
    ]
    assert [row["value"] for row in found] == [
        None if isinstance(row.value, RecordError) else row.value for row in middle
    ]
    for row in found:
        assert 10 < len(row["detail"]) < 500
    return found


def test_all_bad_records_at_once() -> None:
    found = refused_rows(plan(learner("pa1"), learner("arow")), [(key, value) for *_, key, value in REFUSED])
    assert [row["reason"] for row in found] == [reason for _, reason, _, _ in REFUSED]


@pytest.mark.parametrize(("reason", "key", "value"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_each_bad_record_alone(reason: str, key: Any, value: Any) -> None:
    (found,) = refused_rows(plan(learner("pa1")), [(key, value)])
    assert found["reason"] == reason


def test_every_reason_has_a_record() -> None:
    elsewhere = {"not_binary", "too_many_labels"}  # below: they need another task or a label before
    later = {"conflict", "bad_time"}  # tests/engine/test_join.py
    written = {"bad_key"}  # tests/records/test_keys.py
    encoded = {"no_header", "unknown_schema", "bad_avro", "bad_protobuf"}  # tests/files/test_topic_formats.py
    assert {reason for _, reason, _, _ in REFUSED} | elsewhere | later | written | encoded == set(REASONS)


def test_a_third_label_is_not_binary() -> None:
    made = plan(learner("pa1"), positive="spam")
    texts = ["ham", "eggs", "spam", "ham", True, "spam"]
    stream = rows(("k", {"label": text, "features": {"f": i + 1}}) for i, text in enumerate(texts))
    ran = run(made, stream)
    assert [(row["offset"], row["reason"]) for row in ran.tables["rejected"]] == [(1, "not_binary"), (4, "not_binary")]
    kept = [row for row in stream if row.offset not in (1, 4)]
    clean = run(made, kept)
    assert (clean.models, clean.metrics) == (ran.models, ran.metrics)
    assert ran.tables["models"][-1]["labels"] == ["ham", "spam"]
    assert_accounts(ran)


def test_each_key_has_its_own_negative_label() -> None:
    made = plan(learner("pa1"), positive="spam")
    stream = rows(
        [("a", {"label": "ham", "x": [1]}), ("b", {"label": "eggs", "x": [1]}), ("a", {"label": "eggs", "x": [1]})]
    )
    ran = run(made, stream)
    assert ran.total.reasons == {"not_binary": 1}
    assert {row["key"]: row["labels"] for row in ran.tables["models"]} == {"a": ["ham", "spam"], "b": ["eggs", "spam"]}


def test_more_classes_than_a_key_may_have() -> None:
    made = plan(learner("pa1", task="multiclass"), task="multiclass")
    stream = rows(("k", {"label": i, "features": {"f": 1}}) for i in range(1002))
    ran = run(made, stream, cuts=[600])
    assert ran.total.reasons == {"too_many_labels": 2}
    assert ran.tables["models"][-1]["labels"] == [str(i) for i in range(1000)]


@pytest.mark.parametrize(
    "views",
    [
        {"page": {"f": 1}},
        {"page": {"f": 1}, "link": None},
        {"page": {}, "link": {}, "more": {}},
        {"page": {}, "liink": {}},
    ],
    ids=["missing", "null", "one too many", "unknown"],
)
def test_views_must_be_those_of_the_configuration(views: Any) -> None:
    made = plan(learner("two_view_pa"), views=("page", "link"))
    good = ("k", {"label": 1, "views": {"link": {"g": 1}, "page": {"f": 1}}})
    ran = run(made, rows([good, ("k", {"label": 1, "views": views}), ("k", {"label": 1, "features": {"f": 1}}), good]))
    assert ran.total.reasons == {"bad_view": 2}
    assert ran.models == {key: {**row, "last_offset": 3} for key, row in run(made, rows([good, good])).models.items()}


@pytest.mark.parametrize("features", [{}, "", {"f": None}])
@pytest.mark.parametrize("bias", [True, False])
def test_an_empty_example_is_scored_and_counted_but_not_learned(features: Any, bias: bool) -> None:
    made = plan(learner("pa1"), bias=bias)
    ran = run(made, rows([("k", {"label": 1, "features": {"f": 1}}), ("k", {"label": -1, "features": features})]))
    assert (ran.total.statuses["learned"], ran.total.statuses["scored"], ran.total.n) == (1, 1, 2)
    (row,) = ran.tables["models"]
    assert (row["n_seen"], row["n_learned"], row["n_updates"]) == (2, 1, 1)


def test_a_batch_of_nothing() -> None:
    bucket = Bucket(plan(learner("pa1")))
    bucket.learn(chunk([]))
    assert bucket.summary.records == 0
    assert bucket.results() == {}
    assert Bucket(plan(learner("pa1")), bucket.to_bytes()).models.keys == []


def test_a_joint_covariance_bounds_the_classes_of_a_key() -> None:
    made = plan(learner("arow", task="multiclass", covariance="joint", max_classes=2), task="multiclass")
    items = [("k", {"label": label, "features": {"f": 1}}) for label in ("a", "b", "c", "a")]
    ran = run(made, rows([*items, ("other", {"label": "c", "features": {"f": 1}})]))
    assert ran.total.reasons == {"too_many_labels": 1}
    assert {row["key"]: row["labels"] for row in ran.tables["models"]} == {"k": ["a", "b"], "other": ["c"]}
