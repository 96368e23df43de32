"""An output's metrics and batches in one pass, batch by batch; it goes on where it stopped.

The report and ``palearn watch`` stand on this: what they need of old batches is kept as sums, and of each key and
learner its newest row.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palearn.models.counters import certain_error
from palearn.tables import reading, schemas
from palearn.tables.store import Store
from palearn.types import FloatArray, IntArray

#: What is kept of the newest row of each key and learner; ``wrong`` are the mistakes of predicting no change.
FIGURES = (
    "n", "mistakes", "wrong", "updates", "window_n", "window_mistakes", "kappa", "view_difference",
    "faded_view_difference",
)  # fmt: skip
_N, _MISTAKES, _WRONG, _UPDATES, _WINDOW_N, _WINDOW_MISTAKES, *_ = range(len(FIGURES))
_COUNTS = [_N, _MISTAKES, _WRONG, _UPDATES]
_READ = (
    "key", "learner", "n", "mistakes", "updates", "window_n", "window_error", "baseline_error", "kappa",
    "view_difference", "faded_view_difference",
)  # fmt: skip
#: Whether drift was seen in the batch; outputs of jobs that do not look for it have no such column.
_DRIFT = pa.field("drift", pa.bool_())
METRICS = pa.schema([*(schemas.METRICS.field(name) for name in _READ), _DRIFT])
_DRIFTS = pa.schema([schemas.DRIFTS.field("learner")])
_ACCOUNTS = pa.schema([x for x in schemas.BATCHES if x.name != "offsets"])
#: So many of the newest drift events are kept whole.
KEPT_DRIFTS = 50


@dataclass
class Sums:
    """A learner's counts over some batches.

    ``n`` and ``mistakes`` are over all keys. The others are of the keys' own rows, whose labelled records are ``seen``;
    ``difference`` is a sum over these records.
    """

    n: int = 0
    mistakes: int = 0
    seen: int = 0
    wrong: int = 0
    updates: int = 0
    difference: float = 0.0
    drifts: int = 0

    def add(self, other: "Sums") -> None:
        """Add other batches."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Batch:
    """A batch, or several that follow each other; ``number`` is the last one's."""

    number: int
    account: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    learners: dict[str, Sums] = field(default_factory=dict)

    def add(self, other: "Batch") -> None:
        """Add a later batch."""
        self.number = other.number
        self.account.update(other.account)
        self.reasons.update(other.reasons)
        for name, sums in other.learners.items():
            self.learners.setdefault(name, Sums()).add(sums)


#: A step that is drawn has at least this share of the labelled records of the largest.
_LEAST_SHARE = 0.05


def pooled(steps: Sequence[Batch], learner: str) -> list[Batch]:
    """Return steps of which no one is small: a batch of four records must not look like a change of the error.

    Small ones are added to the next, at the end to the one before.
    """
    sizes = [step.learners[learner].n if learner in step.learners else 0 for step in steps]
    least, out, whole = _LEAST_SHARE * max(sizes, default=0), list[Batch](), True
    size = 0
    for step, n in zip(steps, sizes, strict=True):
        if whole:
            out.append(Batch(step.number))
            size = 0
        out[-1].add(step)
        size += n
        whole = size >= least
    if not whole and len(out) > 1:
        out[-2].add(out.pop())
    return out


class Drift(NamedTuple):
    """Drift was seen in a key's records of a batch, when so many labelled ones had been learned."""

    batch: int
    key: str
    learner: str
    n: int


class History:
    """What an output's tables say so far.

    Parameters
    ----------
    path
        Output folder of a job; it need not be there yet.

    Attributes
    ----------
    batches
        Every batch, in their order.
    total
        All of them as one.
    keys
        Key -> its place in ``newest``.
    newest
        Learner -> its newest :data:`FIGURES` of each key, a row a key; NaN where there are none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.tables = str(path), reading.Tables(path)
        self._clear()

    def _clear(self) -> None:
        self.batches: list[Batch] = []
        self.total = Batch(-1)
        self.keys: dict[str, int] = {}
        self.drifts: deque[Drift] = deque(maxlen=KEPT_DRIFTS)
        self.looks_for_drift = False
        self._newest: dict[str, FloatArray] = {}

    @property
    def learners(self) -> list[str]:
        """The learners, in the order of the configuration."""
        return list(self._newest)

    @property
    def newest(self) -> dict[str, FloatArray]:
        """The newest figures of each learner, a row a key."""
        return {name: _grown(held, len(self.keys))[: len(self.keys)] for name, held in self._newest.items()}

    @property
    def best(self) -> str:
        """The learner with the fewest mistakes over all keys; all score the same records."""
        return min(self.learners, key=lambda name: self.total.learners[name].mistakes)

    def read(self) -> int:
        """Read the whole batches that are new; return how many there were. One that was started over is read again."""
        self.tables.forget()
        places = {name: self.tables.batches(name) for name in ("metrics", "batches", "drifts")}
        # A batch's tables come one after the other; when all are there is written down. A copy may be without that.
        last = self.tables.last_batch()
        if last is None and not any(self.tables.has(name) for name in ("_palearn", "_staging")):
            last = max((number for numbers in places.values() for number in numbers), default=None)
        last = -1 if last is None else last
        done = self.batches[-1].number if self.batches else -1
        if last < done:
            self._clear()
            done = -1
        new = sorted({n for numbers in places.values() for n in numbers if done < n <= last})
        accounted, measured, drifted = (set(places[name]) for name in ("batches", "metrics", "drifts"))
        for number in new:
            batch = Batch(number)
            if number in accounted:
                self._account(batch)
            if number in measured:
                self._measure(batch)
            if number in drifted:
                self._count_drifts(batch)
            self.batches.append(batch)
            self.total.add(batch)
        return len(new)

    def times(self, most: int) -> list[tuple[Batch, float | None]]:
        """Return the newest batches, and how many seconds each took; None where that is not written down (any more)."""
        store = Store(self.path)
        return [(batch, store.seconds(batch.number)) for batch in self.batches[-most:]]

    def binned(self, most: int) -> list[Batch]:
        """Return the batches as at most ``most``, each of as many that follow each other."""
        size = -(-len(self.batches) // most)
        out = []
        for i, batch in enumerate(self.batches):
            if i % size == 0:
                out.append(Batch(batch.number))
            out[-1].add(batch)
        return out

    def _account(self, batch: Batch) -> None:
        for row in self.tables.columns("batches", _ACCOUNTS, batch=batch.number).to_pylist():
            batch.reasons.update(dict(row.pop("reasons") or ()))
            batch.account.update({name: value or 0 for name, value in row.items()})

    def _measure(self, batch: Batch) -> None:
        rows = self.tables.columns("metrics", METRICS, batch=batch.number)
        single = rows["key"].is_valid()
        for row in rows.filter(pc.invert(single)).select(["learner", "n", "mistakes"]).to_pylist():
            # Less what came before, as with the keys' own rows: the table may not have been written for a while.
            had = self.total.learners.get(row["learner"], Sums())
            batch.learners[row["learner"]] = Sums(row["n"] - had.n, row["mistakes"] - had.mistakes)
            self._newest.setdefault(row["learner"], np.empty((0, len(FIGURES))))
        rows = rows.filter(single)
        for name in rows["learner"].unique().to_pylist():
            self._follow(batch, name, rows.filter(pc.equal(rows["learner"], name)))

    def _count_drifts(self, batch: Batch) -> None:
        """Count drifts by the table that has each: the metrics of a key say only whether a batch had any."""
        rows = self.tables.columns("drifts", _DRIFTS, batch=batch.number)
        for counted in rows["learner"].value_counts().to_pylist():
            batch.learners.setdefault(counted["values"], Sums()).drifts = counted["counts"]

    def _follow(self, batch: Batch, name: str, rows: pa.Table) -> None:
        """Add what a learner's keys have more than before, and keep their rows as the newest."""
        keys: list[str] = rows["key"].to_pylist()
        for key in keys:
            self.keys.setdefault(key, len(self.keys))
        at = np.fromiter(map(self.keys.__getitem__, keys), np.int64, len(keys))
        held = self._newest[name] = _grown(self._newest.get(name, np.empty((0, len(FIGURES)))), len(self.keys))
        new, old = figures(rows), np.nan_to_num(held[at])
        held[at] = new
        # A key that had left, to make room for others, begins at 0 again: one of its counts tells, or nothing does.
        reset = np.any(new[:, _COUNTS] < old[:, _COUNTS], axis=1, keepdims=True)
        more = np.where(reset, new, new - old)
        n, difference = more[:, _N], new[:, FIGURES.index("faded_view_difference")]
        sums = batch.learners.setdefault(name, Sums())
        sums.seen, sums.wrong, sums.updates = (int(x) for x in more[:, [_N, _WRONG, _UPDATES]].sum(0))
        sums.difference = float(np.nansum(n * difference))
        drift = rows["drift"].combine_chunks()
        if drift.null_count < len(drift):
            self.looks_for_drift = True
            seen = np.flatnonzero(drift.fill_null(False).to_numpy(zero_copy_only=False))
            sums.drifts = seen.size
            self.drifts += [Drift(batch.number, keys[i], name, int(new[i, _N])) for i in seen.tolist()]


def figures(rows: pa.Table) -> FloatArray:
    """Return :data:`FIGURES` of metrics rows, a row each; NaN for null."""
    read = {name: rows[name].to_numpy().astype(np.float64) for name in METRICS.names if name in (*FIGURES, *_SHARES)}
    for count, (share, whole) in _PARTS.items():
        read[count] = np.rint(np.nan_to_num(read[share] * read[whole]))
    return np.column_stack([read[name] for name in FIGURES])


#: Counts that the table has as shares of another count.
_PARTS = {"wrong": ("baseline_error", "n"), "window_mistakes": ("window_error", "window_n")}
_SHARES = [share for share, _ in _PARTS.values()]


def _grown(held: FloatArray, rows: int) -> FloatArray:
    """Return an array of at least so many rows; those that are added are NaN."""
    if len(held) >= rows:
        return held
    return np.concatenate([held, np.full((max(rows, 2 * len(held)) - len(held), held.shape[1]), np.nan)])


def error(rows: FloatArray, mistakes: str = "mistakes") -> FloatArray:
    """Return the error of rows of :data:`FIGURES`, or that of predicting no change (``wrong``)."""
    shares: FloatArray = ratio(rows[:, FIGURES.index(mistakes)], rows[:, _N])
    return shares


def window_error(rows: FloatArray) -> float:
    """Return the error over the last records of all keys together."""
    return float(ratio(np.nansum(rows[:, _WINDOW_MISTAKES]), np.nansum(rows[:, _WINDOW_N])))


def ratio(part: Any, whole: Any) -> Any:
    """Return part / whole, NaN where whole is 0."""
    whole = np.asarray(whole, np.float64)
    return np.asarray(part, np.float64) / np.where(whole == 0, np.nan, whole)


def worst(rows: FloatArray, most: int, *, now: bool = False) -> IntArray:
    """Return the places of the keys with the largest errors for certain, worst first (:func:`certain_error`).

    Keys are judged by all their records; ``now``: by the last ones, those of their window.
    """
    counts = (_WINDOW_N, _WINDOW_MISTAKES) if now else (_N, _MISTAKES)
    n, mistakes = (np.nan_to_num(rows[:, column]) for column in counts)
    places = np.argsort(-certain_error(mistakes, n), kind="stable")
    return places[n[places] > 0][:most]


def of_keys(tables: reading.Tables, keys: Sequence[str]) -> dict[str, pa.Table]:
    """Return all metrics rows of some keys, each in the order of the batches."""
    schema = METRICS.append(pa.field("batch_id", pa.int64()))
    theirs = pc.field("key").isin(pa.array(keys, pa.string()))
    rows = tables.columns("metrics", schema, where=theirs).sort_by("batch_id")
    return {key: rows.filter(pc.equal(rows["key"], key)) for key in keys}
