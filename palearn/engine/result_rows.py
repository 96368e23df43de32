"""Rows of the output tables as Arrow batches, built from the models' arrays without a loop over keys."""

from collections.abc import Sequence, Set
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from palearn.engine.join import Expired
from palearn.engine.join_buffer import Part
from palearn.engine.weight_lists import allowed_features, label_major
from palearn.errors import RecordError
from palearn.learners import Outcome
from palearn.models import calibration, counters, ragged
from palearn.models.codec import VERSION
from palearn.models.counters import (
    BASELINE_MISTAKES,
    BRIER,
    DIFFERENCE,
    DIFFERENCE_N,
    FADED,
    FADED_DIFFERENCE,
    FADED_DIFFERENCE_WEIGHT,
    FADED_WEIGHT,
    HINGE,
    LAST_OFFSET,
    LAST_PARTITION,
    LOG_LOSS,
    MISTAKES,
    N_LEARNED,
    N_SEEN,
    PROBABILITY_N,
    UPDATED_BATCH,
    UPDATES,
    WINDOW_MISTAKES,
    N,
)
from palearn.models.keyed import Models
from palearn.models.labels import as_texts, class_labels, texts_of
from palearn.models.single import learner_features
from palearn.models.state import MAX_BYTES
from palearn.tables.schemas import DRIFTS, EXPIRED, FORGOTTEN, METRICS, MODELS, PREDICTIONS, REJECTED, TABLES
from palearn.types import BoolArray, FloatArray, IntArray

#: A key and a learner.
Pair: TypeAlias = tuple[str, str]

_NAMES = pa.list_(pa.dictionary(pa.int32(), pa.string()))


class Rejected(NamedTuple):
    """A record that is not used, its Kafka key, and why."""

    key: bytes | None
    part: Part
    fault: RecordError


class Forgotten(NamedTuple):
    """A key that a tombstone forgot, where that stands, and when it was written (milliseconds since 1970)."""

    key: str
    topic: str
    partition: int
    offset: int
    asked_at: int | None


class Drifted(NamedTuple):
    """The labelled example at which a drift was detected, ``examples`` after the one before, and what it did."""

    key: str
    learner: str
    action: str
    examples: int
    topic: str
    partition: int
    offset: int


def rejected_rows(found: Sequence[Rejected]) -> list[pa.RecordBatch]:
    """Return the rejected table's rows."""
    rows = [
        {"key": x.key, **msgspec.structs.asdict(x.part), "reason": x.fault.reason, "detail": x.fault.detail}
        for x in found
    ]
    return [pa.RecordBatch.from_pylist(rows, REJECTED)] if rows else []


def expired_rows(found: Sequence[Expired]) -> list[pa.RecordBatch]:
    """Return the expired table's rows."""
    rows = [{"key": x.key, "id": x.id, "reason": x.reason, **msgspec.structs.asdict(x.part)} for x in found]
    return [pa.RecordBatch.from_pylist(rows, EXPIRED)] if rows else []


def drift_rows(found: Sequence[Drifted]) -> list[pa.RecordBatch]:
    """Return the drifts table's rows."""
    return [pa.RecordBatch.from_pylist([x._asdict() for x in found], DRIFTS)] if found else []


class Texts:
    """The labels of some keys as texts (None: not yet named).

    Parameters
    ----------
    models
        The models of all keys.
    keys
        The numbers of the keys whose labels are asked for, each once.
    """

    def __init__(self, models: Models, keys: IntArray) -> None:
        rows = [models.labels[k] for k in keys.tolist()]
        ptr, texts = as_texts(rows, lambda known: texts_of(class_labels(known, models.settings)))
        self._start = np.full(len(models.keys), -1)
        self._start[keys] = ptr[:-1]
        self._size = np.zeros(len(models.keys), np.int64)
        self._size[keys] = np.diff(ptr)
        self._names = pa.array(texts, pa.string())

    def of(self, keys: IntArray) -> pa.Array:
        """Return the labels of some of the keys, a list a key."""
        ptr, at = ragged.ranges(self._start[keys], self._size[keys])
        return pa.ListArray.from_arrays(pa.array(ptr), self._names.take(pa.array(at)))

    def name(self, key: IntArray, number: IntArray) -> pa.Array:
        """Return each row's label; None where the number is negative."""
        at = np.where(number < 0, 0, self._start[key] + number)
        return self._names.take(pa.array(at, mask=number < 0))


def model_rows(models: Models, keys: IntArray, texts: Texts) -> list[pa.RecordBatch]:
    """Return the models table's rows of ``keys``, a batch a learner; features are dictionary-encoded."""
    names = pa.array(models.vocabulary.names, pa.string())
    counts = models.counts[keys]
    shared = {
        **_key_and_place(models, keys),
        "labels": texts.of(keys),
        "n_seen": pa.array(counts[:, N_SEEN]),
        "n_learned": pa.array(counts[:, N_LEARNED]),
        "format_version": pa.array(np.full(keys.size, VERSION, np.int32)),
        "updated_batch": pa.array(counts[:, UPDATED_BATCH]),
    }
    settings, out = models.settings, []
    common = {
        "bias": settings.bias,
        "positive": settings.positive,
        "views": settings.views,
        "max_bytes": settings.max_bytes or MAX_BYTES,
        "max_features": settings.max_features,
        **({"columns": dict(settings.columns)} if settings.columns else {}),
    }
    for learner, state in zip(models.learners, models.states, strict=True):
        allowed = np.zeros(len(names), np.bool_)
        allowed[learner_features(learner, models, models.vocabulary.names)] = True
        ptr, feature = allowed_features(models.feature_ptr, models.feature, allowed, keys)
        variances = learner.variances(models.layout, state.arrays, keys)
        described = {**learner.params, "task": learner.task, "tie": learner.tie, "view": learner.view, **common}
        columns = {
            **shared,
            "learner": _constant(learner.name, keys.size),
            "algorithm": _constant(learner.algorithm, keys.size),
            "params": _constant(msgspec.json.encode(described).decode(), keys.size),
            "n_updates": pa.array(state.counts[keys, UPDATES]),
            "features": _list(ptr, pa.DictionaryArray.from_arrays(pa.array(feature), names)),
            "weights": _by_label(models, keys, allowed, learner.weights(models.layout, state.arrays)),
            "variances": pa.nulls(keys.size, pa.list_(pa.float64()))
            if variances is None
            else _by_label(models, keys, allowed, variances),
            "calibration": _fixed_lists(calibration.stored(state.sums, keys)),
        }
        schema = MODELS.set(MODELS.get_field_index("features"), pa.field("features", _NAMES))
        out.append(pa.record_batch([columns[name] for name in MODELS.names], schema=schema))
    return out


def metric_rows(models: Models, keys: IntArray, texts: Texts, drifted: Set[Pair] = frozenset()) -> list[pa.RecordBatch]:
    """Return the metrics table's rows of ``keys``, a batch a learner; ``drifted`` are those with a drift."""
    out = []
    n = models.counts[:, N]
    window_n = np.minimum(n, models.settings.window)
    shared = _key_and_place(models, keys)
    baseline = _ratio(models.counts[keys, BASELINE_MISTAKES], n[keys])
    ptr, at = ragged.ranges(models.class_ptr[keys], np.diff(models.class_ptr)[keys])
    labels = texts.of(keys).values
    for learner, state in zip(models.learners, models.states, strict=True):
        counts, sums = state.counts[keys], state.sums[keys]
        kappa = counters.kappas(
            keys, n, state.counts[:, MISTAKES], models.class_ptr, models.label_counts, state.predictions
        )
        hits, predicted, labelled = state.hits[at], state.predictions[at], models.label_counts[at]
        columns = {
            **shared,
            "learner": _constant(learner.name, keys.size),
            "n": pa.array(n[keys]),
            "mistakes": pa.array(counts[:, MISTAKES]),
            "error": _ratio(counts[:, MISTAKES], n[keys]),
            "window_n": pa.array(window_n[keys]),
            "window_error": _ratio(counts[:, WINDOW_MISTAKES], window_n[keys]),
            "faded_error": _ratio(sums[:, FADED], sums[:, FADED_WEIGHT]),
            "updates": pa.array(counts[:, UPDATES]),
            "hinge": _ratio(sums[:, HINGE], n[keys]),
            "baseline_error": baseline,
            "kappa": pa.array(kappa, mask=n[keys] == 0),
            "f1": _by_name(ptr, labels, _ratio(2 * hits, labelled + predicted)),
            "precision": _by_name(ptr, labels, _ratio(hits, predicted)),
            "recall": _by_name(ptr, labels, _ratio(hits, labelled)),
            "log_loss": _ratio(sums[:, LOG_LOSS], counts[:, PROBABILITY_N]),
            "brier": _ratio(sums[:, BRIER], counts[:, PROBABILITY_N]),
            "view_difference": _ratio(sums[:, DIFFERENCE], counts[:, DIFFERENCE_N]),
            "faded_view_difference": _ratio(sums[:, FADED_DIFFERENCE], sums[:, FADED_DIFFERENCE_WEIGHT]),
            "drift": pa.nulls(keys.size, pa.bool_())
            if learner.drift is None
            else pa.array([(models.keys[k], learner.name) in drifted for k in keys.tolist()], pa.bool_()),
            "batch_n": pa.nulls(keys.size, pa.int64()),
            "batch_error": pa.nulls(keys.size, pa.float64()),
        }
        out.append(pa.record_batch([columns[name] for name in METRICS.names], schema=METRICS))
    return out


def _key_and_place(models: Models, keys: IntArray) -> dict[str, pa.Array]:
    """Return the columns that say which key a row is of, and the position of its last processed record."""
    numbers, counts = keys.tolist(), models.counts[keys]
    return {
        "key": pa.array([models.keys[k] for k in numbers], pa.string()),
        "last_topic": pa.array([models.topics[k] for k in numbers], pa.string()),
        "last_partition": pa.array(counts[:, LAST_PARTITION].astype(np.int32)),
        "last_offset": pa.array(counts[:, LAST_OFFSET]),
    }


def prediction_rows(
    models: Models,
    texts: Texts,
    key: IntArray,
    y: IntArray,
    known: IntArray,
    outcomes: Sequence[Outcome],
    probabilities: Sequence[FloatArray],
    ids: Sequence[str | None],
    place: tuple[Sequence[str], IntArray, IntArray],
) -> list[pa.RecordBatch]:
    """Return the predictions table's rows of scored examples, a batch a learner.

    ``known`` is what :func:`palearn.models.labels.classify` says each key knew before the row,
    ``place`` where it came from.
    """
    topic, partition, offset = place
    shared = {
        "key": pa.array([models.keys[k] for k in key.tolist()], pa.string()),
        "id": pa.array(ids, pa.string()),
        "label": texts.name(key, y),
        "topic": pa.array(topic, pa.string()),
        "partition": pa.array(partition.astype(np.int32)),
        "offset": pa.array(offset),
    }
    out = []
    for learner, outcome, probability in zip(models.learners, outcomes, probabilities, strict=True):
        columns = {
            **shared,
            "learner": _constant(learner.name, key.size),
            "score": pa.array(outcome.score),
            "predicted": _predicted(models, texts, key, known, outcome.predicted),
            "probability": pa.array(probability, mask=outcome.predicted < 0),
            "correct": pa.array(outcome.predicted == y, mask=y < 0),
        }
        out.append(pa.record_batch([columns[name] for name in PREDICTIONS.names], schema=PREDICTIONS))
    return out


def _predicted(models: Models, texts: Texts, key: IntArray, known: IntArray, predicted: IntArray) -> pa.Array:
    """Return the predicted labels as texts, by what labels had named before the row, wherever a batch ends."""
    named = texts.name(key, predicted)
    if models.settings.task == "multiclass" or (known == 3).all():
        return named
    out = named.to_pylist()
    for i in np.flatnonzero(known != 3).tolist():
        labels = models.labels[key[i]]
        then = [label if known[i] >> side & 1 else None for side, label in enumerate(labels)]
        out[i] = texts_of(class_labels(then, models.settings))[predicted[i]]
    return pa.array(out, pa.string())


def total_rows(totals: dict[str, dict[str, int]]) -> pa.RecordBatch:
    """Return the metrics table's rows over all keys (key null), one a learner."""
    rows = [
        {
            "learner": name,
            "n": t["n"],
            "mistakes": t["mistakes"],
            "error": t["mistakes"] / t["n"] if t["n"] else None,
            "batch_n": t["batch_n"],
            "batch_error": t["batch_mistakes"] / t["batch_n"] if t["batch_n"] else None,
        }
        for name, t in totals.items()
    ]
    return pa.RecordBatch.from_pylist(rows, METRICS)


def forgotten_rows(found: Sequence[Forgotten]) -> list[pa.RecordBatch]:
    """Return rows of the table of forgotten keys."""
    if not found:
        return []
    columns = [pa.array(column, field.type) for column, field in zip(zip(*found, strict=True), FORGOTTEN, strict=True)]
    return [pa.record_batch(columns, schema=FORGOTTEN)]


def without(rows: pa.RecordBatch, names: Set[str]) -> pa.RecordBatch:
    """Return the rows of other keys."""
    return rows.filter(pa.array([key not in names for key in rows.column("key").to_pylist()], pa.bool_()))


def newest(table: pa.Table) -> pa.Table:
    """Return the last row of each key and learner, in their order."""
    pairs = zip(table["key"].to_pylist(), table["learner"].to_pylist(), strict=True)
    last = {pair: row for row, pair in enumerate(pairs)}
    chosen = np.zeros(table.num_rows, np.bool_)
    chosen[list(last.values())] = True
    return table.filter(pa.array(chosen))


def plain(table: pa.Table, name: str) -> pa.Table:
    """Return a result table in its table's own schema: names no longer dictionary-encoded."""
    return table.cast(TABLES[name])


def _by_name(ptr: Any, labels: pa.Array, figures: pa.Array) -> pa.Array:
    """Return label -> figure a key; a binary side that no label has named yet is left out."""
    if labels.null_count:
        named = labels.is_valid()
        before = np.concatenate([[0], np.cumsum(np.asarray(named))]).astype(np.int32)
        ptr, labels, figures = before[ptr], labels.filter(named), figures.filter(named)
    return pa.MapArray.from_arrays(pa.array(ptr), labels, figures)


def _ratio(part: Any, whole: Any) -> pa.Array:
    """Return part / whole, null where whole is 0."""
    empty = whole == 0
    return pa.array(part / np.where(empty, 1, whole), pa.float64(), mask=empty)


def _constant(text: str, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), n)


def _fixed_lists(table: FloatArray) -> pa.Array:
    """Return the rows of a table as lists."""
    ptr = table.shape[1] * np.arange(len(table) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ptr), pa.array(table.ravel()))


def _list(ptr: Any, values: Any) -> pa.Array:
    items = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.ListArray.from_arrays(pa.array(ptr), items)


def _by_label(models: Models, keys: IntArray, allowed: BoolArray, array: FloatArray) -> pa.Array:
    return _list(*label_major(array, models.layout, keys, models.feature_ptr, models.feature, allowed))
