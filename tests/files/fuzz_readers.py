"""Random small files, read by palearn and by other readers: pandas, pyarrow, scikit-learn and Python's own.

``python -m tests.files.fuzz_readers 20000`` reads so many; every difference that no rule of docs/formats.md explains is
printed. A slice of it runs in the tests.
"""

import csv
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_svmlight_file

from palearn import files
from palearn.records import Record

TEXTS = ["a", "b c", "", " x", "1", "1.5", "-2e3", "true", "é", "ÿ", "007", "NA", 'q"q', "l\nl", "c,c", "s;s", "=1"]
NUMBERS = [0.0, 1.0, -1.5, 1e300, 5e-324, 0.1, 2.0**53, -0.0]


def csv_case(dice: np.random.Generator, folder: Path) -> str | None:
    """A CSV of random cells, quotes, line ends, delimiters and encodings, against pandas: every cell is the same."""
    columns, count = int(dice.integers(1, 5)), int(dice.integers(1, 8))
    delimiter, end = str(dice.choice([",", ";", "\t", "|"])), str(dice.choice(["\n", "\r\n"]))
    encoding = str(dice.choice(["utf-8", "utf-8-sig", "cp1252", "utf-16"]))
    header = [f"c{i}" for i in range(columns)] + ["label"]
    rows = [[str(dice.choice(TEXTS)) for _ in range(columns)] + [str(dice.choice(["0", "1"]))] for _ in range(count)]
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if dice.random() < 0.3 else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows([header, *rows])
    path = folder / "a.csv"
    path.write_bytes(out.getvalue().encode(encoding))
    theirs = pd.read_csv(path, sep=delimiter, encoding=encoding, dtype=str, keep_default_na=False)
    mine = [x for _, x in files.read(path, encoding=None if encoding.startswith("utf-8") else encoding,
                                     delimiter=delimiter, columns=dict.fromkeys(header[:-1], "text"))]  # fmt: skip
    # Blanks around a cell are nothing, and an empty cell is absent.
    wanted = [{f"{n}={cell.strip()}": 1.0 for n, cell in zip(header[:-1], row, strict=True) if cell.strip()}
              for row in theirs[header[:-1]].values.tolist()]  # fmt: skip
    found = [x.features if isinstance(x, Record) else x for x in mine]
    return None if found == wanted else f"{path.read_bytes()!r}: {found} {wanted}"


def broken_csv_case(dice: np.random.Generator, folder: Path) -> str | None:
    """A CSV with stray quotes and bytes: the lines without either are read as pandas reads them alone."""
    count = int(dice.integers(2, 12))
    good = [f"w{i},{i},{i % 2}" for i in range(count)]
    bad = [b'"5 inch,1,0', b'a,"1,0', b"caf\xe9,1,0", b'"x"y,1,0', b"1,2", b"1,2,3,4", b'"a\xff",1,0']
    lines = [line.encode() for line in good]
    places = sorted(dice.integers(0, count + 1, int(dice.integers(1, 4))).tolist(), reverse=True)
    for place in places:
        lines.insert(place, bad[int(dice.integers(0, len(bad)))])
    path = folder / "b.csv"
    path.write_bytes(b"note,x,label\n" + b"\n".join(lines) + b"\n")
    found = [x.features for _, x in files.read(path) if isinstance(x, Record)]
    theirs = pd.read_csv(io.StringIO("note,x,label\n" + "\n".join(good)))
    wanted = [{f"note={note}": 1.0, "x": float(x)} for note, x in zip(theirs["note"], theirs["x"], strict=True)]
    return None if found == wanted else f"{path.read_bytes()!r}: {found}"


def libsvm_case(dice: np.random.Generator, folder: Path) -> str | None:
    """LIBSVM against scikit-learn: labels and values to the last bit; lines that it refuses are bad lines here."""
    lines = []
    for _ in range(int(dice.integers(1, 8))):
        indices = np.sort(dice.choice(np.arange(1, 40), int(dice.integers(0, 6)), replace=False))
        pairs = [f"{i}:{_number(dice)}" for i in indices.tolist()]
        head = [str(dice.choice(["1", "-1", "+1", "0", "2.5"])), *(["qid:3"] if dice.random() < 0.3 else [])]
        lines.append(" ".join([*head, *pairs]) + str(dice.choice(["", " ", " # a", "\r"])))
    path = folder / "a.libsvm"
    path.write_text("\n".join(lines) + "\n", newline="")
    x, y = load_svmlight_file(str(path), n_features=40, zero_based=False)
    mine = [row for _, row in files.read(path)]
    if not all(isinstance(row, Record) for row in mine):
        return f"{lines}: {mine}"
    dense = np.zeros((len(mine), 40))
    for i, row in enumerate(mine):
        for name, value in row.features.items():  # type: ignore[union-attr]
            dense[i, int(name) - 1] = value
    same = np.array_equal(dense, x.toarray()) and [float(r.label) for r in mine] == y.tolist()  # type: ignore[union-attr]
    return None if same else f"{lines}: {mine}"


def _number(dice: np.random.Generator) -> str:
    value = float(dice.choice(NUMBERS)) if dice.random() < 0.5 else float(dice.normal())
    return str(dice.choice([repr(value), f"{value:.3e}", f"{value:+.5f}"]))


def parquet_case(dice: np.random.Generator, folder: Path) -> str | None:
    """Parquet of random types against pyarrow's own values."""
    count = int(dice.integers(1, 8))
    types = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.bool_(),
             pa.decimal128(22, 2), pa.dictionary(pa.int8(), pa.string())]  # fmt: skip
    columns: dict[str, pa.Array] = {}
    for i in range(int(dice.integers(1, 5))):
        kind = types[int(dice.integers(0, len(types)))]
        raw = [None if dice.random() < 0.2 else int(dice.integers(0, 100)) for _ in range(count)]
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
        cells = [None if x is None else str(TEXTS[x % len(TEXTS)]) if text else bool(x % 2) if kind == pa.bool_() else x
                 for x in raw]  # fmt: skip
        if pa.types.is_dictionary(kind):
            columns[f"c{i}"] = pa.array(cells, pa.string()).dictionary_encode()
        elif text or kind == pa.bool_():
            columns[f"c{i}"] = pa.array(cells, kind)
        else:
            columns[f"c{i}"] = pa.array(cells, pa.int64()).cast(kind)
    path = folder / "a.parquet"
    table = pa.table({**columns, "label": [0] * count})
    pq.write_table(table, path)
    wanted = []
    for row in pq.read_table(path).drop_columns("label").to_pylist():
        cells = {n: x for n, x in row.items() if x is not None}
        wanted.append({f"{n}={x}" if isinstance(x, str) else n: 1.0 if isinstance(x, str) else float(x)
                       for n, x in cells.items()})  # fmt: skip
    found = [x.features if isinstance(x, Record) else x for _, x in files.read(path)]
    return None if found == wanted else f"{table}: {found} {wanted}"


def json_case(dice: np.random.Generator, folder: Path) -> str | None:
    """JSON lines against Python's own reader."""
    values = [1, -0.5, True, None, "a", "é", ["a", "b", "a"], 2**53 + 1, "NaN"]
    rows = [{"label": 1, "features": {f"c{i}": values[int(dice.integers(0, len(values)))] for i in range(3)}}
            for _ in range(int(dice.integers(1, 6)))]  # fmt: skip
    path = folder / "a.jsonl"
    ascii_only = bool(dice.random() < 0.5)
    path.write_text("\n".join(json.dumps(r, ensure_ascii=ascii_only) for r in rows) + "\n")
    wanted = []
    for line in path.read_text().splitlines():
        made: dict[str, float] = Counter()  # type: ignore[assignment]
        for name, x in json.loads(line)["features"].items():
            for word in x if isinstance(x, list) else [x]:
                text = isinstance(word, str)
                made[f"{name}={word}" if text else name] += 1.0 if text else float(word or 0)
            if x is None:
                del made[name]
        wanted.append(dict(made))
    found = [x.features if isinstance(x, Record) else x for _, x in files.read(path)]
    return None if found == wanted else f"{rows}: {found}"


CASES = (csv_case, broken_csv_case, libsvm_case, parquet_case, json_case)


def differences(numbers: Iterable[int]) -> list[str]:
    """Return what differs, of the files of these numbers."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for i in numbers:
            case = CASES[i % len(CASES)]
            told = case(np.random.default_rng([0, i]), Path(folder))
            if told is not None:
                found.append(f"{case.__name__} {i}: {told}")
    return found


if __name__ == "__main__":
    told = differences(range(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
    print("\n".join(told[:20]))
    print(f"{len(told)} differences")
