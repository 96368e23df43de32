"""Bytes of models: what goes in comes out, old bytes are read for ever, damaged bytes are told."""

import json
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palearn
from palearn.engine.bucket import Bucket
from palearn.errors import StateFormatError
from palearn.models import codec, counters
from palearn.models.keyed import Models
from palearn.models.state import Settings
from tests.golden import rebuild
from tests.streams import chunk, learner, plan, rows, run

GOLDEN = sorted(rebuild.FOLDER.glob("v*.palearn"))
CASES = list(rebuild.cases())


def small_blob() -> bytes:
    return palearn.make("pa1").learn_one({"a": 1.0}, 1).to_bytes()


def sealed(blob: bytes) -> bytes:
    """Give changed bytes the checksum that fits them."""
    return blob[:-4] + struct.pack("<I", zlib.crc32(blob[:-4]))


# -- golden bytes -----------------------------------------------------------------------------------------


def test_every_case_has_golden_bytes_of_this_version() -> None:
    assert {path.stem for path in GOLDEN} >= {f"v{codec.VERSION}-{name}" for name in CASES}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_bytes_decode_to_what_was_written_down(path: Path) -> None:
    promised = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert rebuild.same(rebuild.describe(path.read_bytes()), promised)


@pytest.mark.parametrize("name", CASES)
def test_streams_of_the_golden_cases_still_learn_the_same_bits(name: str) -> None:
    promised = json.loads((rebuild.FOLDER / f"v{codec.VERSION}-{name}.json").read_text(encoding="utf-8"))
    assert rebuild.describe(rebuild.build(name)) == promised


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_models_can_go_on(path: Path) -> None:
    models = codec.decode(path.read_bytes())
    bucket = Bucket(plan(*models.learners, **_fields(models.settings)), path.read_bytes())
    views = models.settings.views
    label = models.settings.positive if models.settings.positive is not None else 1
    value: dict[str, Any] = {"label": label, "features": {"f1": 1, "brand new": 2}}
    if views:
        value["views"] = {view: value["features"] for view in views}
    n = len(models.keys)
    bucket.learn(chunk(rows([("a", value), ("new", value)], first=10_000)))
    assert bucket.summary.statuses["learned"] == 2
    assert len(bucket.models.keys) == n + (1 if "a" in models.keys else 2)
    assert rebuild.describe(bucket.to_bytes())["models"] != rebuild.describe(path.read_bytes())["models"]


def _fields(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


def test_golden_weights_of_one_case_by_hand() -> None:
    """The recorded text says what the arrays say: the file is not merely the code's own echo."""
    promised = json.loads((rebuild.FOLDER / "v1-first-order.json").read_text(encoding="utf-8"))
    first = next(row for row in promised["models"] if row["key"] == "a" and row["learner"] == "pa")
    models = codec.decode((rebuild.FOLDER / "v1-first-order.palearn").read_bytes())
    k = models.keys.index("a")
    names = [models.vocabulary.names[j] for j in models.feature[models.feature_ptr[k] : models.feature_ptr[k + 1]]]
    start = models.layout.start[k]
    w = models.states[0].arrays["w"][start : start + len(names)]
    assert first["features"] == names
    assert [float.fromhex(text) for text in first["weights"]] == w.tolist()


def test_rebuild_says_when_a_change_breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(rebuild, "FOLDER", tmp_path)
    one = {"empty": rebuild.cases()["empty"], "full": rebuild.cases()["full"]}
    monkeypatch.setattr(rebuild, "cases", lambda: one)
    assert rebuild.main([]) == 0
    assert rebuild.main([]) == 0
    assert capsys.readouterr().out.count("as it was") == 2
    file = tmp_path / f"v{codec.VERSION}-full.palearn"
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    assert rebuild.main([]) == 1
    assert "BREAKING" in capsys.readouterr().out
    assert file.read_bytes() == good[:-1]
    assert rebuild.main(["--accept"]) == 0
    assert file.read_bytes() == good


# -- round trips ------------------------------------------------------------------------------------------

LABELS = st.sampled_from(["x", "", "ключ", 1, -1, 0, 2.5, 1e300, True, False])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
ITEMS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.fixed_dictionaries(
            {"features": st.dictionaries(TEXT, st.floats(-1e6, 1e6), max_size=4)}, optional={"label": LABELS}
        ),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ITEMS, st.integers(1, 20), st.booleans())
def test_round_trip(items: list[Any], window: int, bias: bool) -> None:
    learners = (learner("spa", task="multiclass"), learner("arow", task="multiclass", covariance="full"))
    made = plan(*learners, task="multiclass", window=window, bias=bias)
    bucket = Bucket(made)
    bucket.learn(chunk(rows(items)))
    blob = bucket.to_bytes()
    models = codec.decode(blob)
    assert codec.encode(models) == blob
    before = bucket.models
    assert (models.settings, models.keys, models.labels) == (before.settings, before.keys, before.labels)
    assert [[type(x) for x in row] for row in models.labels] == [[type(x) for x in row] for row in before.labels]
    assert models.clock == before.clock
    np.testing.assert_array_equal(models.counts, before.counts)
    for one, other in zip(models.states, before.states, strict=True):
        for name in one.arrays:
            assert one.arrays[name].tobytes() == other.arrays[name].tobytes()
        assert one.ring.tobytes() == other.ring.tobytes()
        np.testing.assert_array_equal(one.counts, other.counts)
        np.testing.assert_array_equal(one.hits, other.hits)
        np.testing.assert_array_equal(one.predictions, other.predictions)
        assert one.sums.tobytes() == other.sums.tobytes()


@pytest.mark.parametrize("label", [10**18, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("value", [1, "text"], ids=["fast", "careful"])
def test_large_labels_survive(label: int, task: str, value: Any) -> None:
    made = plan(learner("pa1", task=task), task=task)
    stream = rows([("k", {"label": label, "features": {"f": value}})] * 2)
    whole, cut = run(made, stream), run(made, stream, cuts=[1])
    assert cut.models == whole.models
    assert whole.total.statuses["learned"] == 2


@pytest.mark.parametrize("label", [2**63, -(2**63) - 1, 10**30, 10**400])
@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("value", [1, "text"], ids=["fast", "careful"])
def test_labels_of_more_than_64_bits_are_refused(label: int, task: str, value: Any) -> None:
    ran = run(plan(learner("pa1", task=task), task=task), rows([("k", {"label": label, "features": {"f": value}})]))
    assert ran.total.statuses["rejected"] == 1
    assert ran.total.reasons == {"bad_label": 1}


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("bias", [True, False])
def test_models_of_no_key(task: str, bias: bool) -> None:
    settings = Settings(task=task, bias=bias)
    blob = codec.encode(Models(settings, [learner("arow", task=task)]))
    again = codec.decode(blob)
    assert (again.keys, again.settings) == ([], settings)
    assert codec.encode(again) == blob


def test_names_that_no_model_uses_are_dropped() -> None:
    scored = {"features": {"only-scored": 1}}
    rejected = {"label": 1, "features": {"only-rejected": 1, "(bias)": 1}}
    learned = {"label": 1, "features": {"learned": 1}}
    bucket = Bucket(plan(learner("pa1")))
    bucket.learn(chunk(rows([("k", scored), ("k", rejected), ("k", learned)])))
    blob = bucket.to_bytes()
    assert b"learned" in blob
    assert b"only-scored" not in blob
    assert b"only-rejected" not in blob
    assert codec.decode(blob).vocabulary.names == ["(bias)", "learned"]


def test_names_that_were_pushed_out_are_dropped() -> None:
    values = [{"label": 1, "features": {f"name{i}": 1 + i}} for i in range(5)]
    bucket = Bucket(plan(learner("pa1"), max_features=2))
    bucket.learn(chunk(rows([("k", value) for value in values])))
    blob = bucket.to_bytes()
    held = codec.decode(blob).vocabulary.names
    assert len(held) == 3
    for i in range(5):
        assert (f"name{i}".encode() in blob) == (f"name{i}" in held)


# -- damage -----------------------------------------------------------------------------------------------


def test_every_flipped_byte_is_told() -> None:
    blob = small_blob()
    assert codec.decode(blob).keys == [""]
    for at in range(len(blob)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(blob)
            damaged[at] ^= mask
            with pytest.raises(StateFormatError):
                codec.decode(bytes(damaged))


def test_every_truncation_is_told() -> None:
    blob = small_blob()
    for size in range(len(blob)):
        with pytest.raises(StateFormatError):
            codec.decode(blob[:size])


def test_bytes_too_many_are_told() -> None:
    with pytest.raises(StateFormatError, match="damaged"):
        codec.decode(small_blob() + b"\0")


@pytest.mark.parametrize("blob", [b"", b"PALN", b"x" * 100, pickle.dumps({"a": 1})], ids=["", "magic", "x", "pickle"])
def test_other_bytes_are_told(blob: bytes) -> None:
    with pytest.raises(StateFormatError, match="no palearn models"):
        codec.decode(blob)


@pytest.mark.parametrize("seal", [sealed, bytes], ids=["checksum", "no checksum"])
def test_a_newer_version_says_so(seal: Any) -> None:
    blob = small_blob()
    newer = seal(blob[:4] + struct.pack("<H", codec.VERSION + 1) + blob[6:])
    with pytest.raises(StateFormatError, match=rf"version {codec.VERSION + 1} is newer .*upgrade"):
        codec.decode(newer)


def test_a_version_that_never_was_is_told() -> None:
    blob = small_blob()
    with pytest.raises(StateFormatError):
        codec.decode(sealed(blob[:4] + struct.pack("<H", 0) + blob[6:]))


def rewritten(blob: bytes, change: Any) -> bytes:
    """Change the Arrow batch inside a blob and seal it again."""
    batch = pa.ipc.open_stream(blob[6:-4]).read_next_batch()
    batch = change(batch)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sealed(blob[:6] + sink.getvalue().to_pybytes() + b"\0\0\0\0")


def without_metadata(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.replace_schema_metadata(None)


def shorter_weights(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("0.w")
    return batch.set_column(at, "0.w", pa.array([[1.0]], pa.list_(pa.float64())))


def another_learner(batch: pa.RecordBatch) -> pa.RecordBatch:
    meta = batch.schema.metadata[b"palearn"].replace(b'"pa1"', b'"pa0"')
    return batch.replace_schema_metadata({b"palearn": meta})


def no_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns(["0.ring"])


def not_json(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.replace_schema_metadata({b"palearn": b"{"})


@pytest.mark.parametrize("change", [without_metadata, shorter_weights, another_learner, no_column, not_json])
def test_content_that_does_not_fit_is_told(change: Any) -> None:
    with pytest.raises(StateFormatError):
        codec.decode(rewritten(small_blob(), change))


@pytest.mark.parametrize("body", [b"", b"garbage", b"\xff" * 64, b"\0" * 64])
def test_a_body_that_is_no_arrow_is_told(body: bytes) -> None:
    with pytest.raises(StateFormatError):
        codec.decode(sealed(b"PALN" + struct.pack("<H", codec.VERSION) + body + b"\0\0\0\0"))


def test_counts_added_since_are_zero() -> None:
    """A later version may append counts: bytes of before are read with zeros in their place."""

    def fewer(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index("counts")
        table = np.asarray(batch.column("counts").flatten()).reshape(1, -1)[:, :-1]
        short = pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), table.shape[1])
        return batch.set_column(at, "counts", short)

    blob = small_blob()
    new, old = codec.decode(blob).counts, codec.decode(rewritten(blob, fewer)).counts
    assert old.shape == (1, len(counters.KEY_COUNTS))
    np.testing.assert_array_equal(old[:, :-1], new[:, :-1])
    assert old[0, -1] == 0


def test_rewriting_without_a_change_is_read() -> None:
    blob = small_blob()
    assert rebuild.describe(rewritten(blob, lambda batch: batch)) == rebuild.describe(blob)


def test_nothing_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    for path in GOLDEN:
        codec.decode(path.read_bytes())
