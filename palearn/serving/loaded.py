"""Models of an output folder that score by key: ``palearn.load(path)``."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from palearn.engine import scoring
from palearn.engine.explain import Contribution
from palearn.engine.scoring import Scored
from palearn.engine.validation import Chunk, Value
from palearn.errors import ConfigError, NoModelError, RecordError
from palearn.models.keyed import Models
from palearn.models.single import plain, record_of
from palearn.records import PLAIN, LabelValue, from_fields, is_utf8, label_text
from palearn.tables.models_by_key import ModelsByKey

#: So many models of single keys are kept, where not all were read.
KEPT = 1_000
#: Models of more batches than these are merged into one.
_LAYERS = 8
_NO_KEY = RecordError("no_key", "the record needs a key: the text that names a model")


class Answer(msgspec.Struct, omit_defaults=True):
    """What a learner says of a record; the fields of ``POST /predict``.

    ``predicted`` is the label as a text (None: the model has not learned any yet), ``score`` that of ``predictions/``,
    ``fallback`` the key whose model answered where ``key`` has none.
    """

    key: str
    learner: str
    score: float
    predicted: str | None
    probability: float | None
    batch_id: int
    fallback: str | msgspec.UnsetType = msgspec.UNSET


class Loaded:
    """The models of an output folder, as of a batch; made by :func:`load`.

    Methods may be called from several threads.

    Parameters
    ----------
    path, batch, learners, select, fallback
        As in :func:`load`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        batch: int | None = None,
        learners: Sequence[str] = (),
        select: str = "best",
        fallback: str | None = None,
    ) -> None:
        self._table = ModelsByKey(str(path), scoring.COLUMNS, batch)
        self._learners, self._select, self.fallback = tuple(learners), select, fallback
        self._lock = threading.RLock()
        #: Models of all keys, newest batch first; None: they are read key by key.
        self._layers: list[Models] | None = None
        self._single: OrderedDict[str, Models | None] = OrderedDict()
        self._batch_id = self._table.batch_id
        if select != "best":
            self._require_learner(select)
        if fallback is not None and self._model(fallback) is None:
            raise ConfigError(f"{path} has no model of the fallback key {fallback!r:.80}")

    @property
    def batch_id(self) -> int:
        """The newest batch whose models answer."""
        return self._batch_id

    def keys(self) -> Collection[str]:
        """Return the keys that have models."""
        with self._lock:
            layers = self._layers
            return self._table.keys() if layers is None else set().union(*(models.index for models in layers))

    @cached_property
    def learners(self) -> tuple[str, ...]:
        """The learners' names."""
        with self._lock:
            models = self._layers[0] if self._layers else self._model(next(iter(self._table.keys()), ""))
            return () if models is None else tuple(learner.name for learner in models.learners)

    def read_all(self) -> None:
        """Read the models of all keys, so that no answer waits for a file."""
        layers = [self._models(rows) for rows in self._table.newest() if rows.num_rows]
        with self._lock:
            self._layers = layers if len(layers) <= _LAYERS else [Models.merged(layers)]
            self._single.clear()

    def refresh(self) -> bool:
        """Take up batches that were written since; returns whether there are any.

        What is asked meanwhile is answered with the models before.
        """
        if self._layers is None:
            with self._lock:
                new = self._table.refresh()
                if new:
                    self._single.clear()
                    self._batch_id = self._table.batch_id
                return bool(new)
        new = self._table.refresh()
        tables = [self._table.batch(number) for number in sorted(new, reverse=True)]
        layers = _merged([*(self._models(rows) for rows in tables if rows.num_rows), *self._layers])
        if new:
            with self._lock:
                self._layers, self._batch_id = layers, self._table.batch_id
        return bool(new)

    # -- questions -------------------------------------------------------------------------------------

    def predict(self, key: str, x: Mapping[str, Any], learner: str | None = None) -> str | None:
        """Return the predicted label as a text; None where the model has learned none yet.

        Parameters
        ----------
        key
            The key whose model is asked.
        x
            Features, or views of features, as in :meth:`palearn.Model.predict_one`.
        learner
            This learner; default: the one that ``select`` says.

        Raises
        ------
        NoModelError
            The key has no model, and there is no fallback.
        RecordError
            The features cannot be used.
        """
        with self._lock:
            models, found = self._ask(key, x)
            return self._answer(key, models, found, 0, learner).predicted

    def score(self, key: str, x: Mapping[str, Any], learner: str | None = None) -> float | dict[str, float]:
        """Return the score (binary; > 0 is positive), or each class's (multiclass); see :meth:`predict`."""
        with self._lock:
            models, found = self._ask(key, x)
            k = int(found.key[0])
            i = self._number(models, models.keys[k], learner)
        if models.settings.task == "binary":
            return float(found.score[i, 0])
        scores, names = found.scores[i][0].tolist(), scoring.label_texts(models, k)
        return {str(name): score for name, score in zip(names, scores, strict=False)}

    def proba(self, key: str, x: Mapping[str, Any], learner: str | None = None) -> dict[str, float]:
        """Return the probability of each label, by the calibration of the stream; see :meth:`predict`."""
        with self._lock:
            models, found = self._ask(key, x)
            k = int(found.key[0])
            i = self._number(models, models.keys[k], learner)
            labels = scoring.label_texts(models, k)
        pairs = zip(labels, found.probabilities[i][0].tolist(), strict=False)
        return {str(label): p for label, p in pairs if label is not None}

    def explain(
        self, key: str, x: Mapping[str, Any], learner: str | None = None, label: LabelValue | None = None
    ) -> list[Contribution]:
        """Return what each feature adds to the score, largest first; see :mod:`palearn.engine.explain`.

        Parameters
        ----------
        key, x, learner
            As in :meth:`predict`.
        label
            Multiclass: explain this label's score; default: the predicted one's.

        Raises
        ------
        ConfigError
            The model has no such label.
        """
        with self._lock:
            models = self._require_model(key)
            held, record = self._held(models, key), record_of(models.settings, x)
            return scoring.explain(models, held, record, self._number(models, held, learner), label)

    def many(self, rows: Iterable[Mapping[str, Any]], learner: str | None = None) -> list[Answer | RecordError]:
        """Return what is said of records with a ``key`` and ``features`` (or ``views``), in their order.

        A record that cannot be scored has the error in its place; ``no_model`` is the reason where its key has none.
        """
        keys, values = list[str | None](), list[Value]()
        for row in rows:
            key = row.get("key")
            keys.append(label_text(key) if isinstance(key, LabelValue) else None)
            values.append(_value(row))
        return self.answers(keys, values, learner)

    def answers(
        self, keys: Sequence[str | None], values: Sequence[Value], learner: str | None = None
    ) -> list[Answer | RecordError]:
        """Return what is said of records, given as the wire's bytes or as :class:`palearn.records.Record`."""
        out: list[Answer | RecordError] = [_NO_KEY] * len(keys)
        groups: dict[int, tuple[Models, list[int]]] = {}
        with self._lock:
            if self._layers is None:
                self._read({key for key in keys if key and is_utf8(key)})
            for i, key in enumerate(keys):
                if key and is_utf8(key):
                    try:
                        models = self._require_model(key)
                        groups.setdefault(id(models), (models, []))[1].append(i)
                    except NoModelError as error:
                        out[i] = error
            for models, rows in groups.values():
                found = self._scored(models, [keys[i] or "" for i in rows], [values[i] for i in rows])
                for fault in found.faults:
                    out[rows[fault.row]] = fault.error
                for row in found.parts:
                    out[rows[row]] = RecordError("no_features", "the record lacks features, or views, to be scored by")
                for j, row in enumerate(found.row.tolist()):
                    out[rows[row]] = self._answer(keys[rows[row]] or "", models, found, j, learner)
        return out

    def model(self, key: str, learner: str | None = None, top: int = 10) -> list[dict[str, Any]]:
        """Return the strongest weights of each learner of a key, largest first, with what is known of each.

        Raises
        ------
        NoModelError
            The key has no model; a fallback does not stand for it here.
        """
        with self._lock:
            models = self._model(key)
            if models is None:
                raise NoModelError(f"there is no model of key {key!r:.80} up to batch {self._batch_id}")
            if learner is not None:
                self._require_learner(learner)
            return [
                {"learner": x.name, **scoring.strongest(models, models.index[key], i, top)}
                for i, x in enumerate(models.learners)
                if learner in (None, x.name)
            ]

    # -- one record --------------------------------------------------------------------------------------

    def _ask(self, key: str, x: Mapping[str, Any]) -> tuple[Models, Scored]:
        models = self._require_model(key)
        found = self._scored(models, [key], [record_of(models.settings, x)])
        for fault in found.faults:
            raise fault.error
        return models, found

    def _scored(self, models: Models, keys: Sequence[str], values: Sequence[Value]) -> Scored:
        n = len(keys)
        held = [self._held(models, key).encode() for key in keys]
        return scoring.score(models, Chunk(held, values, [""] * n, np.zeros(n, np.int64), np.arange(n)))

    def _answer(self, key: str, models: Models, found: Scored, row: int, learner: str | None) -> Answer:
        k = int(found.key[row])
        i = self._number(models, models.keys[k], learner)
        predicted = int(found.predicted[i, row])
        label = scoring.label_texts(models, k)[predicted] if predicted >= 0 else None
        fallback = msgspec.UNSET if models.keys[k] == key else models.keys[k]
        probability = float(found.probabilities[i][row, predicted]) if predicted >= 0 else None
        name, score = models.learners[i].name, float(found.score[i, row])
        return Answer(key, name, score, label, probability, self._batch_id, fallback)

    # -- which models --------------------------------------------------------------------------------------

    def _held(self, models: Models, key: str) -> str:
        """Return the key, or the fallback where the key has no model of its own."""
        if key in models.index:
            return key
        assert self.fallback is not None
        return self.fallback

    def _number(self, models: Models, key: str, learner: str | None) -> int:
        """Return the number of the learner that answers."""
        wanted = self._select if learner is None else learner
        for i, held in enumerate(models.learners):
            if held.name == wanted:
                return i
        if learner is not None:
            self._require_learner(learner)
        return 0

    def _require_learner(self, name: str) -> None:
        if name not in self.learners:
            raise ConfigError(f"the models have no learner {name!r:.80}; they have {', '.join(sorted(self.learners))}")

    def _require_model(self, key: str) -> Models:
        models = self._model(key)
        if models is None and self.fallback is not None:
            models = self._model(self.fallback)
        if models is None:
            raise NoModelError(f"there is no model of key {key!r:.80} up to batch {self._batch_id}")
        return models

    def _model(self, key: str) -> Models | None:
        """Return models that have the key, or None."""
        if self._layers is not None:
            return next((models for models in self._layers if key in models.index), None)
        self._read([key])
        return self._single[key]

    def _read(self, keys: Collection[str]) -> None:
        """Read the models of keys that are not held, and let those go that were not asked about for longest."""
        missing = [key for key in keys if key not in self._single]
        if missing:
            rows = self._table.rows(missing)
            models = self._models(rows) if rows.num_rows else None
            for key in missing:
                self._single[key] = models if models is not None and key in models.index else None
        for key in keys:
            self._single.move_to_end(key)
        while len(self._single) > max(KEPT, len(keys)):
            self._single.popitem(last=False)

    def _models(self, rows: pa.Table) -> Models:
        ordered = rows.sort_by([("key", "ascending"), ("learner", "ascending")])
        return scoring.models_from_rows(ordered, self._learners)


def load(
    path: str | Path,
    batch: int | None = None,
    *,
    learners: Sequence[str] = (),
    select: str = "best",
    fallback: str | None = None,
) -> Loaded:
    """Return the models of a job's output, which score by key; needs no Spark and no Kafka.

    Models are read when their key is first asked about; :meth:`Loaded.read_all` reads them all.

    Parameters
    ----------
    path
        Output folder of a job or of ``palearn state export``, or its ``models/``: a path or a URI.
    batch
        As of this batch; None: the newest, and later ones after :meth:`Loaded.refresh`.
    learners
        These learners alone, if any is named.
    select
        Which learner answers where none is named: a learner's name, or ``best``.
    fallback
        The key whose model answers for a key that has none; None: such a question is an error.

    Raises
    ------
    FileFormatError
        There is no models table, or none up to that batch.
    ConfigError
        The models cannot score, or there is no such learner or fallback.
    """
    return Loaded(path, batch=batch, learners=learners, select=select, fallback=fallback)


def _merged(layers: list[Models]) -> list[Models]:
    """Return as many layers or fewer; keys of older layers that newer ones have are left out where they merge."""
    if len(layers) <= _LAYERS:
        return layers
    seen: set[str] = set()
    parts = []
    for models in layers:
        keep = np.array([k for k, key in enumerate(models.keys) if key not in seen], np.int64)
        seen.update(models.keys)
        if keep.size:
            parts.append(models if keep.size == len(models.keys) else models.of_keys(keep))
    return [Models.merged(parts)]


def _value(row: Mapping[str, Any]) -> Value:
    """Return a record of plain Python values as what the wire's bytes would be."""
    try:
        return from_fields({name: plain(item) for name, item in row.items()}, PLAIN)
    except RecordError as fault:
        return fault
