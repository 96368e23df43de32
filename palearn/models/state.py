"""The state of many keys' models over one vocabulary of feature names, as flat arrays that kernels change in place.

Here keys, classes and features come and leave, and the arrays follow; :mod:`palearn.models.keyed` scores and learns
with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from palearn.learners import Learner, grown, layout_of, pointers, without_features
from palearn.models import counters, ragged
from palearn.models import labels as label_rules
from palearn.models.vectorize import Vocabulary
from palearn.records import LabelValue
from palearn.types import ByteArray, FloatArray, Int32Array, IntArray

#: What a configuration that says nothing else gets: the longest value of a record in bytes, the window of the rolling
#: error in examples, the factor of the faded error, the most features of a key.
MAX_BYTES, WINDOW, FADING, MAX_FEATURES = 1_048_576, 1000, 0.999, 10_000


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
    columns
        What columns of files are (a name -> one of :data:`palearn.records.KINDS`), where models were made from files:
        whoever scores or learns on reads them by it. What is learned from a record does not depend on it.
    max_bytes
        The longest value of a record, in bytes; None: what an older version kept does not say it.
    """

    task: str = "binary"
    positive: LabelValue | None = None
    bias: bool = True
    views: tuple[str, ...] = ()
    window: int = WINDOW
    fading: float = FADING
    max_features: int | None = MAX_FEATURES
    max_bytes: int | None = MAX_BYTES
    columns: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def signed(self) -> bool:
        """Whether labels are numbers or booleans, positive above 0."""
        return self.task == "binary" and self.positive is None


@dataclass
class LearnerState:
    """One learner's arrays over all keys, and its counts (columns: :mod:`palearn.models.counters`)."""

    arrays: dict[str, FloatArray]
    counts: IntArray = field(default_factory=lambda: np.zeros((0, len(counters.LEARNER_COUNTS)), np.int64))
    sums: FloatArray = field(default_factory=lambda: np.zeros((0, len(counters.LEARNER_SUMS))))
    hits: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    predictions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    ring: ByteArray = field(default_factory=lambda: np.zeros(0, np.uint8))


class State:
    """What is kept of many keys, each with a model a learner; nothing here scores or learns.

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
        #: What new keys know of their labels already, of those of which anything is known.
        self.initial_labels: Mapping[str, label_rules.Known] = {}
        #: What each key waits for and remembers: bytes of :mod:`palearn.engine.join_buffer`.
        self.join_buffers: list[bytes] = []
        self.counts: IntArray = np.zeros((0, len(counters.KEY_COUNTS)), np.int64)
        self.feature_ptr: IntArray = np.zeros(1, np.int64)
        self.feature: Int32Array = np.zeros(0, np.int32)
        self.class_ptr: IntArray = np.zeros(1, np.int64)
        self.label_counts: IntArray = np.zeros(0, np.int64)
        self.ring_ptr: IntArray = np.zeros(1, np.int64)
        self.layout = layout_of(np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.states = [LearnerState({a.name: np.zeros(0) for a in x.arrays}) for x in learners]
        self.clock = 0  # records taken in so far; a key's last_seen is a reading of it
        self.features_evicted = 0
        #: Scratch of scoring: place of each name among a key's features, -1 between two calls.
        self._where: Int32Array = np.zeros(0, np.int32)
        #: How many drifts were detected by each learner, over all keys, since this was made.
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
            self.labels.append(self.initial_labels.get(name) or label_rules.start(task, positive))
            self.join_buffers.append(b"")
        new = len(self.keys) - before
        if new:
            ends = self.feature_ptr[-1] + biases.size * np.arange(1, new + 1)
            self.feature_ptr = np.concatenate([self.feature_ptr, ends])
            self.feature = np.concatenate([self.feature, np.tile(biases, new)])

    def of_keys(self, keep: IntArray) -> Self:
        """Return the state of these keys alone (their numbers, ascending)."""
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
                state.arrays[spec.name] = ragged.take(state.arrays[spec.name], spec.runs(old), keep, spec.runs(new))
            state.counts, state.sums = state.counts[keep], state.sums[keep]
        class_ptr, ring_ptr = (
            pointers(np.diff(self.class_ptr)[keep]),
            pointers(np.diff(self.ring_ptr)[keep]),
        )
        for state in self.states:
            state.hits = ragged.take(state.hits, self.class_ptr, keep, class_ptr)
            state.predictions = ragged.take(state.predictions, self.class_ptr, keep, class_ptr)
            state.ring = ragged.take(state.ring, self.ring_ptr, keep, ring_ptr)
        self.label_counts = ragged.take(self.label_counts, self.class_ptr, keep, class_ptr)
        feature_ptr = pointers(features)
        self.feature = ragged.take(self.feature, self.feature_ptr, keep, feature_ptr)
        self.feature_ptr, self.class_ptr, self.ring_ptr, self.layout = feature_ptr, class_ptr, ring_ptr, new
        self.counts = self.counts[keep]
        numbers = keep.tolist()
        self.keys = [self.keys[k] for k in numbers]
        self.topics = [self.topics[k] for k in numbers]
        self.labels = [self.labels[k] for k in numbers]
        self.join_buffers = [self.join_buffers[k] for k in numbers]
        self.index = {name: k for k, name in enumerate(self.keys)}

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Return the state of several that share settings and learners, and no key."""
        first = parts[0]
        out = cls(first.settings, first.learners)
        biases, names = out.vocabulary.biases, dict[str, int]()
        features = []
        for part in parts:
            own = part.vocabulary.names[biases:]
            number = np.array([names.setdefault(name, biases + len(names)) for name in own], np.int32)
            features.append(np.concatenate([np.arange(biases, dtype=np.int32), number])[part.feature])
            out.keys += part.keys
            out.topics += part.topics
            out.labels += part.labels
            out.join_buffers += part.join_buffers
        out.vocabulary.load(list(names))
        out.index = {name: k for k, name in enumerate(out.keys)}
        out.feature, out.counts = np.concatenate(features), np.concatenate([part.counts for part in parts])
        out.feature_ptr = ragged.joined([part.feature_ptr for part in parts])
        out.class_ptr = ragged.joined([part.class_ptr for part in parts])
        out.ring_ptr = ragged.joined([part.ring_ptr for part in parts])
        out.label_counts = np.concatenate([part.label_counts for part in parts])
        out.layout = layout_of(np.diff(out.feature_ptr), np.concatenate([part.layout.blocks for part in parts]))
        for i, state in enumerate(out.states):
            theirs = [part.states[i] for part in parts]
            state.arrays = {name: np.concatenate([x.arrays[name] for x in theirs]) for name in state.arrays}
            for name in ("counts", "sums", "hits", "predictions", "ring"):
                setattr(state, name, np.concatenate([getattr(x, name) for x in theirs]))
        out.clock = max(part.clock for part in parts)
        return out

    # -- room for what is new ---------------------------------------------------------------------------

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

    def _grow(self, new: Int32Array, added: IntArray, key: IntArray, y: IntArray) -> None:
        """Make room for new keys, features and classes, and for the counts of a run of rows."""
        keys, before = len(self.keys), len(self.counts)
        if new.size:
            feature_ptr = pointers(np.diff(self.feature_ptr) + added)
            self.feature = ragged.append(self.feature, self.feature_ptr, new, pointers(added), feature_ptr)
            self.feature_ptr = feature_ptr
        multiclass = self.settings.task == "multiclass"
        classes = np.full(keys, 0 if multiclass else 2, np.int64)
        if multiclass:
            classes[:before] = np.diff(self.class_ptr)
            for k in np.unique(key).tolist():
                classes[k] = len(self.labels[k])
        if keys > before:
            self.counts = _more_rows(self.counts, keys)
            self.counts[before:, counters.LAST_LABEL] = -1
            for state in self.states:
                state.counts, state.sums = _more_rows(state.counts, keys), _more_rows(state.sums, keys)
        self._grow_arrays(classes, keys > before)
        self._grow_window(key, y)

    def _grow_window(self, key: IntArray, y: IntArray) -> None:
        """Make room for the window bits of a run of rows."""
        keys = len(self.keys)
        labelled = np.bincount(key[y >= 0], minlength=keys)
        seen = np.minimum(self.counts[:, counters.N] + labelled, self.settings.window)
        ring_ptr = pointers((seen + 7) // 8)
        if ring_ptr.size != self.ring_ptr.size or ring_ptr[-1] != self.ring_ptr[-1]:
            old = ragged.extended(self.ring_ptr, keys)
            for state in self.states:
                state.ring = ragged.spread(state.ring, old, ring_ptr)
            self.ring_ptr = ring_ptr

    def _grow_arrays(self, classes: IntArray, new_keys: bool) -> None:
        features = np.diff(self.feature_ptr)
        blocks = classes if self.settings.task == "multiclass" else np.ones(features.size, np.int64)
        old, new = self.layout, layout_of(features, blocks)
        class_ptr = pointers(classes)
        if new_keys or class_ptr[-1] != self.class_ptr[-1]:
            ptr = ragged.extended(self.class_ptr, classes.size)
            self.label_counts = ragged.spread(self.label_counts, ptr, class_ptr)
            for state in self.states:
                state.hits = ragged.spread(state.hits, ptr, class_ptr)
                state.predictions = ragged.spread(state.predictions, ptr, class_ptr)
            self.class_ptr = class_ptr
        elif old.start[-1] == new.start[-1]:
            return
        for learner, state in zip(self.learners, self.states, strict=True):
            for spec in learner.arrays:
                state.arrays[spec.name] = grown(spec, state.arrays[spec.name], old, new)
        self.layout = new

    # -- features that leave ---------------------------------------------------------------------------

    def _forget_features(self, k: int, wanted: Int32Array) -> None:
        """Drop key ``k``'s least useful features, so that those ``wanted`` find room.

        Useful is what weighs: the largest sum of absolute weights in any learner. The wanted features and
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


def _more_rows(array: IntArray | FloatArray, rows: int) -> Any:
    """Return the array with zero rows added at its end."""
    out = np.zeros((rows, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
