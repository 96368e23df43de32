"""A bucket of keys: records in, new bytes and result rows out. No Spark here, no clock and no randomness.

The stream, the batch replay, ``evaluate`` and the tests all call :class:`Bucket`, which is why they agree to
the last bit. A bucket takes its records in the order of (topic, partition, offset), whatever order they
arrive in, and every record meets exactly one fate: learned, scored, or rejected with a reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from palearn import codec, results
from palearn.errors import RecordError, StateFormatError
from palearn.examples import flatten
from palearn.labels import classify
from palearn.learners import Learner, Outcome
from palearn.metrics import CHANGED, LAST_OFFSET, LAST_PARTITION, LAST_SEEN, UPDATED_BATCH
from palearn.models import Examples, Models, Settings
from palearn.records import Record, decode_value, encode
from palearn.types import Int32Array, IntArray

FATES = ("learned", "scored", "waiting", "duplicate", "rejected", "expired")


#: A record's value: wire bytes, or what a file reader made of a line.
Value = bytes | Record | RecordError | None


class Chunk(NamedTuple):
    """Records of a bucket, any order: Kafka's key and value, and where each stands."""

    key: Sequence[bytes | None]
    value: Sequence[Value]
    topic: Sequence[str]
    partition: IntArray
    offset: IntArray


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
        return [learner.spec | {"tie": learner.tie} for learner in self.learners]


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


@dataclass
class _Accepted:
    """Records that passed every check but their label's, in order; ``row`` is their place in the chunk."""

    row: list[int]
    key: list[str]
    record: list[Record]


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
        accepted = self._check(chunk)
        for run in self._runs(accepted):
            self._learn_run(chunk, run)
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

    # -- checking --------------------------------------------------------------------------------------

    def _check(self, chunk: Chunk) -> _Accepted:
        accepted = _Accepted([], [], [])
        keys: dict[bytes | None, str | RecordError] = {}
        signed = self.plan.settings.task == "binary" and self.plan.settings.positive is None
        most = self.plan.max_bytes
        for row in _order(chunk):
            value, raw = chunk.value[row], chunk.key[row]
            try:
                record = value if isinstance(value, Record) else _decode(value, most)
                if raw not in keys:
                    keys[raw] = _key_text(raw)
                key = keys[raw]
                if isinstance(key, RecordError):
                    raise key
                if signed and isinstance(record.label, str):
                    detail = f"label {record.label[:60]!r} is text; name the positive class's label in records.positive"
                    raise RecordError("bad_label", detail)
            except RecordError as fault:
                self._reject(chunk, row, fault)
                continue
            accepted.row.append(row)
            accepted.key.append(key)
            accepted.record.append(record)
        return accepted

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

    def _runs(self, accepted: _Accepted) -> Iterator[_Accepted]:
        """Yield the records, cut where ``max_keys`` makes keys leave; make room before each later run."""
        most, index = self.plan.max_keys, self.models.index
        if most is None or len(index.keys() | set(accepted.key)) <= most:
            yield accepted
            return
        first = 0
        live = set(index)
        for i, key in enumerate(accepted.key):
            if key in live:
                continue
            if len(live) >= most:
                yield _Accepted(accepted.row[first:i], accepted.key[first:i], accepted.record[first:i])
                first = i
                self._forget_keys(most)
                live = set(self.models.index)
            live.add(key)
        yield _Accepted(accepted.row[first:], accepted.key[first:], accepted.record[first:])

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

    def _learn_run(self, chunk: Chunk, run: _Accepted) -> None:
        models, settings = self.models, self.plan.settings
        flat, faults = flatten(run.record, models.vocabulary, settings.max_features)
        for i, fault in faults.items():
            self._reject(chunk, run.row[i], fault)
        kept = np.array([i for i in range(len(run.row)) if i not in faults], np.int64)
        models.add_keys(dict.fromkeys(run.key[i] for i in kept if run.key[i] not in models.index))
        key = np.fromiter((models.index[run.key[i]] for i in kept), np.int64, kept.size)
        by_key = np.argsort(key, kind="stable")
        key, rows = key[by_key], kept[by_key]
        labels = [run.record[i].label for i in rows]
        y, known, contradictions = classify(key, labels, models.labels, settings.task, settings.positive)
        seen = models.clock + by_key
        if contradictions:
            for i, fault in contradictions.items():
                self._reject(chunk, run.row[rows[i]], fault)
            fine = np.setdiff1d(np.arange(rows.size), list(contradictions))
            key, rows, y, known, seen = key[fine], rows[fine], y[fine], known[fine], seen[fine]
        models.clock += kept.size
        if not rows.size:
            return
        if rows.size < len(run.row) or not np.array_equal(rows, np.arange(rows.size)):
            flat = flat.take(rows)
        weight = np.fromiter((w if (w := run.record[i].weight) is not None else 1.0 for i in rows), np.float64, rows.size)
        outcomes, learned = models.learn(Examples(flat, key, y, known, weight))
        self._count(chunk, run, rows, key, y, seen, outcomes, int(learned.sum()))

    def _count(
        self,
        chunk: Chunk,
        run: _Accepted,
        rows: IntArray,
        key: IntArray,
        y: IntArray,
        seen: IntArray,
        outcomes: list[Outcome],
        learned: int,
    ) -> None:
        """Write down where each key's last record stands, the fates, and the predictions if they are wanted."""
        models, summary = self.models, self.summary
        at = np.array(run.row, np.int64)[rows]
        partition, offset = chunk.partition[at], chunk.offset[at]
        last = np.flatnonzero(np.append(key[1:] != key[:-1], True))
        counts = models.counts
        counts[key[last], LAST_SEEN] = seen[last]
        counts[key[last], LAST_PARTITION] = partition[last]
        counts[key[last], LAST_OFFSET] = offset[last]
        counts[key[last], CHANGED] = 1
        counts[key[last], UPDATED_BATCH] = self.batch_id
        for i in last.tolist():
            models.topics[key[i]] = chunk.topic[at[i]]
        labelled = y >= 0
        summary.fates["learned"] += learned
        summary.fates["scored"] += rows.size - learned
        summary.n += int(labelled.sum())
        for learner, out in zip(self.plan.learners, outcomes, strict=True):
            summary.mistakes[learner.name] += int((labelled & (out.predicted != y)).sum())
        if "predictions" in self.plan.tables:
            ids = [None if (x := run.record[i].id) is None else str(x) for i in rows]
            place = ([chunk.topic[i] for i in at], partition, offset)
            self._rows["predictions"] += results.prediction_rows(
                models, results.Texts(models), key, y, outcomes, ids, place
            )

    def _emit(self, touched: IntArray, changed: IntArray) -> None:
        texts = results.Texts(self.models) if touched.size or changed.size else None
        if texts and "metrics" in self.plan.tables and touched.size:
            self._rows["metrics"] += results.metric_rows(self.models, touched, texts)
        if texts and "models" in self.plan.tables and changed.size:
            self._rows["models"] += results.model_rows(self.models, changed, texts)
            self.models.counts[changed, CHANGED] = 0


def _load(plan: Plan, blob: bytes) -> Models:
    models = codec.decode(blob)
    stored = [learner.spec | {"tie": learner.tie} for learner in models.learners]
    if models.settings != plan.settings or stored != plan.specs:
        raise StateFormatError(
            "the state was written with other learners or settings than the configuration has; "
            "use the configuration the checkpoint began with, or replay history into a new output"
        )
    return models


def _order(chunk: Chunk) -> list[int]:
    """Return the rows in the order of (topic, partition, offset)."""
    ranks = {topic: rank for rank, topic in enumerate(sorted(set(chunk.topic)))}
    topic: Int32Array = np.fromiter(map(ranks.__getitem__, chunk.topic), np.int32, len(chunk.topic))
    order: list[int] = np.lexsort((chunk.offset, chunk.partition, topic)).tolist()
    return order


def _bytes(value: Value) -> bytes | None:
    """Return a rejected record's value as it is written out; a line that no reader could read has none."""
    if isinstance(value, Record):
        return encode(value)
    return None if isinstance(value, RecordError) else value


def _decode(value: bytes | RecordError | None, most: int) -> Record:
    if isinstance(value, RecordError):
        raise value
    if value is not None and len(value) > most:
        detail = f"the value has {len(value)} bytes, at most {most} are allowed (records.max_bytes)"
        raise RecordError("too_large", detail)
    return decode_value(value)


def _key_text(raw: bytes | None) -> str | RecordError:
    if not raw:
        return RecordError("no_key", "the record has no key; see records.key for other places to take it from")
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return RecordError("not_utf8", "the record's key is not UTF-8 text")
