"""Join the fragments of an example: views from several topics, delayed labels; recognise repeated records.

Records of one key with the same ``id`` are fragments of one example. An example is scored as soon as its features are
whole, by the model of that moment, and learned when its label is there too. Pending fragments are bounded by the key's
own records and event times, never by a clock, so a replay drops the same fragments.

A key's :class:`palearn.engine.join_buffer.KeyBuffer` holds the fragments as they came.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from palearn.engine.join_buffer import KeyBuffer, Part, Pending
from palearn.engine.join_result import JoinResult, More, Rows
from palearn.engine.validation import Accepted
from palearn.errors import RecordError, StateFormatError
from palearn.models.keyed import Models
from palearn.models.state import Settings
from palearn.records import LabelValue, Record, ValueFormat, decode_value, event_time, label_text
from palearn.records.value_format import format_of
from palearn.types import IntArray

Count = Annotated[int, Meta(ge=1)]
#: What the join sees of a record that is plain: no id, no time.
_PLAIN = Record()


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of a key's pending fragments and of the finished ids that it remembers.

    Parameters
    ----------
    max_pending
        Most pending examples; the oldest is dropped.
    max_age_records
        Age of an example in records of its key since its first fragment; None: no limit.
    max_age
        Age of an example in seconds of event time (``time`` of the records); None: no limit.
    remember_ids
        Finished ids that are remembered, to recognise a repeated record.
    """

    max_pending: Count = 1000
    max_age_records: Count | None = 100_000
    max_age: Annotated[float, Meta(gt=0)] | None = None
    remember_ids: Annotated[int, Meta(ge=0)] = 10_000


@dataclass
class Expired:
    """A fragment that is dropped unlearned, and the limit that it exceeded."""

    key: str
    id: str
    part: Part
    reason: str


class _Place(NamedTuple):
    """A record with an id: its place among those accepted, its key, that one's number and buffer, its event time."""

    i: int
    key: str
    number: int
    opened: KeyBuffer
    time: float | None


class Join:
    """The join buffers of a bucket's keys.

    Parameters
    ----------
    models
        The models of the same keys; their ``join_buffers`` hold the bytes.
    limits
        Of every key.
    forms
        Topics whose values differ from the format.
    """

    def __init__(self, models: Models, limits: Limits, forms: Mapping[str, ValueFormat]) -> None:
        self.models, self.limits, self.expired = models, limits, list[Expired]()
        self._views, self._name = models.settings.views, _namer(models.settings)
        self._forms = forms
        self._open: dict[str, KeyBuffer] = {}

    def take(self, accepted: Accepted, run: range, number: IntArray) -> JoinResult:
        """Take in the accepted records ``run`` in their order; return the examples to score or learn.

        ``number`` are the keys' numbers, of each record of the run.
        """
        records = accepted.record
        if self._idle() and all(record.id is None for i, record in records.items() if i in run):
            return JoinResult(np.arange(run.start, run.stop), accepted.columns.code[run.start : run.stop])
        rows = Rows(accepted, self.models)
        out = rows.result
        codes = accepted.columns.code[run.start : run.stop].tolist()
        for i, k, code in zip(run, number.tolist(), codes, strict=True):
            key, record = self.models.keys[k], records.get(i, _PLAIN)
            try:
                time = None if self.limits.max_age is None else event_time(record)
            except RecordError as fault:
                rows.reject(key, rows.part(i), fault)
                continue
            opened = self._buffer(key, make=record.id is not None)
            if opened is not None:
                self._tick(key, opened, time, out)
            if opened is None or record.id is None:
                rows.add(i, key, k, code)
            else:
                self._take(_Place(i, key, k, opened, time), record, rows)
        return rows.done()

    def _idle(self) -> bool:
        """Whether no key waits for anything, and none has to be told of the time."""
        return not self._open and self.limits.max_age is None and not any(self.models.join_buffers)

    def leave(self, keys: Iterable[str]) -> int:
        """Drop the join buffers of keys that leave the bucket; return how many fragments were pending there."""
        out = JoinResult(np.zeros(0, np.int64), np.zeros(0, np.int32))
        for key in keys:
            opened = self._buffer(key, make=False)
            if opened is not None:
                for ident in list(opened.pending):
                    self._let_go(key, opened, ident, "key_evicted", out)
                del self._open[key]
        return out.expired

    def store(self) -> None:
        """Write the buffers that were opened back to the models."""
        for key, opened in self._open.items():
            self.models.join_buffers[self.models.index[key]] = opened.to_bytes()

    # -- a key's buffer ----------------------------------------------------------------------------------

    def _buffer(self, key: str, *, make: bool) -> KeyBuffer | None:
        opened = self._open.get(key)
        if opened is None:
            number = self.models.index.get(key)
            stored = b"" if number is None else self.models.join_buffers[number]
            if not stored and not make:
                return None
            classes = 0 if number is None else len(self.models.labels[number])
            opened = self._open[key] = KeyBuffer(stored, len(self.models.learners), classes)
        return opened

    def _tick(self, key: str, opened: KeyBuffer, time: float | None, out: JoinResult) -> None:
        """Count a record of the key, of that event time, and let go of what has become too old."""
        limits, pending = self.limits, opened.pending
        opened.clock += 1
        if limits.max_age_records is not None:
            while pending:
                ident = next(iter(pending))
                if opened.clock - pending[ident].clock <= limits.max_age_records:
                    break
                self._let_go(key, opened, ident, "max_age_records", out)
        if limits.max_age is None or time is None or (opened.latest is not None and time <= opened.latest):
            return
        opened.latest = time
        for ident in opened.aged(time, limits.max_age):
            self._let_go(key, opened, ident, "max_age", out)

    def _let_go(self, key: str, opened: KeyBuffer, ident: str, reason: str, out: JoinResult) -> None:
        parts = opened.pending.pop(ident).parts
        self.expired += [Expired(key, ident, part, reason) for part in parts]
        out.pending -= len(parts)
        out.expired += len(parts)

    # -- one record ------------------------------------------------------------------------------------

    def _take(self, place: _Place, record: Record, rows: Rows) -> None:
        i, key, number, opened, time = place
        out, ident = rows.result, str(record.id)
        digest = _digest(ident)
        was = opened.finished(digest)
        if was is not None:
            self._repeated(was, place, record, rows)
            return
        pending = opened.pending.get(ident)
        if pending is None:
            self._begin(place, ident, digest, record, rows)
            return
        before = self._come(pending)
        try:
            merged = self._merge(before, record)
        except RecordError as fault:
            rows.reject(key, rows.part(i), fault)
            return
        if merged is None:
            out.duplicates += 1
            out.kept.append(i)
            return
        was_whole, whole = is_whole(before, self._views), is_whole(merged, self._views)
        if was_whole and pending.score is None and pending.row is None:
            raise StateFormatError(f"a pending example of key {key!r:.80} has its features, but no score")
        pending.record = merged
        if whole and merged.label is not None:
            del opened.pending[ident]
            out.pending -= len(pending.parts)
            more = More(merged, pending.parts, pending, given=was_whole)
            if rows.add(i, key, number, rows.accepted.labels.code(merged.label), more) is not None:
                self._finish(opened, digest, merged.label)
            return
        self._wait(opened, ident, pending, time, rows.part(i), out)
        out.kept.append(i)
        if whole and not was_whole:
            pending.row = rows.add(i, key, number, -1, More(merged, pending=pending))

    def _begin(self, place: _Place, ident: str, digest: int, record: Record, rows: Rows) -> None:
        """Take in the first record of an example."""
        i, key, number, opened, time = place
        out, whole = rows.result, is_whole(record, self._views)
        if record.label is not None and whole:
            if rows.add(i, key, number, rows.accepted.labels.code(record.label)) is not None:
                self._finish(opened, digest, record.label)
            return
        pending = opened.pending[ident] = Pending([], opened.clock, record=record)
        self._wait(opened, ident, pending, time, rows.part(i), out)
        out.kept.append(i)
        if whole:
            pending.row = rows.add(i, key, number, -1, More(pending=pending))
        if len(opened.pending) > self.limits.max_pending:
            self._let_go(key, opened, next(iter(opened.pending)), "max_pending", out)

    def _finish(self, opened: KeyBuffer, digest: int, label: LabelValue) -> None:
        """Remember a finished id; one whose label was refused is not: what was rejected may come again, corrected."""
        opened.finish(digest, self._name(label), self.limits.remember_ids)

    @staticmethod
    def _wait(opened: KeyBuffer, ident: str, pending: Pending, time: float | None, part: Part, out: JoinResult) -> None:
        pending.parts.append(part)
        opened.wait(ident, time)
        out.pending += 1

    def _repeated(self, was: str, place: _Place, record: Record, rows: Rows) -> None:
        """Judge a record whose id is finished, with the label ``was``."""
        name = None if record.label is None else self._name(record.label)
        if name is None or name == was or (name == "0" and was == "-1"):  # as an older version has remembered it
            rows.result.duplicates += 1
            rows.result.kept.append(place.i)
            return
        detail = f"id {str(record.id)!r:.80} was learned with label {was!r:.80}, this record says {record.label!r:.80}"
        rows.reject(place.key, rows.part(place.i), RecordError("conflict", detail))

    def _come(self, pending: Pending) -> Record:
        """Return all that has come of an example."""
        if pending.record is None:
            merged = Record()
            try:
                for part in pending.parts:
                    record = decode_value(part.value, format_of(part.topic, self._forms))
                    merged = self._merge(merged, record) or merged
            except RecordError as error:
                raise StateFormatError(f"a pending fragment is not a record: {error}") from None
            pending.record = merged
        return pending.record

    def _merge(self, have: Record, new: Record) -> Record | None:
        """Return both together, None if ``new`` brings nothing new; raises where they contradict each other."""
        label, features, views, weight = have.label, have.features, have.views, have.weight
        brings = False
        if new.label is not None:
            if label is None:
                label, brings = new.label, True
            elif self._name(label) != self._name(new.label):
                raise _conflict(new, f"the label was {label!r:.80}, this record says {new.label!r:.80}")
        if new.features is not None:
            if features is None:
                features, brings = new.features, True
            elif features != new.features:
                raise _conflict(new, "its features have come already, and were others")
        for name, part in (new.views or {}).items():
            if views is None or name not in views:
                views, brings = {**(views or {}), name: part}, True
            elif views[name] != part:
                raise _conflict(new, f"its view {name!r:.80} has come already, and was another")
        size = sum(map(len, views.values())) if views else 0
        most = self.models.max_features
        if size > most:
            detail = f"the example has {size} features, at most {most} are allowed (state.max_features)"
            raise RecordError("too_many_features", detail)
        weight = new.weight if weight is None else weight
        return Record(label, features, views, new.id, weight, new.time) if brings else None


def is_whole(record: Record, views: Sequence[str]) -> bool:
    """Whether a record has all features of its example: those of every view, where there are views."""
    if not views:
        return record.features is not None
    return record.views is not None and len(record.views) == len(views)


def _namer(settings: Settings) -> Callable[[LabelValue], str]:
    """Return what tells the labels of a task apart: their text, of numbers and booleans of the same value the same."""
    if settings.signed:
        return lambda label: label_text(int(label) if isinstance(label, bool) else label)
    return label_text


def _conflict(record: Record, detail: str) -> RecordError:
    return RecordError("conflict", f"id {str(record.id)!r:.80}: {detail}")


def _digest(ident: str) -> int:
    return int.from_bytes(blake2b(ident.encode(), digest_size=8).digest(), "little", signed=True)
