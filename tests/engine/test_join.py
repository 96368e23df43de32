"""Examples in parts: whatever the order, each is scored when whole, learned when labelled, once, and none is lost."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palearn
from palearn.config import parse
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.join import Limits
from palearn.engine.join_buffer import Part, Pending, Score, Stored
from palearn.engine.validation import Chunk
from palearn.errors import StateFormatError
from palearn.models import codec
from palearn.models.counters import CHANGED, UPDATED_BATCH
from palearn.records import Record
from palearn.tables import schemas

Message = tuple[str, dict[str, Any]]
LEARNERS = ["arow", "pa1", "perceptron"]


def plan(
    *, views: list[str] | None = None, learners: list[str] = LEARNERS, task: str = "binary", **limits: Any
) -> BucketConfig:
    tree = {
        "source": {"files": {"path": "none"}},
        "learners": [{"algorithm": name} for name in learners],
        "records": {"views": views, "task": task},
        "output": {"path": "none", "predictions": {}},
        "checkpoint": "none",
    }
    return replace(parse(tree).bucket_config, limits=Limits(**limits))


def chunk(messages: list[Message], first: int = 0) -> Chunk:
    n = len(messages)
    keys = [key.encode() for key, _ in messages]
    values = [json.dumps(value).encode() for _, value in messages]
    return Chunk(keys, values, ["t"] * n, np.zeros(n, np.int64), np.arange(first, first + n))


def learn(plan: BucketConfig, messages: list[Message], cuts: list[int] | None = None) -> Iterator[Bucket]:
    """Yield the bucket after each batch, results not yet taken; batches end at ``cuts``, through bytes."""
    ends = sorted({0, len(messages), *(cut % (len(messages) + 1) for cut in cuts or [])})
    blob = None
    for number, (first, stop) in enumerate(pairwise(ends)):
        bucket = Bucket(plan, blob, number)
        bucket.learn(chunk(messages[first:stop], first))
        yield bucket
        blob = bucket.to_bytes()


def all_at_once(plan: BucketConfig, messages: list[Message]) -> Bucket:
    (bucket,) = learn(plan, messages)
    return bucket


def tables(found: list[Bucket]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of some batches by table, in the order of the records."""
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas.TABLES}
    for bucket in found:
        for name, table in bucket.results().items():
            out[name] += sorted(table.to_pylist(), key=lambda row: (row.get("offset", 0), row.get("learner", "")))
    return out


def statuses(found: list[Bucket]) -> Counter[str]:
    total: Counter[str] = Counter()
    for bucket in found:
        assert bucket.summary.records == sum(bucket.summary.statuses.values())
        total.update({name: 0 for name in bucket.summary.statuses})
        for name, count in bucket.summary.statuses.items():
            total[name] += count
    return total


def bits(bucket: Bucket) -> bytes:
    """Return a bucket's bytes, without what says which batch wrote it."""
    models = codec.decode(bucket.to_bytes())
    models.counts[:, [UPDATED_BATCH, CHANGED]] = 0
    return codec.encode(models)


def weights(bucket: Bucket, key: str, learner: str) -> dict[str, float]:
    """Return a key's weights that are not 0."""
    at = np.array([bucket.models.index[key]])
    batches = result_rows.model_rows(bucket.models, at, result_rows.Texts(bucket.models, at))
    (row,) = batches[LEARNERS.index(learner)].to_pylist()
    return {feature: w for feature, w in zip(row["features"], row["weights"], strict=True) if w}


# -- any order, any batches ------------------------------------------------------------------------------

FEATURES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.5, 1.0, -1.0, 2.0]), max_size=4)


@st.composite
def example(draw: st.DrawFn, ident: int, views: bool) -> list[Message]:
    """Draw the records of one example: its parts in one to three records."""
    key = draw(st.sampled_from(["k", "j"]))
    label = {"label": draw(st.sampled_from([-1, 1]))}
    if views:
        parts = [label, {"views": {"v": draw(FEATURES)}}, {"views": {"w": draw(FEATURES)}}]
    else:
        parts = [label, {"features": draw(FEATURES)}]
    parts = draw(st.permutations(parts))
    held = draw(st.integers(1, len(parts)))  # the others never come
    together = draw(st.booleans())
    if together and len(parts) > 1:
        first, second, *rest = parts
        both = first | second
        if "views" in first and "views" in second:
            both = {"views": first["views"] | second["views"]}
        parts = [both, *rest]
    return [(key, {"id": ident, **part}) for part in parts[:held]]


@st.composite
def streams(draw: st.DrawFn, views: bool) -> list[Message]:
    """Draw interleaved examples, records without an id among them."""
    pending = [draw(example(ident, views)) for ident in range(draw(st.integers(1, 8)))]
    out: list[Message] = []
    while pending:
        at = draw(st.integers(0, len(pending)))
        if at == len(pending):
            features = {"views": {"v": draw(FEATURES), "w": draw(FEATURES)}} if views else {"features": draw(FEATURES)}
            out.append((draw(st.sampled_from(["k", "j"])), {"label": draw(st.sampled_from([-1, 1])), **features}))
            continue
        out.append(pending[at].pop(0))
        if not pending[at]:
            del pending[at]
    return out


class Reference:
    """What should happen, with River-like models of one key and learner and nothing of the stream's."""

    def __init__(self, views: bool) -> None:
        self.views = views
        self.models: dict[tuple[str, str], palearn.models.single.Model] = {}
        self.parts: dict[tuple[str, int], dict[str, Any]] = {}
        self.count: Counter[tuple[str, int]] = Counter()
        self.scored: dict[tuple[str, int], dict[str, Any]] = {}
        self.mistakes: Counter[str] = Counter()
        self.learned = 0

    def take(self, key: str, record: dict[str, Any]) -> None:
        ident = (key, record["id"]) if "id" in record else None
        have = self.parts.setdefault(ident, {}) if ident else {}
        for name in record.keys() - {"id"}:
            have[name] = {**have.get(name, {}), **record[name]} if name == "views" else record[name]
        x = have.get("features")
        if self.views:  # in the order of the configuration, whichever came first
            x = {name: have["views"][name] for name in ("v", "w") if name in have.get("views", {})}
        if x is None or (self.views and len(x) < 2):
            if ident:
                self.count[ident] += 1
            return
        models = {name: self.models.setdefault((key, name), palearn.make(name)) for name in LEARNERS}
        scored = self.scored.get(ident) if ident else None
        if scored is None:
            scored = {name: model.predict_one(x) for name, model in models.items()}
        if "label" not in have:
            assert ident
            self.scored[ident] = scored
            self.count[ident] += 1
            return
        for name, model in models.items():
            self.mistakes[name] += (scored[name] > 0) != (have["label"] > 0)
            model.learn_one(x, have["label"])
        if ident:
            self.learned += self.count.pop(ident, 0)
            del self.parts[ident]
        empty = not any(x.values()) if self.views else not x
        self.learned += not empty


@pytest.mark.parametrize("views", [False, True])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_example_is_learned_once_in_the_order_of_completion(views: bool, data: st.DataObject) -> None:
    messages = data.draw(streams(views))
    names = ["v", "w"] if views else None
    found = list(learn(plan(views=names), messages, data.draw(st.lists(st.integers(0, 40), max_size=5))))
    expected = Reference(views)
    for key, record in messages:
        expected.take(key, record)
    last = found[-1]
    for (key, name), model in expected.models.items():
        assert weights(last, key, name) == {feature: w for feature, w in model.weights().items() if w}
    total = statuses(found)
    assert total["pending"] == sum(expected.count.values())
    assert total["duplicate"] == total["rejected"] == total["expired"] == 0
    for name in LEARNERS:
        assert sum(bucket.summary.mistakes[name] for bucket in found) == expected.mistakes[name]
    assert bits(last) == bits(all_at_once(plan(views=names), messages))


# -- repeated records ------------------------------------------------------------------------------------


def test_a_repeated_part_is_a_duplicate_and_other_content_a_conflict() -> None:
    whole = {"id": "a", "features": {"x": 1.0}}
    messages: list[Message] = [
        ("k", whole),
        ("k", whole),  # waits: the same part again
        ("k", {"id": "a", "features": {"x": 2.0}}),
        ("k", {"id": "a", "label": 1}),
        ("k", {"id": "a", "label": 3}),  # learned: another label of the same sign
        ("k", whole),
        ("k", {"id": "a", "label": -1}),
        ("j", {"id": "a", "label": -1}),  # another key's example
    ]
    for cuts in ([], list(range(9))):
        found = list(learn(plan(), messages, cuts))
        assert statuses(found) == Counter(learned=2, duplicate=2, rejected=3, pending=1, scored=0, expired=0)
        rejected = tables(found)["rejected"]
        assert [row["offset"] for row in rejected] == [2, 4, 6]
        assert {row["reason"] for row in rejected} == {"conflict"}
        assert all(label in rejected[2]["detail"] for label in ("'1'", "-1"))


def test_ids_are_text() -> None:
    messages: list[Message] = [("k", {"id": 43, "features": {"x": 1}}), ("k", {"id": "43", "label": 1})]
    assert statuses([all_at_once(plan(), messages)])["learned"] == 2


def test_an_id_that_is_no_longer_remembered_is_new() -> None:
    messages: list[Message] = [("k", {"id": i, "label": 1, "features": {"x": 1}}) for i in (1, 2, 3, 1, 3)]
    for cuts in ([], list(range(6))):
        assert statuses(list(learn(plan(remember_ids=2), messages, cuts)))["learned"] == 4
        assert statuses(list(learn(plan(remember_ids=0), messages, cuts)))["learned"] == 5
        assert statuses(list(learn(plan(), messages, cuts)))["duplicate"] == 2


# -- bounds ----------------------------------------------------------------------------------------------


def part(ident: int, **more: Any) -> Message:
    return "k", {"id": ident, "features": {"x": 1.0}, **more}


@pytest.mark.parametrize("cuts", [[], list(range(20))])
def test_the_oldest_leaves_when_too_many_wait(cuts: list[int]) -> None:
    messages = [part(i) for i in range(5)] + [("k", {"id": 0, "label": 1}), ("k", {"id": 4, "label": 1})]
    found = list(learn(plan(max_pending=3), messages, cuts))
    expired = tables(found)["expired"]
    assert [(row["key"], row["id"], row["reason"], row["offset"]) for row in expired] == [
        ("k", "0", "max_pending", 0),
        ("k", "1", "max_pending", 1),
        ("k", "2", "max_pending", 2),  # the late label of 0 waits in its place
    ]
    assert json.loads(expired[0]["value"]) == messages[0][1]
    assert statuses(found) == Counter(learned=2, pending=2, expired=3, scored=0, rejected=0, duplicate=0)


@pytest.mark.parametrize("cuts", [[], list(range(20))])
def test_age_in_records_counts_the_records_of_the_key(cuts: list[int]) -> None:
    other: Message = ("j", {"label": 1, "features": {"x": 1.0}})
    own: Message = ("k", {"label": 1, "features": {"x": 1.0}})
    messages = [part(0), other, own, other, own, ("k", {"id": 0, "label": 1}), part(1), own, own, own, own]
    found = list(learn(plan(max_age_records=3), messages, cuts))
    assert [(row["id"], row["reason"]) for row in tables(found)["expired"]] == [("1", "max_age_records")]
    assert statuses(found)["learned"] == 10


@pytest.mark.parametrize("cuts", [[], list(range(20))])
def test_age_in_event_time(cuts: list[int]) -> None:
    messages: list[Message] = [
        part(0, time=100.0),
        part(1, time="1970-01-01T00:01:50+00:00"),  # 110
        part(2),  # without a time it has no age
        part(3, time=160.5),  # 0 is older than a minute now
        ("k", {"id": 1, "label": 1, "time": 150}),
        part(4, time="soon"),
        part(4, time=10**400),
        part(5, time=1000),
    ]
    found = list(learn(plan(max_age=60), messages, cuts))
    written = tables(found)
    assert [(row["id"], row["reason"], row["offset"]) for row in written["expired"]] == [
        ("0", "max_age", 0),
        ("3", "max_age", 3),
    ]
    assert [row["reason"] for row in written["rejected"]] == ["bad_time", "bad_time"]
    assert statuses(found) == Counter(learned=2, pending=2, expired=2, rejected=2, scored=0, duplicate=0)


def test_a_keys_time_goes_on_when_nothing_waits() -> None:
    messages: list[Message] = [
        part(1, time=0),
        ("k", {"label": 1, "features": {"x": 1.0}, "time": 1000}),  # 1 leaves
        part(2, time=100),
        part(3, time=500),
    ]
    once, cut = (list(learn(plan(max_age=60, remember_ids=0), messages, cuts)) for cuts in ([], [0, 1, 2, 3]))
    assert bits(once[-1]) == bits(cut[-1])
    assert statuses(once) == statuses(cut)


def test_a_key_that_leaves_takes_its_parts_with_it() -> None:
    messages: list[Message] = [(f"key-{i}", {"id": 1, "features": {"x": 1.0}}) for i in range(10)]
    for cuts in ([], list(range(11))):
        found = list(learn(replace(plan(), max_keys=4), messages, cuts))
        expired = tables(found)["expired"]
        assert [row["key"] for row in expired] == [f"key-{i}" for i in range(6)]
        assert {row["reason"] for row in expired} == {"key_evicted"}
        assert statuses(found) == Counter(pending=4, expired=6, learned=0, scored=0, rejected=0, duplicate=0)


def test_state_stays_within_its_bound_where_labels_never_come() -> None:
    limited = plan(learners=["arow"], max_pending=20)
    blob, sizes, total = None, [], Counter[str]()
    for number in range(10):
        messages = [(f"key-{i % 50}", {"id": 5000 * number + i, "features": {"x": 1.0}}) for i in range(5000)]
        bucket = Bucket(limited, blob, number)
        bucket.learn(chunk(messages, 5000 * number))
        assert len(bucket.results()["expired"]) == 5000 - (50 * 20 if number == 0 else 0)
        total.update(bucket.summary.statuses)
        blob = bucket.to_bytes()
        sizes.append(len(blob))
    assert total["pending"] == 50 * 20
    assert total["expired"] == 50_000 - 50 * 20
    assert max(sizes) < 1.05 * sizes[0]


# -- what cannot be used ---------------------------------------------------------------------------------


def test_an_example_whose_label_contradicts_is_rejected_whole() -> None:
    text = replace(plan(task="binary"), settings=replace(plan().settings, positive="yes"))
    messages: list[Message] = [
        ("k", {"label": "no", "features": {"x": 1.0}}),
        ("k", {"id": 1, "features": {"x": 1.0}}),
        ("k", {"id": 1, "label": "perhaps"}),
        ("k", {"id": 1, "label": "perhaps", "features": {"x": 1.0}}),
        ("k", {"id": 1, "label": "yes", "features": {"x": 1.0}}),
        ("k", {"id": 1, "label": "no"}),
    ]
    for cuts in ([], list(range(7))):
        found = list(learn(text, messages, cuts))
        assert [(row["offset"], row["reason"]) for row in tables(found)["rejected"]] == [
            (1, "not_binary"),
            (2, "not_binary"),
            (3, "not_binary"),  # the id is not finished: what was rejected may come again, corrected
            (5, "conflict"),
        ]
        assert statuses(found) == Counter(learned=2, rejected=4, pending=0, scored=0, duplicate=0, expired=0)


@pytest.mark.parametrize(
    ("views", "record", "reason"),
    [
        (None, {"id": 1}, "no_features"),
        (None, {"label": 1}, "no_features"),
        (None, {"id": 1, "views": {"v": {"x": 1}}}, "bad_view"),
        (["v", "w"], {"views": {"v": {"x": 1}}}, "bad_view"),
        (["v", "w"], {"id": 1, "views": {"z": {"x": 1}}}, "bad_view"),
        (["v", "w"], {"id": 1, "views": {}}, "bad_view"),
        (["v", "w"], {"id": 1, "features": {"x": 1}}, "bad_view"),
        (["v", "w"], {"id": 1, "views": {"v": {"(bias)": 1}}}, "reserved_name"),
    ],
)
def test_what_can_never_be_part_of_an_example_is_rejected(
    views: list[str] | None, record: dict[str, Any], reason: str
) -> None:
    found = all_at_once(plan(views=views), [("k", record)])
    assert found.summary.reasons == {reason: 1}


def test_what_is_rejected_does_not_depend_on_its_neighbours() -> None:
    both = ("k", {"label": 1, "features": {"x": 1}, "views": {"v": {"x": 1}}})
    alone: Message = ("k", {"id": 1, "label": 1})
    for cuts in ([], [1]):
        found = list(learn(plan(), [both, alone], cuts))
        assert statuses(found)["rejected"] == 1
        assert statuses(found)["pending"] == 1


def test_views_that_together_have_too_many_features() -> None:
    small = plan(views=["v", "w"])
    small = replace(small, settings=replace(small.settings, max_features=5))
    messages: list[Message] = [
        ("k", {"id": 1, "views": {name: {f"{name}{i}": 1.0 for i in range(3)}}}) for name in ("v", "w")
    ]
    found = all_at_once(small, messages)
    assert found.summary.reasons == {"too_many_features": 1}
    assert found.summary.statuses["pending"] == 1


# -- damaged state ---------------------------------------------------------------------------------------


def room(**changes: Any) -> bytes:
    """Return the state of a key in which one scored example waits and one is finished, with changes to its room."""
    bucket = all_at_once(plan(), [part(1), ("k", {"id": 2, "label": 1, "features": {"x": 1.0}})])
    found = codec.decode(bucket.to_bytes())
    content = msgspec.msgpack.decode(found.join_buffers[0], type=Stored)
    pending = content.pending["1"]
    for name, value in changes.items():
        if OWNER[name] is Part:
            pending.parts[0] = msgspec.structs.replace(pending.parts[0], **{name: value})
        else:
            setattr({Stored: content, Pending: pending, Score: pending.score}[OWNER[name]], name, value)
    found.join_buffers[0] = msgspec.msgpack.encode(content)
    return codec.encode(found)


#: Whose field it is; ``score`` is taken to be the example's.
OWNER = {name: owner for owner in (Stored, Score, Pending, Part) for name in owner.__struct_fields__}


@pytest.mark.parametrize(
    "changes",
    [
        {"predicted": [10**6] * 3},
        {"predicted": [-5] * 3},
        {"predicted": [0]},
        {"known": 2**40},
        {"score": None},
        {"parts": []},
        {"offset": 2**63},
        {"partition": -1},
        {"value": b"no record"},
        {"ids": b"12345678" * 2},
        {"names": []},
        {"record": Record(label=1)},
        {"clock": "late"},
    ],
    ids=str,
)
def test_a_damaged_room_is_told(changes: dict[str, Any]) -> None:
    bucket = Bucket(plan(), room(**changes))
    with pytest.raises(StateFormatError):
        bucket.learn(chunk([("k", {"id": 1, "label": 1})], 2))


def test_a_room_that_is_not_damaged() -> None:
    bucket = Bucket(plan(), room())
    bucket.learn(chunk([("k", {"id": 1, "label": 1}), ("k", {"id": 2, "label": 1})], 2))
    assert bucket.summary.statuses == {
        "learned": 2, "scored": 0, "pending": -1, "duplicate": 1, "rejected": 0, "expired": 0
    }  # fmt: skip
