"""The learners as River classifiers: the models of :func:`palearn.make` with River's parameters and habits.

A feature's name that is not text is taken as its text, so that numbered columns work. Labels may be booleans,
numbers or text. With ``task="binary"`` and no ``positive``, true and numbers > 0 are the positive class; where labels
are text, the first one seen is, and the first other one is the negative class. A class is predicted once its label
has been seen (of two booleans each names the other); until then ``predict_one`` returns None, as River's evaluation
expects.

A margin is no probability: ``predict_proba_one`` raises NotImplementedError, River's convention for classifiers that
have none. ``score_one`` returns the margin.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from palearn.errors import LearnerError, RecordError
from palearn.learners import LEARNERS
from palearn.models.single import Model, check_views, make
from palearn.records import LabelValue

try:
    from river import base
except ImportError as error:
    if (error.name or "").partition(".")[0] != "river":
        raise
    raise ImportError(
        f"palearn.river needs River 0.22 or newer: pip install 'palearn[river]' ({error})", name=error.name
    ) from error

__all__ = [
    "AROWClassifier",
    "AdaGradRDAClassifier",
    "CWClassifier",
    "NHERDClassifier",
    "PAClassifier",
    "PAMClassifier",
    "PAMeanClassifier",
    "Perceptron",
    "SCWClassifier",
    "SPAClassifier",
    "SecondOrderPerceptron",
    "TwoViewPAClassifier",
]

Features = Mapping[Any, Any]
T = TypeVar("T")

#: Domain and meaning of the parameters that are no hyper-parameters of a learner.
_COMMON = {
    "task": ("'binary' or 'multiclass'", "Two classes, or any number."),
    "bias": ("True or False", "Add a constant feature 1, a feature like any other."),
    "positive": ("a label or None", "Binary: the label of the positive class."),
    "tie": ("'negative' or 'positive'", "Binary: the class of a score of exactly 0."),
    "views": (
        "a dict {view: names} or None",
        "Names of each view's features; a feature named in none is of the last view. None: x maps views to features.",
    ),
}


@dataclass_transform(kw_only_default=True, eq_default=False)
def _classifier(cls: type[T]) -> type[T]:
    """Make ``__init__`` of the fields, all keyword-only, and write them into the docstring."""
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)  # cls itself
    rows = {mode: LEARNERS[name] for mode, name in made.modes.items()}
    known = {p.name: (p.domain, p.meaning) for row in rows.values() for p in row.parameters} | _COMMON
    known["mode"] = (" or ".join(map(str, rows)), "; ".join(f"{mode}: {row.summary}" for mode, row in rows.items()))
    lines = [inspect.cleandoc(made.__doc__), "\nParameters\n----------"]
    for name in inspect.signature(made).parameters:
        domain, meaning = known[name]
        lines.append(f"{name} : {domain}, default={getattr(made, name)!r}\n    {meaning}")
    made.__doc__ = "\n".join(lines) + "\n"
    return cls


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(base.Classifier):
    """A model with River's habits; ``modes`` has the learner of each value of the parameter ``mode``."""

    modes: ClassVar[dict[int, str]]

    bias: bool = True
    positive: LabelValue | None = None
    tie: str = "negative"

    def __post_init__(self) -> None:
        self._model = self._make(self.positive)

    def learn_one(self, x: Features, y: LabelValue, w: float = 1.0) -> None:
        """Learn one example.

        Parameters
        ----------
        x
            Features.
        y
            Label.
        w
            Weight of the example: multiplies C (and divides r); > 0.

        Raises
        ------
        RecordError
            A feature is no finite number, or the label contradicts the task.
        """
        model = self._model
        if isinstance(y, str) and model.known_labels == [None, None]:
            model = self._make(str(y))
        model.learn_one(self._features(x), y, w)
        self._model = model

    def predict_one(self, x: Features) -> LabelValue | None:  # type: ignore[override]  # takes nothing but x
        """Return the predicted label; None where that class's label has not been seen."""
        label = self._model.predict_one(self._features(x))
        known = self._model.known_labels
        seen = label in known or any(isinstance(other, bool) for other in known)
        return label if seen else None

    def score_one(self, x: Features) -> float | dict[LabelValue, float]:
        """Return the score w.x (binary; > 0 is positive), or each known class's score (multiclass)."""
        return self._model.score_one(self._features(x))

    @property
    def model(self) -> Model:
        """The model behind the classifier, with its counts, labels and bytes."""
        return self._model

    @property
    def weights(self) -> dict[Any, Any]:
        """Weights by feature (multiclass: by label, then feature), with that of the constant feature."""
        return self._model.weights()

    @property
    def variances(self) -> dict[Any, Any]:
        """Variances of the weights, in the shape of :attr:`weights`; {} for a first-order learner."""
        return self._model.variances()

    def _make(self, positive: LabelValue | None) -> Model:
        given = self._get_params()
        common = {name: given.pop(name) for name in ("task", "bias", "tie") if name in given}
        mode = given.pop("mode", min(self.modes))
        if mode not in list(self.modes):
            owner, modes = type(self).__name__, " or ".join(map(str, self.modes))
            raise LearnerError(f"{owner}: mode must be {modes}, got {mode!r}")
        # What is at its default is left out: it may be a parameter of another mode, or replaced by a third one.
        options = {
            name: value for name, value in given.items() if name not in _COMMON and value != getattr(type(self), name)
        }
        return make(self.modes[mode], positive=positive, **common, **options)

    def _features(self, x: Any) -> Any:
        """Return features under text names."""
        if not isinstance(x, Mapping) or {*map(type, x)} <= {str}:
            return x
        named = {str(name): value for name, value in x.items()}
        if len(named) < len(x):
            raise RecordError("bad_features", "two features have the same name as text, such as 1 and '1'; rename one")
        return named

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """Yield every mode, and many classes."""
        yield from ({"mode": mode} for mode in cls.modes) if hasattr(cls, "mode") else ({},)
        if hasattr(cls, "task"):
            yield {"task": "multiclass"}


@dataclass(kw_only=True, eq=False, repr=False)
class _AnyTask(_Classifier):
    """A learner of two classes or many."""

    task: str = "binary"

    @property
    def _multiclass(self) -> bool:
        return self.task == "multiclass"


@dataclass(kw_only=True, eq=False, repr=False)
class _Full(base.Base):
    """A covariance that may be full."""

    covariance: str = "diagonal"
    max_full_features: int = 2048


@dataclass(kw_only=True, eq=False, repr=False)
class _SecondOrder(_Full):
    """A covariance of weights."""

    projection: str = "covariance"
    initial_variance: float = 1.0


@_classifier
class Perceptron(_AnyTask):
    """Perceptron: moves on a mistake."""

    modes: ClassVar = {0: "perceptron"}


@_classifier
class SecondOrderPerceptron(_Full, _Classifier):
    """Second-order perceptron (Cesa-Bianchi, Conconi and Gentile 2005)."""

    modes: ClassVar = {0: "sop"}

    a: float = 1.0


@_classifier
class PAClassifier(_AnyTask):
    """Passive-aggressive (Crammer et al. 2006).

    ``river.linear_model.PAClassifier`` has the same modes, an intercept that does not count in the norm of x, and
    booleans as labels. Without an intercept both learn the same weights.
    """

    modes: ClassVar = {0: "pa", 1: "pa1", 2: "pa2"}

    C: float = 1.0
    mode: int = 1
    as_printed: bool = False


@_classifier
class SPAClassifier(_AnyTask):
    """Exact passive-aggressive over all wrong classes, by support classes (Matsushima et al. 2010)."""

    modes: ClassVar = {0: "spa", 1: "spa1", 2: "spa2"}

    C: float = 1.0
    mode: int = 1
    as_printed: bool = False


@_classifier
class PAMeanClassifier(_Classifier):
    """Passive-aggressive with class means (Tsai, Tseng, Lee and Pao)."""

    modes: ClassVar = {0: "pa_mean", 1: "pa_mean1", 2: "pa_mean2"}

    C: float = 1.0
    mode: int = 1
    gamma: float = 0.5
    queue: int = 0
    freeze_mean_after: int | None = None


@_classifier
class PAMClassifier(_SecondOrder, _AnyTask):
    """Passive-aggressive in Mahalanobis distance (Nguyen, Chang and Hui 2011)."""

    modes: ClassVar = {0: "pam", 1: "pam1", 2: "pam2"}

    C: float = 1.0
    mode: int = 1
    constraints: int | str = 1


@_classifier
class AROWClassifier(_SecondOrder, _AnyTask):
    """Adaptive regularisation of weights (Crammer, Kulesza and Dredze 2009)."""

    modes: ClassVar = {0: "arow"}

    r: float = 1.0
    loss: str = "squared_hinge"
    constraints: int | str = 1
    max_classes: int = 16


@_classifier
class CWClassifier(_SecondOrder, _AnyTask):
    """Confidence-weighted (Dredze, Crammer and Pereira 2008)."""

    modes: ClassVar = {0: "cw"}

    phi: float | None = None
    eta: float | None = 0.9
    form: str = "variance"


@_classifier
class SCWClassifier(_SecondOrder, _AnyTask):
    """Soft confidence-weighted (Wang, Zhao and Hoi 2012): SCW-I and SCW-II."""

    modes: ClassVar = {1: "scw1", 2: "scw2"}

    C: float = 1.0
    mode: int = 1
    phi: float | None = None
    eta: float | None = 0.9


@_classifier
class NHERDClassifier(_SecondOrder, _AnyTask):
    """Normal herd (Crammer and Lee 2010)."""

    modes: ClassVar = {0: "nherd"}

    C: float = 1.0


@_classifier
class AdaGradRDAClassifier(_AnyTask):
    """AdaGrad with regularised dual averaging and L1 (Duchi, Hazan and Singer 2011)."""

    modes: ClassVar = {0: "adagrad_rda"}

    eta: float = 1.0
    delta: float = 1.0
    l1: float = 0.0001


@_classifier
class TwoViewPAClassifier(_AnyTask):
    """Passive-aggressive on two views, or more, that must agree (Nguyen, Chang and Hui 2012)."""

    modes: ClassVar = {0: "two_view_pa"}

    C: float = 0.1
    gamma: float = 0.5
    as_printed: bool = False
    views: dict[str, Iterable[Any]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        names = check_views(list(self.views or ()))
        if self.views is not None and len(names) < 2:
            raise LearnerError(f"TwoViewPAClassifier: views must name two views or more, got {self.views!r:.80}")
        self._view: dict[str, str] = {}
        for view, features in (self.views or {}).items():
            for name in map(str, features):
                if self._view.setdefault(name, view) != view:
                    raise LearnerError(f"TwoViewPAClassifier: the feature {name!r} is in two views; name it once")

    def _features(self, x: Any) -> Any:
        if not isinstance(x, Mapping):
            return x
        named = super()._features
        if self.views is None:
            return {view: named(features) for view, features in x.items()}
        parts: dict[str, dict[str, Any]] = {view: {} for view in self.views}
        last = list(self.views)[-1]
        for name, value in named(x).items():
            parts[self._view.get(name, last)][name] = value
        return parts

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """Yield both tasks, with views that take any features."""
        views = {"page": ["popup_window", "https", "column", 0, 1], "link": []}
        yield {"views": views}
        yield {"views": views, "task": "multiclass"}
