"""Labels to class numbers, key by key: outside any text, number or boolean, inside 0, 1, 2, ..."""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from palearn.errors import RecordError
from palearn.learners import pointers
from palearn.records import Label, LabelValue, label_text
from palearn.types import IntArray

#: What a binary learner without ``positive`` calls its classes until a record has named them.
DEFAULT_BINARY = (-1, 1)
#: A key may have this many classes.
MAX_LABELS = 1000

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


def classify(
    key: IntArray,
    labels: Sequence[Label],
    known: list[Known],
    task: str,
    positive: LabelValue | None,
    most: int = MAX_LABELS,
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
    if task == "multiclass":
        return _multiclass(key, labels, known, most)
    before = np.full(key.size, 3, np.int64)
    if positive is not None:
        y, faults = _named(key, labels, known, label_text(positive), before)
    else:
        y, faults = _signed(key, labels, known, before)
    return y, before, faults


def text_label(label: str) -> RecordError:
    """Return what is wrong with a label that is text where no positive class is named."""
    detail = "binary labels that are text need the positive one: records.positive, positive=LABEL or --positive LABEL"
    return RecordError("bad_label", f"{detail}; got {label!r:.80}")


def _signed(
    key: IntArray, labels: Sequence[Label], known: list[Known], before: IntArray
) -> tuple[IntArray, dict[int, RecordError]]:
    """Numbers and booleans: > 0 and true are positive."""
    faults: dict[int, RecordError] = {}
    if str in set(map(type, labels)):
        faults = {i: text_label(label) for i, label in enumerate(labels) if isinstance(label, str)}
        labels = [None if isinstance(label, str) else label for label in labels]
    if None in labels:
        y = np.fromiter((-1 if v is None else float(v) > 0 for v in labels), np.int64, len(labels))
    else:
        y = (np.fromiter(labels, np.float64, len(labels)) > 0).astype(np.int64)
    unnamed = {k for k in set(key.tolist()) if None in known[k]}
    if unnamed:
        for i, (k, side, label) in enumerate(zip(key.tolist(), y.tolist(), labels, strict=True)):
            if k in unnamed:
                before[i] = _named_sides(known[k])
                if side >= 0 and known[k][side] is None:
                    known[k] = (known[k][0], label) if side else (label, known[k][1])
    return y, faults


def _named(
    key: IntArray, labels: Sequence[Label], known: list[Known], positive: str, before: IntArray
) -> tuple[IntArray, dict[int, RecordError]]:
    """One label is the positive class; the key's first other one is its negative class."""
    faults: dict[int, RecordError] = {}
    y = np.full(len(labels), -1, np.int64)
    for i, (k, label) in enumerate(zip(key.tolist(), labels, strict=True)):
        before[i] = _named_sides(known[k])
        if label is None:
            continue
        text = label_text(label)
        if text == positive:
            y[i] = 1
            continue
        negative = known[k][0]
        if negative is None:
            known[k] = (label, known[k][1])
        elif label_text(negative) != text:
            seen = f"{label_text(negative)!r:.80} and {positive!r:.80}"
            faults[i] = RecordError(
                "not_binary", f"unexpected third label {text!r:.80} in a binary task; this key has {seen}"
            )
            continue
        y[i] = 0
    return y, faults


def _named_sides(known: Known) -> int:
    return (known[0] is not None) + 2 * (known[1] is not None)


def _multiclass(
    key: IntArray, labels: Sequence[Label], known: list[Known], most: int
) -> tuple[IntArray, IntArray, dict[int, RecordError]]:
    """Classes in the order of their first appearance in the key."""
    faults: dict[int, RecordError] = {}
    y = np.full(len(labels), -1, np.int64)
    before = np.zeros(len(labels), np.int64)
    numbers: dict[int, dict[str, int]] = {}
    new: dict[int, list[Label]] = {}
    for i, (k, label) in enumerate(zip(key.tolist(), labels, strict=True)):
        if k not in numbers:
            numbers[k] = {label_text(name): c for c, name in enumerate(known[k]) if name is not None}
        classes = numbers[k]
        before[i] = len(classes)
        if label is None:
            continue
        text = label_text(label)
        if text not in classes:
            if len(classes) >= most:
                detail = f"label {text!r:.80} would be class {most + 1} of this key, at most {most} are allowed"
                faults[i] = RecordError("too_many_labels", detail)
                continue
            classes[text] = len(classes)
            new.setdefault(k, []).append(label)
        y[i] = classes[text]
    for k, found in new.items():
        known[k] = (*known[k], *found)
    return y, before, faults


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
