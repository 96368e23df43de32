"""Files of records: LIBSVM, CSV, JSON lines, VW text, Parquet and Arrow, compressed or not, one record at a time.

``produce``, ``evaluate`` and ``replay`` read files through :func:`read` and nothing else, so a file gives the
same records wherever it is used.

==========  ====================================================================================
format      a line or row
==========  ====================================================================================
LIBSVM      ``label index:value … # comment``; features are named by the index as it is written
CSV         a header line, then one row a record; a column is numbers, booleans, or text, which
            is one-hot, ``column=value`` (:mod:`palearn.files.csv`); an empty cell is absent
JSON lines  a record as on the wire (:mod:`palearn.records`)
VW text     ``label importance tag|namespace feature:value`` (:mod:`palearn.files.vw`)
Parquet,    a column a feature, or a map or struct column ``features`` (or ``views``)
Arrow
==========  ====================================================================================

In CSV, Parquet and Arrow the columns ``id``, ``weight`` and ``time`` are those fields of the record, not features.
The path ``-`` is standard input: JSON lines, unless another format is said.
A line that cannot be used never ends the reading: it comes out as the :class:`RecordError` that says why.
Only one line, or one batch of rows, is in memory at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias, cast, get_args

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.files import text_lines
from palearn.files.arrow import arrow_kinds, read_arrow
from palearn.files.csv import csv_kinds, read_csv
from palearn.files.libsvm import Names, read_libsvm
from palearn.files.options import KINDS, Kind, Options
from palearn.files.parquet import parquet_kinds, read_parquet
from palearn.files.text_lines import COMPRESSIONS, DAMAGE, STDIN, Row, each_line, guarded, opened_stream
from palearn.files.vw import read_vw
from palearn.records import Record

Format: TypeAlias = Literal["libsvm", "csv", "jsonl", "vw", "parquet", "arrow"]

SUFFIXES: dict[str, Format] = {
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".vw": "vw",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
#: A record, as bytes where it is a line of JSON, or what is wrong with it.
_Value: TypeAlias = bytes | Record | RecordError
_Reader: TypeAlias = Callable[[Path, BinaryIO, Options], Iterator[Row]]
#: Formats whose columns have kinds.
_KINDS_OF = {"csv": csv_kinds, "parquet": parquet_kinds, "arrow": arrow_kinds}
#: Formats of which ``columns`` may say something.
_WITH_COLUMNS = (*_KINDS_OF, "vw")


def format_of(path: str | Path, format: str | None = None) -> Format:
    """Return the format of a file: the one given, else what the suffix says.

    Raises
    ------
    FileFormatError
        When the suffix says nothing, or the given name is no format.
    """
    if format is not None:
        if format not in get_args(Format):
            message = f"format must be one of {', '.join(get_args(Format))}, got {format!r}"
            raise FileFormatError(message)
        return cast(Format, format)
    if Path(path) == STDIN:
        return "jsonl"
    suffixes = ["", *(suffix.lower() for suffix in Path(path).suffixes)]
    if suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    if suffixes[-1] not in SUFFIXES:
        message = (
            f"{path}: the suffix does not say what the file holds (known: {' '.join(SUFFIXES)}, and "
            f"{' '.join(COMPRESSIONS)} of them); say it with --format {'|'.join(get_args(Format))}"
        )
        raise FileFormatError(message)
    return SUFFIXES[suffixes[-1]]


def read(
    path: str | Path,
    *,
    format: str | None = None,
    label: str | None = None,
    names: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    views: bool = False,
    unlabelled: bool = False,
    opened: BinaryIO | None = None,
) -> Iterator[Row]:
    """Return an iterator over (line number, record or what is wrong with the line).

    Parameters
    ----------
    path
        The file. Numbers of lines, and of rows, start at 1.
    format
        ``libsvm``, ``csv``, ``jsonl``, ``vw``, ``parquet`` or ``arrow``; by default what the suffix says.
    label
        The label's column in CSV (default ``label``; there must be one), Parquet and Arrow (default ``label``, if
        there is one).
    names
        LIBSVM: feature names; index 1 is the first. By default a feature is named by its index.
    columns
        A column's kind, ``number``, ``text``, ``boolean``, ``id`` or ``ignore``, in place of what :func:`kinds` says.
        VW: ``{"tag": "id"}``.
    views
        VW: whether its namespaces are views; else they begin the features' names, ``namespace:feature``.
    unlabelled
        CSV: whether there need be no column ``label``, unless ``label`` names one.
    opened
        The file, opened in binary by a caller who wants to follow its position; the caller closes it.

    Raises
    ------
    FileFormatError
        At once: no such format. While reading: there is no such file or column, or the file is damaged.
    """
    chosen = format_of(path, format)
    options = _options(path, chosen, label, names, columns, views)._replace(unlabelled=unlabelled)
    return guarded(Path(path), opened, lambda stream: _READERS[chosen](Path(path), stream, options))


def kinds(
    path: str | Path,
    *,
    format: str | None = None,
    label: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return what a file's columns are, guessed in CSV from its first rows; {} of formats without, and of pipes.

    Parameters as of :func:`read`, and the errors too.

    Returns
    -------
    dict
        Name -> ``number``, ``text``, ``boolean``, ``ignore``, ``label``, ``id``, ``weight``, ``time``, or the name of
        any other type, in the order of the columns.
    """
    chosen = format_of(path, format)
    options = _options(path, chosen, label, None, columns)
    if chosen not in _KINDS_OF or Path(path) == STDIN or not Path(path).is_file():  # a pipe can be read once
        return {}
    try:
        with opened_stream(Path(path)) as stream:
            return _KINDS_OF[chosen](Path(path), stream, options)
    except DAMAGE as error:
        raise FileFormatError(f"{path}: cannot be read: {error}") from error


def _options(
    path: str | Path,
    format: Format,
    label: str | None,
    names: Sequence[str] | None,
    columns: Mapping[str, str] | None,
    views: bool = False,
) -> Options:
    require_unique(path, names)
    for name, kind in (columns or {}).items():
        if kind not in KINDS:
            raise FileFormatError(f"column {name!r:.80} must be one of {', '.join(KINDS)}, got {kind!r:.80}")
    if columns and format not in _WITH_COLUMNS:
        raise FileFormatError(f"{path}: {format} has no columns; columns are of {', '.join(_WITH_COLUMNS)}")
    return Options(label, names, cast(Mapping[str, Kind], columns or {}), views)


def require_unique(path: str | Path, names: Names) -> None:
    """Raise a :class:`FileFormatError` if feature names are given twice."""
    if names is not None and len(set(names)) != len(names):
        message = f"{path}: the feature names given for it are not unique"
        raise FileFormatError(message)


class Line(NamedTuple):
    """A line on its way to a model: its number, its key if one was asked for, and its record.

    JSON lines stay the bytes they are, as if they came from Kafka; whoever decodes them finds their faults.
    """

    number: int
    key: str | None
    value: _Value


def lines(
    path: str | Path,
    *,
    key: str | None = None,
    format: str | None = None,
    label: str | None = None,
    names: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    views: bool = False,
    unlabelled: bool = False,
    opened: BinaryIO | None = None,
) -> Iterator[Line]:
    """Return an iterator over a file's lines with their keys; parameters and errors as :func:`read`.

    Parameters
    ----------
    key
        The field whose text is the key (:func:`palearn.records.key_of`, :func:`palearn.records.record_key`).
    """
    rows: Iterator[tuple[int, _Value]]
    if format_of(path, format) == "jsonl":
        _options(path, "jsonl", label, names, columns, views)
        rows = guarded(Path(path), opened, _raw_lines)
    else:
        rows = read(
            path, format=format, label=label, names=names, columns=columns, views=views, unlabelled=unlabelled,
            opened=opened,
        )  # fmt: skip
    for number, value in rows:
        yield Line(number, *((None, value) if key is None else keyed(value, key)))


def keyed(value: _Value, field: str) -> tuple[str | None, _Value]:
    """Return a value's key, and the value; where the field can be no key, why not in place of the value."""
    if isinstance(value, bytes):
        found = records.key_of(value, field)
        return None if found is None else found.decode(), value
    try:
        return records.record_key(value, field) if isinstance(value, Record) else None, value
    except RecordError as fault:
        return None, fault


def _raw_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | RecordError]]:
    for number, line in text_lines.numbered(stream):
        if len(line) > text_lines.MAX_LINE_BYTES:
            yield number, text_lines.too_long()
        elif stripped := line.strip():
            yield number, stripped


def _read_jsonl(path: Path, stream: BinaryIO, options: Options) -> Iterator[Row]:
    return each_line(stream, lambda line: records.decode_value(line.encode()))


_READERS: dict[Format, _Reader] = {
    "libsvm": read_libsvm,
    "csv": read_csv,
    "jsonl": _read_jsonl,
    "vw": read_vw,
    "parquet": read_parquet,
    "arrow": read_arrow,
}
