"""How a file is read, where its suffix does not say all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, Self

import msgspec

from palearn.errors import FileFormatError, RecordError
from palearn.records import Label, LabelValue, Record, check_id, label_text, number, numbers
from palearn.records.libsvm import as_number

#: Columns that are fields of the record, never features.
FIELDS = ("id", "weight", "time")
#: Kinds of columns that are no features.
NO_FEATURES = (*FIELDS, "ignore", "label", "key", "unknown")
_TRUTH = {"true": True, "false": False}
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read, where its suffix does not say all: the options that every command and function takes.

    Each format looks at what it has, and refuses the others.

    Parameters
    ----------
    format
        ``libsvm``, ``csv``, ``jsonl``, ``vw``, ``parquet`` or ``arrow``; by default what the suffix says.
    key
        The field whose text is a record's key (:func:`palearn.records.record_key`); of CSV, Parquet and Arrow a column,
        whose text stays as it stands: ``007`` is not ``7``.
    key_feature
        Whether the key's column is a feature too.
    label
        The label's column in CSV (default ``label``; there must be one), Parquet and Arrow (default ``label``, if
        there is one).
    names
        LIBSVM: feature names; index 1 is the first. By default a feature is named by its index.
    columns
        A column's kind, one of :data:`KINDS`, in place of what :func:`palearn.files.kinds` says. VW: ``{"tag": "id"}``.
    known
        What a model's columns are: of those that ``columns`` does not name, others than these are left out.
    views
        VW: whether its namespaces are views; else they begin the features' names, ``namespace:feature``.
    unlabelled
        CSV: whether there need be no column ``label``, unless ``label`` names one.
    delimiter
        CSV: the character between cells; by default what the first line shows.
    header
        CSV: the columns' names, where the file has no line of them.
    encoding
        Of text formats.
    decimal
        CSV: what stands in numbers before the fraction, ``.`` or ``,``.
    """

    format: str | None = None
    key: str | None = None
    key_feature: bool = False
    label: str | None = None
    names: Sequence[str] | None = None
    columns: Mapping[str, str] = {}
    known: Mapping[str, str] | None = None
    views: bool = False
    unlabelled: bool = False
    delimiter: str | None = None
    header: Sequence[str] | None = None
    encoding: str | None = None
    decimal: str | None = None

    def but(self, **changes: Any) -> Self:
        """Return the same options but for those given.

        Raises
        ------
        TypeError
            There is no such option.
        """
        if changes.get("columns", ()) is None:
            changes["columns"] = {}
        return msgspec.structs.replace(self, **changes) if changes else self

    @property
    def said(self) -> dict[str, Any]:
        """The options that are not as they are by default."""
        pairs = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in pairs if value != getattr(DEFAULT, name)}


#: Nothing is said: the suffix tells the format, and the file its columns.
DEFAULT = ReadOptions()


class Look(NamedTuple):
    """What a file's columns are taken for, and what a reader should know before they are believed."""

    kinds: dict[str, str]
    notes: list[str]


def cast(value: Any, kind: str, decimal: str | None = None) -> Any:
    """Return a cell's value as one of its column's kind; what cannot be one stays as it is."""
    if isinstance(value, Decimal):
        value = float(value)
    elif isinstance(value, date | time | timedelta):
        value = value.isoformat() if isinstance(value, datetime) and kind == "time" else str(value)
    if kind == "bag":
        return value.split() if isinstance(value, str) else value
    if kind in ("number", "weight", "time", "value") and isinstance(value, str):
        found = as_number(_pointed(value) if decimal == "," else value)
        if found is None:
            return _TRUTH.get(value.lower(), value) if kind == "value" else value
        return found
    if not isinstance(value, LabelValue):
        return value
    if kind == "boolean":
        return _BOOLEANS.get(label_text(value).lower(), value)
    return label_text(value) if kind == "text" else value


def _pointed(text: str) -> str:
    """Return a number with a decimal comma as one with a point; another text as one that is no number."""
    return "" if "." in text else text.replace(",", ".")


def row_record(label: Label, cells: Mapping[str, Any], kinds: Mapping[str, str], decimal: str | None = None) -> Record:
    """Return the record of a row.

    Parameters
    ----------
    label
        The row's label.
    cells
        A column's name -> its cell.
    kinds
        A column's name -> its kind, ``label``, ``key`` or ``unknown``; other columns are features as they are.
    decimal
        Before the fraction of numbers that are text.
    """
    features, own = {}, dict.fromkeys(FIELDS)
    for name, cell in cells.items():
        kind = kinds.get(name, "")
        if kind in FIELDS:
            own[kind] = cast(cell, kind, decimal)
        elif kind not in NO_FEATURES:
            features[name] = cast(cell, kind, decimal)
    identity, weight, time = own.values()
    check_id(identity)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if weight is not None and (not is_number or number("weight", weight) <= 0):
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {weight!r:.60}")
    return Record(label=label, features=numbers("row", features), id=identity, weight=weight, time=time)


def kinds_of(columns: Mapping[str, str], options: ReadOptions, label: str) -> dict[str, str]:
    """Return what each column is: as the options say, else as its name does, else as the model knows it or it shows.

    Parameters
    ----------
    columns
        A column's name -> what it shows.
    options
        Of which :func:`check_columns` has found nothing wrong.
    label
        The label's column.

    Returns
    -------
    dict
        Name -> a kind, ``label``, ``key``, or ``unknown``: the model knows no such column.
    """
    out = {}
    for name, shown in columns.items():
        said = options.columns.get(name)
        if name == label:
            out[name] = "label"
        elif name == options.key and not options.key_feature and (said or name) not in FIELDS:
            out[name] = "key"
        elif said is not None:
            out[name] = said
        elif name in FIELDS:
            out[name] = name
        elif options.known is not None and (shown != "ignore" or name in options.known):
            out[name] = options.known.get(name, "unknown")
        else:
            out[name] = shown
    return out


def check_columns(path: object, options: ReadOptions, columns: Sequence[str], label: str) -> None:
    """Raise a FileFormatError for a column that is named twice or missing, or for two ids."""
    if len(set(columns)) != len(columns):
        twice = Counter(columns).most_common(1)[0][0]
        raise FileFormatError(f"{path}: column {twice!r:.80} stands twice; give each a name of its own")
    missing = [name for name in options.columns if name not in columns]
    if missing:
        raise FileFormatError(f"{path}: no column {missing[0]!r:.80}; the columns are: {listed(columns)}")
    if label in options.columns:
        raise FileFormatError(f"{path}: {label!r:.80} is the label's column; choose another one with --label")
    for kind in FIELDS:
        own = [name for name in columns if options.columns.get(name, name) == kind]
        if len(own) > 1:
            raise FileFormatError(f"{path}: the columns {listed(own)} would all be the {kind}; set others to ignore")


def no_label(path: object, label: str, columns: Sequence[str]) -> FileFormatError:
    """Return what is wrong with a file whose columns do not have the label's."""
    hint = ""
    if any(as_number(name) is not None for name in columns):
        hint = "; if this is no header but the first row, name the columns with --header a,b,…"
    return FileFormatError(
        f"{path}: no label column {label!r}; the columns are: {listed(columns)}; choose one with --label{hint}"
    )


def listed(columns: Sequence[str]) -> str:
    """Return the names of columns as a message shows them, not more than are read."""
    return f"{', '.join(columns[:30]):.2000}" + (", …" if len(columns) > 30 else "")
