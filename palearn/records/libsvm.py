"""LIBSVM: ``label index:value … # comment``; features are named by the index as it is written."""

import re

from palearn.errors import RecordError
from palearn.records.record import Label, Record, check_label, number, utf8

#: An integer that a float may be near to; as a float, a label would be taken for others.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,399})")
#: Zeros before a number that are a text's: a postcode, a product's code.
_ZEROS = re.compile(r"0[0-9]+")
#: What a feature is named by.
_INDEX = re.compile(r"[0-9]{1,18}")
#: Names a line's query, for rankings; no feature.
_QUERY = "qid:"


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
    features = items[2:] if len(items) > 1 and items[1].startswith(_QUERY) else items[1:]
    return Record(label=as_label(items[0]), features=parse_libsvm(features))


def parse_libsvm(items: list[str]) -> dict[str, float]:
    """Return the features of LIBSVM items such as ``["3:1", "11:0.5"]``; names are the indices, integers >= 0."""
    out: dict[str, float] = {}
    for item in items:
        name, colon, text = item.rpartition(":")
        if not colon or not name:
            raise RecordError("bad_features", f"expected index:value, got {item[:60]!r}")
        if _INDEX.fullmatch(name) is None:
            raise RecordError("bad_features", f"an index is an integer >= 0, got {name[:60]!r}")
        name = name.lstrip("0") or "0"
        if name in out:
            raise RecordError("bad_features", f"feature {name[:60]!r} stands twice")
        value = as_number(text)
        if value is None:
            raise RecordError("bad_features", f"feature {name[:60]!r}: {text[:60]!r} is no number")
        out[name] = number(name, value)
    return out


def as_label(text: str) -> Label:
    """Return a label as it is meant: a number where the text is one (``+1`` is 1, ``01`` is text), else the text."""
    if _ZEROS.fullmatch(text):
        return text
    if _INTEGER.fullmatch(text):
        label = int(text)
        check_label(label)
        return label
    value = as_number(text)
    return text if value is None else number("label", value)


def as_number(text: str) -> float | None:
    """Return the number that a text is, NaN and infinity too, or None; Python's ``1_000`` and ``١`` are none."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None
