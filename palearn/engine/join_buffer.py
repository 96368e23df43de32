"""A key's join buffer: pending fragments, and the ids of finished examples.

A buffer is opened when a record of its key comes, and its bytes (msgpack) lie in the key's state.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator

import msgspec
import numpy as np

from palearn.errors import StateFormatError
from palearn.records import Record


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record as it came, with its offset; a tombstone, or a line that no reader could read, has no value."""

    value: bytes | None
    topic: str
    partition: int
    offset: int


class Score(msgspec.Struct, array_like=True, gc=False):
    """What every learner predicted when the features were whole, and what labels the key knew then."""

    known: int
    predicted: list[int]
    score: list[float]


class Pending(msgspec.Struct, array_like=True):
    """An example that is not finished.

    ``clock`` is the key's count of records at its first part, ``time`` its earliest event time. ``record``, all that
    has come, and ``row``, where it is being scored just now, are not stored.
    """

    parts: list[Part]
    clock: int
    time: float | None = None
    score: Score | None = None
    record: Record | None = None
    row: int | None = None


class Stored(msgspec.Struct, array_like=True):
    """What a key waits for, oldest first, and what it remembers, as it is stored.

    ``ids`` are 64-bit digests of finished ids, oldest first (int64), ``labels`` their labels: places in ``names``
    (int32).
    """

    clock: int = 0
    latest: float | None = None
    pending: dict[str, Pending] = {}
    ids: bytes = b""
    labels: bytes = b""
    names: list[str] = []


class KeyBuffer:
    """A key's join buffer while a batch is learned.

    Finished ids of earlier batches stay as they are stored: to make a mapping of ten thousand costs more than to
    search them.

    Parameters
    ----------
    stored
        Bytes of :meth:`to_bytes`, b"" for a new buffer.
    learners, classes
        How many learners there are, and classes of the key.

    Raises
    ------
    StateFormatError
        The bytes are no join buffer.
    """

    def __init__(self, stored: bytes, learners: int, classes: int) -> None:
        kept = _read(stored, learners, classes) if stored else Stored()
        self._stored, self.pending = kept, OrderedDict(kept.pending)
        #: The key's records since the buffer was made, and the latest event time that it has seen.
        self.clock, self.latest = kept.clock, kept.latest
        # Event time and id of pending examples, as a heap; an entry may be stale.
        self._times = [(w.time, ident) for ident, w in kept.pending.items() if w.time is not None]
        heapq.heapify(self._times)
        self._ids, self._labels = np.frombuffer(kept.ids, np.int64), np.frombuffer(kept.labels, np.int32)
        self._first = 0  # the ids before it are forgotten
        self._new: OrderedDict[int, str] = OrderedDict()

    def finished(self, digest: int) -> str | None:
        """Return the label of a finished id, None if it is not remembered."""
        label = self._new.get(digest)
        if label is None:
            hits = np.flatnonzero(self._ids[self._first :] == digest)
            label = self._stored.names[self._labels[self._first + hits[0]]] if hits.size else None
        return label

    def finish(self, digest: int, label: str, most: int) -> None:
        """Remember a finished id, and forget the oldest where that makes more than ``most``."""
        self._new[digest] = label
        if self._ids.size - self._first + len(self._new) > most:
            if self._first < self._ids.size:
                self._first += 1
            else:
                self._new.popitem(last=False)

    def wait(self, ident: str, time: float | None) -> None:
        """Note the event time of a pending fragment."""
        pending = self.pending[ident]
        if time is not None and (pending.time is None or time < pending.time):
            pending.time = time
            heapq.heappush(self._times, (time, ident))

    def aged(self, time: float, most: float) -> Iterator[str]:
        """Yield the ids of examples pending since more than ``most`` before ``time``, oldest first."""
        while self._times and time - self._times[0][0] > most:
            begun, ident = heapq.heappop(self._times)
            if ident in self.pending and self.pending[ident].time == begun:
                yield ident

    def to_bytes(self) -> bytes:
        """Return the buffer's bytes. An empty one stays: its counts go on."""
        for pending in self.pending.values():
            pending.record = pending.row = None
        labels = [self._stored.names[i] for i in self._labels[self._first :].tolist()] + list(self._new.values())
        number = {name: i for i, name in enumerate(dict.fromkeys(labels))}
        ids = self._ids[self._first :].tobytes() + np.fromiter(self._new, np.int64, len(self._new)).tobytes()
        places = np.fromiter(map(number.__getitem__, labels), np.int32, len(labels)).tobytes()
        return _encode(Stored(self.clock, self.latest, dict(self.pending), ids, places, list(number)))


_decode = msgspec.msgpack.Decoder(Stored).decode
_encode = msgspec.msgpack.Encoder().encode


def _read(stored: bytes, learners: int, classes: int) -> Stored:
    """Return a key's buffer; the key has so many classes."""
    try:
        kept = _decode(stored)
        if len(kept.ids) != 2 * len(kept.labels):
            raise ValueError("ids and labels are not of one length")
        labels = np.frombuffer(kept.labels, np.int32)
        if labels.size and not 0 <= labels.min() <= labels.max() < len(kept.names):
            raise ValueError("an id's label is unknown")
        for pending in kept.pending.values():
            _check(pending, learners, classes)
        return kept
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateFormatError(
            f"a key's pending fragments are not what its checksum promises: {error!r:.300}"
        ) from None


def _check(pending: Pending, learners: int, classes: int) -> None:
    """Raise ValueError where an example cannot be used: kernels do not look at their indices."""
    if not pending.parts or pending.record is not None or pending.row is not None:
        raise ValueError("an example without fragments")
    if any(not 0 <= part.partition < 2**31 or not -(2**63) <= part.offset < 2**63 for part in pending.parts):
        raise ValueError("a fragment without an offset")
    score = pending.score
    if score is not None and not (
        len(score.predicted) == len(score.score) == learners
        and all(-1 <= x < classes for x in score.predicted)
        and 0 <= score.known <= max(3, classes)
    ):
        raise ValueError("a score that no learner gave")
