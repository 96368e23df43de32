"""Labels to class numbers, key by key: outside any text, number or boolean, inside 0, 1, 2, ..."""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from palearn.errors import RecordError
from palearn.learners import pointers
from palearn.records import Label, LabelValue, label_text
from palearn.types import Int32Array, IntArray

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


class Naming:
    """What a key's labels are called inside, while records name them one after the other.

    Parameters
    ----------
    known
        What the key knows.
    task, positive, most
        As of :func:`classify`.
    """

    def __init__(self, known: Known, task: str, positive: LabelValue | None, most: int) -> None:
        self.known, self._task, self._positive, self._most = known, task, positive, most
        texts = () if task == "binary" and positive is None else known
        self._numbers = {label_text(label): c for c, label in enumerate(texts) if label is not None}

    @property
    def before(self) -> int:
        """What the key knows now, as :func:`classify` says it of the next row."""
        return len(self.known) if self._task == "multiclass" else _named_sides(self.known)

    def number(self, label: Label) -> int:
        """Return a label's class number, -1 for None; a label that is new is known from now on.

        Raises
        ------
        RecordError
            The label contradicts the task.
        """
        if label is None:
            return -1
        if self._task == "binary" and self._positive is None:
            return self._signed(label)
        text = label_text(label)
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = self._new(label, text)
        return number

    def _signed(self, label: LabelValue) -> int:
        """Numbers and booleans: > 0 and true are positive."""
        if isinstance(label, str):
            raise text_label(label)
        side = int(label > 0)
        if self.known[side] is None:
            self.known = (self.known[0], label) if side else (label, self.known[1])
        return side

    def _new(self, label: LabelValue, text: str) -> int:
        if self._task == "multiclass":
            if len(self.known) >= self._most:
                detail = (
                    f"label {text!r:.80} would be class {self._most + 1} of this key, at most {self._most} are allowed"
                )
                raise RecordError("too_many_labels", detail)
            self.known = (*self.known, label)
            return len(self.known) - 1
        negative, positive = self.known  # the key's first label that is not the positive one is the negative one
        if negative is not None:
            seen = f"{label_text(negative)!r:.80} and {label_text(self._positive)!r:.80}"  # type: ignore[arg-type]
            raise RecordError(
                "not_binary", f"unexpected third label {text!r:.80} in a binary task; this key has {seen}"
            )
        self.known = (label, positive)
        return 0


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
    y, before = np.full(key.size, -1, np.int64), np.zeros(key.size, np.int64)
    faults: dict[int, RecordError] = {}
    namings: dict[int, Naming] = {}
    for i, (k, label) in enumerate(zip(key.tolist(), labels, strict=True)):
        naming = namings.get(k)
        if naming is None:
            naming = namings[k] = Naming(known[k], task, positive, most)
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
    task: str,
    positive: LabelValue | None,
    most: int = MAX_LABELS,
) -> tuple[IntArray, IntArray, dict[int, RecordError]]:
    """Do what :func:`classify` does for rows whose labels are ``labels[code]`` (-1: none), grouped by key.

    Only a key's first row of a label can change what the key knows: the others are as that one.
    """
    n = key.size
    ends = np.append(np.flatnonzero(key[1:] != key[:-1]), n - 1) if n else np.zeros(0, np.int64)
    if task == "binary" and positive is None and not any(None in known[k] for k in key[ends].tolist()):
        side = np.array([*(_side(label) for label in labels), -1], np.int64)
        words = np.array([*(isinstance(label, str) for label in labels), False])
        faults = {i: text_label(str(labels[code[i]])) for i in np.flatnonzero(words[code]).tolist()}
        return side[code], np.full(n, 3, np.int64), faults
    pair = key * (len(labels) + 1) + code + 1
    first: IntArray
    of: IntArray
    _, first, of = np.unique(pair, return_index=True, return_inverse=True)
    asked = np.sort(first)
    names = [None if c < 0 else labels[c] for c in code[asked].tolist()]
    y, before, wrong = classify(key[asked], names, known, task, positive, most)
    place = np.searchsorted(asked, first)[of]  # of each row, its label's place among those asked
    faults = {int(i): wrong[int(place[i])] for i in np.flatnonzero(np.isin(place, list(wrong)))} if wrong else {}
    # Between two rows that are asked for a key learns nothing; after its last one it knows what it knows in the end.
    late = np.array([Naming(known[k], task, positive, most).before for k in key[ends].tolist()], np.int64)
    following = np.searchsorted(asked, np.arange(n))
    there = following < asked.size
    there[there] = key[asked[following[there]]] == key[there]
    said = np.repeat(late, np.diff(ends, prepend=-1))
    said[there] = before[following[there]]
    return y[place], said, faults


def _side(label: Label) -> int:
    return -1 if label is None or isinstance(label, str) else int(label > 0)


def text_label(label: str) -> RecordError:
    """Return what is wrong with a label that is text where no positive class is named."""
    detail = "binary labels that are text need the positive one: records.positive, positive=LABEL or --positive LABEL"
    return RecordError("bad_label", f"{detail}; got {label!r:.80}")


def _named_sides(known: Known) -> int:
    return (known[0] is not None) + 2 * (known[1] is not None)


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
