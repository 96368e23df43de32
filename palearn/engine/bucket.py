"""A bucket of keys: records in, new bytes and result rows out. No Spark here, no clock and no randomness.

The stream, the batch replay, ``evaluate`` and the tests all call :class:`Bucket`, which is why their results are
bit-identical. A bucket takes its records in the order of (topic, partition, offset), whatever order they
arrive in, and every record gets exactly one status: learned, scored, or rejected with a reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from palearn.engine import result_rows
from palearn.engine.join import Join, JoinResult, Limits, More
from palearn.engine.join_buffer import Part, Score
from palearn.engine.result_rows import Forgotten, Rejected
from palearn.engine.summary import Summary
from palearn.engine.tombstones import between_tombstones
from palearn.engine.validation import Accepted, Chunk, Value, check
from palearn.errors import RecordError, StateFormatError
from palearn.learners import Learner, Outcome
from palearn.models import codec
from palearn.models.counters import CHANGED, LAST_OFFSET, LAST_PARTITION, LAST_SEEN, UPDATED_BATCH
from palearn.models.keyed import Drift, Earlier, Examples, Models
from palearn.models.labels import classify
from palearn.models.state import MAX_BYTES, Settings
from palearn.models.vectorize import Flat, concatenate, flatten
from palearn.records import PLAIN, Record, ValueFormat, decode_value, encode
from palearn.records.keys import Form, unmarked
from palearn.tables import schemas
from palearn.types import IntArray


@dataclass(frozen=True)
class BucketConfig:
    """What a bucket needs of the configuration; made once a worker."""

    settings: Settings
    learners: tuple[Learner, ...]
    max_keys: int | None = None
    tables: frozenset[str] = frozenset(("models", "metrics", "rejected", "expired", "drifts", "forgotten"))
    limits: Limits = field(default_factory=Limits)
    forms: Mapping[str, ValueFormat] = field(default_factory=dict)
    key_form: Form = "text"
    tombstone: Literal["reject", "forget"] = "reject"

    @cached_property
    def specs(self) -> list[dict[str, Any]]:
        """What the learners in a state must be."""
        return [learner.identity for learner in self.learners]


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

    def __init__(self, plan: BucketConfig, blob: bytes | None = None, batch_id: int = 0) -> None:
        self.plan = plan
        self.models = Models(plan.settings, plan.learners) if blob is None else _load(plan, blob)
        self.batch_id = batch_id
        names = [learner.name for learner in plan.learners]
        self.summary = Summary(mistakes=dict.fromkeys(names, 0), updates=dict.fromkeys(names, 0))
        self._scored: set[str] = set()
        self._left = False  # whether keys have left since the last results
        self._drifted: set[result_rows.Pair] = set()
        self._drifts: list[result_rows.Drifted] = []
        self._rows: dict[str, list[pa.RecordBatch]] = {name: [] for name in schemas.TABLES}
        self._rejected: list[Rejected] = []
        self._forgotten: list[Forgotten] = []
        decode = partial(_decode_part, plan.forms)
        self._join = Join(self.models, plan.limits, decode)

    def learn(self, chunk: Chunk) -> None:
        """Take in records: check, score, learn and count each, in their order."""
        if self.plan.tombstone == "reject" or None not in chunk.value:
            self._learn(chunk)
            return
        for part, tombstones in between_tombstones(chunk, self.plan.key_form, exact=self.plan.max_keys is not None):
            self._learn(part)
            self._forget(tombstones)

    def _learn(self, chunk: Chunk) -> None:
        self.summary.records += len(chunk.value)
        evicted = self.models.features_evicted
        signed = self.plan.settings.task == "binary" and self.plan.settings.positive is None
        accepted, faults = check(
            chunk,
            self.plan.settings.max_bytes or MAX_BYTES,
            signed=signed,
            forms=self.plan.forms,
            features=self.models.max_features,
            key_form=self.plan.key_form,
        )
        for fault in faults:
            self._reject(chunk.key[fault.row], _part(chunk, fault.row), fault.error)
        flat, unusable = flatten(accepted.record, self.models.vocabulary, self.models.max_features)
        for i, error in unusable.items():
            self._reject(chunk.key[accepted.row[i]], _part(chunk, accepted.row[i]), error)
        usable = [i for i in range(len(accepted.row)) if i not in unusable]
        for run in self._runs(accepted.key, usable):
            self._learn_run(chunk, accepted, flat, run)
        self.summary.features_evicted += self.models.features_evicted - evicted

    def to_bytes(self) -> bytes:
        """Return the models, and what their keys wait for, as they are now."""
        self._join.store()
        return codec.encode(self.models)

    def results(self, *, models: bool = True) -> dict[str, pa.Table]:
        """Return the rows of each output table since this bucket was made, and forget them.

        Parameters
        ----------
        models
            Whether to snapshot the models that changed since their last snapshot.
        """
        touched = self._touched(np.arange(len(self.models.keys)))
        changed = np.flatnonzero(self.models.counts[:, CHANGED]) if models else np.zeros(0, np.int64)
        self._emit(touched, changed)
        self._rows["rejected"] += result_rows.rejected_rows(self._rejected)
        self._rejected = []
        self._rows["drifts"] += result_rows.drift_rows(self._drifts)
        self._drifts = []
        self._rows["forgotten"] += result_rows.forgotten_rows(self._forgotten)
        self._forgotten = []
        if "expired" in self.plan.tables:
            self._rows["expired"] += result_rows.expired_rows(self._join.expired)
        self._join.expired = []
        out = {name: pa.Table.from_batches(rows) for name, rows in self._rows.items() if rows}
        if self._left:  # and some may have come back: the model of a key is its only row of a batch
            out |= {name: result_rows.newest(out[name]) for name in ("models", "metrics") if name in out}
        self._left, self._drifted = False, set()
        self._rows = {name: [] for name in schemas.TABLES}
        return out

    # -- rejecting and bounding -----------------------------------------------------------------------

    def _reject(self, key: bytes | None, part: Part, fault: RecordError) -> None:
        self.summary.statuses["rejected"] += 1
        self.summary.reasons[fault.reason] = self.summary.reasons.get(fault.reason, 0) + 1
        if "rejected" in self.plan.tables:
            if key is not None and self.plan.key_form != "text":
                key = unmarked(key)
            self._rejected.append(Rejected(key, part, fault))

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
        self._emit(self._touched(leaving), leaving[models.counts[leaving, CHANGED] > 0])
        expired = self._join.leave(models.keys[k] for k in leaving.tolist())
        self.summary.statuses["pending"] -= expired
        self.summary.statuses["expired"] += expired
        models.keep_keys(keep)
        self._left = True
        self.summary.keys_evicted += drop

    def _forget(self, tombstones: list[Forgotten]) -> None:
        """Drop the keys that tombstones name: their models, and the fragments that wait.

        A tombstone, and each fragment that it drops, is counted as expired; no row repeats what they held.
        """
        if not tombstones:
            return
        models, names = self.models, {row.key for row in tombstones}
        known = [name for name in names if name in models.index]
        told = len(self._join.expired)
        pending = self._join.leave(known)
        del self._join.expired[told:]
        self.summary.records += len(tombstones)
        self.summary.statuses["pending"] -= pending
        self.summary.statuses["expired"] += pending + len(tombstones)
        self.summary.forgotten += len(known)
        if known:
            gone = np.array([models.index[name] for name in known])
            models.keep_keys(np.setdiff1d(np.arange(len(models.keys)), gone))
        self._scored -= names
        self._drifted = {pair for pair in self._drifted if pair[0] not in names}
        if self._left:  # a row of before may be there, which is not the key's last one any more
            for table in ("models", "metrics"):
                self._rows[table] = [result_rows.without(rows, names) for rows in self._rows[table]]
        if "forgotten" in self.plan.tables:
            self._forgotten += tombstones

    # -- learning --------------------------------------------------------------------------------------

    def _learn_run(self, chunk: Chunk, accepted: Accepted, flat: Flat, run: list[int]) -> None:
        """Learn the accepted records ``run``, which are in order."""
        models, began = self.models, self.models.clock
        models.clock += len(run)
        models.add_keys(key for key in dict.fromkeys(accepted.key[i] for i in run) if key not in models.index)
        found = self._join.take(run, accepted.key, accepted.record, lambda i: _part(chunk, accepted.row[i]))
        for i, fault in found.rejected:
            self._reject(chunk.key[accepted.row[i]], _part(chunk, accepted.row[i]), fault)
        statuses = self.summary.statuses
        statuses["pending"] += found.pending
        statuses["expired"] += found.expired
        statuses["duplicate"] += found.duplicates
        if found.at:
            self._learn_rows(chunk, accepted, flat, found, began + np.searchsorted(run, found.at))
        if len(models.counts) < len(models.keys):
            models.hold_keys()
        if found.kept:
            keys = [models.index[accepted.key[i]] for i in found.kept]
            np.maximum.at(models.counts[:, LAST_SEEN], keys, began + np.searchsorted(run, found.kept))

    def _learn_rows(self, chunk: Chunk, accepted: Accepted, flat: Flat, found: JoinResult, seen: IntArray) -> None:
        """Learn the rows of joined examples; ``seen`` is the reading of the clock at each."""
        models, settings = self.models, self.plan.settings
        keys = [accepted.key[i] for i in found.at]
        key = np.fromiter(map(models.index.__getitem__, keys), np.int64, len(keys))
        order = np.argsort(key, kind="stable")
        key = key[order]
        labels = [found.labels[row] for row in order.tolist()]
        y, known, contradictions = classify(
            key, labels, models.labels, settings.task, settings.positive, models.max_labels
        )
        if contradictions:
            for i, fault in contradictions.items():
                row = int(order[i])
                for part in (_part(chunk, accepted.row[found.at[row]]), *found.more.get(row, More()).parts):
                    self._reject(keys[row].encode(), part, fault)
            fine = np.setdiff1d(np.arange(order.size), list(contradictions))
            order, key, y, known = order[fine], key[fine], y[fine], known[fine]
        if not order.size:
            return
        self._scored.update(models.keys[k] for k in set(key.tolist()))
        at = np.array(found.at, np.int64)[order]
        place = np.full(len(found.at), -1)
        place[order] = np.arange(order.size)
        more = {int(place[row]): x for row, x in found.more.items() if place[row] >= 0}
        records, flat = _joined(accepted, flat, at, more, models)
        weight = np.array([1.0 if record.weight is None else record.weight for record in records])
        earlier = _earlier(more, place, known, len(models.learners))
        outcomes, learned, drifts = models.learn(Examples(flat, key, y, known, weight, earlier))
        held = {row: x.pending for row, x in more.items() if x.pending is not None and y[row] < 0}
        for row, pending in held.items():
            predicted, score = zip(*((int(out.predicted[row]), float(out.score[row])) for out in outcomes), strict=True)
            pending.score, pending.row = Score(int(known[row]), list(predicted), list(score)), None
        statuses, parts = self.summary.statuses, {row: len(x.parts) for row, x in more.items()}
        taken = int(learned.sum()) + sum(n for row, n in parts.items() if learned[row])
        statuses["learned"] += taken
        statuses["scored"] += y.size + sum(parts.values()) - taken - len(held)
        where = np.array(accepted.row, np.int64)[at]
        self._count(chunk, where, key, y, seen[order], outcomes)
        self._note_drifts(chunk, where, key, drifts)
        if "predictions" in self.plan.tables:
            ids = [None if record.id is None else str(record.id) for record in records]
            stands = ([chunk.topic[i] for i in where.tolist()], chunk.partition[where], chunk.offset[where])
            texts = result_rows.Texts(models, np.unique(key))
            then = known.copy()
            if earlier is not None:
                then[earlier.row] = earlier.known
            self._rows["predictions"] += result_rows.prediction_rows(models, texts, key, y, then, outcomes, ids, stands)

    def _count(
        self, chunk: Chunk, at: IntArray, key: IntArray, y: IntArray, seen: IntArray, outcomes: list[Outcome]
    ) -> None:
        """Store the position of each key's last processed record, row ``at`` of the chunk, and the mistakes."""
        models, summary = self.models, self.summary
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
        summary.n += int(labelled.sum())
        for learner, out in zip(self.plan.learners, outcomes, strict=True):
            summary.mistakes[learner.name] += int((labelled & (out.predicted != y)).sum())
            summary.updates[learner.name] += int(out.updated.sum())

    def _note_drifts(self, chunk: Chunk, at: IntArray, key: IntArray, drifts: list[Drift]) -> None:
        """Store the detected drifts: rows of the chunk ``at``."""
        for i, row, examples in drifts:
            learner, place, name = self.plan.learners[i], int(at[row]), self.models.keys[key[row]]
            assert learner.drift is not None
            stands = (chunk.topic[place], int(chunk.partition[place]), int(chunk.offset[place]))
            if "metrics" in self.plan.tables:
                self._drifted.add((name, learner.name))
            if "drifts" in self.plan.tables:
                self._drifts.append(result_rows.Drifted(name, learner.name, learner.drift.action, examples, *stands))

    def _touched(self, keys: IntArray) -> IntArray:
        """Return those of some keys that have been scored since the last time, and forget that they were."""
        names = self.models.keys
        found = [k for k in keys.tolist() if names[k] in self._scored]
        self._scored.difference_update(names[k] for k in found)
        return np.array(found, np.int64)

    def _emit(self, touched: IntArray, changed: IntArray) -> None:
        keys = np.union1d(touched, changed)
        texts = result_rows.Texts(self.models, keys) if keys.size else None
        if texts and "metrics" in self.plan.tables and touched.size:
            self._rows["metrics"] += result_rows.metric_rows(self.models, touched, texts, self._drifted)
        if texts and "models" in self.plan.tables and changed.size:
            self._rows["models"] += result_rows.model_rows(self.models, changed, texts)
            self.models.counts[changed, CHANGED] = 0


def _load(plan: BucketConfig, blob: bytes) -> Models:
    models = codec.decode(blob)
    if models.settings.max_bytes is None:
        models.settings = replace(models.settings, max_bytes=plan.settings.max_bytes)
    stored = [learner.identity for learner in models.learners]
    if models.settings != plan.settings or stored != plan.specs:
        raise StateFormatError(
            "the state was written with other learners or settings than the configuration has; "
            "use the configuration the checkpoint began with, or replay history into a new output"
        )
    return models


def _joined(
    accepted: Accepted, flat: Flat, at: IntArray, more: Mapping[int, More], models: Models
) -> tuple[list[Record], Flat]:
    """Return the rows' records and features: accepted records ``at``, or what came in several records."""
    records = [accepted.record[i] for i in at.tolist()]
    merged = {row: x.record for row, x in more.items() if x.record is not None}
    if merged:
        joined, _ = flatten(list(merged.values()), models.vocabulary, models.max_features)
        flat = concatenate([flat, joined], flat.views)
        at = at.copy()
        at[list(merged)] = len(accepted.row) + np.arange(len(merged))
        for row, record in merged.items():
            records[row] = record
    if merged or not np.array_equal(at, np.arange(len(accepted.row))):
        flat = flat.take(at)
    return records, flat


def _earlier(more: Mapping[int, More], place: IntArray, known: IntArray, learners: int) -> Earlier | None:
    """Return the rows whose score is one that their example had; ``place`` is a row's position in the chunk."""
    given = {row: x.pending for row, x in more.items() if x.given and x.pending is not None}
    if not given:
        return None
    n = len(given)
    origin, then = np.full(n, -1), np.zeros(n, np.int64)
    predicted, score = np.zeros((learners, n), np.int64), np.zeros((learners, n))
    for i, pending in enumerate(given.values()):
        if pending.score is not None:
            then[i], predicted[:, i], score[:, i] = pending.score.known, pending.score.predicted, pending.score.score
        else:
            assert pending.row is not None
            origin[i] = place[pending.row]
            then[i] = known[origin[i]]
    return Earlier(np.array(list(given)), origin, predicted, score, then)


def _decode_part(forms: Mapping[str, ValueFormat], part: Part) -> Record:
    return decode_value(part.value, forms.get(part.topic, PLAIN))


def _part(chunk: Chunk, row: int) -> Part:
    """Return a record as it came, with its topic, partition and offset."""
    return Part(_bytes(chunk.value[row]), chunk.topic[row], int(chunk.partition[row]), int(chunk.offset[row]))


def _bytes(value: Value) -> bytes | None:
    """Return a rejected record's value as it is written out; a line that no reader could read has none."""
    if isinstance(value, Record):
        return encode(value)
    return None if isinstance(value, RecordError) else value
