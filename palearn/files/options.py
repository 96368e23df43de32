"""How a file is read, where its suffix does not say all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias, get_args

import msgspec

from palearn.errors import FileFormatError, RecordError
from palearn.records import Label, LabelValue, Record, check_id, label_text, number, numbers
from palearn.records.libsvm import as_number

#: What a column holds; ``id``: its text is the record's id.
Kind: TypeAlias = Literal["number", "text", "boolean", "id", "ignore"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: Columns that are fields of the record, never features.
FIELDS = ("id", "weight", "time")
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read, where its suffix does not say all: the options that every command and function takes.

    Each format looks at what it has.

    Parameters
    ----------
    format
        ``libsvm``, ``csv``, ``jsonl``, ``vw``, ``parquet`` or ``arrow``; by default what the suffix says.
    key
        The field whose text is a record's key (:func:`palearn.records.record_key`).
    label
        The label's column in CSV (default ``label``; there must be one), Parquet and Arrow (default ``label``, if
        there is one).
    names
        LIBSVM: feature names; index 1 is the first. By default a feature is named by its index.
    columns
        A column's kind, ``number``, ``text``, ``boolean``, ``id`` or ``ignore``, in place of what
        :func:`palearn.files.kinds` says. VW: ``{"tag": "id"}``.
    views
        VW: whether its namespaces are views; else they begin the features' names, ``namespace:feature``.
    unlabelled
        CSV: whether there need be no column ``label``, unless ``label`` names one.
    """

    format: str | None = None
    key: str | None = None
    label: str | None = None
    names: Sequence[str] | None = None
    columns: Mapping[str, str] = {}
    views: bool = False
    unlabelled: bool = False

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


#: Nothing is said: the suffix tells the format, and the file its columns.
DEFAULT = ReadOptions()


def cast(value: Any, kind: str) -> Any:
    """Return a cell's value as one of its column's kind; what cannot be one stays as it is."""
    if kind in ("number", "weight", "time") and isinstance(value, str):
        found = as_number(value)
        return value if found is None else found
    if not isinstance(value, LabelValue):
        return value
    if kind == "boolean":
        return _BOOLEANS.get(label_text(value).lower(), value)
    return label_text(value) if kind == "text" else value


def row_record(label: Label, cells: Mapping[str, Any], kinds: Mapping[str, str]) -> Record:
    """Return the record of a row.

    Parameters
    ----------
    cells
        A column's name -> its cell; the label's is left out.
    kinds
        A column's name -> its kind, or the field of the record that it is; other columns are features as they are.
    """
    features, own = {}, dict.fromkeys(FIELDS)
    for name, cell in cells.items():
        kind = kinds.get(name, "")
        if kind in FIELDS:
            own[kind] = cast(cell, kind)
        elif kind not in ("ignore", "label"):
            features[name] = cast(cell, kind)
    identity, weight, time = own.values()
    check_id(identity)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if weight is not None and (not is_number or number("weight", weight) <= 0):
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {weight!r:.60}")
    if isinstance(time, datetime):
        time = time.isoformat()
    return Record(label=label, features=numbers("row", features), id=identity, weight=weight, time=time)


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
    own = [name for name in columns if options.columns.get(name, name) == "id"]
    if len(own) > 1:
        raise FileFormatError(f"{path}: the columns {listed(own)} would all be the id; set others to text or ignore")


def no_label(path: object, label: str, columns: Sequence[str]) -> FileFormatError:
    """Return what is wrong with a file whose columns do not have the label's."""
    return FileFormatError(
        f"{path}: no label column {label!r}; the columns are: {listed(columns)}; choose one with --label"
    )


def listed(columns: Sequence[str]) -> str:
    """Return the names of columns as a message shows them, not more than are read."""
    return f"{', '.join(columns[:30]):.2000}" + (", …" if len(columns) > 30 else "")
