"""Test-then-train over a file in one process: the same models as the stream's, without Spark or Kafka.

A LIBSVM file without keys or views is read and learned in columns (:mod:`palearn.columns`), all else goes through
the stream's own bucket, record by record. Both give the same figures, to the last bit.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palearn import files
from palearn.assembly import Limits
from palearn.bucket import Bucket, Plan, Summary
from palearn.columns import OneKey, orders, passes
from palearn.errors import ConfigError
from palearn.intake import Chunk, Value
from palearn.learners import Learner
from palearn.metrics import MISTAKES, UPDATES, N
from palearn.model import check_views
from palearn.models import Models, Settings
from palearn.records import LabelValue, Record, record_key

#: The key of every example when none is asked for.
ONE_KEY = "all"
_PIECE = 20_000
_Row: TypeAlias = tuple[str | None, Value]


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
    key: str | None = None,
    epochs: int = 1,
    shuffle: int | None = None,
    format: str | None = None,
    label: str | None = None,
    names: list[str] | None = None,
) -> dict[str, Any]:
    """Score and then learn every example, in order; return the counts.

    Parameters
    ----------
    examples
        A file (:func:`palearn.files.read`; ``format``, ``label`` and ``names`` are its options) or records. Records
        with an ``id`` may be parts of examples (:mod:`palearn.assembly`).
    learner, params
        A name of :func:`palearn.learners` and its hyper-parameters.
    task, bias, positive, tie, views
        As in :func:`palearn.make`.
    key
        A field: one model for each of its values (:func:`palearn.records.record_key`).
    epochs
        Passes over the examples, >= 1.
    shuffle
        Seed of a permutation of the examples, another one each epoch; None: file order.

    Returns
    -------
    dict
        ``learner, params, n, mistakes, error, updates, weight_l2, rejected, reasons, waiting, duplicate, expired,
        seconds``; with ``key`` also ``per_key: {key: {n, mistakes, updates}}``. ``seconds`` covers reading and
        learning, not imports.
    """
    if epochs < 1:
        raise ConfigError(f"epochs must be >= 1, got {epochs}")
    chosen = Learner(learner, learner, task=task, tie=tie, options=params)
    settings = Settings(task=task, positive=positive, bias=bias, views=check_views(list(views)), max_features=None)
    file = examples if isinstance(examples, str | Path) else None
    began = time.perf_counter()
    if file is not None and files.format_of(file, format) == "libsvm" and key is None and not settings.views:
        models, summary = _learn_columns(settings, chosen, file, names, epochs, shuffle)
    else:
        rows = _rows(examples, key, format, label, names)
        limits = Limits() if epochs == 1 else Limits(remember_ids=0)  # an id comes again in every pass
        plan = Plan(settings, (chosen,), tables=frozenset(), limits=limits)
        models, summary = _learn_rows(plan, _passes(rows, epochs, shuffle), keyed=key is not None)
    return _report(models, summary, chosen, time.perf_counter() - began, per_key=key is not None)


def _rows(
    examples: str | Path | Iterable[Record],
    key: str | None,
    format: str | None,
    label: str | None,
    names: list[str] | None,
) -> Iterator[_Row]:
    if isinstance(examples, str | Path):
        for line in files.lines(examples, key=key, format=format, label=label, names=names):
            yield line.key, line.value
    else:
        for record in examples:
            yield None if key is None else record_key(record, key), record


def _learn_columns(
    settings: Settings, learner: Learner, path: str | Path, names: list[str] | None, epochs: int, seed: int | None
) -> tuple[Models, Summary]:
    one = OneKey(settings, (learner,), ONE_KEY)
    signed = settings.task == "binary" and settings.positive is None
    models = one.models
    parts = files.columns(path, models.vocabulary, limit=models.max_features, signed=signed, names=names)
    for part in passes(parts, epochs, seed, _PIECE):
        one.learn(part)
    return models, Summary(reasons=one.reasons)


def _learn_rows(plan: Plan, rows: Iterator[_Row], *, keyed: bool) -> tuple[Models, Summary]:
    bucket = Bucket(plan)
    while piece := list(itertools.islice(rows, _PIECE)):
        bucket.learn(_chunk(piece, bucket.summary.records, keyed=keyed))
    return bucket.models, bucket.summary


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


def _report(models: Models, summary: Summary, learner: Learner, seconds: float, *, per_key: bool) -> dict[str, Any]:
    counts = models.states[0].counts
    n, mistakes, updates = models.counts[:, N], counts[:, MISTAKES], counts[:, UPDATES]
    out = {
        "learner": learner.name,
        "params": learner.params,
        "n": int(n.sum()),
        "mistakes": int(mistakes.sum()),
        "error": float(mistakes.sum() / n.sum()) if n.sum() else None,
        "updates": int(updates.sum()),
        "weight_l2": float(np.linalg.norm(learner.weights(models.layout, models.states[0].arrays))),
        "rejected": sum(summary.reasons.values()),
        "reasons": summary.reasons,
        **{fate: summary.fates[fate] for fate in ("waiting", "duplicate", "expired")},
        "seconds": seconds,
    }
    if per_key:
        out["per_key"] = {
            name: {"n": int(n[k]), "mistakes": int(mistakes[k]), "updates": int(updates[k])}
            for k, name in enumerate(models.keys)
        }
    return out
