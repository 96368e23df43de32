"""One model, one key: River's conventions over the very arrays and bytes that the stream uses."""

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np

from palearn.errors import LearnerError, RecordError, StateFormatError
from palearn.learners import Learner, Outcome
from palearn.learners.registry import described
from palearn.models import codec
from palearn.models.columns import LabelCodes, of_records, prepare
from palearn.models.counters import N_LEARNED, N_SEEN, UPDATES
from palearn.models.fast_path import FastPath
from palearn.models.keyed import Examples, Models
from palearn.models.labels import Known, class_labels, start
from palearn.models.state import Settings
from palearn.records import BIAS, LabelValue, Record, check_label, is_utf8, numbers
from palearn.types import FloatArray

_KEY = ""


class Model:
    """An online linear classifier; make one with :func:`make` or :func:`from_bytes`.

    Features are a mapping of names to numbers (text is one-hot, booleans are 1 or 0, None is absent); a
    learner of views, or any learner that is given them, takes a mapping of view names to such mappings.
    """

    def __init__(self, settings: Settings, learner: Learner, models: Models | None = None) -> None:
        self._learner = learner
        self._use(models or Models(settings, [learner]))

    def __reduce__(self) -> tuple[Any, ...]:
        return from_bytes, (self.to_bytes(),)

    # -- learning and predicting -----------------------------------------------------------------------

    def learn_one(self, x: Mapping[str, Any], y: LabelValue, weight: float | None = None) -> Self:
        """Score one example, learn it and count it; returns the model.

        Parameters
        ----------
        x
            Features, or views of features.
        y
            Label: binary, a number (> 0 is positive) or boolean, or any two labels if ``positive`` was given;
            multiclass, any text, number or boolean.
        weight
            Multiplies C (and divides r); > 0, default 1.

        Raises
        ------
        RecordError
            A feature is no finite number, or the label contradicts the task.
        """
        y = _python(y)
        if y is None:
            raise RecordError("bad_label", "learn_one needs a label, got None")
        check_label(y)
        if weight is not None:
            weight = _weight(weight)
        if not self._fast_path.learn(x, y, weight):
            self._learn_record(x, y, weight)
        return self

    def _use(self, models: Models) -> None:
        self._models, self._settings, self._fast_path = models, models.settings, FastPath(models)

    def _learn_record(self, x: Mapping[str, Any], y: LabelValue, weight: float | None) -> None:
        """Learn an example as a batch of one record."""
        settings = self._settings_for(x)
        models = self._models if settings == self._settings else Models(settings, [self._learner])
        labels = list(models.labels) or [start(settings.task, settings.positive)]
        examples = _examples(models, record_of(settings, x, y, weight), labels)
        if not models.keys:
            models.add_keys([_KEY])
        before, models.labels = models.labels, labels
        try:
            models.learn(examples)
        except LearnerError:
            models.labels = before
            if not len(models.counts):
                self._use(Models(self._settings, [self._learner]))
            raise
        if models is not self._models:
            self._use(models)
        self._fast_path.found(y, examples.y)

    def score_one(self, x: Mapping[str, Any]) -> float | dict[LabelValue, float]:
        """Return the score w.x (binary; > 0 is positive), or each known class's score (multiclass)."""
        out = self._outcome(x)
        if self._settings.task == "binary":
            return 0.0 if out is None else float(out.score[0])
        return {} if out is None else dict(zip(self.labels, out.scores[0].tolist(), strict=True))

    def predict_one(self, x: Mapping[str, Any]) -> LabelValue | None:
        """Return the predicted label; None where no class (or not that class's label) is known yet."""
        out = self._outcome(x)
        if self._settings.task == "multiclass" and out is None:
            return None
        predicted = int(self._learner.ties_positive) if out is None else int(out.predicted[0])
        label: LabelValue | None = self.labels[predicted]
        return label

    # -- looking inside --------------------------------------------------------------------------------

    @property
    def labels(self) -> list[Any]:
        """Labels in class order; binary: [negative, positive], a label not seen yet made up to match the other."""
        return list(class_labels(self.known_labels, self._settings))

    @property
    def known_labels(self) -> list[Any]:
        """Labels seen so far, in class order; binary: [negative, positive], None where none was seen or named."""
        known = self._models.labels[0] if self._models.keys else start(self._settings.task, self._settings.positive)
        return list(known)

    @property
    def n_seen(self) -> int:
        """Examples scored by ``learn_one``."""
        return int(self._models.counts[0, N_SEEN]) if self._models.keys else 0

    @property
    def n_learned(self) -> int:
        """Labelled examples that had features."""
        return int(self._models.counts[0, N_LEARNED]) if self._models.keys else 0

    @property
    def n_updates(self) -> int:
        """Examples that moved the weights."""
        return int(self._models.states[0].counts[0, UPDATES]) if self._models.keys else 0

    def weights(self) -> dict[Any, Any]:
        """Return {feature: weight}; multiclass {label: {...}}; a learner of views {view: {...}}.

        Multiclass with views: {label: {view: {...}}}.
        """
        models = self._models
        return self._by_name(self._learner.weights(models.layout, models.states[0].arrays))

    def variances(self) -> dict[Any, Any]:
        """Return the diagonal of the covariance like :meth:`weights`; {} for a first-order learner."""
        models = self._models
        variances = self._learner.variances(models.layout, models.states[0].arrays, np.arange(len(models.keys)))
        return {} if variances is None else self._by_name(variances)

    def _by_name(self, values: FloatArray) -> dict[Any, Any]:
        models = self._models
        if not models.keys:
            return {}
        names = [models.vocabulary.names[j] for j in models.feature.tolist()]
        table = values.reshape(len(names), int(models.layout.blocks[0]))
        chosen = learner_features(self._learner, models, names)
        blocks = [{names[j]: float(table[j, c]) for j in chosen} for c in range(table.shape[1])]
        if self._learner.row.views:
            blocks = [_by_view(models.settings.views, block) for block in blocks]
        return dict(zip(models.labels[0], blocks, strict=True)) if self._settings.task == "multiclass" else blocks[0]

    def to_bytes(self) -> bytes:
        """Return the same versioned bytes that the stream keeps in state."""
        return codec.encode(self._models)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._learner.params.items())
        return f"palearn.make({self._learner.algorithm!r}, task={self._settings.task!r}, {options})"

    # -- between names and arrays ----------------------------------------------------------------------

    def _settings_for(self, x: Mapping[str, Any]) -> Settings:
        """Return the settings, with the views' names taken from the first example that has them."""
        if not isinstance(x, Mapping):
            raise RecordError("bad_features", f"features must be a mapping of names to values, got {x!r:.80}")
        nested = bool(x) and all(isinstance(part, Mapping) for part in x.values())
        if self._settings.views or not (nested or self._learner.row.views):
            return self._settings
        if self._models.keys or not nested:
            detail = "views must map each view's name to its features, from the first example on"
            raise RecordError("bad_view", detail)
        if self._learner.row.views and len(x) < 2:
            raise RecordError("bad_view", f"{self._learner.algorithm} needs two views or more, got {len(x)}")
        return replace(self._settings, views=check_views([str(view) for view in x]))

    def _outcome(self, x: Mapping[str, Any]) -> Outcome | None:
        """Score one example; None before there is anything to score it with."""
        out = self._fast_path.score(x)
        if out is not None:
            return out
        settings = self._settings_for(x)
        record = record_of(settings, x)
        if not self._models.keys or not self.labels:
            return None
        return self._models.score(_examples(self._models, record, self._models.labels))[0]


def record_of(
    settings: Settings, x: Mapping[str, Any], label: LabelValue | None = None, weight: float | None = None
) -> Record:
    """Return features, or views of features, as a record.

    Raises
    ------
    RecordError
        They are no mappings of names to numbers.
    """
    if settings.views:
        if not isinstance(x, Mapping):
            raise RecordError("bad_view", f"views must map each view's name to its features, got {x!r:.80}")
        views = {str(view): numbers(f"view {view!r}", plain(part)) for view, part in x.items()}
        return Record(label=label, views=views, weight=weight)
    return Record(label=label, features=numbers("features", plain(x)), weight=weight)


def plain(features: Any) -> Any:
    """Return a mapping as a dict of Python's own numbers; numpy's booleans are none of them."""
    if not isinstance(features, Mapping):
        return features
    return {name: _python(item) for name, item in features.items()}


def _python(item: Any) -> Any:
    """Return a numpy scalar as Python's own, anything else as it is."""
    return item.item() if isinstance(item, np.generic) else item


def _weight(weight: Any) -> float:
    """Return a weight as a finite number > 0, or raise ``bad_weight``."""
    try:
        number = float(weight) if isinstance(weight, Real) and not isinstance(weight, bool) else 0.0
    except OverflowError:
        number = math.inf
    if not 0.0 < number < math.inf:
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {weight!r:.80}")
    return number


def _examples(models: Models, record: Record, labels: list[Known]) -> Examples:
    """Return one checked example; ``labels`` are extended by a new label."""
    columns, faults = of_records([record], LabelCodes(), models.vocabulary, 2**31 - 1)
    rows = prepare(models, np.zeros(1, np.int64), columns, known=labels)
    for fault in (faults | rows.faults).values():
        raise fault
    return rows.examples


def check_views(names: list[str]) -> tuple[str, ...]:
    """Return the views' names, or raise if one is no text that can be written, empty, twice there or holds a colon."""
    for name in names:
        if not name or ":" in name or names.count(name) > 1 or not is_utf8(name):
            raise LearnerError(f"a view's name must be text without ':', each once; got {name!r}")
    return tuple(names)


def _by_view(views: tuple[str, ...], values: dict[str, float]) -> dict[str, Any]:
    out: dict[str, Any] = {view: {} for view in views}
    for name, value in values.items():
        view, _, rest = name.partition(":")
        out[view][rest] = value
    return out


def learner_features(learner: Learner, models: Models, names: list[str]) -> list[int]:
    """Return which of a key's features the learner uses: of its view, with the biases that are its own."""
    views = models.settings.views
    if not views:
        return list(range(len(names)))
    own = {f"{view}:{BIAS}" for view in views}
    if learner.row.views:
        return [j for j, name in enumerate(names) if name != BIAS]
    view = None if learner.view is None else f"{learner.view}:"
    return [
        j
        for j, name in enumerate(names)
        if name == BIAS or (name not in own and (view is None or name.startswith(view)))
    ]


def make(
    name: str,
    *,
    task: str = "binary",
    bias: bool = True,
    positive: LabelValue | None = None,
    tie: str = "negative",
    drift: object = None,
    **options: Any,
) -> Model:
    """Make a model by the name of its learner.

    Parameters
    ----------
    name
        A name of :func:`learners`, e.g. ``"arow"``.
    task
        ``"binary"`` or ``"multiclass"``.
    bias
        Add a constant feature 1, a feature like any other (the papers have none).
    positive
        Binary: the label of the positive class; needed where labels are text.
    tie
        Binary: the class of a score of exactly 0, ``"negative"`` or ``"positive"``.
    drift
        What to do where its mistakes rise: ``"restart"``, ``"relax"`` (reset the covariance), or a mapping of these
        as ``action`` and the test's options (:mod:`palearn.learners.drift_test`); None: there is no test.
    **options
        Hyper-parameters, e.g. ``r=1.0``; see :func:`learners` for domains and defaults.

    Raises
    ------
    LearnerError
        An option is unknown or outside its domain.
    """
    if not isinstance(bias, bool):
        raise LearnerError(f"{name}: bias must be True or False, got {bias!r}")
    if positive is not None and task != "binary":
        raise LearnerError(f"{name}: positive={positive!r} is for the binary task, task is {task!r}")
    positive = _python(positive)
    try:
        check_label(positive)
    except RecordError:
        raise LearnerError(
            f"{name}: positive must be a label (text, a finite number or a boolean) or None, got {positive!r:.80}"
        ) from None
    learner = Learner(name, name, task=task, tie=tie, options=options, drift=drift)
    return Model(Settings(task=task, positive=positive, bias=bias, max_features=None), learner)


def from_bytes(blob: bytes) -> Model:
    """Return the model in bytes of :meth:`Model.to_bytes`, or of a state with one key and one learner.

    Raises
    ------
    StateFormatError
        The bytes are damaged, too new, or hold more than one model.
    """
    models = codec.decode(blob)
    if len(models.learners) != 1 or len(models.keys) > 1:
        raise StateFormatError(
            f"these bytes hold {len(models.keys)} keys and {len(models.learners)} learners; "
            "palearn.from_bytes reads one model, palearn.models.codec.decode all of them"
        )
    return Model(models.settings, models.learners[0], models)


learners = described
