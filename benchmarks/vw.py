"""VW text read by palearn and by Vowpal Wabbit itself (pip install vowpalwabbit): the same labels and features.

Names are compared as VW knows them, by their hashes. A text value is followed by a space: VW takes a bar into it.
Run ``python -m benchmarks.vw --lines 100000 --json``.
"""

import argparse
import io
import math
import random
from typing import Any

from sklearn.utils import murmurhash3_32

from benchmarks.common import environment, show
from palearn import files
from palearn.records import Record

_HEADS = ("", "1 ", "-1 ", "2.5 ", "1 2 ", "1 0.5 ", "1 'tag", "1 2 'tag", "1 tag", "'t ", "1 2 t", "1 't ", " 1 ")
_SPACES = (" ", " ", "n ", "spc ", "n:2 ", "spc:0.5 ", "é ")
_NAMES, _NUMBERS = ("a", "bb", "x1", "é", "f_2", "q-9", "zZ"), ("1", "-2.5", "0.25", "1e3", ".5", "+4", "-.125", "3")
#: VW's numbers are of 32 bits, and a label that is not there is its largest.
_CLOSE, _NO_LABEL = 1e-6, 3e38
#: Of a feature's number.
_BITS = 30


def line(draw: random.Random) -> str:
    """Return a line of all that palearn reads."""
    spaces = []
    for _ in range(draw.randint(1, 3)):
        words = [
            draw.choice(_NAMES) + draw.choice(("", f":{draw.choice(_NUMBERS)}", f":{draw.choice(_NAMES)}"))
            for _ in range(draw.randint(0, 4))
        ]
        text = bool(words) and words[-1].partition(":")[2] in _NAMES
        spaces.append(draw.choice(_SPACES) + " ".join(words) + (" " if text else draw.choice(("", " "))))
    return draw.choice(_HEADS) + "|" + "|".join(spaces)


def compare(lines: list[str]) -> list[str]:
    """Return the lines that the two read differently."""
    from vowpalwabbit import Workspace

    vw = Workspace(f"--quiet -b {_BITS} --noconstant")
    text = io.BytesIO("".join(f"{x}\n" for x in lines).encode())
    mine = [row for _, row in files.read("lines.vw", opened=text, columns={"tag": "id"}, views=True)]
    return [x for x, row in zip(lines, mine, strict=True) if not _same(vw, x, row)]


def _same(vw: Any, text: str, record: Any) -> bool:
    (example,) = parsed if isinstance(parsed := vw.parse(text), list) else [parsed]
    label = example.get_simplelabel_label()
    theirs: dict[int, float] = {}
    for held in range(example.num_namespaces()):
        for i in range(example.num_features_in(held)):
            number = example.feature(held, i)
            theirs[number] = theirs.get(number, 0.0) + example.feature_weight(held, i)
    if not isinstance(record, Record) or (record.label is None) != (label > _NO_LABEL):
        return False
    features: dict[int, float] = {}
    for space, values in (record.views or {}).items():
        for name, value in values.items():
            number = _hash(space, name)
            features[number] = features.get(number, 0.0) + value
    return bool(
        (record.label is None or float(record.label) == label)
        and (record.weight or 1.0) == example.get_simplelabel_weight()
        and (record.id or "") == example.get_tag()
        and features.keys() == theirs.keys()
        and all(math.isclose(features[i], theirs[i], rel_tol=_CLOSE, abs_tol=_CLOSE) for i in features)
    )


def _hash(space: str, name: str) -> int:
    """Return VW's number of a feature: the hash of its name, begun with its namespace's; then that of a text value."""
    number = 0
    for part in (space, *name.split("=")):
        number = int(murmurhash3_32(part.encode(), seed=number, positive=True)) if part else number
    return int(number & (2**_BITS - 1))


def main() -> None:
    """Compare random lines; exit with 1 where any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    different = compare([line(draw) for _ in range(given.lines)])
    found = {"lines": given.lines, "different": len(different), "first": different[:5], **environment()}
    show(found, as_json=given.json)
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
