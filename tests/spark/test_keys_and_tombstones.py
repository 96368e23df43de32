"""Through the real broker: keys in every form meet the same models; tombstones forget, in stream and replay alike."""

import json
import struct
import uuid
from pathlib import Path

import msgspec
import pytest

from palearn import tables
from palearn.errors import ConfigError
from palearn.spark.export import export
from palearn.spark.forget import forget
from tests.spark.conftest import (
    assert_accounts_balance,
    assert_same_learning,
    by_key,
    config,
    learn_without_spark,
    make_topic,
    replay,
    send,
    stream,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]
LEARNERS = [{"algorithm": "pa1", "C": 0.1}]
#: Numbers of keys, and what must be rejected in every form but text.
NUMBERS, MISFIT = [0, 1, -1, 2**31 - 1, -(2**31), 7], b"\xff\x00misfits"
FORMS = {
    "long": (lambda n: struct.pack(">q", n), str),
    "int": (lambda n: struct.pack(">i", n), str),
    "uuid": (lambda n: uuid.UUID(int=n % 2**64).bytes, lambda n: str(uuid.UUID(int=n % 2**64))),
    "json": (lambda n: json.dumps({"user": n}).encode(), str),
}


def value(n: int) -> bytes:
    return json.dumps({"label": (-1) ** n, "features": {"f": n % 5, "g": 1}}).encode()


@pytest.mark.parametrize("form", FORMS)
def test_keys_of_a_form(form: str, broker: str, topic: str, tmp_path: Path) -> None:
    write, text = FORMS[form]
    make_topic(broker, topic, 2)
    records = [(topic, i % 2, write(n), value(i)) for i, n in enumerate(NUMBERS * 4)]
    messages = send(broker, [*records, (topic, 0, MISFIT, value(1)), (topic, 0, None, value(1))])
    rule = {"form": form} | ({"field": "user"} if form == "json" else {})
    out = stream(config(broker, topic, tmp_path, learners=LEARNERS, records={"key": rule}))
    assert_accounts_balance(out, len(messages))
    rejected = tables.read(out, "rejected").sort_values("offset")
    assert sorted(zip(rejected["key"], rejected["reason"], strict=True), key=str) == sorted(
        [(MISFIT, "bad_key"), (None, "no_key")], key=str
    )
    assert f"records.key.form: {form}" in rejected.set_index("reason").loc["bad_key", "detail"]
    names = {write(n): text(n).encode() for n in NUMBERS}
    good = [m._replace(key=names[m.key]) for m in messages if m.key in names]
    plain = config(broker, topic, tmp_path, learners=LEARNERS)
    assert_same_learning(out, learn_without_spark(plain, good))


def test_tombstones_forget_in_stream_and_replay(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    chosen = config(
        broker, topic, tmp_path, "source.kafka.max_offsets_per_trigger=7", learners=LEARNERS,
        records={"tombstone": "forget"},
    )  # fmt: skip
    keys = [b"ann", b"bob", b"eve"]
    records = [(topic, 0, keys[i % 3], value(i)) for i in range(30)]
    records[10:10], records[20:20] = [(topic, 0, b"ann", None)], [(topic, 0, b"eve", None)]
    records.append((topic, 0, b"bob", None))
    messages = send(broker, records)
    out = stream(chosen)
    assert_accounts_balance(out, len(messages))
    forgotten = tables.read(out, "forgotten").sort_values("offset")
    assert list(forgotten["key"]) == ["ann", "eve", "bob"]
    assert list(forgotten["offset"]) == [m.offset for m in messages if m.value is None]
    assert (forgotten["asked_at"].dt.year >= 2024).all()
    models = tables.latest_models(out)
    assert sorted(models["key"]) == ["ann", "eve"]
    assert "bob" in set(tables.read(out, "models")["key"])  # the history is still there: palearn forget removes it
    last = {m.key: m.offset for m in messages if m.value is None}
    after = [m for m in messages if m.value is not None and m.offset > last[m.key]]
    expected = by_key(learn_without_spark(chosen, after)["models"])
    assert by_key(models).equals(expected)

    again = config(broker, topic, tmp_path, learners=LEARNERS, records={"tombstone": "forget"})
    replayed = msgspec.structs.replace(again.output, path=str(tmp_path / "replayed"))
    other = replay(msgspec.structs.replace(again, output=replayed))
    assert by_key(tables.latest_models(other)).equals(expected)


def test_a_stopped_job_forgets_a_key(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    more = ["output.predictions={}", "output.models.every_batches=2"]
    chosen = config(broker, topic, tmp_path, *more, learners=LEARNERS)
    keys = [b"ann", b"bob", b"eve"]
    first = send(broker, [(topic, 0, keys[i % 3], value(i)) for i in range(9)])
    out = stream(chosen)
    found = forget(chosen, "bob", master="local[2]")
    assert found["state"]
    assert found["rows"] == {"metrics": 1, "models": 1, "predictions": 3}
    for name in ("models", "metrics", "predictions"):
        assert set(tables.read(out, name)["key"].dropna()) == {"ann", "eve"}
    assert export(chosen.checkpoint, str(tmp_path / "exported"), master="local[2]") == 2
    with pytest.raises(ConfigError, match="has the key 'nobody'"):
        forget(chosen, "nobody", master="local[2]")

    second = send(broker, [(topic, 0, keys[i % 3], value(i)) for i in range(9, 15)])
    stream(chosen)
    stream(chosen)
    assert_accounts_balance(out, 15)
    kept = [m for m in [*first, *second] if m.key != b"bob" or m in second]
    assert by_key(tables.latest_models(out)).equals(by_key(learn_without_spark(chosen, kept)["models"]))
