"""Test-then-train over a file in one process: the same models as the stream's, without Spark or Kafka.

A LIBSVM file without keys or views is read as columns (:mod:`palearn.evaluate.libsvm_blocks`), all else record by
record; the stream's own bucket learns both.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palearn import files
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.join import Limits
from palearn.engine.scoring import score
from palearn.engine.summary import Example, Summary, positive_problems, problems
from palearn.errors import ConfigError
from palearn.evaluate import libsvm_blocks
from palearn.evaluate.examples import ONE_KEY, PIECE, Examples, can_be_reread, chunk_of, in_order, labels_of, rows_of
from palearn.evaluate.passes import Lines, orders, passes
from palearn.files.options import DEFAULT
from palearn.learners import Learner
from palearn.models.counters import BASELINE_MISTAKES, MISTAKES, UPDATES, N
from palearn.models.keyed import Models
from palearn.models.labels import Known, counted
from palearn.models.single import check_views
from palearn.models.state import Settings
from palearn.records import LabelValue, Record, label_text


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
    def positive(self) -> str | None:
        """The label of the positive class of a binary task; None where keys have different ones, or none has come."""
        known = self.models.labels if self.models.settings.task == "binary" else []
        found = {label_text(positive) for _, positive in known if positive is not None}
        return found.pop() if len(found) == 1 else None

    @property
    def labels(self) -> str:
        """The labels with the numbers of their examples, and which one is positive, in words."""
        seen, positive = self.summary.labels, self.positive
        if self.models.settings.task != "binary" or not seen:
            return f"labels: {counted(seen)}" if seen else "no labels"
        names = {label_text(x): x for known in self.models.labels for x in known if x is not None}
        signs = {not isinstance(x, str) and x > 0 for x in names.values()}
        which = f"{positive!r:.80} is the positive one" if positive else "> 0 is the positive one of each key"
        if self.models.settings.signed and len(names) == 2 and len(signs) == 1:
            other = next(name for name in names if name != positive)
            which += f", as the larger of two names (--positive {other} for the other)"
        return f"labels: {counted(seen)}; {which}"

    @property
    def no_change(self) -> float | None:
        """The error of predicting each key's last label; None without labels."""
        counts = self.models.counts.sum(axis=0)
        return float(counts[BASELINE_MISTAKES] / counts[N]) if counts[N] else None

    def account(self) -> dict[str, Any]:
        """Return labels, what became of records that were not simply learned, and the time of reading and learning."""
        summary, statuses = self.summary, self.summary.statuses
        return {
            "labels": summary.labels,
            "positive": self.positive,
            "rejected": sum(summary.reasons.values()),
            "reasons": summary.reasons,
            "rejections": {
                reason: {"record": example.offset, "detail": example.detail}
                for reason, example in summary.examples.items()
            },
            **{status: statuses[status] for status in ("pending", "duplicate", "expired")},
            "seconds": self.seconds,
            "problems": problems(summary, self.models.settings, ended=True),
        }


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
        ``learner, params, n, mistakes, error, updates, weight_l2, labels, positive, rejected, reasons, rejections,
        pending, duplicate, expired, seconds, problems``; with ``drift`` also ``drifts``, how many there were; with
        ``key`` also ``per_key: {key: {n, mistakes, updates}}``. ``seconds`` covers reading and learning, not imports;
        ``problems`` are sentences: where there is one, the figures are worth little.
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
    labels: Mapping[str, Known] | None = None,
) -> Comparison:
    """Let learners score and then learn every example, in order.

    Where the labels of a binary task turn out to be no two that tell themselves apart, the whole file is read for its
    labels first (:func:`labels_of`), and then learned from its beginning.

    Parameters
    ----------
    piece
        So many records at a time; nothing but the points of ``curve`` depends on it.
    watch
        Called after each piece.
    labels
        Each key's two labels, as :func:`labels_of` has found them; None: they are not known yet.

    Raises
    ------
    ConfigError
        ``epochs`` is below 1.
    FileFormatError
        The file cannot be read.
    LabelError
        The labels are not those of a binary task.
    """
    if examples.epochs < 1:
        raise ConfigError(f"epochs must be >= 1, got {examples.epochs}")
    began = time.perf_counter()
    if labels is None:
        try:
            found = _attempt(
                examples,
                settings,
                learners,
                piece,
                watch,
                {},
                sure=settings.task != "binary" or not can_be_reread(examples),
            )
        except _Unsure:
            labels = labels_of(examples, settings)
    if labels is not None:
        found = _attempt(examples, settings, learners, piece, watch, labels, sure=True)
    models, summary, curve = found
    summary.examples = _numbered(examples, summary)
    return Comparison(models, summary, curve, time.perf_counter() - began)


class _Unsure(Exception):
    """The labels that have come are not those of a binary task: the others have to be looked at."""


def _attempt(
    examples: Examples,
    settings: Settings,
    learners: Sequence[Learner],
    piece: int,
    watch: Callable[[Models], None] | None,
    labels: Mapping[str, Known],
    *,
    sure: bool,
) -> tuple[Models, Summary, list[tuple[int, list[int]]]]:
    """Learn all examples; raises _Unsure, unless ``sure``, where their labels are not two."""
    curve: list[tuple[int, list[int]]] = []

    def after(models: Models, summary: Summary) -> None:
        if not sure and (summary.refused or positive_problems(summary, settings, ended=False)):
            raise _Unsure
        mistakes = [int(state.counts[:, MISTAKES].sum()) for state in models.states]
        curve.append((int(models.counts[:, N].sum()), mistakes))
        if watch is not None:
            watch(models)

    source = examples.source if isinstance(examples.source, str | Path) else None
    reading = examples.reading
    libsvm = source is not None and files.format_of(source, reading.format) == "libsvm"
    learn = (
        _learn_columns if libsvm and reading.key is None and not (settings.views or reading.columns) else _learn_rows
    )
    limits = Limits() if examples.epochs == 1 else Limits(remember_ids=0)  # an id comes again in every pass
    bucket = Bucket(BucketConfig(settings, tuple(learners), tables=frozenset(), limits=limits))
    bucket.models.initial_labels = labels
    learn(bucket, examples, piece, after)
    if not sure and positive_problems(bucket.summary, settings, ended=True):
        raise _Unsure
    return bucket.models, bucket.summary, curve


def _numbered(examples: Examples, summary: Summary) -> dict[str, Example]:
    """Return the examples of rejections with their record's number in the file, from 1 on, not in the order learned."""
    rows, out = summary.records // examples.epochs, dict[str, Example]()
    for reason, example in sorted(summary.examples.items()):
        epoch, place = divmod(example.offset, max(1, rows))
        order = next(itertools.islice(orders(rows, examples.epochs, examples.shuffle), epoch, None))
        out[reason] = example._replace(offset=int(order[place]) + 1)
    return out


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
    rows = rows_of(examples)
    while taken := list(itertools.islice(rows, PIECE)):
        found = score(models, chunk_of(taken, 0, keyed=examples.reading.key is not None))
        strangers = [stranger.labelled for stranger in found.no_model]
        mistakes += found.mistakes
        out["n"] += found.labelled
        out["unlabelled"] += found.row.size - found.labelled + strangers.count(False)
        out["rejected"] += len(found.faults)
        out["no_model"] += strangers.count(True)
        out["parts"] += len(found.parts)
    return {**out, "mistakes": mistakes.tolist()}


_After: TypeAlias = Callable[[Models, Summary], None]


def _learn_columns(bucket: Bucket, examples: Examples, piece: int, after: _After) -> None:
    assert isinstance(examples.source, str | Path)
    models = bucket.models
    parts = libsvm_blocks.columns(
        examples.source, models.vocabulary, models.settings, limit=models.max_features, names=examples.reading.names
    )
    for part in _cut(passes(parts, examples.epochs, examples.shuffle, piece), piece):
        bucket.take(*part.accepted(ONE_KEY, bucket.summary.records))
        after(models, bucket.summary)


def _cut(parts: Iterator[Lines], piece: int) -> Iterator[Lines]:
    """Yield parts of ``piece`` rows; at the usual size those that the file's reader makes do."""
    if piece >= PIECE:
        yield from parts
        return
    for part in parts:
        n = part.columns.code.size
        for first in range(0, n, piece):
            yield part.take(np.arange(first, min(first + piece, n)))


def _learn_rows(bucket: Bucket, examples: Examples, piece: int, after: _After) -> None:
    rows = in_order(rows_of(examples), examples.epochs, examples.shuffle)
    while taken := list(itertools.islice(rows, piece)):
        bucket.learn(chunk_of(taken, bucket.summary.records, keyed=examples.reading.key is not None))
        after(bucket.models, bucket.summary)
