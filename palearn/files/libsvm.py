"""LIBSVM: ``label index:value … # comment``; features are named by the index as it is written."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from palearn.errors import RecordError
from palearn.files.options import ReadOptions
from palearn.files.text_lines import Row, each_line
from palearn.records import Record
from palearn.records.libsvm import parse_line

Names: TypeAlias = Sequence[str] | None


def read_libsvm(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Row]:
    """Yield the rows of a file."""
    return each_line(stream, options.encoding, line_parser(options.names))


def line_parser(names: Names) -> Callable[[str], Record | None]:
    """Return what makes a record of a line, or None of a comment; with ``names``, index 1 is the first."""
    named = None if names is None else {str(index): name for index, name in enumerate(names, 1)}

    def parse(text: str) -> Record | None:
        record = parse_line(text)
        if named is not None and record is not None:
            features = record.features or {}
            if unnamed := features.keys() - named.keys():
                raise RecordError("bad_line", f"no names for {sorted(unnamed)[:5]}; there are {len(named)}")
            record.features = {named[index]: value for index, value in features.items()}
        return record

    return parse
