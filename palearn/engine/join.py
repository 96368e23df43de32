"""Join the fragments of an example: views from several topics, delayed labels; recognise repeated records.

Records of one key with the same ``id`` are fragments of one example. An example is scored as soon as its features are
whole, by the model of that moment, and learned when its label is there too. Pending fragments are bounded by the key's
own records and event times, never by a clock, so a replay drops the same fragments.

A key's :class:`palearn.engine.join_buffer.KeyBuffer` holds the fragments as they came.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

from palearn.engine.join_buffer import KeyBuffer, Part, Pending
from palearn.errors import RecordError, StateFormatError
from palearn.models.keyed import Models
from palearn.models.state import Settings
from palearn.records import Label, LabelValue, Record, event_time, label_text

Count = Annotated[int, Meta(ge=1)]


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


class More(msgspec.Struct, gc=False):
    """What is to know of a row that is not one record with features and label.

    Parameters
    ----------
    record
        The features and the label, if they came in more than one record.
    parts
        The other records of the example, where the row finishes it.
    pending
        The example, where features and label come apart.
    given
        Whether the row has the label and its score is the one that the example had; else the row scores it.
    """

    record: Record | None = None
    parts: Sequence[Part] = ()
    pending: Pending | None = None
    given: bool = False


@dataclass
class Expired:
    """A fragment that is dropped unlearned, and the limit that it exceeded."""

    key: str
    id: str
    part: Part
    reason: str


@dataclass
class JoinResult:
    """The result of joining a run of accepted records.

    Parameters
    ----------
    at, labels
        The examples to score or learn, in order: the accepted record that completes each, and its label.
    more
        Row -> what else is to know of it.
    rejected
        Records that contradict what is known of their id.
    kept
        Records that are no row and yet accepted: they are pending now, or duplicates.
    duplicates, pending, expired
        How many; ``pending`` is the change in the number of pending fragments.
    """

    at: list[int]
    labels: list[Label]
    more: dict[int, More] = field(default_factory=dict)
    rejected: list[tuple[int, RecordError]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    duplicates: int = 0
    pending: int = 0
    expired: int = 0

    def add(self, at: int, label: Label, more: More | None = None) -> int:
        """Add a row; return its number."""
        self.at.append(at)
        self.labels.append(label)
        if more is not None:
            self.more[len(self.at) - 1] = more
        return len(self.at) - 1


class Join:
    """The join buffers of a bucket's keys.

    Parameters
    ----------
    models
        The models of the same keys; their ``join_buffers`` hold the bytes.
    limits
        Of every key.
    decode
        Returns the record of a part.
    """

    def __init__(self, models: Models, limits: Limits, decode: Callable[[Part], Record]) -> None:
        self.models, self.limits, self.expired = models, limits, list[Expired]()
        self._views, self._name = models.settings.views, _namer(models.settings)
        self._decode = decode
        self._open: dict[str, KeyBuffer] = {}
        self._known: dict[str, set[str]] = {}

    def take(
        self, run: list[int], keys: Sequence[str], records: Sequence[Record], part: Callable[[int], Part]
    ) -> JoinResult:
        """Take in accepted records in their order; return the examples to score or learn.

        Parameters
        ----------
        run
            The records' places in ``keys`` and ``records``.
        part
            Returns the record at a place as it came.
        """
        labels = [records[i].label for i in run]
        idle = not self._open and self.limits.max_age is None and not any(self.models.join_buffers)
        if idle and all(records[i].id is None for i in run):
            return JoinResult(run, labels)
        out = JoinResult([], [])
        self._known = {}
        for i, label in zip(run, labels, strict=True):
            key, record = keys[i], records[i]
            try:
                time = None if self.limits.max_age is None else event_time(record)
            except RecordError as fault:
                out.rejected.append((i, fault))
                continue
            opened = self._buffer(key, make=record.id is not None)
            if opened is not None:
                self._tick(key, opened, time, out)
            if opened is None or record.id is None:
                self._fits(key, label)
                out.add(i, label)
            else:
                self._take(key, opened, i, record, time, part, out)
        return out

    def leave(self, keys: Iterable[str]) -> int:
        """Drop the join buffers of keys that leave the bucket; return how many fragments were pending there."""
        out = JoinResult([], [])
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

    def _take(
        self,
        key: str,
        opened: KeyBuffer,
        i: int,
        record: Record,
        time: float | None,
        part: Callable[[int], Part],
        out: JoinResult,
    ) -> None:
        ident = str(record.id)
        digest = _digest(ident)
        was = opened.finished(digest)
        if was is not None:
            self._repeated(was, i, record, out)
            return
        pending = opened.pending.get(ident)
        if pending is None:
            if record.label is not None and is_whole(record, self._views):
                self._finish(key, opened, digest, record.label)
                out.add(i, record.label)
                return
            pending = opened.pending[ident] = Pending([], opened.clock, record=record)
            self._wait(opened, ident, pending, time, part(i), out)
            out.kept.append(i)
            if is_whole(record, self._views):
                pending.row = out.add(i, None, More(pending=pending))
            if len(opened.pending) > self.limits.max_pending:
                self._let_go(key, opened, next(iter(opened.pending)), "max_pending", out)
            return
        before = self._come(pending)
        try:
            merged = self._merge(before, record)
        except RecordError as fault:
            out.rejected.append((i, fault))
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
            self._finish(key, opened, digest, merged.label)
            out.pending -= len(pending.parts)
            out.add(i, merged.label, More(merged, pending.parts, pending, given=was_whole))
            return
        self._wait(opened, ident, pending, time, part(i), out)
        out.kept.append(i)
        if whole and not was_whole:
            pending.row = out.add(i, None, More(merged, pending=pending))

    def _finish(self, key: str, opened: KeyBuffer, digest: int, label: LabelValue) -> None:
        """Remember a finished id, unless its label will be refused: what was rejected may come again, corrected."""
        if self._fits(key, label):
            opened.finish(digest, self._name(label), self.limits.remember_ids)

    def _fits(self, key: str, label: Label) -> bool:
        """Whether the key may have the label of its next row, as :func:`palearn.models.labels.classify` will judge."""
        settings, index = self.models.settings, self.models.index
        binary = settings.task == "binary"
        if label is None or (binary and settings.positive is None):
            return True
        if key not in self._known:
            self._known[key] = {label_text(x) for x in self.models.labels[index[key]] if x is not None}
        known, text = self._known[key], label_text(label)
        if text not in known and len(known) >= (2 if binary else self.models.max_labels):
            return False
        known.add(text)
        return True

    @staticmethod
    def _wait(opened: KeyBuffer, ident: str, pending: Pending, time: float | None, part: Part, out: JoinResult) -> None:
        pending.parts.append(part)
        opened.wait(ident, time)
        out.pending += 1

    def _repeated(self, was: str, i: int, record: Record, out: JoinResult) -> None:
        """Judge a record whose id is finished, with the label ``was``."""
        if record.label is None or self._name(record.label) == was:
            out.duplicates += 1
            out.kept.append(i)
            return
        detail = f"id {str(record.id)!r:.80} was learned with label {was!r:.80}, this record says {record.label!r:.80}"
        out.rejected.append((i, RecordError("conflict", detail)))

    def _come(self, pending: Pending) -> Record:
        """Return all that has come of an example."""
        if pending.record is None:
            merged = Record()
            try:
                for part in pending.parts:
                    merged = self._merge(merged, self._decode(part)) or merged
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
    """Return what tells the labels of a task apart: their text, or the side that a number is on."""
    if settings.task == "binary" and settings.positive is None:
        return lambda label: "1" if not isinstance(label, str) and label > 0 else "-1"
    return label_text


def _conflict(record: Record, detail: str) -> RecordError:
    return RecordError("conflict", f"id {str(record.id)!r:.80}: {detail}")


def _digest(ident: str) -> int:
    return int.from_bytes(blake2b(ident.encode(), digest_size=8).digest(), "little", signed=True)
