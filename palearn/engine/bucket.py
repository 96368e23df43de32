"""A bucket of keys: records in, new bytes and result rows out. No Spark here, no clock and no randomness.

The stream, the batch replay, ``evaluate`` and the tests all call :class:`Bucket`, which is why their results are
bit-identical. A bucket takes its records in the order of (topic, partition, offset), whatever order they
arrive in, and every record gets exactly one status: learned, scored, or rejected with a reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from palearn.engine import result_rows
from palearn.engine.join import Join, Limits
from palearn.engine.join_buffer import Part, Score
from palearn.engine.join_result import JoinResult, More
from palearn.engine.result_rows import Forgotten, Rejected
from palearn.engine.summary import Summary, count_labels
from palearn.engine.tombstones import between_tombstones, drop_keys, earlier
from palearn.engine.validation import Accepted, Chunk, Fault, accept
from palearn.errors import RecordError, StateFormatError
from palearn.learners import Learner, Outcome
from palearn.models import codec
from palearn.models.columns import Columns, joined, of_records, prepare
from palearn.models.counters import CHANGED, LAST_OFFSET, LAST_PARTITION, LAST_SEEN, UPDATED_BATCH
from palearn.models.keyed import Drift, Earlier, Examples, Models
from palearn.models.state import Settings
from palearn.records import ValueFormat
from palearn.records.keys import Form, unmarked
from palearn.tables import schemas
from palearn.types import BoolArray, FloatArray, IntArray


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
        self._join = Join(self.models, plan.limits, plan.forms)

    def learn(self, chunk: Chunk) -> None:
        """Take in records: check, score, learn and count each, in their order."""
        if self.plan.tombstone == "reject" or None not in chunk.value:
            self._learn(chunk)
            return
        for part, tombstones in between_tombstones(chunk, self.plan.key_form, exact=self.plan.max_keys is not None):
            self._learn(part)
            self._forget(tombstones)

    def _learn(self, chunk: Chunk) -> None:
        accepted, faults = accept(
            chunk,
            self.models.vocabulary,
            self.models.max_features,
            self.plan.settings,
            forms=self.plan.forms,
            key_form=self.plan.key_form,
        )
        self.take(accepted, faults)

    def take(self, accepted: Accepted, faults: Sequence[Fault] = ()) -> None:
        """Score, learn and count records of a chunk that can be used, and reject the others of it."""
        chunk = accepted.chunk
        self.summary.records += len(chunk.value)
        for fault in faults:
            self._reject(chunk.key[fault.row], chunk.part(fault.row), fault.error)
        evicted = self.models.features_evicted
        for run in self._runs(accepted):
            self._learn_run(accepted, run)
        self.summary.features_evicted += self.models.features_evicted - evicted

    def forget_earlier(self, keys: Mapping[str, int]) -> None:
        """Drop keys whose last record is older than a record count, as ``palearn forget`` asks for."""
        drop_keys(self.models, self._join, self.summary, earlier(self.models, keys))

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
        labelled = True if fault.label is not None else None
        self.summary.reject(fault, (part.topic, part.partition, part.offset), labelled=labelled)
        if "rejected" in self.plan.tables:
            if key is not None and self.plan.key_form != "text":
                key = unmarked(key)
            self._rejected.append(Rejected(key, part, fault))

    def _runs(self, accepted: Accepted) -> Iterator[range]:
        """Yield the records, cut where ``max_keys`` makes keys leave; make room before each later run."""
        most, index, stop = self.plan.max_keys, self.models.index, accepted.key.size
        if most is None or len(index.keys() | {accepted.names[k] for k in np.unique(accepted.key).tolist()}) <= most:
            yield range(stop)
            return
        first = 0
        live = set(index)
        for i, k in enumerate(accepted.key.tolist()):
            name = accepted.names[k]
            if name in live:
                continue
            if len(live) >= most:
                yield range(first, i)
                first = i
                self._forget_keys(most)
                live = set(self.models.index)
            live.add(name)
        yield range(first, stop)

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
        names = {row.key for row in tombstones}
        self.summary.records += len(tombstones)
        self.summary.statuses["expired"] += len(tombstones)
        drop_keys(self.models, self._join, self.summary, {name for name in names if name in self.models.index})
        self._scored -= names
        self._drifted = {pair for pair in self._drifted if pair[0] not in names}
        if self._left:  # a row of before may be there, which is not the key's last one any more
            for table in ("models", "metrics"):
                self._rows[table] = [result_rows.without(rows, names) for rows in self._rows[table]]
        if "forgotten" in self.plan.tables:
            self._forgotten += tombstones

    # -- learning --------------------------------------------------------------------------------------

    def _learn_run(self, accepted: Accepted, run: range) -> None:
        """Learn the accepted records ``run``."""
        if not run:
            return
        models, summary = self.models, self.summary
        began = models.clock - run.start  # the reading of the clock at record i is began + i
        models.clock += len(run)
        number = self._numbers(accepted, run)
        found = self._join.take(accepted, run, number)
        for key, part, fault in found.rejected:
            self._reject(key.encode(), part, fault)
        summary.statuses["pending"] += found.pending
        summary.statuses["expired"] += found.expired
        summary.statuses["duplicate"] += found.duplicates
        if found.at.size:
            self._learn_rows(accepted, found, number[found.at - run.start], began)
        if len(models.counts) < len(models.keys):
            models.hold_keys()
        if found.kept:
            kept = np.array(found.kept)
            np.maximum.at(models.counts[:, LAST_SEEN], number[kept - run.start], began + kept)

    def _numbers(self, accepted: Accepted, run: range) -> IntArray:
        """Return the number of each record's key in the models; keys that are new are added in their order."""
        models, names = self.models, accepted.names
        code = accepted.key[run.start : run.stop]
        codes = list(dict.fromkeys(code.tolist())) if len(names) > 1 else [0]
        models.add_keys(name for name in (names[c] for c in codes) if name not in models.index)
        number = np.full(len(names), -1)
        number[codes] = [models.index[names[c]] for c in codes]
        return number[code]

    def _learn_rows(self, accepted: Accepted, found: JoinResult, key: IntArray, began: int) -> None:
        """Learn the rows that records came to; ``key`` are their keys' numbers."""
        models, more, n = self.models, found.more, found.at.size
        rows = prepare(models, key, self._columns(accepted, found), found.classes)
        for row, fault in rows.faults.items():
            place = int(accepted.row[found.at[row]])
            self._reject(models.keys[key[row]].encode(), accepted.chunk.part(place), fault)
        examples, order = rows.examples, rows.order
        if not order.size:
            return
        if more:
            position = np.full(n, -1)
            position[order] = np.arange(order.size)
            more = {int(position[row]): x for row, x in more.items()}
            examples.earlier = _earlier(more, position, examples.known, len(models.learners))
        outcomes, learned, drifts, probabilities = models.learn(examples)
        held = _hold_scores(more, examples, outcomes)
        self._count_statuses(learned, held, more)
        at = found.at[order]
        where = accepted.row[at]
        self._count(accepted.chunk, where, examples, began + at, outcomes)
        self._note_drifts(accepted.chunk, where, examples.key, drifts)
        if "predictions" in self.plan.tables:
            self._predict(accepted, at, examples, outcomes, probabilities)

    def _columns(self, accepted: Accepted, found: JoinResult) -> Columns:
        """Return the rows as columns: accepted records, or what came in several of them."""
        columns, models = accepted.columns, self.models
        merged = {row: x.record for row, x in found.more.items() if x.record is not None}
        at = found.at
        if merged:
            others, _ = of_records(list(merged.values()), accepted.labels, models.vocabulary, models.max_features)
            at = at.copy()
            at[list(merged)] = columns.code.size + np.arange(len(merged))
            columns = joined([columns, others], columns.flat.views)
        return columns.take(at)

    def _predict(
        self,
        accepted: Accepted,
        at: IntArray,
        examples: Examples,
        outcomes: list[Outcome],
        probabilities: list[FloatArray],
    ) -> None:
        """Store the predictions for the examples that records ``at`` completed."""
        chunk, where, earlier = accepted.chunk, accepted.row[at], examples.earlier
        records = (accepted.record.get(i) for i in at.tolist())
        ids = [None if record is None or record.id is None else str(record.id) for record in records]
        stands = ([chunk.topic[i] for i in where.tolist()], chunk.partition[where], chunk.offset[where])
        texts = result_rows.Texts(self.models, np.unique(examples.key))
        then = examples.known.copy()
        if earlier is not None:
            then[earlier.row] = earlier.known
        self._rows["predictions"] += result_rows.prediction_rows(
            self.models, texts, examples.key, examples.y, then, outcomes, probabilities, ids, stands
        )

    def _count_statuses(self, learned: BoolArray, held: int, more: Mapping[int, More]) -> None:
        statuses, parts = self.summary.statuses, {row: len(x.parts) for row, x in more.items()}
        taken = int(learned.sum()) + sum(n for row, n in parts.items() if learned[row])
        statuses["learned"] += taken
        statuses["scored"] += learned.size + sum(parts.values()) - taken - held

    def _count(self, chunk: Chunk, at: IntArray, examples: Examples, seen: IntArray, outcomes: list[Outcome]) -> None:
        """Store the position of each key's last processed record, row ``at`` of the chunk, and the mistakes."""
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
            self._scored.add(models.keys[k])
        labelled = y >= 0
        summary.n += int(labelled.sum())
        count_labels(summary, models, key[labelled], y[labelled])
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
    most = models.settings.max_bytes or plan.settings.max_bytes
    columns = plan.settings.columns or models.settings.columns
    models.settings = replace(models.settings, max_bytes=most, columns=columns)
    stored = [learner.identity for learner in models.learners]
    if models.settings != plan.settings or stored != plan.specs:
        raise StateFormatError(
            "the state was written with other learners or settings than the configuration has; "
            "use the configuration the checkpoint began with, or replay history into a new output"
        )
    return models


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


def _hold_scores(more: Mapping[int, More], examples: Examples, outcomes: list[Outcome]) -> int:
    """Let examples that wait for their label keep the score that they have now; return how many these are."""
    held = {row: x.pending for row, x in more.items() if x.pending is not None and examples.y[row] < 0}
    for row, pending in held.items():
        predicted, score = zip(*((int(out.predicted[row]), float(out.score[row])) for out in outcomes), strict=True)
        pending.score, pending.row = Score(int(examples.known[row]), list(predicted), list(score)), None
    return len(held)
