"""Test-then-train over a file in one process: the same buckets as the stream, without Spark or Kafka."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palearn import files
from palearn.bucket import Bucket, Plan
from palearn.errors import ConfigError
from palearn.intake import Chunk, Value
from palearn.learners import Learner
from palearn.metrics import MISTAKES, UPDATES, N
from palearn.model import check_views
from palearn.models import Settings
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
        A file (:func:`palearn.files.read`; ``format``, ``label`` and ``names`` are its options) or records.
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
        ``learner, params, n, mistakes, error, updates, weight_l2, rejected, reasons, seconds``; with ``key`` also
        ``per_key: {key: {n, mistakes, updates}}``. ``seconds`` covers reading and learning, not imports.
    """
    if epochs < 1:
        raise ConfigError(f"epochs must be >= 1, got {epochs}")
    chosen = Learner(learner, learner, task=task, tie=tie, options=params)
    settings = Settings(task=task, positive=positive, bias=bias, views=check_views(list(views)), max_features=None)
    bucket = Bucket(Plan(settings, (chosen,), tables=frozenset()))
    began = time.perf_counter()
    if isinstance(examples, str | Path):
        lines = files.lines(examples, key=key, format=format, label=label, names=names)
        rows: Iterable[_Row] = ((line.key, line.value) for line in lines)
    else:
        rows = ((None if key is None else record_key(record, key), record) for record in examples)
    for piece in _pieces(_passes(rows, epochs, shuffle)):
        bucket.learn(_chunk(piece, bucket.summary.records, keyed=key is not None))
    return _report(bucket, chosen, time.perf_counter() - began, per_key=key is not None)


def _passes(rows: Iterable[_Row], epochs: int, seed: int | None) -> Iterator[_Row]:
    if epochs == 1 and seed is None:
        yield from rows
        return
    held = list(rows)
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = range(len(held)) if seed is None else random.permutation(len(held)).tolist()
        for i in order:
            yield held[i]


def _pieces(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    while piece := list(itertools.islice(rows, _PIECE)):
        yield piece


def _chunk(rows: list[_Row], first: int, *, keyed: bool) -> Chunk:
    n = len(rows)
    keys = [None if key is None else key.encode() for key, _ in rows] if keyed else [ONE_KEY.encode()] * n
    return Chunk(keys, [value for _, value in rows], [""] * n, np.zeros(n, np.int64), np.arange(first, first + n))


def _report(bucket: Bucket, learner: Learner, seconds: float, *, per_key: bool) -> dict[str, Any]:
    models, summary = bucket.models, bucket.summary
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
        "rejected": summary.fates["rejected"],
        "reasons": summary.reasons,
        "seconds": seconds,
    }
    if per_key:
        out["per_key"] = {
            name: {"n": int(n[k]), "mistakes": int(mistakes[k]), "updates": int(updates[k])}
            for k, name in enumerate(models.keys)
        }
    return out
