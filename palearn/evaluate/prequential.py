"""Test-then-train over a file in one process: the same models as the stream's, without Spark or Kafka.

A LIBSVM file without keys or views is read as columns (:mod:`palearn.evaluate.libsvm_blocks`), all else record by
record; the stream's own bucket learns both.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from palearn import files
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.join import Limits
from palearn.engine.scoring import score
from palearn.engine.summary import Summary
from palearn.engine.validation import Chunk, Value
from palearn.errors import ConfigError
from palearn.evaluate import libsvm_blocks
from palearn.evaluate.passes import Lines, orders, passes
from palearn.files.options import DEFAULT, ReadOptions
from palearn.learners import Learner
from palearn.models.counters import BASELINE_MISTAKES, MISTAKES, UPDATES, N
from palearn.models.keyed import Models
from palearn.models.single import check_views
from palearn.models.state import Settings
from palearn.records import LabelValue, Record

#: The key of every example when none is asked for.
ONE_KEY = "all"
#: So many records are learned at a time, unless asked otherwise.
PIECE = 20_000
_Row: TypeAlias = tuple[str | None, Value]


@dataclass
class Comparison:
    """Learners compared on the same examples, test-then-train.

    ``curve`` has a row for each piece of the examples: how many were labelled up to its end, and each learner's
    mistakes among them.
    """

    models: Models
    summary: Summary
    curve: list[tuple[int, list[int]]]
    seconds: float

    def figures(self, *, per_key: bool) -> list[dict[str, Any]]:
        """Return each learner's figures; with ``per_key`` also those of each key."""
        models, n = self.models, self.models.counts[:, N]
        out = []
        for i, (learner, state) in enumerate(zip(models.learners, models.states, strict=True)):
            mistakes, updates = state.counts[:, MISTAKES], state.counts[:, UPDATES]
            found = {
                "learner": learner.name,
                "params": learner.params,
                "n": int(n.sum()),
                "mistakes": int(mistakes.sum()),
                "error": float(mistakes.sum() / n.sum()) if n.sum() else None,
                "updates": int(updates.sum()),
                "weight_l2": float(np.linalg.norm(learner.weights(models.layout, state.arrays))),
            }
            if learner.drift is not None:
                found["drifts"] = int(models.drifts[i])
            if per_key:
                found["per_key"] = {
                    name: {"n": int(n[k]), "mistakes": int(mistakes[k]), "updates": int(updates[k])}
                    for k, name in enumerate(models.keys)
                }
            out.append(found)
        return out

    @property
    def no_change(self) -> float | None:
        """The error of predicting each key's last label; None without labels."""
        counts = self.models.counts.sum(axis=0)
        return float(counts[BASELINE_MISTAKES] / counts[N]) if counts[N] else None

    def account(self) -> dict[str, Any]:
        """Return records by status and reason, and the time of reading and learning."""
        reasons, statuses = self.summary.reasons, self.summary.statuses
        return {
            "rejected": sum(reasons.values()),
            "reasons": reasons,
            **{status: statuses[status] for status in ("pending", "duplicate", "expired")},
            "seconds": self.seconds,
        }


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


def evaluate(
    examples: str | Path | Iterable[Record],
    learner: str = "arow",
    params: Mapping[str, Any] | None = None,
    *,
    task: str = "binary",
    bias: bool = True,
    positive: LabelValue | None = None,
    tie: str = "negative",
    views: Iterable[str] = (),
    drift: object = None,
    epochs: int = 1,
    shuffle: int | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Score and then learn every example, in order; return the counts.

    Parameters
    ----------
    examples
        As ``source`` of :class:`Examples`.
    learner, params
        A name of :func:`palearn.learners` and its hyper-parameters.
    task, bias, positive, tie, views, drift
        As in :func:`palearn.make`.
    epochs, shuffle
        As in :class:`Examples`.
    **reading
        Fields of :class:`palearn.files.ReadOptions`, ``key`` among them.

    Returns
    -------
    dict
        ``learner, params, n, mistakes, error, updates, weight_l2, rejected, reasons, pending, duplicate, expired,
        seconds``; with ``drift`` also ``drifts``, how many there were; with ``key`` also ``per_key: {key: {n, mistakes,
        updates}}``. ``seconds`` covers reading and learning, not imports.
    """
    chosen = Learner(learner, learner, task=task, tie=tie, options=params, drift=drift)
    settings = settings_of(task=task, positive=positive, bias=bias, views=views)
    options = DEFAULT.but(**{"views": bool(settings.views), **reading})
    given = Examples(examples, options, epochs, shuffle)
    found = compare(given, settings, [chosen])
    (figures,) = found.figures(per_key=options.key is not None)
    per_key = {name: figures.pop(name) for name in ("per_key",) if name in figures}
    return figures | found.account() | per_key


def settings_of(
    *, task: str = "binary", positive: LabelValue | None = None, bias: bool = True, views: Iterable[str] = ()
) -> Settings:
    """Return what learners on a file share; nothing limits a model's features."""
    return Settings(task=task, positive=positive, bias=bias, views=check_views(list(views)), max_features=None)


def compare(
    examples: Examples,
    settings: Settings,
    learners: Sequence[Learner],
    *,
    piece: int = PIECE,
    watch: Callable[[Models], None] | None = None,
) -> Comparison:
    """Let learners score and then learn every example, in order.

    Parameters
    ----------
    piece
        So many records at a time; nothing but the points of ``curve`` depends on it.
    watch
        Called after each piece.

    Raises
    ------
    ConfigError
        ``epochs`` is below 1.
    FileFormatError
        The file cannot be read.
    """
    if examples.epochs < 1:
        raise ConfigError(f"epochs must be >= 1, got {examples.epochs}")
    curve: list[tuple[int, list[int]]] = []

    def after(models: Models) -> None:
        mistakes = [int(state.counts[:, MISTAKES].sum()) for state in models.states]
        curve.append((int(models.counts[:, N].sum()), mistakes))
        if watch is not None:
            watch(models)

    source = examples.source if isinstance(examples.source, str | Path) else None
    began = time.perf_counter()
    reading = examples.reading
    libsvm = source is not None and files.format_of(source, reading.format) == "libsvm"
    learn = (
        _learn_columns if libsvm and reading.key is None and not (settings.views or reading.columns) else _learn_rows
    )
    models, summary = learn(examples, settings, learners, piece, after)
    return Comparison(models, summary, curve, time.perf_counter() - began)


def first_fault(examples: Examples, settings: Settings, learners: Sequence[Learner]) -> str:
    """Return what is wrong with the first records, of which none can be used: a number and a sentence."""
    bucket = Bucket(BucketConfig(settings, tuple(learners), tables=frozenset(("rejected",))))
    bucket.learn(_chunk(list(itertools.islice(_rows(examples), 100)), 0, keyed=examples.reading.key is not None))
    row = min(bucket.results()["rejected"].to_pylist(), key=lambda row: row["offset"])
    return f"record {row['offset'] + 1}: {row['reason']}: {row['detail']}"


def held_out(models: Models, examples: Examples) -> dict[str, Any]:
    """Score examples that are not learned.

    Returns
    -------
    dict
        ``n`` labelled examples that were scored, each learner's ``mistakes`` (in the order of ``models``; a label that
        the key has never seen is one), ``unlabelled``, ``rejected``, ``no_model``: labelled examples of keys without a
        model, and ``parts``: records that are not whole. Only the first are in ``n``.
    """
    out = dict.fromkeys(("n", "unlabelled", "rejected", "no_model", "parts"), 0)
    mistakes = np.zeros(len(models.learners), np.int64)
    rows = _rows(examples)
    while taken := list(itertools.islice(rows, PIECE)):
        found = score(models, _chunk(taken, 0, keyed=examples.reading.key is not None))
        strangers = [stranger.labelled for stranger in found.no_model]
        mistakes += found.mistakes
        out["n"] += found.labelled
        out["unlabelled"] += found.row.size - found.labelled + strangers.count(False)
        out["rejected"] += len(found.faults)
        out["no_model"] += strangers.count(True)
        out["parts"] += len(found.parts)
    return {**out, "mistakes": mistakes.tolist()}


_After: TypeAlias = Callable[[Models], None]


def _learn_columns(
    examples: Examples, settings: Settings, learners: Sequence[Learner], piece: int, after: _After
) -> tuple[Models, Summary]:
    assert isinstance(examples.source, str | Path)
    bucket = Bucket(BucketConfig(settings, tuple(learners), tables=frozenset()))
    models = bucket.models
    parts = libsvm_blocks.columns(
        examples.source,
        models.vocabulary,
        limit=models.max_features,
        signed=settings.signed,
        names=examples.reading.names,
    )
    for part in _cut(passes(parts, examples.epochs, examples.shuffle, piece), piece):
        bucket.take(*part.accepted(ONE_KEY, bucket.summary.records))
        after(models)
    return models, bucket.summary


def _cut(parts: Iterator[Lines], piece: int) -> Iterator[Lines]:
    """Yield parts of ``piece`` rows; at the usual size those that the file's reader makes do."""
    if piece >= PIECE:
        yield from parts
        return
    for part in parts:
        n = part.columns.code.size
        for first in range(0, n, piece):
            yield part.take(np.arange(first, min(first + piece, n)))


def _learn_rows(
    examples: Examples, settings: Settings, learners: Sequence[Learner], piece: int, after: _After
) -> tuple[Models, Summary]:
    limits = Limits() if examples.epochs == 1 else Limits(remember_ids=0)  # an id comes again in every pass
    bucket = Bucket(BucketConfig(settings, tuple(learners), tables=frozenset(), limits=limits))
    rows = _passes(_rows(examples), examples.epochs, examples.shuffle)
    while taken := list(itertools.islice(rows, piece)):
        bucket.learn(_chunk(taken, bucket.summary.records, keyed=examples.reading.key is not None))
        after(bucket.models)
    return bucket.models, bucket.summary


def _rows(examples: Examples) -> Iterator[_Row]:
    source, key = examples.source, examples.reading.key
    if isinstance(source, str | Path):
        for line in files.lines(source, examples.reading):
            yield line.key, line.value
    else:
        for record in source:
            yield (None, record) if key is None else files.keyed(record, key)


def _passes(rows: Iterator[_Row], epochs: int, seed: int | None) -> Iterator[_Row]:
    if epochs == 1 and seed is None:
        yield from rows
        return
    held = list(rows)
    for order in orders(len(held), epochs, seed):
        for i in order.tolist():
            yield held[i]


def _chunk(rows: list[_Row], first: int, *, keyed: bool) -> Chunk:
    n = len(rows)
    keys = [None if key is None else key.encode() for key, _ in rows] if keyed else [ONE_KEY.encode()] * n
    return Chunk(keys, [value for _, value in rows], [""] * n, np.zeros(n, np.int64), np.arange(first, first + n))
