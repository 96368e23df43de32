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

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast, get_args

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.files import text_lines
from palearn.files.arrow import arrow_look, read_arrow
from palearn.files.csv import csv_look, read_csv
from palearn.files.libsvm import Names, read_libsvm
from palearn.files.options import DEFAULT, Look, ReadOptions
from palearn.files.parquet import parquet_look, read_parquet
from palearn.files.text_lines import COMPRESSIONS, DAMAGE, STDIN, Keyed, Row, each_line, guarded, opened_stream
from palearn.files.vw import read_vw
from palearn.records import KINDS, Record

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
_Reader: TypeAlias = Callable[[Path, BinaryIO, ReadOptions], Iterator[Row]]
#: Formats whose columns have kinds.
_LOOKS = {"csv": csv_look, "parquet": parquet_look, "arrow": arrow_look}
_TABLES = {"csv": read_csv, "parquet": read_parquet, "arrow": read_arrow}
#: Formats of which ``columns`` may say something.
_WITH_COLUMNS = (*_TABLES, "vw")


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
    path: str | Path, options: ReadOptions = DEFAULT, *, opened: BinaryIO | None = None, **given: Any
) -> Iterator[Row]:
    """Return an iterator over (line number, record or what is wrong with the line).

    Parameters
    ----------
    path
        The file. Numbers of lines, and of rows, start at 1.
    options
        How it is read.
    opened
        The file, opened in binary by a caller who wants to follow its position; the caller closes it.
    **given
        Options that stand in place of those of ``options``.

    Raises
    ------
    FileFormatError
        At once: no such format. While reading: there is no such file or column, or the file is damaged.
    """
    options = options.but(**given)
    chosen = _checked(path, options)
    if chosen in _TABLES:
        return ((number, record) for number, (_, record) in _table_rows(Path(path), chosen, options, opened))
    return guarded(Path(path), opened, lambda stream: _READERS[chosen](Path(path), stream, options))


def _table_rows(path: Path, format: Format, options: ReadOptions, opened: BinaryIO | None) -> Iterator[Keyed]:
    return guarded(path, opened, lambda stream: _TABLES[format](path, stream, options))


def kinds(path: str | Path, options: ReadOptions = DEFAULT, **given: Any) -> dict[str, str]:
    """Return what :func:`look` finds of a file's columns."""
    return look(path, options.but(**given)).kinds


def look(path: str | Path, options: ReadOptions = DEFAULT) -> Look:
    """Return what a file's columns are, guessed in CSV from its first rows, and what is worth a warning.

    Parameters and errors as of :func:`read`.

    Returns
    -------
    Look
        ``kinds``, a column's name -> a kind, ``label``, ``key``, ``features`` (a column that holds them by name), or
        ``unknown`` to the model, in the order of the columns; and ``notes``, sentences. Both are empty of formats
        without columns, and of pipes.
    """
    chosen = _checked(path, options)
    if chosen not in _LOOKS or Path(path) == STDIN or not Path(path).is_file():  # a pipe can be read once
        return Look({}, [])
    try:
        with opened_stream(Path(path)) as stream:
            return _LOOKS[chosen](Path(path), stream, options)
    except DAMAGE as error:
        raise FileFormatError(f"{path}: cannot be read: {error}") from error


def decided(paths: Iterable[str | Path], options: ReadOptions = DEFAULT) -> dict[str, str]:
    """Return what the columns of files are taken for in all of them: as the first file that has one shows it.

    To be ``known`` of the options with which they are read. Parameters and errors as of :func:`read`.
    """
    out: dict[str, str] = {}
    for path in paths:
        found = look(path, options).kinds
        out = {name: kind for name, kind in found.items() if kind in KINDS} | out
    return out


def _checked(path: str | Path, options: ReadOptions) -> Format:
    """Return the format of a file, and raise a FileFormatError where options are none of its."""
    format = format_of(path, options.format)
    require_unique(path, options.names)
    for name, kind in options.columns.items():
        if kind not in KINDS:
            raise FileFormatError(f"column {name!r:.80} must be one of {', '.join(KINDS)}, got {kind!r:.80}")
    if options.columns and format not in _WITH_COLUMNS:
        raise FileFormatError(f"{path}: {format} has no columns; columns are of {', '.join(_WITH_COLUMNS)}")
    own = {"delimiter": ("csv",), "header": ("csv",), "decimal": ("csv",), "encoding": ("csv", "libsvm", "vw", "jsonl")}
    for name, formats in own.items():
        if getattr(options, name) is not None and format not in formats:
            raise FileFormatError(f"{path}: {format} has no {name}; it is of {', '.join(formats)}")
    if options.delimiter is not None and (len(options.delimiter) != 1 or options.delimiter in '"\r\n'):
        raise FileFormatError(f"{path}: the delimiter must be one character, got {options.delimiter!r:.80}")
    if options.decimal not in (None, ".", ","):
        raise FileFormatError(f"{path}: decimal must be . or , and it is {options.decimal!r:.80}")
    return format


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
    options: ReadOptions = DEFAULT,
    *,
    opened: BinaryIO | None = None,
    **given: Any,
) -> Iterator[Line]:
    """Return an iterator over a file's lines with their keys; parameters and errors as :func:`read`."""
    options = options.but(**given)
    rows: Iterator[tuple[int, _Value]]
    if (format := _checked(path, options)) in _TABLES:
        for number, (own, record) in _table_rows(Path(path), format, options, opened):
            yield Line(number, own, record)
        return
    if format == "jsonl":
        rows = guarded(Path(path), opened, lambda stream: _raw_lines(text_lines.opened_text(stream, options.encoding)))
    else:
        rows = read(path, options, opened=opened)
    for number, value in rows:
        yield Line(number, *((None, value) if options.key is None else keyed(value, options.key)))


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


def _read_jsonl(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Row]:
    return each_line(stream, options.encoding, lambda line: records.decode_value(line.encode()))


_READERS: dict[Format, _Reader] = {
    "libsvm": read_libsvm,
    "jsonl": _read_jsonl,
    "vw": read_vw,
}
