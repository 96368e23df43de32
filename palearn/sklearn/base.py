"""What all estimators share: input checks, classes, epochs, stopping, weights."""

import logging
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_array, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from palearn.errors import LearnerError
from palearn.learners import LEARNERS, Learner, Outcome, Rows
from palearn.learners.hyperparameters import resolve
from palearn.models.matrix import Matrix, MatrixModel
from palearn.sklearn.documented import COMMON
from palearn.types import FloatArray, IntArray

_log = logging.getLogger("palearn.sklearn")


class Examples(NamedTuple):
    """Examples to learn: compressed rows, class numbers, sample weights > 0."""

    x: Any
    y: IntArray
    weight: FloatArray

    def take(self, rows: IntArray) -> "Examples":
        """Return some of the examples, in this order."""
        return Examples(self.x[rows], self.y[rows], self.weight[rows])


class Plateau:
    """Counts epochs without improvement of a quality, the higher the better.

    Parameters
    ----------
    tol
        Least improvement over the best epoch; None: every epoch is one.
    patience
        So many epochs in a row without improvement are the end.
    """

    def __init__(self, tol: float | None, patience: int) -> None:
        self.tol, self.patience = tol, patience
        self.best, self.stale = -np.inf, 0

    def reached(self, quality: float) -> bool:
        """Count an epoch; return whether it was the last."""
        improved = self.tol is None or quality >= self.best + self.tol
        self.stale = 0 if improved else self.stale + 1
        self.best = max(self.best, quality)
        return self.stale >= self.patience


@dataclass(kw_only=True, eq=False, repr=False)
class OnlineClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of the estimators; a subclass names its learners and declares their parameters as fields.

    One model serves two classes, or many where the learner has many; else each class has one against all others.
    """

    #: Rows of the table of learners; which one is used, :meth:`_algorithm` says.
    algorithms: ClassVar[tuple[str, ...]]
    #: Whether C = inf is allowed and means the learner with a hard margin.
    hard_margin: ClassVar[bool] = False
    one_versus_all: ClassVar[bool] = False

    fit_intercept: bool = True
    max_iter: int = 1000
    tol: float | None = 1e-3
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    shuffle: bool = True
    verbose: int = 0
    random_state: Any = None
    warm_start: bool = False

    # -- learning --------------------------------------------------------------------------------------

    # No sample_weight: what an example does depends on those before it, so scikit-learn's check that a weight of 2 is
    # two rows, in an order of its own, can hold for no online learner. partial_fit has it: there the order is given.
    def fit(self, X: Any, y: Any) -> Self:
        """Learn a new model (``warm_start``: learn on), epoch after epoch until the loss no longer falls.

        Parameters
        ----------
        X
            Examples x features, dense or sparse.
        y
            Labels.
        """
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any, coef: Any = None, intercept: Any = None) -> Self:
        common = self._common()
        again = common["warm_start"] and hasattr(self, "_models")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=not again)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        train, held_out = self._split(self._examples(X, classes, numbers), common)
        if not again:
            self._begin(classes, common["fit_intercept"])
        elif np.array_equal(classes, self.classes_):
            self._go_on(common["fit_intercept"], restart=True)
        else:
            raise ValueError(f"warm_start needs the model's classes {self.classes_}, y has {classes}")
        self._place(coef, intercept)
        self.n_iter_ = self._learn(train, held_out, common)
        self.t_ = 1.0 + self.n_iter_ * train.y.size
        if common["tol"] is not None and self.n_iter_ == common["max_iter"]:
            message = f"the loss may still fall after max_iter={self.n_iter_} epochs; tol=None asks for just so many"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        return self._read()

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn each example once, in the order given, on from the last call.

        Parameters
        ----------
        X
            Examples x features, dense or sparse.
        y
            Labels.
        classes
            All labels that will ever come; needed in the first call.
        sample_weight
            Weights >= 0, which multiply the learner's penalty of a loss; 0 leaves an example out.
            A learner without such a price (hard margins, CW, second-order perceptron) knows only 0 and more.
        """
        common = self._common() | {"max_iter": 1, "shuffle": False}
        first = not hasattr(self, "_models")
        if common["early_stopping"]:
            raise ValueError("early_stopping should be False with partial_fit")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=first)
        check_classification_targets(y)
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} is not the same as on the last call: {self.classes_}")
        encoder = LabelEncoder().fit(np.asarray(classes) if first else self.classes_)
        train = self._examples(X, encoder.classes_, encoder.transform(y), sample_weight)
        if first:
            self._begin(encoder.classes_, common["fit_intercept"])
            self.t_ = 1.0
        else:
            self._go_on(common["fit_intercept"])
        self.n_iter_ = self._learn(train, None, common)
        self.t_ += train.y.size
        return self._read()

    def _learn(self, train: Examples, held_out: Examples | None, common: dict[str, Any]) -> int:
        """Learn epochs until every model has stopped; return how many."""
        models = self._models
        stops = [Plateau(common["tol"], common["n_iter_no_change"]) for _ in models]
        random = check_random_state(self.random_state)
        active, epoch = list(range(len(models))), 0
        while active and epoch < common["max_iter"]:
            if epoch == 0 or common["shuffle"]:
                part = train.take(random.permutation(train.y.size)) if common["shuffle"] else train
                rows = models[0].rows(part.x, part.y, part.weight)
            epoch += 1
            outcomes = [self._learn_rows(models[p], self._own(rows, p)) for p in active]
            losses = [float(outcome.hinge.mean()) for outcome in outcomes]
            if common["verbose"]:
                _log.info("epoch %d: mean loss %s", epoch, " ".join(f"{loss:.6g}" for loss in losses))
            gains = [-loss for loss in losses] if held_out is None else self._accuracies(held_out, active)
            active = [p for p, gain in zip(active, gains, strict=True) if not stops[p].reached(gain)]
        return epoch

    def _learn_rows(self, model: Any, rows: Rows) -> Outcome:
        outcome: Outcome = model.run(rows)
        return outcome

    def _own(self, rows: Rows, problem: int) -> Rows:
        """Return the rows with the labels of one model: where there are several, its class against all others."""
        return rows if len(self._models) == 1 else rows._replace(y=(rows.y == problem).astype(np.int64))

    def _accuracies(self, held_out: Examples, problems: list[int]) -> list[float]:
        """Return the weighted accuracy of some models."""
        rows = self._models[0].rows(held_out.x, held_out.y, held_out.weight)
        accuracies = []
        for p in problems:
            own = self._own(rows, p)
            predicted = self._models[p].run(own._replace(y=np.full(own.y.size, -1))).predicted
            accuracies.append(float(np.average(predicted == own.y, weights=own.weight)))
        return accuracies

    def _split(self, examples: Examples, common: dict[str, Any]) -> tuple[Examples, Examples | None]:
        """Hold out a part for early stopping; each class keeps its share."""
        if not common["early_stopping"]:
            return examples, None
        splitter = StratifiedShuffleSplit(
            n_splits=1, test_size=common["validation_fraction"], random_state=self.random_state
        )
        learned, held_out = next(splitter.split(np.zeros((examples.y.size, 1)), examples.y))
        return examples.take(learned), examples.take(held_out)

    def _examples(self, X: Matrix, classes: Any, y: IntArray, sample_weight: Any = None) -> Examples:
        """Return the examples whose weight is not 0."""
        weight = np.ones(y.size)
        if sample_weight is not None:
            weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
        if weight.shape != y.shape:
            raise ValueError(f"sample_weight must have shape {y.shape}, got {weight.shape}")
        weight = weight * self._class_weight(classes, y)[y]
        if weight.min() < 0.0 or not weight.any():
            raise ValueError("weights must not be negative, nor zero for all examples")
        examples = Examples(sparse.csr_array(X), y, weight)
        return examples if weight.all() else examples.take(np.flatnonzero(weight))

    # -- models ----------------------------------------------------------------------------------------

    def _common(self) -> dict[str, Any]:
        """Return the common parameters, checked."""
        return resolve(type(self).__name__, COMMON, {p.name: getattr(self, p.name) for p in COMMON})

    def _algorithm(self) -> str:
        """Return the row of the table that the parameters name."""
        return self.algorithms[0]

    def _learner(self, classes: int) -> Learner:
        row = LEARNERS[self._algorithm()]
        given = {p.name: getattr(self, p.name) for p in row.parameters if hasattr(self, p.name)}
        unset = [p.name for p in row.parameters if p.optional and given.get(p.name) is None]
        options = {name: value for name, value in given.items() if name not in unset}
        task = "binary" if classes == 2 or self.one_versus_all else "multiclass"
        return Learner(type(self).__name__, row.name, task=task, options=options)

    def _model(self, learner: Learner, classes: int, bias: bool) -> MatrixModel:
        return MatrixModel(learner, self.n_features_in_, classes, bias=bias)

    def _begin(self, classes: Any, bias: bool) -> None:
        """Make new models."""
        k = classes.size
        if k < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {k} class")
        learner = self._learner(k)
        problems, own = (k, 2) if self.one_versus_all and k > 2 else (1, k)
        self._models = [self._model(learner, own, bias) for _ in range(problems)]
        self.classes_ = classes

    def _go_on(self, bias: bool, restart: bool = False) -> None:
        """Learn on with the models there are, by the parameters of now; ``restart``: it is a new fit."""
        learner = self._learner(self.classes_.size)
        for model in self._models:
            if model.bias != bias:
                raise LearnerError(f"fit_intercept={bias} is not what the model was begun with; learn a new model")
            model.go_on_with(learner)

    def _class_weight(self, classes: Any, y: IntArray) -> FloatArray:
        """Return the weight of each class; ``y`` are the class numbers of the examples that count."""
        return np.ones(classes.size)

    def _place(self, coef: Any, intercept: Any) -> None:
        """Begin from given weights (None: as they are), for one-block models that keep nothing else."""
        k, features = len(self._models), self.n_features_in_
        coefs = [None] * k if coef is None else shaped("coef_init", coef, (k, features))
        intercepts = [None] * k if intercept is None else shaped("intercept_init", intercept, (k,))
        for model, row, constant in zip(self._models, coefs, intercepts, strict=True):
            if row is not None:
                model.arrays["w"][:features] = row
            if constant is not None:
                model.arrays["w"][features:] = constant

    def _read(self) -> Self:
        """Write the weights where scikit-learn's users look for them."""
        weights = np.concatenate([model.weights() for model in self._models])
        features = self.n_features_in_
        self.coef_ = weights[:, :features].copy()
        self.intercept_ = weights[:, features].copy() if weights.shape[1] > features else np.zeros(len(weights))
        return self

    # -- predicting ------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores, w.x + b: of ``classes_[1]`` (n), or of each of many classes (n, classes)."""
        scores = self._scores(self._input(X))
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Any:
        """Return the label of the highest score; of two classes the first where the score is exactly 0."""
        scores = self._scores(self._input(X))
        return self.classes_[scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0.0).astype(int)]

    def _input(self, X: Any) -> Matrix:
        check_is_fitted(self, "coef_")
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def _scores(self, X: Matrix) -> FloatArray:
        return np.asarray(safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def shaped(name: str, values: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return numbers in a shape; one row may stand alone."""
    found = np.asarray(values, dtype=np.float64)
    if found.shape not in {shape, shape[1:] if shape[0] == 1 else shape}:
        raise ValueError(f"{name} must have shape {shape}, got {found.shape}")
    return found.reshape(shape)
