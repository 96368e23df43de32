"""The examples of a file, or any others: in which order, under which key, and with which labels."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from palearn import files
from palearn.engine.validation import Chunk, Value, accept
from palearn.errors import LabelError
from palearn.evaluate.passes import orders
from palearn.files.options import DEFAULT, ReadOptions
from palearn.models.labels import MAX_LABELS, Known, pairs_of
from palearn.models.state import Settings
from palearn.models.vectorize import Vocabulary
from palearn.records import Label, Record, label_text

#: The key of every example when none is asked for.
ONE_KEY = "all"
#: So many records are learned at a time, unless asked otherwise.
PIECE = 20_000
_Row: TypeAlias = tuple[str | None, Value]


class Examples(NamedTuple):
    """Where examples come from, and in which order.

    Parameters
    ----------
    source
        A file or records. Records with an ``id`` may be parts of examples (:mod:`palearn.engine.join`).
    reading
        How the file is read; its ``key`` holds for records too: one model for each value of that field.
    epochs
        Passes over the examples, >= 1.
    shuffle
        Seed of a permutation of the examples, another one each epoch; None: file order.
    """

    source: str | Path | Iterable[Record]
    reading: ReadOptions = DEFAULT
    epochs: int = 1
    shuffle: int | None = None


def can_be_reread(examples: Examples) -> bool:
    """Whether the examples can be read once more."""
    source = examples.source
    again = Path(source).is_file() if isinstance(source, str | Path) else not isinstance(source, Iterator)
    return again


def labels_of(examples: Examples, settings: Settings) -> dict[str, Known]:
    """Return each key's two labels of a binary task, of all that its records have.

    Raises
    ------
    LabelError
        They are not two, or text and none is the positive one, or that one does not occur.
    """
    counts: dict[str, dict[Label, int]] = {}
    anything = replace(settings, task="multiclass", positive=None)
    rows = rows_of(examples)
    while taken := list(itertools.islice(rows, PIECE)):
        chunk, vocabulary = chunk_of(taken, 0, keyed=examples.reading.key is not None), Vocabulary(settings.views)
        accepted, _ = accept(chunk, vocabulary, 2**31 - 1, anything)
        pairs = Counter(zip(accepted.key.tolist(), accepted.columns.code.tolist(), strict=True))
        for (key, code), n in pairs.items():
            if code >= 0:
                written = accepted.columns.labels[code]
                label = written if settings.signed or written is None else label_text(written)
                own = counts.setdefault(accepted.names[key], {})
                own[label] = own.get(label, 0) + n
        if max(map(len, counts.values()), default=0) > MAX_LABELS:  # that is certain, and there may be no end of them
            break
    try:
        return pairs_of(counts, settings)
    except LabelError as error:
        where = f"{examples.source}: " if isinstance(examples.source, str | Path) else ""
        raise LabelError(f"{where}{error}") from None


def rows_of(examples: Examples) -> Iterator[_Row]:
    """Yield the key and the value of every record, or what is wrong with it."""
    source, key = examples.source, examples.reading.key
    if isinstance(source, str | Path):
        for line in files.lines(source, examples.reading):
            yield line.key, line.value
    else:
        for record in source:
            yield (None, record) if key is None else files.keyed(record, key)


def in_order(rows: Iterator[_Row], epochs: int, seed: int | None) -> Iterator[_Row]:
    """Yield rows so often, in :func:`palearn.evaluate.single_key.orders`."""
    if epochs == 1 and seed is None:
        yield from rows
        return
    held = list(rows)
    for order in orders(len(held), epochs, seed):
        for i in order.tolist():
            yield held[i]


def chunk_of(rows: list[_Row], first: int, *, keyed: bool) -> Chunk:
    """Return rows as records of a bucket, so many after the first one of all."""
    n = len(rows)
    keys = [None if key is None else key.encode() for key, _ in rows] if keyed else [ONE_KEY.encode()] * n
    return Chunk(keys, [value for _, value in rows], [""] * n, np.zeros(n, np.int64), np.arange(first, first + n))
