"""VW text, Vowpal Wabbit's format: ``[label [importance]] [tag]|namespace[:scale] feature[:value] … |namespace …``.

=================  ==========================================================================
in the line        in the record
=================  ==========================================================================
label              the label: a number, or text (VW's named labels); none: no label
importance         ``weight``, which must be > 0
tag                nothing, unless ``columns`` says that ``tag`` is the ``id``: tags need not
                   be unique, and records of one id are parts of one example
``feature``        1; ``feature:value`` the number, times the namespace's scale
``name:text``      one-hot, ``name=text``
``|ns feature``    the name ``ns:feature``; with views, feature ``feature`` of view ``ns``
``| feature``      the name ``feature``
the same twice     the sum
=================  ==========================================================================

The rest of VW's language is refused line by line: costs and actions (``1:0.5 2:1``, ``shared``), an initial prediction,
features without a name, numbers that only C reads (``0x1F``), and a tab before the first ``|``, up to which VW skips.
Where VW warns and goes on, as with ``a:1:2``, the line is bad. A text value ends at a bar, which VW takes into it. https://github.com/VowpalWabbit/vowpal_wabbit/wiki/Input-format
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from palearn.errors import FileFormatError, RecordError
from palearn.files.options import ReadOptions
from palearn.files.text_lines import Row, each_line
from palearn.records import Record, check_weight, number
from palearn.records.libsvm import as_label, as_number

#: The only thing of a line that is not always the same field of the record.
TAG = "tag"
_LIKE_A_NUMBER = re.compile(r"[+-]?\.?[0-9]")


def read_vw(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Row]:
    """Yield the rows of a file."""
    for name, kind in options.columns.items():
        if name != TAG or kind not in ("id", "ignore"):
            raise FileFormatError(f"{path}: VW text has the one column {TAG}, id or ignore, got {name:.80}={kind}")
    return each_line(
        stream, options.encoding, _line_parser(tagged=options.columns.get(TAG) == "id", views=options.views)
    )


def _line_parser(*, tagged: bool, views: bool) -> Callable[[str], Record]:
    def parse(text: str) -> Record:
        head, bar, rest = text.partition("|")
        if not bar:
            raise RecordError("bad_line", "VW text needs a '|' before the features")
        words, tag = _words(head)
        record = Record(id=tag or None) if tagged else Record()
        _read_label(record, words)
        spaces = [_namespace(space) for space in rest.split("|")]
        if views:
            record.views = {}
            for name, features in spaces:
                _add(record.views.setdefault(name, {}), features, "")
        else:
            record.features = {}
            for name, features in spaces:
                _add(record.features, features, f"{name}:" if name else "")
        return record

    return parse


def _words(head: str) -> tuple[list[str], str]:
    """Return what stands before the features, and the tag: the last word, if it touches the bar or has a quote."""
    if "\t" in head:
        raise RecordError("bad_line", "a tab before the first '|', which VW would skip to; write a space")
    words = head.split()
    if words and (not head.endswith(" ") or words[-1].startswith("'")):
        return words[:-1], words[-1].removeprefix("'")
    return words, ""


def _read_label(record: Record, words: list[str]) -> None:
    if not words:
        return
    if len(words) > 2 or ":" in words[0] or words[0] == "shared":
        raise RecordError(
            "bad_line", f"expected label, importance and tag before the '|', got {' '.join(words)[:60]!r}; costs, "
            "actions and initial predictions are not read"
        )  # fmt: skip
    record.label = as_label(words[0])
    if len(words) == 2:
        weight = as_number(words[1])
        if weight is None:
            raise RecordError("bad_weight", f"the importance must be a number > 0, got {words[1][:60]!r}")
        check_weight(weight)
        record.weight = weight


def _namespace(text: str) -> tuple[str, list[tuple[str, float]]]:
    """Return the name of a namespace and its features, each scaled."""
    words = text.split()
    name, scale = "", 1.0
    if text[:1] not in ("", " ", "\t"):
        name, colon, scaled = words.pop(0).partition(":")
        if not name:
            raise RecordError("bad_line", "a namespace needs a name before its scale")
        if colon:
            scale = _number(name, scaled)
    return name, [_feature(word, scale) for word in words]


def _feature(word: str, scale: float) -> tuple[str, float]:
    name, colon, value = word.partition(":")
    if not name:
        raise RecordError("bad_features", f"a feature needs a name, got {word[:60]!r}")
    if colon and as_number(value) is None and ":" not in value and value and not _LIKE_A_NUMBER.match(value):
        return f"{name}={value}", 1.0  # VW does not scale it
    return name, scale * _number(name, value) if colon else scale


def _number(name: str, text: str) -> float:
    value = as_number(text)
    if value is None:
        raise RecordError("bad_features", f"{name[:60]!r}: {text[:60]!r} is no number")
    return number(name, value)


def _add(features: dict[str, float], more: list[tuple[str, float]], prefix: str) -> None:
    for name, value in more:
        features[prefix + name] = number(name, features.get(prefix + name, 0.0) + value)
