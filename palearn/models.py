"""The models of many keys over one vocabulary of feature names, as flat arrays that kernels change in place."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numba import njit

from palearn import labels as label_rules
from palearn import metrics
from palearn.errors import LearnerError
from palearn.examples import Flat, Vocabulary, assign, learnable, select
from palearn.learners import Learner, Outcome, Rows, adapt, empty_outcome, grown, layout_of, pointers, without_features
from palearn.records import LabelValue
from palearn.types import BoolArray, ByteArray, FloatArray, Int32Array, IntArray

#: A learner's number, the row at which it told of a drift, and how many labelled examples came since the one before.
Drift: TypeAlias = tuple[int, int, int]
#: The last five fields of :class:`Rows`, the same for every selection of features.
_Tail: TypeAlias = tuple[IntArray, IntArray, IntArray, BoolArray, FloatArray]


@dataclass(frozen=True)
class Settings:
    """What all models of a stream share.

    Parameters
    ----------
    task
        ``binary`` or ``multiclass``.
    positive
        The positive class's label; None: numbers > 0 and true are positive.
    bias
        Whether every example has a constant feature 1 (one more a view where there are views).
    views
        Names of the views, or ().
    window, fading
        Of the rolling and the faded error.
    max_features
        Most features a key keeps; the least useful leave. None: nothing leaves, and a learner with a full
        covariance raises where it would have to.
    """

    task: str = "binary"
    positive: LabelValue | None = None
    bias: bool = True
    views: tuple[str, ...] = ()
    window: int = 1000
    fading: float = 0.999
    max_features: int | None = 10_000


@dataclass
class Earlier:
    """Rows that were scored before their label came, and count with the score they had.

    ``origin`` is the row of the same examples that scored it, or -1: then ``predicted`` and ``score`` (learners x
    rows) hold it. ``known`` is what labels the key knew at that time (:func:`palearn.labels.classify`).
    """

    row: IntArray
    origin: IntArray
    predicted: IntArray
    score: FloatArray
    known: IntArray


@dataclass
class Examples:
    """Checked examples, grouped by key and in order within each; see :class:`palearn.learners.Rows`."""

    flat: Flat
    key: IntArray
    y: IntArray
    known: IntArray
    weight: FloatArray
    earlier: Earlier | None = None


@dataclass
class LearnerState:
    """One learner's arrays over all keys, and its counts (columns: :mod:`palearn.metrics`)."""

    arrays: dict[str, FloatArray]
    counts: IntArray = field(default_factory=lambda: np.zeros((0, len(metrics.LEARNER_COUNTS)), np.int64))
    sums: FloatArray = field(default_factory=lambda: np.zeros((0, len(metrics.LEARNER_SUMS))))
    hits: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    predictions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    ring: ByteArray = field(default_factory=lambda: np.zeros(0, np.uint8))


class Models:
    """The models of many keys: one a key and learner.

    Keys, labels and features are numbered in the order of their first appearance in a key's own records, so
    nothing here depends on which keys share the arrays or on where one batch ends.
    """

    def __init__(self, settings: Settings, learners: Sequence[Learner]) -> None:
        self.settings = settings
        self.learners = tuple(learners)
        self.vocabulary = Vocabulary(settings.views, bias=settings.bias)
        limits = [most for learner in learners if (most := learner.max_features) is not None]
        if settings.max_features is not None:
            limits.append(settings.max_features)
        #: Most classes of a key.
        self.max_labels = min([most for x in learners if (most := x.max_classes)], default=label_rules.MAX_LABELS)
        #: Most features of a key, and so of a record; the biases come on top.
        self.max_features = min(limits, default=2**31 - 1 - self.vocabulary.biases)
        self.limit = self.max_features + self.vocabulary.biases
        self.keys: list[str] = []
        self.index: dict[str, int] = {}
        self.topics: list[str] = []
        self.labels: list[label_rules.Known] = []
        #: What each key waits for and remembers: bytes of :mod:`palearn.rooms`.
        self.rooms: list[bytes] = []
        self.counts: IntArray = np.zeros((0, len(metrics.KEY_COUNTS)), np.int64)
        self.feature_ptr: IntArray = np.zeros(1, np.int64)
        self.feature: Int32Array = np.zeros(0, np.int32)
        self.class_ptr: IntArray = np.zeros(1, np.int64)
        self.label_counts: IntArray = np.zeros(0, np.int64)
        self.ring_ptr: IntArray = np.zeros(1, np.int64)
        self.layout = layout_of(np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.states = [LearnerState({a.name: np.zeros(0) for a in x.arrays}) for x in learners]
        self.clock = 0  # records taken in so far; a key's last_seen is a reading of it
        self.features_evicted = 0
        #: How many drifts each learner has told of, over all keys, since this was made.
        self.drifts: IntArray = np.zeros(len(learners), np.int64)

    # -- keys ------------------------------------------------------------------------------------------

    def add_keys(self, names: Iterable[str]) -> None:
        """Add new keys, with no features but the biases."""
        task, positive = self.settings.task, self.settings.positive
        biases = np.arange(self.vocabulary.biases, dtype=np.int32)
        before = len(self.keys)
        for name in names:
            self.index[name] = len(self.keys)
            self.keys.append(name)
            self.topics.append("")
            self.labels.append(label_rules.start(task, positive))
            self.rooms.append(b"")
        new = len(self.keys) - before
        if new:
            runs = self.feature_ptr[-1] + biases.size * np.arange(1, new + 1)
            self.feature_ptr = np.concatenate([self.feature_ptr, runs])
            self.feature = np.concatenate([self.feature, np.tile(biases, new)])

    def of_keys(self, keep: IntArray) -> "Models":
        """Return the models of these keys alone (their numbers, ascending)."""
        out = copy(self)
        out.states = [copy(state) for state in self.states]
        for state in out.states:
            state.arrays = dict(state.arrays)
        out.keep_keys(keep)
        return out

    def keep_keys(self, keep: IntArray) -> None:
        """Forget all keys but these (their numbers, ascending)."""
        old, features = self.layout, np.diff(self.feature_ptr)[keep]
        new = layout_of(features, old.blocks[keep])
        for learner, state in zip(self.learners, self.states, strict=True):
            for spec in learner.arrays:
                state.arrays[spec.name] = _take(state.arrays[spec.name], spec.runs(old), keep, spec.runs(new))
            state.counts, state.sums = state.counts[keep], state.sums[keep]
        class_ptr, ring_ptr = (
            pointers(np.diff(self.class_ptr)[keep]),
            pointers(np.diff(self.ring_ptr)[keep]),
        )
        for state in self.states:
            state.hits = _take(state.hits, self.class_ptr, keep, class_ptr)
            state.predictions = _take(state.predictions, self.class_ptr, keep, class_ptr)
            state.ring = _take(state.ring, self.ring_ptr, keep, ring_ptr)
        self.label_counts = _take(self.label_counts, self.class_ptr, keep, class_ptr)
        feature_ptr = pointers(features)
        self.feature = _take(self.feature, self.feature_ptr, keep, feature_ptr)
        self.feature_ptr, self.class_ptr, self.ring_ptr, self.layout = feature_ptr, class_ptr, ring_ptr, new
        self.counts = self.counts[keep]
        numbers = keep.tolist()
        self.keys = [self.keys[k] for k in numbers]
        self.topics = [self.topics[k] for k in numbers]
        self.labels = [self.labels[k] for k in numbers]
        self.rooms = [self.rooms[k] for k in numbers]
        self.index = {name: k for k, name in enumerate(self.keys)}

    # -- learning --------------------------------------------------------------------------------------

    def learn(self, examples: Examples) -> tuple[list[Outcome], BoolArray, list[Drift]]:
        """Score, learn and count examples.

        Returns
        -------
        outcomes : what happened, a row an example, for each learner
        learned : whether each example was shown to the learners with its label; not so where it has no label,
            no features, or a norm that is no positive finite number
        drifts : where learners told of one

        Raises
        ------
        LearnerError
            A full covariance would have to hold more features than it may, and ``max_features`` is None.
        """
        flat, n = examples.flat, examples.key.size
        outcomes = [empty_outcome(n) for _ in self.learners]
        learn = learnable(flat.views, flat.bounds, flat.value, self.settings.bias) & (examples.y >= 0)
        again = np.zeros(n, np.bool_)
        if examples.earlier is not None:
            again[examples.earlier.row] = True
        drifts: list[Drift] = []
        slot = np.empty(flat.feature.size, np.int32)
        first = 0
        while first < n:
            stop, new, added = assign(
                flat.views, flat.bounds, flat.feature, examples.key, learn, first,
                self.feature_ptr, self.feature, len(self.vocabulary.names), self.limit, slot,
            )  # fmt: skip
            if stop < n and self.settings.max_features is None:
                raise LearnerError(
                    f"a full covariance holds at most {self.max_features} features (max_full_features), and the key "
                    f"{self.keys[examples.key[stop]]!r:.80} has more; covariance='diagonal' has no such limit"
                )
            key, y = examples.key[first:stop], examples.y[first:stop]
            self._grow(new, added, key, y)
            tail = (key, y, examples.known[first:stop], learn[first:stop], examples.weight[first:stop])
            pieces = [_part(out, first, stop) for out in outcomes]
            rows = self._rows(flat, slot, first, stop, tail)
            for i, views in enumerate(rows):
                recall = partial(_recall, examples.earlier, i, outcomes[i], first, stop)
                drifts += [(i, first + row, n) for row, n in self._learn(i, views, pieces[i], recall)]
            self._count(key, y, learn[first:stop], again[first:stop], pieces)
            if stop < n:
                self._forget_features(int(examples.key[stop]), flat, stop)
            first = stop
        return outcomes, learn, drifts

    def add_features(self, new: Int32Array) -> None:
        """Give the only key features that are new to it."""
        nothing = np.zeros(0, np.int64)
        self._grow(new, np.array([new.size]), nothing, nothing)

    def hold_keys(self, new: Int32Array | None = None, added: IntArray | None = None) -> None:
        """Make room for keys that have no example yet.

        ``new`` are features that are new to them, key by key, ``added`` how many each key gets.
        """
        if new is None or added is None:
            new, added = np.zeros(0, np.int32), np.zeros(len(self.keys), np.int64)
        fresh = np.arange(len(self.counts), len(self.keys))
        self._grow(new, added, fresh, np.full(fresh.size, -1))

    def learn_row(self, row: Rows, outcomes: list[Outcome]) -> None:
        """Score, learn and count a row of the only key, whose features and label the key has."""
        n = int(self.counts[0, metrics.N])
        if n < self.settings.window and n % 8 == 0:  # the window's bits begin a byte
            self._grow_window(row.key, row.y)
        for i, out in enumerate(outcomes):
            self._learn(i, [row], out, lambda: None)
        self._count(row.key, row.y, row.learn, np.zeros(1, np.bool_), outcomes)

    def _learn(self, i: int, views: list[Rows], out: Outcome, recall: Callable[[], None]) -> Iterable[tuple[int, int]]:
        """Let a learner score and learn rows; return those where it tells of a drift, and after how many examples."""
        learner, arrays = self.learners[i], self.states[i].arrays
        if learner.drift is None:
            learner.run(views, self.layout, arrays, out)
            recall()
            return ()
        found = adapt.learn(learner, views, self.layout, arrays, out, recall)
        rows = np.flatnonzero(found)
        self.drifts[i] += rows.size
        return zip(rows.tolist(), found[rows].tolist(), strict=True)

    def score(self, examples: Examples) -> list[Outcome]:
        """Score examples without learning or counting; ``Outcome.scores`` holds every class's score."""
        flat, n = examples.flat, examples.key.size
        slot = np.empty(flat.feature.size, np.int32)
        nothing = np.zeros(n, np.bool_)
        assign(
            flat.views, flat.bounds, flat.feature, examples.key, nothing, 0,
            self.feature_ptr, self.feature, len(self.vocabulary.names), self.limit, slot,
        )  # fmt: skip
        classes = int(np.diff(self.class_ptr).max(initial=0))
        outcomes = [empty_outcome(n, classes) for _ in self.learners]
        tail = (examples.key, np.full(n, -1, np.int64), examples.known, nothing, examples.weight)
        rows = self._rows(flat, slot, 0, n, tail)
        for learner, state, views, out in zip(self.learners, self.states, rows, outcomes, strict=True):
            learner.run(views, self.layout, state.arrays, out)
        return outcomes

    def _rows(self, flat: Flat, slot: Int32Array, first: int, stop: int, tail: _Tail) -> list[list[Rows]]:
        """Return what each learner sees of a run of rows: one selection of features, or one a view."""
        selections: dict[tuple[int, int], Rows] = {}

        def rows(view: int, bias: int) -> Rows:
            if (view, bias) not in selections:
                ptr, slots, value, norm = select(flat.views, flat.bounds, slot, flat.value, first, stop, view, bias)
                selections[view, bias] = Rows(ptr, slots, value, norm, *tail)
            return selections[view, bias]

        bias, views = self.settings.bias, self.settings.views
        out = []
        for learner in self.learners:
            if learner.row.views:
                out.append([rows(v, v + 1 if bias else -1) for v in range(len(views))])
            else:
                view = -1 if learner.view is None else views.index(learner.view)
                out.append([rows(view, 0 if bias else -1)])
        return out

    def _count(self, key: IntArray, y: IntArray, learn: BoolArray, again: BoolArray, outcomes: list[Outcome]) -> None:
        n = self.counts[:, metrics.N].copy()
        for state, out in zip(self.states, outcomes, strict=True):
            metrics.count_learner(
                key, y, out, n, self.settings.window, self.settings.fading, self.class_ptr, self.ring_ptr,
                state.counts, state.sums, state.hits, state.predictions, state.ring,
            )  # fmt: skip
        metrics.count_keys(key, y, learn, again, self.class_ptr, self.counts, self.label_counts)

    def _grow(self, new: Int32Array, added: IntArray, key: IntArray, y: IntArray) -> None:
        """Make room for new keys, features and classes, and for the counts of a run of rows."""
        keys, before = len(self.keys), len(self.counts)
        if new.size:
            feature_ptr = pointers(np.diff(self.feature_ptr) + added)
            self.feature = _append(self.feature, self.feature_ptr, new, pointers(added), feature_ptr)
            self.feature_ptr = feature_ptr
        multiclass = self.settings.task == "multiclass"
        classes = np.full(keys, 0 if multiclass else 2, np.int64)
        if multiclass:
            classes[:before] = np.diff(self.class_ptr)
            for k in np.unique(key).tolist():
                classes[k] = len(self.labels[k])
        if keys > before:
            self.counts = _more_rows(self.counts, keys)
            self.counts[before:, metrics.LAST_LABEL] = -1
            for state in self.states:
                state.counts, state.sums = _more_rows(state.counts, keys), _more_rows(state.sums, keys)
        self._grow_arrays(classes, keys > before)
        self._grow_window(key, y)

    def _grow_window(self, key: IntArray, y: IntArray) -> None:
        """Make room for the window bits of a run of rows."""
        keys = len(self.keys)
        labelled = np.bincount(key[y >= 0], minlength=keys)
        seen = np.minimum(self.counts[:, metrics.N] + labelled, self.settings.window)
        ring_ptr = pointers((seen + 7) // 8)
        if ring_ptr.size != self.ring_ptr.size or ring_ptr[-1] != self.ring_ptr[-1]:
            old = _extended(self.ring_ptr, keys)
            for state in self.states:
                state.ring = _spread(state.ring, old, ring_ptr)
            self.ring_ptr = ring_ptr

    def _grow_arrays(self, classes: IntArray, new_keys: bool) -> None:
        features = np.diff(self.feature_ptr)
        blocks = classes if self.settings.task == "multiclass" else np.ones(features.size, np.int64)
        old, new = self.layout, layout_of(features, blocks)
        class_ptr = pointers(classes)
        if new_keys or class_ptr[-1] != self.class_ptr[-1]:
            ptr = _extended(self.class_ptr, classes.size)
            self.label_counts = _spread(self.label_counts, ptr, class_ptr)
            for state in self.states:
                state.hits = _spread(state.hits, ptr, class_ptr)
                state.predictions = _spread(state.predictions, ptr, class_ptr)
            self.class_ptr = class_ptr
        elif old.start[-1] == new.start[-1]:
            return
        for learner, state in zip(self.learners, self.states, strict=True):
            for spec in learner.arrays:
                state.arrays[spec.name] = grown(spec, state.arrays[spec.name], old, new)
        self.layout = new

    def _forget_features(self, k: int, flat: Flat, row: int) -> None:
        """Drop key ``k``'s least useful features, so that the features of ``row`` find room.

        Useful is what weighs: the largest sum of absolute weights in any learner. The row's own features and
        the biases stay; at least an eighth of the limit goes, so that dropping is rare. It happens before
        the same record whatever the batches.
        """
        low, high = int(self.feature_ptr[k]), int(self.feature_ptr[k + 1])
        features = self.feature[low:high]
        size, blocks = high - low, int(self.layout.blocks[k])
        use = np.zeros(size)
        for learner, state in zip(self.learners, self.states, strict=True):
            at = int(self.layout.start[k])
            weights = learner.weights(self.layout, state.arrays)[at : at + size * blocks]
            use = np.maximum(use, np.abs(weights).reshape(size, blocks).sum(axis=1))
        wanted = flat.feature[flat.bounds[row * flat.views] : flat.bounds[(row + 1) * flat.views]]
        kept = np.isin(features, wanted)
        kept[: self.vocabulary.biases] = True
        fresh = np.setdiff1d(wanted, features).size
        drop = min(max(size + fresh - self.limit, self.limit // 8), int((~kept).sum()))
        order = np.argsort(np.where(kept, np.inf, use), kind="stable")
        stay = np.sort(order[drop:])
        self.features_evicted += drop
        self._keep_features(k, stay)

    def _keep_features(self, k: int, stay: IntArray) -> None:
        old = self.layout
        low, high = int(self.feature_ptr[k]), int(self.feature_ptr[k + 1])
        features = np.diff(self.feature_ptr)
        features[k] = stay.size
        self.feature = np.concatenate([self.feature[:low], self.feature[low:high][stay], self.feature[high:]])
        self.feature_ptr = pointers(features)
        blocks = int(old.blocks[k])
        for learner, state in zip(self.learners, self.states, strict=True):
            for spec in learner.arrays:
                ptr, array = spec.runs(old), state.arrays[spec.name]
                part = without_features(spec, array[ptr[k] : ptr[k + 1]], high - low, blocks, stay)
                state.arrays[spec.name] = np.concatenate([array[: ptr[k]], part, array[ptr[k + 1] :]])
        self.layout = layout_of(features, old.blocks)


def merged(parts: Sequence[Models]) -> Models:
    """Return the models of several that share settings and learners, and no key."""
    first = parts[0]
    out = Models(first.settings, first.learners)
    biases, names = out.vocabulary.biases, dict[str, int]()
    features = []
    for part in parts:
        own = part.vocabulary.names[biases:]
        number = np.array([names.setdefault(name, biases + len(names)) for name in own], np.int32)
        features.append(np.concatenate([np.arange(biases, dtype=np.int32), number])[part.feature])
        out.keys += part.keys
        out.topics += part.topics
        out.labels += part.labels
        out.rooms += part.rooms
    out.vocabulary.load(list(names))
    out.index = {name: k for k, name in enumerate(out.keys)}
    out.feature, out.counts = np.concatenate(features), np.concatenate([part.counts for part in parts])
    out.feature_ptr = _joined([part.feature_ptr for part in parts])
    out.class_ptr = _joined([part.class_ptr for part in parts])
    out.ring_ptr = _joined([part.ring_ptr for part in parts])
    out.label_counts = np.concatenate([part.label_counts for part in parts])
    out.layout = layout_of(np.diff(out.feature_ptr), np.concatenate([part.layout.blocks for part in parts]))
    for i, state in enumerate(out.states):
        theirs = [part.states[i] for part in parts]
        state.arrays = {name: np.concatenate([x.arrays[name] for x in theirs]) for name in state.arrays}
        for name in ("counts", "sums", "hits", "predictions", "ring"):
            setattr(state, name, np.concatenate([getattr(x, name) for x in theirs]))
    out.clock = max(part.clock for part in parts)
    return out


def _joined(pointers_: Sequence[IntArray]) -> IntArray:
    """Return the pointers of runs that stand one after the other."""
    return pointers(np.concatenate([np.diff(ptr) for ptr in pointers_]))


def _recall(earlier: Earlier | None, learner: int, out: Outcome, first: int, stop: int) -> None:
    """Put the score that rows from ``first`` to ``stop`` had in place of the one they would have now."""
    if earlier is None:
        return
    part = np.flatnonzero((earlier.row >= first) & (earlier.row < stop))
    row, origin = earlier.row[part], earlier.origin[part]
    out.predicted[row] = np.where(origin < 0, earlier.predicted[learner, part], out.predicted[origin])
    out.score[row] = np.where(origin < 0, earlier.score[learner, part], out.score[origin])


def _part(out: Outcome, first: int, stop: int) -> Outcome:
    """Return the rows from ``first`` to ``stop`` as views."""
    part = slice(first, stop)
    return Outcome._make(array[part] for array in out)


def _more_rows(array: IntArray | FloatArray, rows: int) -> Any:
    """Return the array with zero rows added at its end."""
    out = np.zeros((rows, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


def _extended(ptr: IntArray, keys: int) -> IntArray:
    """Return pointers with empty runs for keys that are new."""
    return np.concatenate([ptr, np.full(keys + 1 - ptr.size, ptr[-1])])


@njit(cache=True)
def _spread(old, old_ptr, new_ptr):  # type: ignore[no-untyped-def]
    """Copy each run to the start of its new, longer run; the rest is 0."""
    out = np.zeros(new_ptr[-1], old.dtype)
    for k in range(new_ptr.size - 1):
        for j in range(old_ptr[k + 1] - old_ptr[k]):
            out[new_ptr[k] + j] = old[old_ptr[k] + j]
    return out


@njit(cache=True)
def _take(old, old_ptr, keep, new_ptr):  # type: ignore[no-untyped-def]
    """Copy the runs of the keys kept."""
    out = np.empty(new_ptr[-1], old.dtype)
    for i in range(keep.size):
        for j in range(new_ptr[i + 1] - new_ptr[i]):
            out[new_ptr[i] + j] = old[old_ptr[keep[i]] + j]
    return out


@njit(cache=True)
def _append(old, old_ptr, new, added_ptr, new_ptr):  # type: ignore[no-untyped-def]
    """Copy each run and append its key's new items."""
    out = np.empty(new_ptr[-1], old.dtype)
    for k in range(new_ptr.size - 1):
        at = new_ptr[k]
        for j in range(old_ptr[k], old_ptr[k + 1]):
            out[at] = old[j]
            at += 1
        for j in range(added_ptr[k], added_ptr[k + 1]):
            out[at] = new[j]
            at += 1
    return out
