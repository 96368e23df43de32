"""LIBSVM: ``label index:value … # comment``; features are named by the index as it is written."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from palearn import records
from palearn.errors import RecordError
from palearn.files.text import Row, each_line
from palearn.records import Label, Record

Names: TypeAlias = Sequence[str] | None

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def read_libsvm(path: Path, stream: BinaryIO, label: str | None, names: Names) -> Iterator[Row]:
    """Yield the rows of a file; ``label`` is not for this format."""
    return each_line(stream, line_parser(names))


def line_parser(names: Names) -> Callable[[str], Record | None]:
    """Return what makes a record of a line, or None of a comment; with ``names``, index 1 is the first."""
    named = None if names is None else {str(index): name for index, name in enumerate(names, 1)}

    def parse(text: str) -> Record | None:
        items = text.partition("#")[0].split()
        if not items:
            return None
        if ":" in items[0]:
            raise RecordError("bad_line", f"the line must begin with a label, got {items[0][:60]!r}")
        features = records.parse_libsvm(items[1:])
        if named is not None:
            if unnamed := features.keys() - named.keys():
                raise RecordError("bad_line", f"no names for {sorted(unnamed)[:5]}; there are {len(named)}")
            features = {named[index]: value for index, value in features.items()}
        return Record(label=as_label(items[0]), features=features)

    return parse


def as_label(text: str) -> Label:
    """Return a label as it is meant: a number where the text is one (``+1`` is 1), else the text."""
    if _INTEGER.fullmatch(text):
        return int(text)
    value = as_number(text)
    return text if value is None else records.number("label", value)


def as_number(text: str) -> float | None:
    """Return the number that a text is, NaN and infinity too, or None; Python's ``1_000`` is none."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
