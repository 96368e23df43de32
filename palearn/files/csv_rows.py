"""CSV text to rows of cells: quotes, delimiters, and lines that are none.

A quote that is never closed, or not where a cell ends, costs the line that opens it and no other: the lines behind it
are read again, each for itself. A byte that is not UTF-8 costs the record that it stands in, with all of its lines.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, TypeAlias

from palearn.errors import RecordError
from palearn.files import text_lines
from palearn.files.text_lines import decoded, numbered

#: What may stand between cells, by which comes first where two are as likely.
DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"')
#: The first line that Excel writes to say the delimiter.
_SAID = re.compile(r'"?sep=(.)"?$', re.IGNORECASE)
_Line: TypeAlias = tuple[int, bytes]


class CsvRow(NamedTuple):
    """A row: the numbers of its first and last line, and its cells or what is wrong with it."""

    first: int
    last: int
    cells: list[str] | RecordError


class CsvRows:
    """The rows of a file, blank lines left out.

    Parameters
    ----------
    stream
        The file's bytes, UTF-8.
    delimiter
        What stands between cells; None: what the first line shows.
    """

    def __init__(self, stream: BinaryIO, delimiter: str | None) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), text_lines.MAX_LINE_BYTES))  # a cell may be as long as a line
        self._lines = numbered(stream)
        self._again: deque[_Line] = deque()
        #: How many bytes were read.
        self.bytes = 0
        self.delimiter = delimiter or self._guess()

    def _guess(self) -> str:
        for line in self._lines:
            self._again.append(line)
            text = line[1].decode(errors="replace").strip()
            if said := _SAID.match(text):
                self._again.pop()
                return said[1]
            if text:
                plain = _QUOTED.sub("", text)
                return max(DELIMITERS, key=plain.count)
        return DELIMITERS[0]

    def _next(self) -> _Line | None:
        if self._again:
            return self._again.popleft()
        line = next(self._lines, None)
        self.bytes += 0 if line is None else len(line[1])
        return line

    def __iter__(self) -> Iterator[CsvRow]:
        while (line := self._next()) is not None:
            number, raw = line
            if raw.isspace():
                continue
            if b'"' in raw and len(raw) <= text_lines.MAX_LINE_BYTES:
                yield self._quoted(line)
                continue
            try:
                yield CsvRow(number, number, self._split(decoded(raw)))
            except RecordError as error:
                yield CsvRow(number, number, error)

    def _split(self, text: str) -> list[str]:
        """Return the cells of a line without quotes."""
        text = text.rstrip("\r\n")
        if "\r" in text:
            raise RecordError("bad_line", "a carriage return inside the line; lines must end with \\n or \\r\\n")
        return text.split() if self.delimiter == " " else text.split(self.delimiter)

    def _quoted(self, line: _Line) -> CsvRow:
        """Return the row that begins with a line, whose cells may go on for more lines."""
        taken = [line]

        def texts() -> Iterator[str]:
            yield line[1].decode(errors="surrogateescape")
            size = len(line[1])
            while (more := self._next()) is not None:
                taken.append(more)
                size += len(more[1])
                if size > text_lines.MAX_LINE_BYTES:
                    return
                yield more[1].decode(errors="surrogateescape")

        try:
            cells = next(csv.reader(texts(), delimiter=self.delimiter, skipinitialspace=True, strict=True))
        except csv.Error as error:
            self._again.extendleft(reversed(taken[1:]))
            told = "a quote is opened and not closed" if "end of data" in str(error) else str(error)
            return CsvRow(line[0], line[0], RecordError("bad_line", f"not CSV: {told}"))
        first, last = line[0], taken[-1][0]
        if len(taken) > 1 or not line[1].isascii():
            for number, raw in taken:
                try:
                    raw.decode()
                except UnicodeDecodeError as error:
                    where = f"line {number} is not UTF-8 at byte {error.start}{spans(first, last)}"
                    return CsvRow(first, last, RecordError("not_utf8", where))
        return CsvRow(first, last, cells)


def spans(first: int, last: int) -> str:
    """Return what a message says of a record of more than one line."""
    return f"; the record is lines {first:,} to {last:,}" if last > first else ""
