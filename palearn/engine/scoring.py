"""Models that score records and do not learn them: those of a models table's rows, or any others.

A score needs the weights, and of a diagonal ``sop`` the variances too; both stand in a row bit for bit, so what
scores here is what the stream would have said with the same models. All else that learners keep (a full covariance,
sums of gradients or classes) only learning needs, and rows do not have it. The one exception is ``sop`` with a full
covariance, which scores with the whole matrix: a row has its diagonal, and cannot score.

A binary model names its classes by the first labels that it saw, -1 and 1 until then. A row does not say whether it has
seen them: a new name for a class is told by the row's name, which in the stream it could have changed.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palearn.engine.explain import Contribution, contributions
from palearn.engine.join import is_whole
from palearn.engine.result_rows import Texts
from palearn.engine.validation import Chunk, Fault, accept
from palearn.errors import ConfigError, RecordError
from palearn.learners import LEARNERS, Learner
from palearn.models import from_table
from palearn.models.columns import Columns
from palearn.models.keyed import Examples, Models
from palearn.models.labels import Known, class_labels, classify, texts_of
from palearn.models.state import MAX_BYTES, Settings
from palearn.models.vectorize import Flat, flatten
from palearn.records import LabelValue, Record, label_text
from palearn.tables.schemas import PREDICTIONS
from palearn.types import FloatArray, IntArray

#: What is read of a models table.
COLUMNS = (*from_table.COLUMNS, "algorithm", "format_version")
#: A row a scored record and learner: place in the chunk, and columns that are those of ``predictions/``.
SCHEMA = pa.schema([("row", pa.int64()), *(PREDICTIONS.field(i) for i in range(PREDICTIONS.get_field_index("topic")))])
#: What a row's ``params`` say besides hyper-parameters: of the learner, and of all models of a job.
_DESCRIBED = ("learner", "algorithm", "params")
_OWN, _SHARED = ("tie", "view"), ("task", "bias", "positive", "views")
#: What they say since they were first written, and what is taken where they do not.
_BOUNDS: dict[str, Any] = {"max_bytes": MAX_BYTES, "max_features": None, "columns": {}}
#: More features than a record can have.
_MANY = 2**31


class Stranger(NamedTuple):
    """A record of a key without a model: its place in the chunk, the key, and whether it has a label."""

    row: int
    key: str
    labelled: bool


class Scored(NamedTuple):
    """The results of scoring records.

    Parameters
    ----------
    row, id, key, label
        The scored records in the order of the chunk: place in it, id, number of the model, label as a text (None:
        there is none).
    y
        Their class numbers, -1 without a label; of a label that the model does not know, one that nothing predicts.
    score, predicted, scores
        Learners x records (x classes); as in :class:`palearn.learners.Outcome`.
    probabilities
        Learners x records x classes.
    faults
        Records that the stream would reject.
    no_model
        Records of keys without a model.
    parts
        Places of records that lack features, or views, and would wait for the rest of their example.
    """

    row: IntArray
    id: list[str | None]
    key: IntArray
    label: list[str | None]
    y: IntArray
    score: FloatArray
    predicted: IntArray
    scores: list[FloatArray]
    probabilities: list[FloatArray]
    faults: list[Fault]
    no_model: list[Stranger]
    parts: list[int]

    @property
    def labelled(self) -> int:
        """How many of the scored records have a label."""
        return int((self.y >= 0).sum())

    @property
    def mistakes(self) -> IntArray:
        """Each learner's mistakes among them; a label that the key has never seen is one."""
        wrong: IntArray = np.count_nonzero((self.predicted != self.y) & (self.y >= 0), axis=1)
        return wrong


def score(models: Models, chunk: Chunk) -> Scored:
    """Score records one by one: what is said of one depends on its model alone, not on the other records.

    Nothing of the models is changed.
    """
    settings, names = models.settings, len(models.vocabulary.names)
    accepted, faults = accept(chunk, models.vocabulary, models.max_features, settings)
    index = np.array([models.index.get(name, -1) for name in accepted.names], np.int64)
    key, whole = index[accepted.key], np.ones(accepted.key.size, np.bool_)
    whole[[i for i, record in accepted.record.items() if not is_whole(record, settings.views)]] = False
    no_model = [
        Stranger(int(accepted.row[i]), accepted.names[accepted.key[i]], bool(accepted.columns.code[i] >= 0))
        for i in np.flatnonzero(whole & (key < 0)).tolist()
    ]
    at = np.flatnonzero(whole & (key >= 0))
    y, label, contradictions = _classified(models, key[at], accepted.columns.take(at))
    faults += [Fault(int(accepted.row[at[j]]), error) for j, error in contradictions.items()]
    fine = np.arange(at.size)
    if contradictions:
        fine = np.setdiff1d(fine, list(contradictions))
    at, y = at[fine], y[fine]
    score, predicted, scores, probabilities = _score(models, key[at], y, accepted.columns.take(at).flat)
    models.vocabulary.forget(names)  # names that the models do not have would pile up
    records = [accepted.record.get(i) for i in at.tolist()]
    return Scored(
        accepted.row[at],
        [None if record is None or record.id is None else str(record.id) for record in records],
        key[at],
        [label[j] for j in fine.tolist()],
        y,
        score,
        predicted,
        scores,
        probabilities,
        faults,
        no_model,
        accepted.row[~whole].tolist(),
    )


def _classified(
    models: Models, key: IntArray, columns: Columns
) -> tuple[IntArray, list[str | None], dict[int, RecordError]]:
    """Number each record's label by what its model knows: class numbers, texts of the labels, contradictions.

    The records are classified as if each had a model of its own: a label that is new in one is new in the next one too.
    So records of one key and label are alike.
    """
    settings, values = models.settings, [*columns.labels, None]
    pair, of = np.unique(key * len(values) + columns.code % len(values), return_inverse=True)
    keys = (pair // len(values)).tolist()
    labels = [values[c] for c in (pair % len(values)).tolist()]
    known: list[Known] = [models.labels[k] for k in keys]
    y, _, faults = classify(np.arange(pair.size), labels, known, settings, models.max_labels)
    named = [class_labels(own, settings) for own in map(models.labels.__getitem__, keys)] if settings.signed else known
    texts = texts_of([own[c] if c >= 0 else None for own, c in zip(named, y.tolist(), strict=True)])
    wrong = {i: faults[p] for i, p in enumerate(of.tolist()) if p in faults} if faults else {}
    return y[of], [texts[p] for p in of.tolist()], wrong


def _score(
    models: Models, key: IntArray, y: IntArray, flat: Flat
) -> tuple[FloatArray, IntArray, list[FloatArray], list[FloatArray]]:
    """Return scores and predictions, learners x records, and all classes' scores and probabilities.

    The records may be in any order of their keys.
    """
    order = np.argsort(key, kind="stable")
    back = np.argsort(order)
    examples = _examples(models, key[order], y[order], flat.take(order))
    outcomes = models.score(examples)
    probabilities = [p[back] for p in models.probabilities(examples, outcomes)]
    score, predicted = (np.array([getattr(out, name)[back] for out in outcomes]) for name in ("score", "predicted"))
    return score, predicted, [out.scores[back] for out in outcomes], probabilities


def _examples(models: Models, key: IntArray, y: IntArray, flat: Flat) -> Examples:
    known = np.array([len(models.labels[k]) for k in key.tolist()], np.int64)
    return Examples(flat, key, y, known, np.ones(key.size))


def label_texts(models: Models, k: int) -> list[str | None]:
    """Return the labels of a key in class order, as the tables name them."""
    return texts_of(class_labels(models.labels[k], models.settings))


def explain(
    models: Models, key: str, record: Record, learner: int, label: LabelValue | None = None
) -> list[Contribution]:
    """Return what each feature of a record adds to a learner's score, largest first.

    Parameters
    ----------
    models, key, record
        The models, a key that they have, and a record of it.
    learner
        The learner's number.
    label
        Multiclass: the label whose score it is; None: the predicted one.

    Raises
    ------
    RecordError
        The record cannot be scored.
    ConfigError
        The key's model has no such label.
    LearnerError
        The learner's score is no sum over features.
    """
    names, k = len(models.vocabulary.names), models.index[key]
    flat, faults = flatten([record], models.vocabulary, models.max_features)
    try:
        for fault in faults.values():
            raise fault
        examples = _examples(models, np.array([k]), np.full(1, -1), flat)
        block, labels = 0, label_texts(models, k)
        if models.settings.task == "multiclass":
            wanted = None if label is None else label_text(label)
            if wanted is not None and wanted not in labels:
                raise ConfigError(f"the model of key {key!r:.80} has no label {wanted!r:.80}")
            block = int(models.score(examples)[learner].predicted[0]) if wanted is None else labels.index(wanted)
        elif label is not None and label_text(label) not in labels:
            raise ConfigError(f"the model of key {key!r:.80} has no label {label_text(label)!r:.80}")
        return contributions(models, learner, models.rows(examples)[learner], 0, block) if block >= 0 else []
    finally:
        models.vocabulary.forget(names)


def strongest(models: Models, k: int, learner: int, top: int) -> dict[str, Any]:
    """Return a key's labels, how many features a learner has for it, and its largest weights, largest first."""
    state, layout = models.states[learner], models.layout
    part, blocks = slice(int(layout.start[k]), int(layout.start[k + 1])), int(layout.blocks[k])
    weights = models.learners[learner].weights(layout, state.arrays)[part].tolist()
    variances = models.learners[learner].variances(layout, state.arrays, np.array([k]))
    names, labels = models.vocabulary.names, label_texts(models, k)
    first = int(models.feature_ptr[k])
    found = []
    for at in sorted(range(len(weights)), key=lambda at: -abs(weights[at]))[:top]:
        variance = None if variances is None else float(variances[part][at])
        found.append(
            {
                "feature": names[models.feature[first + at // blocks]],
                "label": labels[len(labels) - blocks + at % blocks],
                "weight": weights[at],
                "variance": variance,
                "z_score": None if variance is None else weights[at] / math.sqrt(variance),
            }
        )
    return {"labels": labels, "features": int(layout.features[k]), "weights": found}


def rows(models: Models, found: Scored) -> pa.RecordBatch:
    """Return scored records as rows of :data:`SCHEMA`, one a learner of each."""
    learners, n = len(models.learners), found.row.size
    record, texts = np.repeat(np.arange(n), learners), Texts(models, np.unique(found.key))
    at, predicted, y = pa.array(record), found.predicted.T.ravel(), found.y[record]
    columns = {
        "row": pa.array(found.row[record]),
        "key": pa.array([models.keys[k] for k in found.key.tolist()], pa.string()).take(at),
        "id": pa.array(found.id, pa.string()).take(at),
        "learner": pa.array([learner.name for learner in models.learners] * n, pa.string()),
        "score": pa.array(found.score.T.ravel()),
        "predicted": texts.name(found.key[record], predicted),
        "probability": pa.array(_of_predicted(found).T.ravel(), mask=predicted < 0),
        "label": pa.array(found.label, pa.string()).take(at),
        "correct": pa.array(predicted == y, mask=y < 0),
    }
    return pa.record_batch([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _of_predicted(found: Scored) -> FloatArray:
    """Return the probability of each predicted label, learners x records."""
    at = np.arange(found.row.size)
    return np.array([p[at, np.maximum(y, 0)] for p, y in zip(found.probabilities, found.predicted, strict=True)])


def models_from_rows(rows: pa.Table, only: Iterable[str] = ()) -> Models:
    """Return models that score as those of a models table's rows (:data:`COLUMNS`), one a key and learner.

    Parameters
    ----------
    rows
        The rows; learners are in the order of their first one.
    only
        These learners alone, if any is named.

    Raises
    ------
    ConfigError
        The rows cannot score, contradict themselves or each other, or have no such learner.
    """
    versions = [version for version in rows.column("format_version").unique().to_pylist() if version is not None]
    from_table.require_known_format(max(versions, default=None))
    there, wanted = rows.column("learner").unique().to_pylist(), list(dict.fromkeys(only))
    if missing := [name for name in wanted if name not in there]:
        raise ConfigError(f"the models have no learner {missing[0]!r:.80}; they have {', '.join(sorted(there))}")
    described = rows.select([*_DESCRIBED, "variances"]).group_by(list(_DESCRIBED))
    known, shared, bounds = dict[str, dict[str, Any]](), list[dict[str, Any]](), dict(_BOUNDS)
    learners, limits = dict[str, Learner](), list[int]()
    for row in described.aggregate([("variances", "count")]).to_pylist():
        params = _params(row)
        bounds |= {name: params.pop(name) for name in _BOUNDS if name in params}
        limits.append(_most_features(row["algorithm"], params))
        if wanted and row["learner"] not in wanted:
            continue
        if known.setdefault(row["learner"], params) != params:
            raise ConfigError(f"the models of learner {row['learner']!r:.80} have not all the same params")
        shared.append({name: params[name] for name in _SHARED})
        own = {name: item for name, item in params.items() if name not in _SHARED}
        learners[row["learner"]] = _scorer(row, shared[-1]["task"], own)
    if wanted:
        rows = rows.filter(pc.is_in(rows.column("learner"), pa.array(wanted)))
    if any(x != shared[0] for x in shared):
        raise ConfigError(f"the models are not of one job: their {', '.join(_SHARED)} differ")
    keys = rows.column("key").unique()
    if rows.num_rows != len(keys) * len(learners):
        raise ConfigError("not every key has one row of every learner; name the learners that score (--learner)")
    first = shared[0]
    most = min([*limits, bounds["max_features"] or _MANY])
    bounds["max_features"] = most if most < _MANY else None
    settings = Settings(**(first | bounds | {"views": tuple(first["views"])}))
    return from_table.from_table(rows, settings, [learners[name] for name in wanted or there])


def _most_features(algorithm: str, params: dict[str, Any]) -> int:
    """Return how many features a record may have for a learner of the job, whether it scores or not."""
    if algorithm not in LEARNERS:
        return _MANY
    own = {name: item for name, item in params.items() if name not in (*_SHARED, *_OWN)}
    return Learner(algorithm, algorithm, task=params["task"], options=own).max_features or _MANY


def _params(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row's ``params`` say."""
    params = msgspec.json.decode(row["params"])
    if missing := [name for name in (*_SHARED, *_OWN) if name not in params]:
        raise ConfigError(
            f"the params of learner {row['learner']!r:.80} do not say {' and '.join(missing)}: an older palearn wrote "
            "them; write the table again (palearn state export CHECKPOINT OUT)"
        )
    return dict(params)


def _scorer(row: dict[str, Any], task: str, params: dict[str, Any]) -> Learner:
    """Return a learner that keeps what a row has, and scores as the row's does."""
    name, algorithm = row["learner"], row["algorithm"]
    own = {word: params.pop(word) for word in _OWN}
    if algorithm in LEARNERS and LEARNERS[algorithm].linear:
        # The score is weights times features; what stands beside a weight, its variance, only an explanation shows.
        algorithm, params = "arow" if row["variances_count"] else "perceptron", {}
    learner = Learner(name, algorithm, task=task, options=params, **own)
    if learner.covariance is not None and learner.covariance.triangular:
        raise ConfigError(
            f"learner {name!r:.80} ({row['algorithm']}) scores with a full covariance, of which a models table has the "
            "diagonal only; name other learners (--learner)"
        )
    return learner
