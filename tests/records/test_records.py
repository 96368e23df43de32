"""Wire bytes to records: what is accepted, how values become numbers, and why the rest is refused."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palearn.errors import RecordError
from palearn.records import (
    BIAS,
    REASONS,
    Record,
    ValueFormat,
    decode_value,
    decode_values,
    encode,
    key_of,
    label_text,
    parse_libsvm,
    record_key,
)

PLAIN = settings(max_examples=150, deadline=None, derandomize=True)


def wire(value: Any) -> bytes:
    return json.dumps(value).encode()


def features(value: Any) -> list[tuple[str, float]]:
    found = decode_value(wire({"label": 1, "features": value})).features
    assert found is not None
    return list(found.items())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"free": 1, "len": 0.3}, [("free", 1.0), ("len", 0.3)]),
        ({"lang": "en", "urgent": True, "late": False}, [("lang=en", 1.0), ("urgent", 1.0), ("late", 0.0)]),
        ({"b": 1, "lang": "en", "a": 2}, [("b", 1.0), ("lang=en", 1.0), ("a", 2.0)]),
        ({"word": ["hi", "you", "hi"]}, [("word=hi", 2.0), ("word=you", 1.0)]),
        ({"word": []}, []),
        ({"gone": None, "here": 1}, [("here", 1.0)]),
        ({"lang": ""}, [("lang=", 1.0)]),
        ({}, []),
        ("3:1 11:0.5", [("3", 1.0), ("11", 0.5)]),
        ("  7:-2e3\t", [("7", -2000.0)]),
        ("", []),
        ({"": 1, "ключ": 2, "a=b": 3}, [("", 1.0), ("ключ", 2.0), ("a=b", 3.0)]),
        ({"big": 2**70, "small": 5e-324}, [("big", float(2**70)), ("small", 5e-324)]),
    ],
)
def test_feature_values_become_numbers_in_their_order(value: Any, expected: list[tuple[str, float]]) -> None:
    assert features(value) == expected


def test_dense_features_are_named_by_their_place() -> None:
    record = decode_value(wire({"label": 1, "x": [0.1, 0, True, None, 2.3]}))
    assert list((record.features or {}).items()) == [("0", 0.1), ("1", 0.0), ("2", 1.0), ("4", 2.3)]


def test_every_field() -> None:
    value = {"id": "42", "label": -1, "views": {"page": {"exam": 2}, "link": {"cs101": ["a"]}}, "weight": 2, "time": 7}
    record = decode_value(wire(value))
    assert (record.id, record.label, record.weight, record.time) == ("42", -1, 2.0, 7)
    assert record.views == {"page": {"exam": 2.0}, "link": {"cs101=a": 1.0}}
    assert record.features is None


def test_other_top_level_fields_are_ignored() -> None:
    for other in (1, "text", None, [1, {"a": "b"}], {"deep": {"er": [1]}}):
        fast = decode_value(wire({"label": 1, "features": {"f": 1}, "other": other}))
        slow = decode_value(wire({"label": 1, "features": {"f": True}, "other": other}))
        assert fast.features == slow.features == {"f": 1.0}


@pytest.mark.parametrize("label", ["spam", "", "1", 1, -1, 0, 2.5, True, False])
@pytest.mark.parametrize("value", [1, "text"], ids=["fast", "careful"])
def test_labels_keep_their_type(label: Any, value: Any) -> None:
    found = decode_value(wire({"label": label, "features": {"f": value}})).label
    assert (type(found), found) == (type(label), label)


def test_a_null_label_is_no_label() -> None:
    assert decode_value(b'{"label": null, "features": {}}').label is None
    assert decode_value(b'{"features": {}}').label is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not_json"),
        (None, "not_json"),
        (b"{'label': 1}", "not_json"),
        (b'{"features": {"f": 01}}', "not_json"),
        (b'{"features": {"f": 1,}}', "not_json"),
        (b'{"features": {"f": +1}}', "not_json"),
        (b'\x00{"features": {}}', "not_json"),
        (b'{"features": ' * 5000 + b"1" + b"}" * 5000, "not_json"),
        (b'"text"', "not_object"),
        (b"\xff\xfe{", "not_utf8"),
        (b'{"label": "\xc3", "features": {"f": 1}}', "not_utf8"),
        (b'{"features": {"f": "\\ud83d"}}', "not_utf8"),
        (b'{"label": 1}', "no_features"),
        (b'{"label": 1, "x": null}', "no_features"),
        (b'{"features": 7}', "bad_features"),
        (b'{"features": {"f": {}}}', "bad_features"),
        (b'{"features": {"f": [1]}}', "bad_features"),
        (b'{"features": {"f": [null]}}', "bad_features"),
        (b'{"features": "a"}', "bad_features"),
        (b'{"features": ":1"}', "bad_features"),
        (b'{"features": "1:"}', "bad_features"),
        (b'{"features": "1:x"}', "bad_features"),
        (b'{"x": {"0": 1}}', "bad_features"),
        (b'{"x": [[1]]}', "bad_features"),
        (b'{"label": {}, "features": {}}', "bad_label"),
        (b'{"label": 1e999, "features": {}}', "bad_label"),
        (b'{"label": ' + b"9" * 400 + b', "features": {}}', "bad_label"),
        (b'{"features": {"f": Infinity}}', "non_finite"),
        (b'{"features": {"f": -1e400}}', "non_finite"),
        (b'{"features": "1:inf"}', "non_finite"),
        (b'{"features": "1:1e999"}', "non_finite"),
        (b'{"features": {}, "weight": NaN}', "non_finite"),
        (b'{"features": {}, "weight": -0.5}', "bad_weight"),
        (b'{"features": {}, "weight": 0}', "bad_weight"),
        (b'{"features": {}, "weight": [1]}', "bad_weight"),
        (b'{"features": {}, "id": 1.5}', "bad_id"),
        (b'{"features": {}, "id": {}}', "bad_id"),
        (b'{"views": []}', "bad_view"),
        (b'{"views": {"page": 1}}', "bad_features"),
        (b'{"views": {"page": {"f": NaN}}}', "non_finite"),
    ],
)
def test_refused_with_a_reason_and_a_sentence(value: bytes | None, reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode_value(value)
    assert caught.value.reason == reason
    assert reason in REASONS
    assert 10 < len(caught.value.detail) < 400


def test_bytes_that_are_no_utf8_are_refused_wherever_they_stand() -> None:
    with pytest.raises(RecordError, match="not_utf8"):
        decode_value(b'{"label": 1, "features": {"f": 1}, "note": "\xff"}')


def test_a_feature_given_twice_counts_the_same_in_any_order() -> None:
    assert dict(features({"a": "b", "a=b": 1})) == dict(features({"a=b": 1, "a": "b"}))


def test_details_do_not_repeat_a_huge_value() -> None:
    for value in (
        {"features": {"f" * 10**6: [1]}},
        {"label": ["l" * 10**6], "features": {}},
        {"features": "x" * 10**6},
    ):
        with pytest.raises(RecordError) as caught:
            decode_value(wire(value))
        assert len(str(caught.value)) < 500


# -- properties -------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
RECORDS = st.builds(
    Record,
    label=st.none() | TEXT | st.integers(-(2**60), 2**60) | NUMBERS | st.booleans(),
    features=st.dictionaries(TEXT, NUMBERS, max_size=6),
    id=st.none() | TEXT | st.integers(-(2**60), 2**60),
    weight=st.none() | st.floats(1e-300, 1e300),
    time=st.none() | TEXT | st.integers(-(2**60), 2**60) | NUMBERS,
)


def same(a: Any, b: Any) -> bool:
    """Equal with types, signs of zero and order of features."""
    return repr(a) == repr(b)


@PLAIN
@given(RECORDS)
def test_what_is_encoded_is_decoded(record: Record) -> None:
    again = decode_value(encode(record))
    fields = ("label", "features", "views", "id", "weight", "time")
    assert all(same(getattr(again, name), getattr(record, name)) for name in fields)
    assert encode(again) == encode(record)


@PLAIN
@given(st.dictionaries(TEXT, st.dictionaries(TEXT, NUMBERS, max_size=4), min_size=1, max_size=3))
def test_views_are_encoded_and_decoded(views: dict[str, dict[str, float]]) -> None:
    assert same(decode_value(encode(Record(label=1, views=views))).views, views)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@PLAIN
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(["label", "features", "x", "views", "id", "weight", "time"], JSON))
)
def test_any_object_is_a_record_or_refused(value: dict[str, Any]) -> None:
    (record,) = decode_values([wire(value)], 10**6)
    if isinstance(record, RecordError):
        assert record.reason in REASONS
        return
    assert record.features is not None or record.views is not None
    numbers = [*(record.features or {}).values(), *(v for view in (record.views or {}).values() for v in view.values())]
    assert all(type(number) is float and math.isfinite(number) for number in numbers)
    assert record.weight is None or (math.isfinite(record.weight) and record.weight > 0)
    assert decode_value(encode(record)).features == record.features


@PLAIN
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_a_record(value: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        decode_value(value)
    assert caught.value.reason in {"not_json", "not_utf8", "not_object", "no_features", "non_finite"}


@PLAIN
@given(st.dictionaries(st.integers(0, 999).map(str), NUMBERS, max_size=8))
def test_libsvm_text_is_the_same_as_an_object(values: dict[str, float]) -> None:
    text = " ".join(f"{name}:{value!r}" for name, value in values.items())
    assert same(parse_libsvm(text.split()), values)
    assert same(decode_value(wire({"features": text})).features, values)


# -- labels and keys as text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("spam", "spam"),
        ("1", "1"),
        (1, "1"),
        (1.0, "1"),
        (-1, "-1"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        (-0.0, "0"),
    ],
)
def test_label_text(label: Any, text: str) -> None:
    assert label_text(label) == text


@pytest.mark.parametrize(
    ("value", "field", "key"),
    [
        ({"user": "ann", "features": {"f": 1}}, "user", b"ann"),
        ({"user": 7, "features": {"f": 1}}, "user", b"7"),
        ({"user": "ann", "features": {"user": 3}}, "user", b"ann"),
        ({"features": {"user": "ann"}}, "user", b"ann"),
        ({"features": {"user": 3}}, "user", b"3"),
        ({"id": 5, "features": {}}, "id", b"5"),
        ({"label": "spam", "features": {}}, "label", b"spam"),
        ({"views": {"page": {"user": "ann"}}}, "page:user", b"ann"),
        ({"features": {"f": 1}}, "user", None),
        ({"user": None, "features": {"f": 1}}, "user", None),
        ({"user": ["ann"], "features": {"f": 1}}, "user", None),
        ({"user": "", "features": {"f": 1}}, "user", None),
        ({"features": {"user": 2**53}}, "user", None),
        ([1], "user", None),
    ],
)
def test_the_key_in_a_value(value: Any, field: str, key: bytes | None) -> None:
    assert key_of(wire(value), field) == key


def test_a_field_that_is_ignored_does_not_hide_the_key() -> None:
    value = b'{"user": 100000000000000000001, "label": 1, "features": {}, "note": 1e999}'
    assert decode_value(value) == Record(label=1, features={})
    assert key_of(value, "user") == b"100000000000000000001"


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[" * 100_000])
def test_a_value_that_is_no_record_has_no_key(value: bytes | None) -> None:
    assert key_of(value, "user") is None


def test_the_key_of_a_record() -> None:
    record = Record(features={"age=5": 1.0, "user=ann": 1.0, "user=bob": 1.0, "n": 2.0}, id=3)
    assert [record_key(record, name) for name in ("user", "age", "n", "id", "nobody")] == ["ann", "5", "2", "3", None]


def test_the_bias_s_name_is_not_refused_here_but_is_known() -> None:
    # Whether the name is taken depends on nothing in the record; the bucket refuses it with a reason.
    assert dict(features({BIAS: 1})) == {BIAS: 1.0}


def test_a_topics_own_names() -> None:
    form = ValueFormat(view="page", fields={"label": "verdict", "id": "x", "features": "terms"})
    (record, label, text, bad, plain) = decode_values(
        [
            b'{"x": 7, "terms": {"a": 1}, "label": "not read"}',
            b'{"x": 7, "verdict": 1}',
            b'{"x": "8", "terms": "3:1 4:2"}',
            b'{"x": 9, "views": {"page": {"a": 1}}}',
            b'{"x": 9, "features": {"a": 1}}',
        ],
        1000,
        form,
    )
    assert record == Record(id=7, views={"page": {"a": 1.0}})
    assert label == Record(id=7, label=1)
    assert text == Record(id="8", views={"page": {"3": 1.0, "4": 2.0}})
    assert isinstance(bad, RecordError)
    assert bad.reason == "bad_view"
    assert isinstance(plain, RecordError)
    assert plain.reason == "no_features"
    assert key_of(b'{"x": 7, "terms": {"site": "b"}}', "id", form) == b"7"
    assert key_of(b'{"x": 7, "terms": {"site": 5}}', "page:site", form) == b"5"
