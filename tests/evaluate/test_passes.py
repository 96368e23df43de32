"""Columns: LIBSVM text in bulk gives, bit for bit, the models, counts and reasons that records give one by one."""

import gzip
import itertools
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palearn import datasets, files
from palearn.engine.bucket import Bucket
from palearn.errors import FileFormatError, LabelError, LearnerError, RecordError
from palearn.evaluate import libsvm_blocks
from palearn.evaluate.passes import join, passes
from palearn.evaluate.prequential import ONE_KEY, evaluate
from palearn.files import text_lines
from palearn.models import codec
from palearn.models.state import Settings
from palearn.models.vectorize import Vocabulary
from palearn.records import Record
from tests import streams

Result = tuple[bytes, dict[str, int]] | str


def by_records(path: Path, plan: Any, names: list[str] | None, epochs: int, seed: int | None, batch: int) -> Result:
    """Bytes and reasons of a bucket that takes in the file's records, ``batch`` rows at a time."""
    rows = [row for _, row in files.read(path, names=names)]
    random = np.random.default_rng(seed)
    taken: list[Record | RecordError] = []
    for _ in range(epochs):
        order = range(len(rows)) if seed is None else random.permutation(len(rows)).tolist()
        taken += [rows[i] for i in order]
    bucket = Bucket(plan)
    placed = [streams.Row(ONE_KEY.encode(), row, "", 0, i) for i, row in enumerate(taken)]
    try:
        for first in range(0, len(placed), batch):
            bucket.learn(streams.chunk(placed[first : first + batch]))
    except LearnerError as error:
        return str(error)
    return bucket.to_bytes(), bucket.summary.reasons


def by_columns(path: Path, plan: Any, names: list[str] | None, epochs: int, seed: int | None, piece: int) -> Result:
    bucket = Bucket(plan)
    parts = libsvm_blocks.columns(
        path, bucket.models.vocabulary, plan.settings, limit=bucket.models.max_features, names=names
    )
    try:
        for part in passes(parts, epochs, seed, piece):
            bucket.take(*part.accepted(ONE_KEY, bucket.summary.records))
    except LearnerError as error:
        return str(error)
    return bucket.to_bytes(), bucket.summary.reasons


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "BLOCK_BYTES", size)
        patch.setattr(text_lines, "_BUFFER_BYTES", size)
        yield


LABELS = ["1", "+1", "-1", "1.0", "0", "2", "-0.0", "spam", "ham", "1e0", "12345678", "123456789", "true", ""]
ODD_LABELS = ["nan", "inf", "1_0", "a-label-of-many-bytes", "é", "1:2", "٣", "1\x00", "\x001", "\x00", "#", "x#y"]
INDICES = ["1", "2", "3", "4", "10", "0", "123456", "999999999999999999"]
ODD_INDICES = ["007", "a", "(bias)", "1000000000000000000", "é", "", "-1", "+1", "1:2", "x" * 600]
VALUES = ["1", "0.5", "-2", "+3", "1e-3", "1E+2", "5.", "-.25", "-0", "1e22", "0.1", "3e0", "00001"]
LATE_VALUES = ["0.12345678901234567", "9007199254740993", "1e23", "1e-23", "123456789012345678901", "1.7e250", "4e-250"]
ODD_VALUES = [
    "",
    "x",
    "nan",
    "-inf",
    "1e400",
    "1e300",
    "1_0",
    "0x1",
    "1e",
    "1e+",
    ".",
    "-",
    "1.5.2",
    "1:2",
    "٣",
    "1e9999",
]

spaces = st.sampled_from([" ", " ", " ", "  ", "\t"])
odd_spaces = st.sampled_from(["\x0b", "\u00a0", "\r", "\x1c", "\u2003"])
floats = st.floats(allow_nan=False, allow_infinity=False).map(repr)
values = st.one_of(st.sampled_from(VALUES), st.sampled_from(LATE_VALUES), floats)


def lines(labels: Any, indices: Any, numbers: Any, gaps: Any, tails: Any) -> Any:
    feature = st.tuples(gaps, indices, st.just(":"), numbers).map("".join)
    return st.tuples(labels, st.lists(feature, max_size=6).map("".join), gaps, tails).map("".join)


#: Most lines are of few labels and features, so that the kernel knows them.
few_lines = lines(st.sampled_from(["1", "-1"]), st.sampled_from(["1", "2", "3"]), values, spaces, st.just(""))
plain_lines = lines(
    st.sampled_from(LABELS), st.sampled_from(INDICES), values, spaces, st.sampled_from(["", "", "# a comment", "\r"])
)
broken_lines = lines(
    st.sampled_from(LABELS + ODD_LABELS),
    st.sampled_from(INDICES + ODD_INDICES),
    st.one_of(values, st.sampled_from(ODD_VALUES)),
    st.one_of(spaces, odd_spaces),
    st.sampled_from(["", "#é", "# \x01", "x", " 5"]),
)
odd_bytes = st.sampled_from([b"", b"  ", b"# only a comment", b"1 1:1 \xff", b"1 1:1 #\xff", b"\xef\xbb\xbf1 1:1"])
any_line = st.one_of(few_lines.map(str.encode), plain_lines.map(str.encode), broken_lines.map(str.encode), odd_bytes)
documents = st.tuples(
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(any_line, max_size=25),
    st.sampled_from([b"", b"\n", b"\r\n"]),
).map(lambda parts: parts[0] + b"\n".join(parts[1]) + parts[2])
plans = st.sampled_from(
    [
        streams.plan(streams.learner(name, task=task, **options), tables=frozenset(), max_features=None, **common)
        for (name, options), (task, positive), bias in itertools.product(
            [("pa1", {"C": 0.1}), ("arow", {}), ("arow", {"covariance": "full", "max_full_features": 5})],
            [("binary", None), ("binary", "spam"), ("binary", 1), ("multiclass", None)],
            [True, False],
        )
        for common in [{"task": task, "positive": positive, "bias": bias}]
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    documents,
    plans,
    st.sampled_from([None, ["a", "b", "c", "d"], ["(bias)", "b", "c" * 600, "3", "1"]]),
    st.sampled_from([(1, None), (2, None), (2, 7)]),
    st.sampled_from([16, 100, 2**20]),
)
def test_any_text_gives_the_bits_that_records_give(
    document: bytes, plan: Any, names: list[str] | None, order: tuple[int, int | None], size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, small_blocks(size):
        path = Path(folder) / "a.libsvm"
        path.write_bytes(document)
        expected = by_records(path, plan, names, *order, batch=7)
        found = by_columns(path, plan, names, *order, piece=5)
    assert found == expected


@pytest.mark.parametrize(
    "line",
    [
        b"1 7:1 007:2",  # two names
        b"1 007:2\n1 7:1\n1 007:1 7:3",
        b"1 1:1 1:2",
        b"1 1:1 2:1 3:1 4:1 5:1 6:1",  # more features than the learner may hold
        b"1 1:1 # \xff",
        b"1 1:1 # \xc3\xa9",
        b"1 1:1 #",
        b"1 1:1#2:1",
        b"1#2:1",
        b"# 1",
        b"1 1:1 \xc2\xa02:1",
        b"1\x0b1:1",
        b"1 1:1:1",
        b"1 1:1_0",
        b"1 1: 1",
        b"1 1 :1",
        b"1 :1",
        b"1:1",
        b"+1 1:1\n1.0 1:1\n2 1:1",
        b"1 99999999999999999999:1 999999999999999999:1",
        b"-1 1:1e308 2:1e308",
        b"1 1:0",
        b"1",
        b"\xef\xbb\xbf1 1:1",
    ],
)
@pytest.mark.parametrize("names", [None, ["a", "(bias)", "c"]])
def test_a_line_among_plain_ones(tmp_path: Path, line: bytes, names: list[str] | None) -> None:
    """What is odd is met when the kernel knows all labels and indices, and once more."""
    plan = streams.plan(
        streams.learner("arow", covariance="full", max_full_features=5), tables=frozenset(), max_features=None
    )
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 1:1 2:1 3:-1\n-1 1:2\n1 1:1 3:2\n-1 3:1\n" + 2 * (line + b"\n") + b"1 2:1\n-1 1:1")
    assert by_columns(path, plan, names, 1, None, 1) == by_records(path, plan, names, 1, None, 3)


def test_zero_bytes_before_a_label_make_another_label(tmp_path: Path) -> None:
    """As integers they would be the same, and only zero bytes the same as no label at all."""
    plan = streams.plan(
        streams.learner("pa1", task="multiclass"), tables=frozenset(), max_features=None, task="multiclass"
    )
    path = tmp_path / "a.svm"
    path.write_bytes(b"\x00\x00 1:1\n\x00a 1:1\na 1:1\n\x00\x00 1:2\n# no label\n\x00a 1:2\na 1:2\n")
    assert by_columns(path, plan, None, 1, None, 1) == by_records(path, plan, None, 1, None, 9)
    (block,) = libsvm_blocks.columns(path, Vocabulary(), Settings("multiclass"), limit=10)
    assert [block.columns.labels[code] for code in block.columns.code] == ["\0\0", "\0a", "a", "\0\0", "\0a", "a"]


@pytest.mark.parametrize("name", ["pa1", "arow"])
@pytest.mark.parametrize(("epochs", "seed"), [(1, None), (2, 3)])
def test_a9a_gives_the_bits_that_records_give(name: str, epochs: int, seed: int | None) -> None:
    path, names = datasets.path("a9a"), datasets.names("a9a")
    plan = streams.plan(streams.learner(name), tables=frozenset(), max_features=None)
    expected = by_records(path, plan, names, epochs, seed, batch=20_000)
    assert by_columns(path, plan, names, epochs, seed, piece=20_000) == expected
    report = evaluate(path, name, names=names, epochs=epochs, shuffle=seed)
    models = codec.decode(expected[0])  # type: ignore[arg-type]
    counts = models.states[0].counts[0]
    assert (report["n"], report["rejected"]) == (32_561 * epochs, 0)
    assert (report["mistakes"], report["updates"]) == tuple(counts[:2])


numbers = st.from_regex(r"[+-]?[0-9]{0,21}(\.[0-9]{0,21})?([eE][+-]?[0-9]{0,4})?", fullmatch=True)


@settings(deadline=None)
@example([f"{2**64}{'0' * 400}", f"{2**64}.0{'0' * 40}", "0" * 60 + "5", "0." + "0" * 30 + "1", "9007199254740993"])
@example([f"{2**53 + odd}e-{power}" for odd in (1, 3, 5, 7) for power in range(25)])
@given(st.lists(numbers | floats | values, min_size=1, max_size=50))
def test_a_number_is_what_python_reads(written: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.svm"
        path.write_text("1\n" + "".join(f"1 1:{number}\n" for number in written))
        (block,) = libsvm_blocks.columns(path, Vocabulary(), Settings(), limit=10)
    expected = {}
    for row, number in enumerate(written, 1):
        with suppress(ValueError):
            if math.isfinite(float(number)):
                expected[row] = float(number)
    assert np.flatnonzero(block.columns.code >= 0).tolist() == [0, *expected]
    assert block.columns.flat.value.tobytes() == np.array([*expected.values()]).tobytes()


def test_plain_lines_are_read_by_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line a label and name is read with care at most; the others without a Python object each."""
    careful = []
    parsed = text_lines.parsed
    monkeypatch.setattr(text_lines, "parsed", lambda line, parse: careful.append(line) or parsed(line, parse))
    path = tmp_path / "a.libsvm"
    path.write_text(
        "".join(f"{'+1' if i % 3 else '-1'} {i % 7}:1 {10 + i}:0.12345678901234567 # {i}\n" for i in range(900))
    )
    (block,) = libsvm_blocks.columns(path, Vocabulary(), Settings(), limit=10)
    assert careful == [b"-1 0:1 10:0.12345678901234567 # 0\n", b"+1 1:1 11:0.12345678901234567 # 1\n"]
    assert block.columns.labels == [-1, 1]
    assert block.columns.code.tolist() == [int(i % 3 > 0) for i in range(900)]
    assert block.columns.flat.value.tolist() == [1.0, 0.12345678901234567] * 900


def test_more_indices_than_a_table_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.libsvm"
    path.write_text(
        "".join(f"1 {i}:1 {i * 10**9 + 7}:2 0{10**8 + i}:3\n1 {i}:1 x:1\n1 {2 * i}:1\n" for i in range(3000))
    )
    plan = streams.plan(streams.learner("pa1"), tables=frozenset(), max_features=None)
    assert by_columns(path, plan, None, 1, None, 1) == by_records(path, plan, None, 1, None, 4000)


def test_more_labels_than_a_table_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.libsvm"
    path.write_text("".join(f"{i % 1100} 1:1\nclass{i % 1100:06} 1:2\n" for i in range(1500)))
    plan = streams.plan(
        streams.learner("pa1", task="multiclass"), tables=frozenset(), task="multiclass", max_features=None
    )
    found = by_columns(path, plan, None, 1, None, 1)
    assert found == by_records(path, plan, None, 1, None, 100)
    assert found[1] == {"too_many_labels": 2 * (1100 - 500)}  # 500 of each kind are the first 1000


@pytest.mark.parametrize("size", [8, 30, 2**20])
def test_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 20)
    path = tmp_path / "a.libsvm"
    plan = streams.plan(streams.learner("pa1"), tables=frozenset(), max_features=None)
    long = "1 " + "1:1 " * 100
    documents = [
        f"1 1:1\n{long}\n-1 1:1 2:1 3:1 4:12\n1 1:1",
        f"{long}",
        f"1 1:1\n{long}\n{long}\n",
        "1 1:1 2:1 3:1 4:1234\n1 1:1 2:1 3:1 4:123",
        "1 1:1 2:1 3:1 4:123\n1 1:1 2:1 3:1 4:1234",
        "1 1:1 2:1 3:1 4:1234",
        " " * 20 + "\n" + " " * 19 + "\n",
        "\ufeff1 1:1 2:1 3:1 4:123\n\ufeff1 1:1 2:1 3:1 4:123\n",
    ]
    for document in documents:
        path.write_text(document)
        with small_blocks(size):
            assert by_columns(path, plan, None, 1, None, 1) == by_records(path, plan, None, 1, None, 9), document


@pytest.mark.parametrize("keep", [-40, -9, -4, 60])
def test_a_damaged_file_is_named_with_its_last_whole_line(tmp_path: Path, keep: int) -> None:
    content = "".join(f"{1 if i % 2 else -1} {i}:{i}.5\n{'x' if i % 5 else '# '}\n\n" for i in range(3000)).encode()
    path = tmp_path / "a.libsvm.gz"
    path.write_bytes(gzip.compress(content)[:keep])
    with pytest.raises(FileFormatError) as expected:
        list(files.read(path))
    with pytest.raises(FileFormatError) as found:
        list(libsvm_blocks.columns(path, Vocabulary(), Settings(), limit=10))
    assert str(found.value) == str(expected.value)


def test_no_file_and_names_that_are_not_unique(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"nothing\.svm.*No such file"):
        evaluate(tmp_path / "nothing.svm")
    with pytest.raises(FileFormatError, match="not unique"):
        evaluate(datasets.path("a9a"), names=["a", "a"])


def test_an_empty_file_and_one_of_faults_only(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("")
    for epochs, seed in [(1, None), (3, None), (3, 1)]:
        report = evaluate(path, "pa1", epochs=epochs, shuffle=seed)
        assert (report["n"], report["error"], report["rejected"]) == (0, None, 0)
    path.write_text("1:1\nspam 1:1\n1 1:x")
    with pytest.raises(LabelError, match=r"labels are text, 'spam' \(1\)"):
        evaluate(path, "pa1", epochs=2, shuffle=1)
    path.write_text("1:1\n1 1:x")
    report = evaluate(path, "pa1", epochs=2, shuffle=1)
    assert (report["n"], report["error"]) == (0, None)
    assert report["reasons"] == {"bad_line": 2, "bad_features": 2}


def test_a_file_is_evaluated_with_little_imported() -> None:
    code = (
        "import sys; from palearn import datasets; from palearn.evaluate.prequential import evaluate\n"
        "evaluate(datasets.path('a9a'), 'pa1'); print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "palearn.evaluate.passes" in loaded
    assert loaded.isdisjoint({"pyspark", "pandas", "kafka", "matplotlib", "sklearn", "scipy.special"})


def test_parts_are_joined_with_their_faults(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\nx\n-1 2:1 1:3\n" * 40)
    with small_blocks(16):
        parts = list(libsvm_blocks.columns(path, Vocabulary(), Settings(), limit=10))
    assert len(parts) > 5
    whole = join(parts)
    (expected,) = libsvm_blocks.columns(path, Vocabulary(), Settings(), limit=10)
    assert whole.columns.labels == expected.columns.labels
    assert sorted(whole.faults) == sorted(expected.faults) == list(range(1, 120, 3))
    for mine, theirs in zip(
        (whole.columns.code, whole.columns.flat.bounds, whole.columns.flat.feature, whole.columns.flat.value),
        (
            expected.columns.code,
            expected.columns.flat.bounds,
            expected.columns.flat.feature,
            expected.columns.flat.value,
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)
