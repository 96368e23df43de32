"""VW text read by palearn and by Vowpal Wabbit itself (pip install vowpalwabbit): the same labels, weights and features.

Names are compared as VW knows them, by their hashes. Run ``python -m benchmarks.vw --lines 100000 --json``.
"""

import argparse
import io
import math
import random
from typing import Any

from benchmarks.common import environment, show
from palearn import files
from palearn.records import Record

_HEADS = ("", "1 ", "-1 ", "2.5 ", "1 2 ", "1 0.5 ", "1 'tag", "1 2 'tag", "1 tag", "'t ", "1 2 t", "1 't ", " 1 ")
_SPACES = (" ", " ", "n ", "spc ", "n:2 ", "spc:0.5 ", "é ")
_NAMES, _NUMBERS = ("a", "bb", "x1", "é", "f_2", "q-9", "zZ"), ("1", "-2.5", "0.25", "1e3", ".5", "+4", "-.125", "3")
#: VW's numbers are of 32 bits, and a label that is not there is its largest.
_CLOSE, _NO_LABEL = 1e-6, 3e38


def line(draw: random.Random) -> str:
    """Return a line of all that palearn reads."""
    spaces = []
    for _ in range(draw.randint(1, 3)):
        words = [
            draw.choice(_NAMES) + draw.choice(("", f":{draw.choice(_NUMBERS)}", f":{draw.choice(_NAMES)}"))
            for _ in range(draw.randint(0, 4))
        ]
        spaces.append(draw.choice(_SPACES) + " ".join(words) + draw.choice(("", " ")))
    return draw.choice(_HEADS) + "|" + "|".join(spaces)


def compare(lines: list[str]) -> list[str]:
    """Return the lines that the two read differently."""
    from vowpalwabbit import Workspace

    vw = Workspace("--quiet -b 30 --noconstant")
    text = io.BytesIO("".join(f"{x}\n" for x in lines).encode())
    mine = [row for _, row in files.read("lines.vw", opened=text, columns={"tag": "id"}, views=True)]
    return [x for x, row in zip(lines, mine, strict=True) if not _same(vw, x, row)]


def _same(vw: Any, text: str, record: Any) -> bool:
    (example,) = parsed if isinstance(parsed := vw.parse(text), list) else [parsed]
    label, theirs = example.get_simplelabel_label(), {}
    for space in range(example.num_namespaces()):
        for i in range(example.num_features_in(space)):
            number = example.feature(space, i)
            theirs[number] = theirs.get(number, 0.0) + example.feature_weight(space, i)
    if not isinstance(record, Record) or (record.label is None) != (label > _NO_LABEL):
        return False
    features: dict[int, float] = {}
    for space, held in (record.views or {}).items():
        for name, value in held.items():
            number = _hash(vw, space, name)
            features[number] = features.get(number, 0.0) + value
    return (
        (record.label is None or float(record.label) == label)
        and (record.weight or 1.0) == example.get_simplelabel_weight()
        and (record.id or "") == example.get_tag()
        and features.keys() == theirs.keys()
        and all(math.isclose(features[i], theirs[i], rel_tol=_CLOSE, abs_tol=_CLOSE) for i in features)
    )


def _hash(vw: Any, space: str, name: str) -> int:
    """Return VW's number of a feature; a text after a colon is hashed on top of the name."""
    base, (name, _, text) = vw.hash_space(space) if space else 0, name.partition("=")
    number = vw.hash_feature(name, base)
    return int(vw.hash_feature(text, number) if text else number) & (2**30 - 1)


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
