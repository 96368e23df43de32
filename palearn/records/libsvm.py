"""LIBSVM: ``label index:value … # comment``; features are named by the index as it is written."""

import re

from palearn.errors import RecordError
from palearn.records.record import Label, Record, check_label, number, utf8

#: An integer that a float may be near to; as a float, a label would be taken for others.
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")


def decoded(value: bytes | None) -> Record:
    """Return the record of a value that is one line, or raise a RecordError."""
    if value is None:
        raise RecordError("bad_line", "the record has no value (a tombstone)")
    record = parse_line(utf8(value))
    if record is None:
        raise RecordError("bad_line", "the value is empty, or only a comment")
    return record


def parse_line(text: str) -> Record | None:
    """Return the record of a line, or None of a comment."""
    items = text.partition("#")[0].split()
    if not items:
        return None
    if ":" in items[0]:
        raise RecordError("bad_line", f"the line must begin with a label, got {items[0][:60]!r}")
    return Record(label=as_label(items[0]), features=parse_libsvm(items[1:]))


def parse_libsvm(items: list[str]) -> dict[str, float]:
    """Return the features of LIBSVM items such as ``["3:1", "11:0.5"]``; names are the indices as written."""
    out: dict[str, float] = {}
    for item in items:
        name, colon, text = item.rpartition(":")
        if not colon or not name:
            raise RecordError("bad_features", f"expected index:value, got {item[:60]!r}")
        if name in out:
            raise RecordError("bad_features", f"feature {name[:60]!r} stands twice")
        try:
            value = float(text)
        except ValueError:
            raise RecordError("bad_features", f"feature {name[:60]!r}: {text[:60]!r} is no number") from None
        out[name] = number(name, value)
    return out


def as_label(text: str) -> Label:
    """Return a label as it is meant: a number where the text is one (``+1`` is 1), else the text."""
    if _INTEGER.fullmatch(text):
        label = int(text)
        check_label(label)
        return label
    value = as_number(text)
    return text if value is None else number("label", value)


def as_number(text: str) -> float | None:
    """Return the number that a text is, NaN and infinity too, or None; Python's ``1_000`` is none."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
