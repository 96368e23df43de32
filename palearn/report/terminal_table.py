"""Tables for a terminal of any width: a number is whole or its column left out, a shortened name is nobody else's.

Whoever prints a table makes a :class:`Sheet`. It is laid out when it is printed, for the width that there is then.
"""

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from palearn.errors import shown

#: Names have at most so many columns, however much room there is.
LONGEST = 80
#: What goes to no terminal has so many columns.
_WIDE = 100_000
#: What is tried one after the other: columns between two others, and what a name or text must have of its own, if it
#: is that long. The first is with whole titles, the others are with short ones.
_SPACED = ((2, 20), (2, 12), (1, 10))
#: Hexadecimal digits of a hash that tells names apart, and a word of usual length.
_MARK, _WORD = 6, 24


def width() -> int | None:
    """Return the width for standard output: None where a terminal or ``COLUMNS`` has one, else whatever is needed.

    Rich takes 80 columns for files and pipes, or the width of a terminal that only standard error goes to.
    """
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else _WIDE


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a :class:`Sheet`, a cell a row.

    Parameters
    ----------
    kind
        ``number``: on the right, never broken; ``name``: cut where there is no room, in such a way that different names
        stay different; ``text``: continued in more lines.
    rank
        Where there is no room, columns of the highest rank are left out first; those of rank 0 never are.
    short
        A title for want of room.
    marks
        What stands before each name, never cut.
    """

    title: str
    cells: Sequence[str]
    kind: Literal["number", "name", "text"] = "number"
    rank: int = 0
    short: str | None = None
    marks: Sequence[str] = ()

    def fitted(self, width: int = LONGEST) -> list[str]:
        """Return the cells as they are printed in a column of this width."""
        if self.kind != "name":
            return list(map(shown, self.cells))
        marks = self.marks or [""] * len(self.cells)
        room = width - max(map(cell_len, marks), default=0)
        return [mark + name for mark, name in zip(marks, names(self.cells, room), strict=True)]

    def texts(self, width: int) -> list[Text]:
        """Return the cells for a column of this width; what has no room at all is seen to be cut."""
        if self.kind == "text":
            return [Text(cell, overflow="fold") for cell in self.fitted()]
        return [Text(cell, no_wrap=True, overflow="ellipsis") for cell in self.fitted(width)]

    def heading(self, *, short: bool) -> str:
        """Return the title, which prints."""
        return self.title if self.short is None or not short else self.short

    def natural(self, *, short: bool) -> int:
        """Return the width at which nothing is cut; that of a number is less if its title stands in several lines."""
        heading = self.heading(short=short)
        lines = heading.split() if short and self.kind == "number" else heading.split("\n")
        return max(map(cell_len, (*lines, *self.fitted())))

    def least(self, natural: int, room: int) -> int:
        """Return the least width: all of a number, ``room`` of a name; no text is broken in a word of usual length."""
        if self.kind == "number":
            return natural
        if self.kind == "name":
            return min(natural, room + max(map(cell_len, self.marks), default=0))
        words = (word for cell in self.fitted() for word in cell.split())
        return min(natural, max(room, min(_WORD, max(map(cell_len, words), default=0))))


class Sheet:
    """A table that is laid out for the width it is printed at.

    Parameters
    ----------
    columns
        The columns from left to right.
    rest
        Where the columns are that are left out, as half a sentence.
    """

    def __init__(self, columns: Sequence[Column], rest: str = "--json has all") -> None:
        self._columns, self._rest = columns, rest

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, and a line that names the columns left out."""
        columns, short, gap, widths = self._layout(options.max_width)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
        for column, width in zip(columns, widths, strict=True):
            side: Literal["left", "right"] = "right" if column.kind == "number" else "left"
            heading = Text(column.heading(short=short), justify=side, overflow="fold")
            table.add_column(heading, justify=side, width=width)
        cells = [column.texts(width) for column, width in zip(columns, widths, strict=True)]
        for row in zip(*cells, strict=True):
            table.add_row(*row)
        yield table
        left = [" ".join(column.heading(short=short).split()) for column in self._columns if column not in columns]
        if left:
            yield Text(f"columns left out, the terminal is too narrow: {', '.join(left)}; {self._rest}")

    def _layout(self, room: int) -> tuple[list[Column], bool, int, list[int]]:
        """Return the columns that there is room for, whether their titles are short, the gap, and their widths."""
        columns = list(self._columns)
        while True:
            for short, (gap, least) in zip((False, True, True), _SPACED, strict=True):
                found = _widths(columns, room - gap * (len(columns) - 1), least, short=short)
                if found is not None:
                    return columns, short, gap, found
            last = max(columns, key=lambda column: column.rank)
            if not last.rank:
                return columns, True, 1, [column.least(column.natural(short=True), 1) for column in columns]
            columns.remove(last)


def _widths(columns: Sequence[Column], room: int, least: int, *, short: bool) -> list[int] | None:
    """Return how wide each column is where together they have so much room, None if it is too little.

    What is no number gives way, the widest first, down to ``least``.
    """
    natural = [column.natural(short=short) for column in columns]
    floors = [column.least(width, least) for column, width in zip(columns, natural, strict=True)]
    if sum(floors) > room:
        return None
    for most in range(max(natural), 0, -1):
        found = [max(floor, min(width, most)) for floor, width in zip(floors, natural, strict=True)]
        if sum(found) <= room:
            return found
    return floors


def names(given: Sequence[str], width: int = LONGEST) -> list[str]:
    """Return names in at most ``width`` columns each, such that different names stay different.

    The end is cut; where that makes two alike, the middle is; and where that does too, a hash takes the end's place.
    """
    texts = {name: "" for name in given}
    left = list(texts)
    cuts: tuple[Callable[[str, int], str], ...] = (_without_end, _without_middle, _marked)
    for cut in cuts:
        texts |= {name: cut(name, min(width, LONGEST)) for name in left}
        counts = Counter(texts.values())
        left = [name for name in left if counts[texts[name]] > 1]
    return [texts[name] for name in given]


def _plain(name: str) -> str:
    """Return a name as text; in quotes where its first or last character would not be seen."""
    text = shown(name)
    return text if text and text == text.strip() else f"'{text}'"


def _without_end(name: str, width: int) -> str:
    text = _plain(name)
    return text if cell_len(text) <= width else _head(text, width - 1) + "…"


def _without_middle(name: str, width: int) -> str:
    text = _plain(name)
    if cell_len(text) <= width:
        return text
    tail = _head(text[::-1], (width - 1) // 2)[::-1]
    return f"{_head(text, width - 1 - cell_len(tail))}…{tail}"


def _marked(name: str, width: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{_head(_plain(name), width - 1 - _MARK)}…{digest}"


def _head(text: str, width: int) -> str:
    """Return as much of a text's beginning as has room; half a character of two columns is none."""
    return set_cell_size(text, max(width, 0)).rstrip() if cell_len(text) > width else text


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share in %."""
    return "-" if share is None else f"{100 * share:.{digits}f}"


def count(value: float | None) -> str:
    """Return a whole number with its thousands."""
    return "-" if value is None else f"{value:,.0f}"
