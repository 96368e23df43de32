"""A bucket of keys: records in, new bytes and result rows out. No Spark here, no clock and no randomness.

The stream, the batch replay, ``evaluate`` and the tests all call :class:`Bucket`, which is why they agree to
the last bit. A bucket takes its records in the order of (topic, partition, offset), whatever order they
arrive in, and every record meets exactly one fate: learned, scored, or rejected with a reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from palearn import codec, results
from palearn.errors import RecordError, StateFormatError
from palearn.examples import Flat, flatten
from palearn.intake import Accepted, Chunk, Value, check
from palearn.labels import classify
from palearn.learners import Learner, Outcome
from palearn.metrics import CHANGED, LAST_OFFSET, LAST_PARTITION, LAST_SEEN, UPDATED_BATCH
from palearn.models import Examples, Models, Settings
from palearn.records import Record, encode
from palearn.types import IntArray

FATES = ("learned", "scored", "waiting", "duplicate", "rejected", "expired")


@dataclass(frozen=True)
class Plan:
    """What a bucket needs of the configuration; made once a worker."""

    settings: Settings
    learners: tuple[Learner, ...]
    max_keys: int | None = None
    max_bytes: int = 1_048_576
    tables: frozenset[str] = frozenset(("models", "metrics", "rejected"))

    @cached_property
    def specs(self) -> list[dict[str, Any]]:
        """What the learners in a state must be."""
        return [learner.identity for learner in self.learners]


@dataclass
class Summary:
    """What happened to a bucket's records: fates, evictions, and each learner's examples and mistakes."""

    records: int = 0
    fates: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FATES, 0))
    keys_evicted: int = 0
    features_evicted: int = 0
    n: int = 0
    mistakes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Summary") -> None:
        """Add another bucket's figures."""
        self.records += other.records
        self.keys_evicted += other.keys_evicted
        self.features_evicted += other.features_evicted
        self.n += other.n
        for mine, theirs in (
            (self.fates, other.fates),
            (self.mistakes, other.mistakes),
            (self.reasons, other.reasons),
        ):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count


class Bucket:
    """The models of a bucket of keys while they take in one batch.

    Parameters
    ----------
    plan
        Learners, settings and bounds.
    blob
        Bytes of :meth:`to_bytes` of the batch before, or None.
    batch_id
        Number of the batch, for the ``updated_batch`` column; nothing that is learned depends on it.
    """

    def __init__(self, plan: Plan, blob: bytes | None = None, batch_id: int = 0) -> None:
        self.plan = plan
        self.models = Models(plan.settings, plan.learners) if blob is None else _load(plan, blob)
        self.batch_id = batch_id
        self.summary = Summary(mistakes={learner.name: 0 for learner in plan.learners})
        self._began = self.models.clock
        self._rows: dict[str, list[pa.RecordBatch]] = {name: [] for name in results.TABLES}
        self._rejected: list[tuple[Chunk, int, RecordError]] = []

    def learn(self, chunk: Chunk) -> None:
        """Take in records: check, score, learn and count each, in their order."""
        self.summary.records += len(chunk.value)
        evicted = self.models.features_evicted
        signed = self.plan.settings.task == "binary" and self.plan.settings.positive is None
        accepted, faults = check(chunk, self.plan.max_bytes, signed=signed)
        for fault in faults:
            self._reject(chunk, fault.row, fault.error)
        flat, unusable = flatten(accepted.record, self.models.vocabulary, self.models.max_features)
        for i, error in unusable.items():
            self._reject(chunk, accepted.row[i], error)
        usable = [i for i in range(len(accepted.row)) if i not in unusable]
        for run in self._runs(accepted.key, usable):
            self._learn_run(chunk, accepted, flat, run)
        self.summary.features_evicted += self.models.features_evicted - evicted

    def to_bytes(self) -> bytes:
        """Return the models as they are now."""
        return codec.encode(self.models)

    def results(self, *, models: bool = True) -> dict[str, pa.Table]:
        """Return the rows of each output table since this bucket was made, and forget them.

        Parameters
        ----------
        models
            Whether to snapshot the models that changed since their last snapshot.
        """
        touched = np.flatnonzero(self.models.counts[:, LAST_SEEN] >= self._began)
        changed = np.flatnonzero(self.models.counts[:, CHANGED]) if models else np.zeros(0, np.int64)
        self._emit(touched, changed)
        self._emit_rejected()
        out = {name: pa.Table.from_batches(rows) for name, rows in self._rows.items() if rows}
        self._rows = {name: [] for name in results.TABLES}
        return out

    # -- rejecting and bounding -----------------------------------------------------------------------

    def _reject(self, chunk: Chunk, row: int, fault: RecordError) -> None:
        self.summary.fates["rejected"] += 1
        self.summary.reasons[fault.reason] = self.summary.reasons.get(fault.reason, 0) + 1
        if "rejected" in self.plan.tables:
            self._rejected.append((chunk, row, fault))

    def _emit_rejected(self) -> None:
        if not self._rejected:
            return
        rows = [
            {
                "key": chunk.key[row],
                "value": _bytes(chunk.value[row]),
                "topic": chunk.topic[row],
                "partition": int(chunk.partition[row]),
                "offset": int(chunk.offset[row]),
                "reason": fault.reason,
                "detail": fault.detail,
            }
            for chunk, row, fault in self._rejected
        ]
        self._rows["rejected"].append(pa.RecordBatch.from_pylist(rows, results.REJECTED))
        self._rejected = []

    def _runs(self, keys: list[str], usable: list[int]) -> Iterator[list[int]]:
        """Yield the usable records, cut where ``max_keys`` makes keys leave; make room before each later run."""
        most, index = self.plan.max_keys, self.models.index
        if most is None or len(index.keys() | {keys[i] for i in usable}) <= most:
            yield usable
            return
        first = 0
        live = set(index)
        for at, i in enumerate(usable):
            if keys[i] in live:
                continue
            if len(live) >= most:
                yield usable[first:at]
                first = at
                self._forget_keys(most)
                live = set(self.models.index)
            live.add(keys[i])
        yield usable[first:]

    def _forget_keys(self, most: int) -> None:
        """Drop the keys whose last record is oldest, an eighth at once, so that dropping is rare."""
        models = self.models
        drop = max(1, most // 8, len(models.keys) - most + 1)
        order = np.argsort(models.counts[:, LAST_SEEN], kind="stable")
        leaving, keep = np.sort(order[:drop]), np.sort(order[drop:])
        touched = leaving[models.counts[leaving, LAST_SEEN] >= self._began]
        self._emit(touched, leaving[models.counts[leaving, CHANGED] > 0])
        models.keep_keys(keep)
        self.summary.keys_evicted += drop

    # -- learning --------------------------------------------------------------------------------------

    def _learn_run(self, chunk: Chunk, accepted: Accepted, flat: Flat, run: list[int]) -> None:
        models, settings = self.models, self.plan.settings
        names = [accepted.key[i] for i in run]
        models.add_keys(name for name in dict.fromkeys(names) if name not in models.index)
        key = np.fromiter(map(models.index.__getitem__, names), np.int64, len(run))
        by_key = np.argsort(key, kind="stable")
        key, rows, seen = key[by_key], np.array(run, np.int64)[by_key], models.clock + by_key
        models.clock += len(run)
        labels = [accepted.record[i].label for i in rows.tolist()]
        y, known, contradictions = classify(
            key, labels, models.labels, settings.task, settings.positive, models.max_labels
        )
        if contradictions:
            for i, fault in contradictions.items():
                self._reject(chunk, accepted.row[rows[i]], fault)
            fine = np.setdiff1d(np.arange(rows.size), list(contradictions))
            key, rows, seen, y, known = key[fine], rows[fine], seen[fine], y[fine], known[fine]
        if not rows.size:
            return
        if not np.array_equal(rows, np.arange(len(accepted.row))):
            flat = flat.take(rows)
        weights = [accepted.record[i].weight for i in rows.tolist()]
        weight = np.array([1.0 if x is None else x for x in weights])
        examples = Examples(flat, key, y, known, weight)
        outcomes, learned = models.learn(examples)
        at = np.array(accepted.row, np.int64)[rows]
        self._count(chunk, at, examples, seen, outcomes, int(learned.sum()))
        if "predictions" in self.plan.tables:
            ids = [None if (x := accepted.record[i].id) is None else str(x) for i in rows.tolist()]
            place = ([chunk.topic[i] for i in at.tolist()], chunk.partition[at], chunk.offset[at])
            texts = results.Texts(models, np.unique(key))
            self._rows["predictions"] += results.prediction_rows(models, texts, key, y, known, outcomes, ids, place)

    def _count(
        self, chunk: Chunk, at: IntArray, examples: Examples, seen: IntArray, outcomes: list[Outcome], learned: int
    ) -> None:
        """Write down the fates, and where each key's last record stands: row ``at`` of the chunk."""
        models, summary, key, y = self.models, self.summary, examples.key, examples.y
        last = np.flatnonzero(np.append(key[1:] != key[:-1], True))
        keys, places, counts = key[last], at[last], models.counts
        counts[keys, LAST_SEEN] = seen[last]
        counts[keys, LAST_PARTITION] = chunk.partition[places]
        counts[keys, LAST_OFFSET] = chunk.offset[places]
        counts[keys, CHANGED] = 1
        counts[keys, UPDATED_BATCH] = self.batch_id
        for k, place in zip(keys.tolist(), places.tolist(), strict=True):
            models.topics[k] = chunk.topic[place]
        labelled = y >= 0
        summary.fates["learned"] += learned
        summary.fates["scored"] += y.size - learned
        summary.n += int(labelled.sum())
        for learner, out in zip(self.plan.learners, outcomes, strict=True):
            summary.mistakes[learner.name] += int((labelled & (out.predicted != y)).sum())

    def _emit(self, touched: IntArray, changed: IntArray) -> None:
        keys = np.union1d(touched, changed)
        texts = results.Texts(self.models, keys) if keys.size else None
        if texts and "metrics" in self.plan.tables and touched.size:
            self._rows["metrics"] += results.metric_rows(self.models, touched, texts)
        if texts and "models" in self.plan.tables and changed.size:
            self._rows["models"] += results.model_rows(self.models, changed, texts)
            self.models.counts[changed, CHANGED] = 0


def _load(plan: Plan, blob: bytes) -> Models:
    models = codec.decode(blob)
    stored = [learner.identity for learner in models.learners]
    if models.settings != plan.settings or stored != plan.specs:
        raise StateFormatError(
            "the state was written with other learners or settings than the configuration has; "
            "use the configuration the checkpoint began with, or replay history into a new output"
        )
    return models


def _bytes(value: Value) -> bytes | None:
    """Return a rejected record's value as it is written out; a line that no reader could read has none."""
    if isinstance(value, Record):
        return encode(value)
    return None if isinstance(value, RecordError) else value
