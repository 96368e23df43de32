"""Data that was made to hurt: no crash, no hang, no swelling; only a palearn error, or a record with its reason."""

import gzip
import io
import json
import lzma
import resource
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palearn
from benchmarks import hostile
from palearn import arrow_limits, files, records
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket
from palearn.errors import FileFormatError, PalearnError, RecordError, StateFormatError
from palearn.files import text_lines
from palearn.models import codec
from palearn.records import REASONS, Record
from palearn.tables import weights
from tests.streams import chunk, learner, plan, rows, seconds
from tests.tables.test_reading import write

MB = 2**20
#: Names and keys that mean something to a shell, a path, a page, a terminal, a plot or a table.
NAMES = ["../../x", "/etc/passwd", "<script>alert(1)</script>", "$(rm -rf x)", "`rm`", "a\0b", "new\nline", "$\\frac{$"]
NAMES += [
    "\x1b[2J",
    "[/red]",
    "[bold]b",
    "=cmd()",
    "a:b",
    "%s{0}",
    "\u202egnp",
    "'; drop table",
    "&amp;",
    "con",
    "\\",
    "..",
]


# -- mutated inputs, in a process of their own ------------------------------------------------------------


def test_ten_thousand_mutated_inputs(record_property: Callable[[str, Any], None]) -> None:
    """What `python -m benchmarks.hostile --inputs 1000000` does with a million."""
    found = hostile.run(hostile.shares(10_000))
    assert sum(kind["inputs"] for kind in found.values()) >= 9_990
    grown = {name: round(kind["grown_MB"], 1) for name, kind in found.items()}
    record_property("grown_MB", grown)
    print("MB that a kind of inputs added to the process:", grown)
    used, refused = ({n for n, kind in found.items() if bool(set(kind["told"]) - {"used"}) is x} for x in (False, True))
    assert not used, "these kinds of inputs were never refused: are they changed at all?"
    assert refused == set(hostile.KINDS)


@pytest.mark.parametrize(
    ("death", "told"),
    [
        ("import os; os.kill(os.getpid(), 11)", "ended with -11 at --kind record --seed 0"),
        ("raise KeyError(7)", r"--kind record --seed 0: KeyError\(7\)"),
        ("held = b'x' * (300 * 2**20)", r"--kind record --seed 0: \d+ MB for \d+ bytes, 64 allowed"),
        (
            "h.SECONDS = 0.5; import signal; signal.setitimer(signal.ITIMER_REAL, 0.5)\n        while True: pass",
            "--kind record --seed 0: .*no answer after 0.5 s",
        ),
    ],
)
def test_an_input_that_does_harm_is_named(death: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, benchmarks.hostile as h\n"
        f"def use(data):\n    if use.calls > 11:\n        {death}\n    use.calls += 1\n    return 'used'\n"
        "use.calls = 0\n"
        "h.KINDS['record'] = h.KINDS['record']._replace(use=use)\n"
        "h.main()\n"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        hostile.subprocess, "Popen", lambda command, **more: popen([sys.executable, "-c", code, *command[3:]], **more)
    )
    with pytest.raises(hostile.TooMuch, match=told):
        hostile.run({"record": 3})


# -- states -----------------------------------------------------------------------------------------------


def blob_of(batch: pa.RecordBatch, *, compression: str | None = None) -> bytes:
    """Seal a batch as a state."""
    sink = pa.BufferOutputStream()
    sink.write(struct.pack("<4sH", codec.MAGIC, codec.VERSION))
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sealed(sink.getvalue().to_pybytes())


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def batch_of(blob: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(blob)[6:-4]) as reader:
        return reader.read_next_batch()


def state(**settings: Any) -> bytes:
    """State of three keys, of two learners."""
    task = {"task": settings["task"]} if "task" in settings else {}
    bucket = Bucket(plan(learner("arow", **task), learner("pa1", **task), **settings))
    labels = ["x", "y", "z"] if task else [1, -1, 1]
    bucket.learn(chunk(rows([(k, {"label": y, "features": {"a": 1, k: 2}}) for k in "klm" for y in labels])))
    return bucket.to_bytes()


def changed(batch: pa.RecordBatch, name: str, change: Callable[[pa.Array], pa.Array]) -> bytes:
    at = batch.schema.get_field_index(name)
    column = change(batch.column(at))
    fields = list(batch.schema)
    fields[at] = pa.field(name, column.type)
    return blob_of(
        pa.record_batch(
            [*batch.columns[:at], column, *batch.columns[at + 1 :]], pa.schema(fields, batch.schema.metadata)
        )
    )


def moved(column: pa.Array, offsets: list[int]) -> pa.Array:
    """Return a list column with other offsets, which nobody has looked at."""
    return pa.Array.from_buffers(
        column.type, len(column), [None, pa.py_buffer(np.array(offsets, np.int32))], children=[column.values]
    )


def numbers(column: pa.Array, **at: int) -> pa.Array:
    """Return a fixed-size-list column with the first row's numbers at some places changed."""
    table = np.array(column.flatten()).reshape(len(column), -1)
    for place, value in at.items():
        table[0, int(place[1:])] = value
    return pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), table.shape[1])


def dictionary(column: pa.Array, indices: list[int]) -> pa.Array:
    """Return a list column of names with other numbers of names."""
    raw = pa.py_buffer(np.array(indices, np.int16))
    values = pa.DictionaryArray.from_buffers(column.values.type, len(indices), [None, raw], column.values.dictionary)
    return pa.ListArray.from_arrays(column.offsets, values)


BINARY: dict[str, tuple[str, Callable[[pa.Array], pa.Array]]] = {
    "offsets that go back": ("features", lambda c: moved(c, [0, 3, 1, 9])),
    "offsets that end early": ("features", lambda c: moved(c, [0, 3, 6, 8])),
    "offsets that do not begin at 0": ("0.w", lambda c: moved(c, [1, 3, 6, 9])),
    "a list too many": ("label_counts", lambda c: moved(c, [0, 2, 4, 4])),
    "names that are not there": ("features", lambda c: dictionary(c, [0, 1, 2, 0, 1, 99, 0, 1, 4])),
    "names below 0": ("features", lambda c: dictionary(c, [0, 1, 2, 0, 1, -5, 0, 1, 4])),
    "a key without bias": ("features", lambda c: dictionary(c, [0, 1, 2, 1, 0, 3, 0, 1, 4])),
    "a key twice": ("key", lambda c: pa.array(["k", "k", "m"])),
    "a key that is null": ("key", lambda c: pa.array(["k", None, "m"])),
    "keys that are numbers": ("key", lambda c: pa.array([1, 2, 3])),
    "a topic that is null": ("last_topic", lambda c: pa.array(["k", None, "m"])),
    "labels that are lists": ("labels", lambda c: pa.array([["[1]", "1"], ["-1", "1"], ["-1", "1"]])),
    "labels beyond 64 bits": ("labels", lambda c: pa.array([["9" * 30, "1"], ["-1", "1"], ["-1", "1"]])),
    "labels that are no JSON": ("labels", lambda c: pa.array([["{", "1"], ["-1", "1"], ["-1", "1"]])),
    "three labels": ("labels", lambda c: pa.array([["-1", "1", "2"], ["-1", "1"], ["-1", "1"]])),
    "a last label that is none": ("counts", lambda c: numbers(c, _3=2)),
    "a last label below none": ("counts", lambda c: numbers(c, _3=-2)),
    "examples below 0": ("counts", lambda c: numbers(c, _2=-1)),
    "examples without end": ("counts", lambda c: numbers(c, _2=2**63 - 1)),
    "more examples than bits": ("counts", lambda c: numbers(c, _2=900)),
    "a window too long": ("1.ring", lambda c: pa.array([[1, 1], [1], [1]], pa.list_(pa.uint8()))),
    "hits of no class": ("0.hits", lambda c: pa.array([[1], [1], [1]], pa.list_(pa.int64()))),
    "predictions of no class": ("1.predictions", lambda c: pa.array([[1] * 3] * 3, pa.list_(pa.int64()))),
    "a weight too few": ("0.w", lambda c: pa.array([[0.5] * 3, [0.5] * 3, [0.5] * 2])),
    "weights that are integers": ("0.w", lambda c: pa.array([[1] * 3] * 3)),
    "weights that are null": ("0.w", lambda c: pa.array([[None] * 3] * 3, pa.list_(pa.float64()))),
    "sums that are null": ("0.sums", lambda c: pa.array([[None] * 6] * 3, pa.list_(pa.float64(), 6))),
    "more counts than there are": ("counts", lambda c: pa.array([[0] * 11] * 3, pa.list_(pa.int64(), 11))),
}  # fmt: skip


@pytest.mark.parametrize("case", BINARY)
def test_a_state_that_no_kernel_could_use_is_refused(case: str) -> None:
    name, change = BINARY[case]
    batch = batch_of(state())
    assert codec.decode(changed(batch, name, lambda column: column)).keys == ["k", "l", "m"]
    with pytest.raises(StateFormatError, match="content"):
        codec.decode(changed(batch, name, change))


@pytest.mark.parametrize(
    "labels",
    [
        [['"x"', '"y"', None]] * 3,
        [['"x"', '"y"']] * 3,
        [['"x"', '"y"', '"z"', '"z"']] * 3,
    ],
)
def test_classes_that_a_state_does_not_have_are_refused(labels: list[list[str | None]]) -> None:
    batch = batch_of(state(task="multiclass"))
    with pytest.raises(StateFormatError, match="content"):
        codec.decode(changed(batch, "labels", lambda column: pa.array(labels)))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("settings", "window", 0),
        ("settings", "window", 2**40),
        ("settings", "max_features", 0),
        ("settings", "max_features", 2**70),
        ("settings", "task", "regression"),
        ("settings", "views", ["a", "a"]),
        ("settings", "views", ["a:b", "c"]),
        ("settings", "positive", 2**70),
        ("learners", "view", "page"),
        ("learners", "algorithm", "eval"),
        ("learners", "params", {"r": -1}),
        ("clock", None, -1),
        ("clock", None, 2**80),
        ("ties", None, ["both"]),
    ],
)
def test_settings_that_cannot_be_are_refused(part: str, field: str | None, value: Any) -> None:
    batch = batch_of(palearn.make("arow").learn_one({"a": 1}, 1).to_bytes())
    meta = msgspec.json.decode(batch.schema.metadata[b"palearn"])
    if field is None:
        meta[part] = value
    else:
        (meta[part] if part == "settings" else meta[part][0])[field] = value
    described = {b"palearn": json.dumps(meta).encode()}
    with pytest.raises(StateFormatError):
        palearn.from_bytes(blob_of(batch.replace_schema_metadata(described)))


def test_a_queue_of_no_end_does_not_wrap_around() -> None:
    model = palearn.make("pa_mean1", queue=1, bias=False).learn_one({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, 1)
    batch = batch_of(model.to_bytes())
    meta = msgspec.json.decode(batch.schema.metadata[b"palearn"])
    meta["learners"][0]["params"]["queue"] = 2**62  # four features of so many numbers each are 0 numbers in 64 bits
    batch = batch.replace_schema_metadata({b"palearn": json.dumps(meta).encode()})
    with pytest.raises(StateFormatError, match="content"):
        codec.decode(changed(batch, "0.past", lambda column: pa.array([[]], pa.list_(pa.float64()))))


def test_a_buffer_that_claims_more_than_lz4_makes_is_refused_before_it_is_allocated() -> None:
    """The claimed sizes are the integers before each compressed buffer; half a gigabyte would be allocated at once."""
    batch = pa.record_batch([pa.array([0.0] * 100_000)], names=["x"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    honest = sink.getvalue().to_pybytes()
    arrow_limits.check_claims(pa.py_buffer(honest))
    made_up = honest.replace(struct.pack("<q", 800_000), struct.pack("<q", 512 * MB))
    assert made_up != honest
    with pytest.raises(ValueError, match="255"):
        arrow_limits.check_claims(pa.py_buffer(made_up))
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(StateFormatError, match="255"):
        codec.decode(sealed(struct.pack("<4sH", codec.MAGIC, codec.VERSION) + made_up))
    assert pa.default_memory_pool().max_memory() == before


def test_dictionaries_count_among_what_is_claimed() -> None:
    batch = batch_of(state())
    blob = blob_of(batch, compression="lz4")
    names = batch.column(batch.schema.get_field_index("features")).values.dictionary
    size = struct.pack("<q", sum(len(name.as_py()) for name in names))
    swollen = blob[:-4].replace(size, struct.pack("<q", 2**33))
    assert swollen != blob[:-4]
    with pytest.raises(StateFormatError, match="255"):
        codec.decode(sealed(swollen))


def test_a_room_that_arrow_has_no_place_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    models = codec.decode(palearn.make("pa").learn_one({"a": 1}, 1).to_bytes())
    monkeypatch.setattr(codec, "_MOST_NUMBERS", 100)
    models.join_buffers = [bytes(101)]
    with pytest.raises(StateFormatError, match=r"have 101 bytes.*join\.max_pending"):
        codec.encode(models)


# -- records ----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.dictionaries(st.sampled_from(["label", "features", "views", "x", "id", "weight", "time", "y"]), JSON)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(FIELDS | JSON, min_size=1, max_size=4), st.sampled_from([(), ("page", "link")]))
def test_any_json_is_learned_or_rejected_with_a_reason(values: list[Any], views: tuple[str, ...]) -> None:
    bucket = Bucket(plan(learner("arow"), views=views))
    bucket.learn(chunk(rows([("k", json.dumps(value).encode()) for value in values])))
    assert bucket.summary.records == sum(bucket.summary.statuses.values()) == len(values)
    assert set(bucket.summary.reasons) <= set(REASONS)
    bucket.results()
    codec.decode(bucket.to_bytes())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_record_or_rejected_with_a_reason(value: bytes) -> None:
    (found,) = records.decode_values([value], MB)
    assert isinstance(found, Record) or (isinstance(found, RecordError) and found.reason in REASONS)


#: One MiB each -> why it is refused. What a record of so many bytes may take while it is read is stated in docs.
AMPLIFIED = {
    "a bag": (b'{"features":{"' + b"n" * MB + b'":["a"' + b',"b"' * (MB // 4) + b"]}}", "name_too_long"),
    "zeros": (b'{"label":1,"x":[0' + b",0" * (MB // 2) + b"]}", "too_many_features"),
    "nested": (b"[" * MB, "not_json"),
    "one integer": (b'{"label":' + b"9" * MB + b"}", "not_json"),
    "LIBSVM": (b'{"features":"' + b" ".join(b"%d:1" % i for i in range(MB // 10)) + b'"}', "too_many_features"),
    "names": (b'{"features":{' + b",".join(b'"%x":0' % i for i in range(MB // 10)) + b"}}", "too_many_features"),
    "views": (b'{"views":{' + b",".join(b'"%x":{}' % i for i in range(MB // 10)) + b"}}", "bad_view"),
}  # fmt: skip


@pytest.mark.parametrize("case", AMPLIFIED)
def test_a_record_takes_at_most_a_hundred_times_its_bytes(case: str) -> None:
    value, reason = AMPLIFIED[case]
    bucket = Bucket(plan(learner("arow")))
    bucket.plan = plan(learner("arow"))
    tracemalloc.start()
    try:
        with seconds(60):
            found = records.decode_values([value], 2 * len(value), features=10_000)
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(value) + MB
    if isinstance(found[0], RecordError):
        assert found[0].reason == reason
    else:
        assert reason == "bad_view"


def test_records_with_too_many_features_are_not_held_until_all_are_read() -> None:
    values = [b'{"label":1,"x":[0' + b",0" * 50_000 + b"]}"] * 10
    tracemalloc.start()
    try:
        found = records.decode_values(values, 2 * MB, features=10_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [fault.reason for fault in found if isinstance(fault, RecordError)] == ["too_many_features"] * 10
    assert peak < 100 * len(values[0])


def test_the_reason_does_not_depend_on_the_other_records_of_a_batch() -> None:
    many = json.dumps({"label": "text", "features": dict.fromkeys(map(str, range(20)), 1)}).encode()
    reasons = []
    for other in (b'{"label":1,"features":{"a":1}}', b"{"):
        bucket = Bucket(plan(learner("arow"), max_features=10))
        bucket.learn(chunk(rows([("k", many), ("k", other)])))
        reasons.append(set(bucket.summary.reasons) - {"not_json"})
    assert reasons == [{"too_many_features"}] * 2


# -- files ------------------------------------------------------------------------------------------------


def test_a_header_whose_last_columns_are_one_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"c{i}" for i in range(300_000)) + ",label,label\n")
    with seconds(20), pytest.raises(FileFormatError, match="column 'label' stands twice"):
        list(files.read(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_bomb_is_read_in_pieces(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 MB of one line, and of lines, in some kilobytes."""
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", MB)
    line = b"1" + b" " * (2 * MB) + b"\n"
    path = tmp_path / f"a.libsvm{suffix}"
    with text_file(path, suffix) as out:
        for _ in range(60):
            out.write(line)
    assert path.stat().st_size < MB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = [row for _, row in files.read(path)]
    assert [row.reason for row in found if isinstance(row, RecordError)] == ["too_large"] * 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 40 * 1024


def text_file(path: Path, suffix: str) -> Any:
    if suffix == ".zst":
        return pa.output_stream(path, compression="zstd")
    return {".gz": gzip.open, ".bz2": __import__("bz2").open, ".xz": lzma.open}[suffix](path, "wb")


def test_xz_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**30}]
    path = tmp_path / "a.libsvm.xz"
    compressor = lzma.LZMACompressor(filters=[{**filters[0], "dict_size": 2**20}])
    data = bytearray(compressor.compress(b"1 1:1\n") + compressor.flush())
    # The dictionary's size is a byte of the block's header; 36 is a gibibyte. The header has a checksum of its own.
    size = (data[12] + 1) * 4
    at = data.index(b"\x21\x01", 12, 12 + size) + 2
    data[at] = 36
    data[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(data[12 : 12 + size - 4]))
    path.write_bytes(data)
    assert len(lzma.decompress(bytes(data))) == 6
    with pytest.raises(FileFormatError, match=r"[Mm]emory usage limit"):
        list(files.read(path))


def test_xz_of_several_streams_with_padding_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.libsvm.xz"
    path.write_bytes(b"\0\0\0\0".join(lzma.compress(b"%d 1:1\n" % i) for i in range(3)))
    assert [row.label for _, row in files.read(path) if isinstance(row, Record)] == [0, 1, 2]
    path.write_bytes(lzma.compress(b"1 1:1\n")[:-9])
    with pytest.raises(FileFormatError, match="after line"):
        list(files.read(path))


def test_a_row_of_parquet_that_a_few_bytes_make_huge_is_too_large(tmp_path: Path) -> None:
    pairs = pa.array([[("a", 1.0)] * 2_000_000, [("b", 1.0)]], pa.map_(pa.string(), pa.float64()))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"label": [1, -1], "features": pairs}), path)
    assert path.stat().st_size < 10_000
    tracemalloc.start()
    try:
        found = [row for _, row in files.read(path)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found[0], RecordError)
    assert found[0].reason == "too_large"
    assert found[1] == Record(label=-1, features={"b": 1.0})
    assert peak < 8 * MB


def test_packed_parquet_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet.xz"
    path.write_bytes(lzma.compress(bytes(80 * MB), preset=0))
    with pytest.raises(FileFormatError, match="more than 100 times"):
        list(files.read(path))


# -- names ------------------------------------------------------------------------------------------------


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """Output of a job whose keys, features and labels are hostile."""
    bucket = Bucket(plan(learner("arow", task="multiclass"), task="multiclass"))
    values = [(name, {"label": name, "features": {name: 1, "bag": [name], "x": name}}) for name in NAMES]
    bucket.learn(chunk(rows(values)))
    assert bucket.summary.statuses["learned"] == len(NAMES)
    totals = {"arow": {"n": len(NAMES), "mistakes": 0, "batch_n": len(NAMES), "batch_mistakes": 0}}
    for name, table in bucket.results().items():
        whole = result_rows.plain(table, name)
        if name == "metrics":
            whole = pa.concat_tables([whole, pa.Table.from_batches([result_rows.total_rows(totals)])])
        write(tmp_path / "out", name, 0, whole)
    return tmp_path / "out"


def test_names_come_back_as_they_were_and_become_no_path(named: Path) -> None:
    assert {file.relative_to(named).as_posix() for file in named.rglob("*.parquet")} == {
        f"{table}/batch_id=0/part-0.parquet" for table in ("models", "metrics", "predictions")
    }
    keys = pq.read_table(named / "models").column("key").to_pylist()
    assert sorted(keys) == sorted(NAMES)
    for name in NAMES:
        found = weights.strongest(named, weights.Choice(name), top=99)
        assert {x.feature for x in found} >= {name, f"bag={name}", f"x={name}"}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_text(name: str, named: Path, run: Any) -> None:
    if "\0" in name:
        return  # no program can be given such a word
    status, out, err = run("models", str(named), "--key", name)
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    assert "\0" not in out


def test_lists_reports_and_plots_show_names_as_text(named: Path, run: Any) -> None:
    for command in (["models", str(named)], ["report", str(named)]):
        status, out, err = run(*command)
        assert (status, err) == (0, "")
        assert "\x1b" not in out
        assert "\0" not in out
        assert "[/red]" in out
    for suffix in ("svg", "png"):
        picture = named.parent / f"plot.{suffix}"
        status, _, err = run("report", str(named), "--plot", str(picture))
        assert (status, err) == (0, "")
    page = (named.parent / "plot.svg").read_text()
    assert "<script>" not in page


def test_a_plot_s_title_is_no_formula_and_no_markup(named: Path, run: Any) -> None:
    """The largest key stands in the plot's title."""
    for number, name in enumerate(NAMES):
        bucket = Bucket(plan(learner("arow")))
        bucket.learn(chunk(rows([(name, {"label": 1, "features": {"a": 1}})])))
        table = result_rows.plain(bucket.results()["metrics"], "metrics")
        total = result_rows.total_rows({"arow": {"n": 1, "mistakes": 0, "batch_n": 1, "batch_mistakes": 0}})
        out = named.parent / f"one-{number}"
        write(out, "metrics", 0, pa.concat_tables([table, pa.Table.from_batches([total])]))
        status, _, err = run("report", str(out), "--plot", str(out / "plot.svg"))
        assert (status, err) == (0, "")
        assert "<script>" not in (out / "plot.svg").read_text()


def test_evaluate_shows_hostile_keys(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"label": 1, "features": {"user": name, name: 2}}) + "\n" for name in NAMES))
    status, out, err = run("evaluate", str(path), "--key", "user")
    assert (status, err) == (0, "")
    assert "[/red]" in out
    assert "\x1b" not in out


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5, unique=True))
def test_any_name_lives_in_a_model_s_bytes(names: list[str]) -> None:
    model = palearn.make("pa1")
    try:
        model.learn_one(dict.fromkeys(names, 1.0), 1)
    except PalearnError:
        return
    assert set(palearn.from_bytes(model.to_bytes()).weights()) == {*names, records.BIAS}


def test_csv_of_any_shape_is_read_in_time() -> None:
    quotes = b"a,label\n" + b'"' * 400_001 + b"\n" + b'1,"x\n' * 20_000
    with seconds(30):
        found = [row for _, row in files.read("quotes.csv", opened=io.BytesIO(quotes))]
    assert found
