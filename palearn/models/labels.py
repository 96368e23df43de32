"""Labels to class numbers, key by key: outside any text, number or boolean, inside 0, 1, 2, ...

A binary task has two labels. Where none is named positive, a label's sign says its class: numbers > 0 and true are
positive, others and false negative (a number and a boolean of the same value are one label). Two labels of the same
sign, such as 1 and 2, are names like texts: which of them is positive has to be said. Where the positive label is
named, the key's first other label is its negative one. A third label is a fault in both.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from palearn.errors import LabelError, RecordError
from palearn.learners import pointers
from palearn.records import Label, LabelValue, label_text
from palearn.types import Int32Array, IntArray

if TYPE_CHECKING:
    from palearn.models.state import Settings

#: What a binary learner without ``positive`` calls its classes until a record has named them.
DEFAULT_BINARY = (-1, 1)
#: A key may have this many classes.
MAX_LABELS = 1000
#: From here on not every integer is a float.
_INEXACT = 2.0**53
#: How the positive label is named.
SETTING = "records.positive, positive=LABEL or --positive LABEL"

#: The labels a key knows, in class order; keys that know the same may share it.
Known = tuple[Label, ...]


def start(task: str, positive: LabelValue | None) -> Known:
    """Return the labels a new key knows: binary (negative, positive) with None for a side not yet named."""
    if task == "multiclass":
        return ()
    return (None, positive)


def default_labels(known: Sequence[Label]) -> list[Label]:
    """Return a binary key's labels, those not yet named filled in to match the other (1: -1, True: False)."""
    negative, positive = known
    if negative is None:
        negative = False if isinstance(positive, bool) else DEFAULT_BINARY[0]
    if positive is None:
        positive = True if isinstance(negative, bool) else DEFAULT_BINARY[1]
    return [negative, positive]


def class_labels(known: Sequence[Label], settings: "Settings") -> Sequence[Label]:
    """Return a key's labels in class order: where they are told by sign, those not yet named are filled in."""
    return default_labels(known) if settings.signed else known


def texts_of(labels: Sequence[Label]) -> list[str | None]:
    """Return labels as tables name them; None stays None."""
    return [None if label is None else label_text(label) for label in labels]


def label_fault(label: Label, settings: "Settings") -> RecordError | None:
    """Return what is wrong with a label whatever a key knows, or None: a text where the task has no names."""
    if not isinstance(label, str) or settings.task != "binary":
        return None
    if settings.positive is None:
        detail = f"binary labels that are text need the positive one: {SETTING}; got {label!r:.80}"
    elif isinstance(settings.positive, bool) and label not in ("true", "false"):
        detail = truth_value(settings.positive, [label])
    else:
        return None
    return RecordError("bad_label", detail, label=label)


def truth_value(positive: bool, labels: Sequence[str]) -> str:
    """Return the sentence for a positive label that is a truth value where labels are texts."""
    seen, word = " and ".join(repr(label)[:80] for label in labels), "true" if positive else "false"
    return (
        f"the positive label is the truth value {word}, and labels are text ({seen}); YAML takes yes, no, on and off "
        f"for truth values: put the label in quotes, such as records.positive: {('yes' if positive else 'no')!r}"
    )


class Naming:
    """The labels of one key, which numbers them one after the other.

    Parameters
    ----------
    known
        What the key knows.
    settings
        The task, and the positive label.
    most
        So many classes a key may have.
    """

    def __init__(self, known: Known, settings: "Settings", most: int = MAX_LABELS) -> None:
        self.known, self._settings, self._most = known, settings, most
        if settings.task == "multiclass":
            self._numbers = {label_text(name): c for c, name in enumerate(known) if name is not None}

    def number(self, label: Label) -> int:
        """Return the class number of the label of the key's next record, -1 for None.

        Raises
        ------
        RecordError
            ``not_binary``, ``too_many_labels`` or ``bad_label``.
        """
        if label is None:
            return -1
        if self._settings.task == "multiclass":
            return self._numbered(label)
        if fault := label_fault(label, self._settings):
            raise fault
        return self._signed(label) if self._settings.signed else self._named(label)

    @property
    def before(self) -> int:
        """What has been named: multiclass how many classes, binary which sides (1 negative, 2 positive)."""
        if self._settings.task == "multiclass":
            return len(self.known)
        return (self.known[0] is not None) + 2 * (self.known[1] is not None)

    def _numbered(self, label: LabelValue) -> int:
        text = label_text(label)
        number = self._numbers.get(text)
        if number is None:
            number = len(self._numbers)
            if number >= self._most:
                detail = f"label {text!r:.80} would be class {number + 1} of this key, at most {self._most} are allowed"
                raise RecordError("too_many_labels", detail, label=text)
            self._numbers[text] = number
            self.known = (*self.known, label)
        return number

    def _signed(self, label: LabelValue) -> int:
        negative, positive = self.known
        if label in (negative, positive):  # 1, 1.0 and true are equal
            return int(label == positive)
        side = int(not isinstance(label, str) and label > 0)
        if self.known[side] is not None:
            raise self._third(label)
        self.known = (negative, label) if side else (label, positive)
        return side

    def _named(self, label: LabelValue) -> int:
        negative, positive = self.known
        text = label_text(label)
        if positive is not None and text == label_text(positive):
            return 1
        if negative is None:
            self.known = (label, positive)
        elif label_text(negative) != text:
            raise self._third(label)
        return 0

    def _third(self, label: LabelValue) -> RecordError:
        """Return what is wrong with a label that is none of the key's two."""
        text, names = label_text(label), [label_text(name) for name in self.known if name is not None]
        if len(names) == 1:
            sign = "> 0" if not isinstance(label, str) and label > 0 else "<= 0"
            detail = (
                f"labels {names[0]!r:.80} and {text!r:.80} are both {sign}, two names of which one has to be the "
                f"positive one: {SETTING}"
            )
        else:
            seen = f"{names[0]!r:.80} and {names[1]!r:.80}"
            detail = f"unexpected third label {text!r:.80} in a binary task; this key has {seen}"
        return RecordError("not_binary", detail, label=text)


def classify(
    key: IntArray, labels: Sequence[Label], known: list[Known], settings: "Settings", most: int = MAX_LABELS
) -> tuple[IntArray, IntArray, dict[int, RecordError]]:
    """Number the labels of rows in the order they are learned; replaces what the keys know in ``known``.

    A key may have ``most`` classes.

    Returns
    -------
    y : class numbers, -1 where there is no label
    before : what each row's key knew before the row: multiclass how many classes, binary which sides had been
        named (1 the negative, 2 the positive, 3 both)
    faults : rows whose label contradicts the task
    """
    y, before = np.full(key.size, -1, np.int64), np.zeros(key.size, np.int64)
    faults: dict[int, RecordError] = {}
    namings: dict[int, Naming] = {}
    for i, (k, label) in enumerate(zip(key.tolist(), labels, strict=True)):
        naming = namings.get(k)
        if naming is None:
            naming = namings[k] = Naming(known[k], settings, most)
        before[i] = naming.before
        try:
            y[i] = naming.number(label)
        except RecordError as fault:
            faults[i] = fault
    for k, naming in namings.items():
        known[k] = naming.known
    return y, before, faults


def classify_codes(
    key: IntArray,
    code: Int32Array,
    labels: Sequence[Label],
    known: list[Known],
    settings: "Settings",
    most: int = MAX_LABELS,
) -> tuple[IntArray, IntArray, dict[int, RecordError]]:
    """Do what :func:`classify` does for rows whose labels are ``labels[code]`` (-1: none), grouped by key.

    Only a key's first row of a label can change what the key knows: the others are as that one.
    """
    n = key.size
    ends = np.append(np.flatnonzero(key[1:] != key[:-1]), n - 1) if n else np.zeros(0, np.int64)
    if settings.signed and n:
        y = _by_sign(np.diff(ends, prepend=-1), [known[k] for k in key[ends].tolist()], code, labels)
        if y is not None:
            return y, np.full(n, 3, np.int64), {}
    pair = key * (len(labels) + 1) + code + 1
    first: IntArray
    of: IntArray
    _, first, of = np.unique(pair, return_index=True, return_inverse=True)
    asked = np.sort(first)
    names = [None if c < 0 else labels[c] for c in code[asked].tolist()]
    y, before, wrong = classify(key[asked], names, known, settings, most)
    place = np.searchsorted(asked, first)[of]  # of each row, its label's place among those asked
    faults = {int(i): wrong[int(place[i])] for i in np.flatnonzero(np.isin(place, list(wrong)))} if wrong else {}
    # Between two rows that are asked for a key learns nothing; after its last one it knows what it knows in the end.
    late = np.array([Naming(known[k], settings, most).before for k in key[ends].tolist()], np.int64)
    following = np.searchsorted(asked, np.arange(n))
    there = following < asked.size
    there[there] = key[asked[following[there]]] == key[there]
    said = np.repeat(late, np.diff(ends, prepend=-1))
    said[there] = before[following[there]]
    return y[place], said, faults


def _by_sign(runs: IntArray, known: Sequence[Known], code: Int32Array, labels: Sequence[Label]) -> IntArray | None:
    """Return the class numbers of rows whose keys (``runs`` of them) know both labels; None where one is another."""
    pairs = np.array(known, np.float64)  # None becomes NaN
    if np.isnan(pairs).any():
        return None
    # An integer of more than 53 bits may not be the one that it equals as a float.
    plain = (math.nan if x is None or isinstance(x, str) or abs(x) >= _INEXACT else x for x in labels)
    value = np.array([*plain, math.nan], np.float64)[code]
    negative, positive = value == np.repeat(pairs[:, 0], runs), value == np.repeat(pairs[:, 1], runs)
    if not (negative | positive | (code < 0)).all():
        return None
    return np.where(code < 0, -1, positive)


def pairs_of(counts: Mapping[str, Mapping[Label, int]], settings: "Settings") -> dict[str, Known]:
    """Return each key's two labels, of all that its records have.

    Of more than two the two that most records have. Without ``positive`` numbers only: of two with the same sign the
    larger is the positive one. What is none of the two will be rejected; it may be a fifth of all.

    Parameters
    ----------
    counts
        Key -> label -> labelled records.
    settings
        A binary task.

    Raises
    ------
    LabelError
        Labels are text and none is named positive, there are more than two, or the positive one does not occur.
    """
    totals, left, found, positives = dict[str, int](), 0, dict[str, Known](), 0
    for name, own in counts.items():
        for label, n in own.items():
            totals[label_text(label)] = totals.get(label_text(label), 0) + n  # type: ignore[arg-type]
        usable = {label: n for label, n in own.items() if label_fault(label, settings) is None}
        found[name] = pair = _pair(usable, settings)
        left += sum(own.values()) - sum(n for label, n in own.items() if _is_in(label, pair))
        positives += sum(n for label, n in own.items() if _is_in(label, pair[1:]))
    if settings.positive is not None and not positives and totals:
        raise LabelError(never_occurs(settings.positive, totals, sum(totals.values())))
    if 5 * left > sum(totals.values()):
        raise LabelError(_not_two(totals))
    return found


def _pair(counts: Mapping[Label, int], settings: "Settings") -> Known:
    positive = settings.positive
    others = {x: n for x, n in counts.items() if positive is None or not _is_in(x, (positive,))}
    most = sorted(others, key=lambda label: -others[label])  # of equal ones the first that came
    if positive is not None:
        return (most[0] if most else None, positive)
    chosen: list[Label] = sorted(most[:2], key=float)  # type: ignore[arg-type]
    if len(chosen) == 1:
        return (None, *chosen) if chosen[0] > 0 else (*chosen, None)  # type: ignore[operator]
    return tuple(chosen) or start(settings.task, None)


def _is_in(label: Label, known: Known) -> bool:
    if label is None:
        return False
    return any(x is not None and (x == label or label_text(x) == label_text(label)) for x in known)


def _not_two(totals: Mapping[str, int]) -> str:
    """Return the sentence for a file whose labels are not two of a binary task."""
    if len(totals) <= 2:
        likely = min(totals, key=lambda label: totals[label])
        return (
            f"the labels are text, {counted(totals)}, and a binary task has to know which of them is the positive one: "
            f"--positive {likely!r} (records.positive, positive=)"
        )
    more = f"{len(totals):,}{' or more' if len(totals) > MAX_LABELS else ''}"
    return (
        f"a binary task has two labels, and here are {more}: {counted(totals)}. --task multiclass (records.task) "
        "learns them all; numbers that are measured are no labels; where two are left, --positive LABEL "
        "(records.positive) names the positive one"
    )


def never_occurs(positive: LabelValue, seen: Mapping[str, int], n: int) -> str:
    """Return the sentence for a positive label that none of ``n`` labelled records has."""
    if isinstance(positive, bool) and not {"true", "false"} & seen.keys():
        return f"{truth_value(positive, list(seen)[:2])}; labels seen: {counted(seen)}"
    text = label_text(positive)
    near = [label for label in seen if label.strip().casefold() == text.strip().casefold()]
    hint = f"; did you mean {near[0]!r:.80}?" if near else ""
    return (
        f"the positive label {text!r:.80} has not occurred in {n:,} labelled records; labels seen: "
        f"{counted(seen)}{hint} ({SETTING})"
    )


def counted(counts: Mapping[str, int], most: int = 5) -> str:
    """Return labels with the numbers of their records, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    told = ", ".join(f"{label!r:.80} ({n:,})" for label, n in ordered[:most])
    return told + (f" and {len(ordered) - most:,} more" if len(ordered) > most else "")


def as_texts(
    rows: Sequence[Known], texts: Callable[[Known], Sequence[str | None]]
) -> tuple[IntArray, list[str | None]]:
    """Return the labels of keys as ``texts`` tells them, and where each key's begin.

    Few keys have labels of their own: what keys share is converted once.
    """
    shared = list(map(id, rows))
    of = {number: texts(row) for number, row in dict(zip(shared, rows, strict=True)).items()}
    found = list(map(of.__getitem__, shared))
    return pointers(np.fromiter(map(len, found), np.int64, len(found))), list(chain.from_iterable(found))
