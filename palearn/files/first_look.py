"""What a file's first rows show that somebody should know before figures are believed."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from palearn.files.options import listed

#: Fewer cells say nothing.
FEW = 20
#: Texts of which so many are different tell rows apart, and little else.
_DIFFERENT = 0.9
#: The share of cells that must be of a form.
_MOST = 0.9
#: So many cells are looked at for their form.
_TRIED = 100
_DAY = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[ T].*)?|\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?")
_COMMA = re.compile(r"[+-]?\d+,\d+")


def column_notes(sample: Mapping[str, Sequence[str]], kinds: Mapping[str, str]) -> list[str]:
    """Return sentences about columns that are texts now, and should perhaps be something else.

    Parameters
    ----------
    sample
        A column's name -> its first cells that are not empty, as text.
    kinds
        What each is taken for.
    """
    texts = {name: cells for name, cells in sample.items() if kinds.get(name) == "text" and len(cells) >= FEW}
    times = [name for name, cells in texts.items() if _share(cells, _is_time) >= _MOST]
    commas = [name for name, cells in texts.items() if _share(cells, _has_comma) >= _MOST]
    names = [
        name
        for name, cells in texts.items()
        if name not in (*times, *commas) and len(set(cells)) >= _DIFFERENT * len(cells)
    ]
    notes = []
    if names:
        notes.append(
            f"nearly every text of {listed(names)} is another one, and tells little but which row it is: leave it out "
            f"with --column '{names[0]}=ignore', or count words with --column '{names[0]}=bag'"
        )
    if times:
        notes.append(
            f"{listed(times)} look like times, and each is a text of its own: leave out with --column "
            f"'{times[0]}=ignore', or make it the record's time with --column '{times[0]}=time'"
        )
    if commas:
        notes.append(f"{listed(commas)} hold texts such as {texts[commas[0]][0]!r}: if they are numbers, --decimal ,")
    return notes


def _share(cells: Sequence[str], is_one: Callable[[str], bool]) -> float:
    tried = cells[:_TRIED]
    return sum(map(is_one, tried)) / len(tried)


def _has_comma(text: str) -> bool:
    return _COMMA.fullmatch(text) is not None


def _is_time(text: str) -> bool:
    if _DAY.fullmatch(text):
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return not text.isdigit()
