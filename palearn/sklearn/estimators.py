"""The estimators: which learners of the table each one is, and its parameters."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from palearn.learners import Learner, Outcome, Rows
from palearn.models.matrix import Matrix, MatrixModel
from palearn.sklearn.averaged import AveragedModel
from palearn.sklearn.base import OnlineClassifier
from palearn.sklearn.documented import AVERAGE, LOSS, estimator
from palearn.types import FloatArray, IntArray


@dataclass(kw_only=True, eq=False, repr=False)
class _Weighted(OnlineClassifier):
    """Learners that follow the weight of an example: without any weight, an example would move nothing."""

    class_weight: Any = None

    def _class_weight(self, classes: Any, y: IntArray) -> FloatArray:
        return np.asarray(compute_class_weight(self.class_weight, classes=classes, y=classes[y]), np.float64)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                "class_weight 'balanced' is not supported for partial_fit: a batch does not show the classes' "
                "frequencies; give the weights of sklearn.utils.compute_class_weight as a dict"
            )
        return super().partial_fit(X, y, classes, sample_weight)

    partial_fit.__doc__ = OnlineClassifier.partial_fit.__doc__


@dataclass(kw_only=True, eq=False, repr=False)
class _Priced(OnlineClassifier):
    """Families of three: hard margin (C = inf), loss priced at C, squared loss priced at C."""

    hard_margin: ClassVar[bool] = True

    C: float = 1.0
    loss: str = "hinge"

    def _algorithm(self) -> str:
        loss = LOSS.check(self.loss, type(self).__name__)
        if self.C == math.inf:
            return self.algorithms[0]
        return self.algorithms[1 if loss == "hinge" else 2]


class _Variances:
    """Learners that keep a covariance."""

    @property
    def variances_(self) -> FloatArray:
        """Variances of the weights, in the shape of ``coef_``."""
        check_is_fitted(self, "coef_")
        models: list[MatrixModel] = vars(self)["_models"]
        found = [variances for model in models if (variances := model.variances()) is not None]
        return np.concatenate(found)[:, : models[0].features].copy()


@estimator
class PassiveAggressiveClassifier(_Priced, _Weighted):
    """Passive-aggressive: the smallest step that gives an example its margin, or a loss worth its price.

    A drop-in for the class of this name that scikit-learn removes in 1.10. With many classes each has a model of
    its own against all others. See Crammer, Dekel, Keshet, Shalev-Shwartz and Singer: Online passive-aggressive
    algorithms, JMLR 7, 2006: loss="hinge" is PA-I (equation 6), "squared_hinge" PA-II (equation 7).

    Examples
    --------
    >>> from palearn.sklearn import PassiveAggressiveClassifier
    >>> X, y = [[1, 0], [0, 1], [2, 1], [1, 3]], ["ham", "spam", "ham", "spam"]
    >>> model = PassiveAggressiveClassifier(C=0.5, fit_intercept=False, shuffle=False, max_iter=1, tol=None)
    >>> model.fit(X, y).coef_
    array([[-0.65,  0.55]])
    >>> model.predict([[0, 2]])
    array(['spam'], dtype='<U4')
    """

    algorithms: ClassVar[tuple[str, ...]] = ("pa", "pa1", "pa2")
    one_versus_all: ClassVar[bool] = True

    average: bool | int = False
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, coef_init: Any = None, intercept_init: Any = None) -> Self:
        """Learn a new model (``warm_start``: learn on), epoch after epoch until the loss no longer falls.

        Parameters
        ----------
        X
            Examples x features, dense or sparse.
        y
            Labels.
        coef_init
            Weights to begin from, in the shape of ``coef_``.
        intercept_init
            Weights of the constant feature to begin from, in the shape of ``intercept_``.
        """
        return self._fit(X, y, coef_init, intercept_init)

    def sparsify(self) -> Self:
        """Make ``coef_`` a sparse matrix; :meth:`fit` and :meth:`partial_fit` make it dense again."""
        check_is_fitted(self, "coef_")
        self.coef_: Any = sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Self:
        """Make ``coef_`` a dense array again."""
        check_is_fitted(self, "coef_")
        self.coef_ = self.coef_.toarray() if sparse.issparse(self.coef_) else self.coef_
        return self

    def _model(self, learner: Learner, classes: int, bias: bool) -> MatrixModel:
        return AveragedModel(learner, self.n_features_in_, bias=bias, start=self._average_from())

    def _go_on(self, bias: bool, restart: bool = False) -> None:
        super()._go_on(bias)
        models: list[Any] = self._models
        for model in models:
            model.start = self._average_from()
            if restart:
                model.restart()

    def _average_from(self) -> int:
        return int(AVERAGE.check(self.average, type(self).__name__) or 0)

    def _learn_rows(self, model: AveragedModel, rows: Rows) -> Outcome:
        return model.learn_rows(rows)


@estimator
class PerceptronClassifier(_Weighted):
    """Perceptron: moves on a mistake.

    See Rosenblatt: The perceptron, Psychological Review 65, 1958.

    Examples
    --------
    >>> from palearn.sklearn import PerceptronClassifier
    >>> model = PerceptronClassifier(shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("perceptron",)


@estimator
class SecondOrderPerceptronClassifier(_Variances, OnlineClassifier):
    """Second-order perceptron; with many classes each has a model of its own against all others.

    The scores are not ``X @ coef_.T``: an example counts as one of those seen, so that its score is
    w.x / (1 + x' inv(A) x). See Cesa-Bianchi, Conconi and Gentile: A second-order perceptron algorithm, SIAM Journal
    on Computing 34, 2005.

    Examples
    --------
    >>> from palearn.sklearn import SecondOrderPerceptronClassifier
    >>> model = SecondOrderPerceptronClassifier(covariance="full", shuffle=False)
    >>> model.fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1]).predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("sop",)
    one_versus_all: ClassVar[bool] = True

    a: float = 1.0
    covariance: str = "diagonal"
    max_full_features: int = 2048

    def _scores(self, X: Matrix) -> FloatArray:
        return np.column_stack([model.scores(X) for model in self._models])


@estimator
class SupportClassPAClassifier(_Priced, _Weighted):
    """Passive-aggressive over all wrong classes at once, exact; with two classes plain passive-aggressive.

    See Matsushima, Shimizu, Yoshida, Ninomiya and Nakagawa: Exact passive-aggressive algorithm for multiclass
    classification using support class, SDM 2010.

    Examples
    --------
    >>> from palearn.sklearn import SupportClassPAClassifier
    >>> model = SupportClassPAClassifier(loss="squared_hinge", shuffle=False)
    >>> model.fit([[1, 0], [0, 1], [-1, -1]], ["right", "up", "down"]).predict([[3, 1], [-1, -2]])
    array(['right', 'down'], dtype='<U5')
    """

    algorithms: ClassVar[tuple[str, ...]] = ("spa", "spa1", "spa2")


@estimator
class PAMeanClassifier(_Priced):
    """Passive-aggressive, pulled towards the difference of the class means.

    With many classes each has a model of its own against all others. A step costs as much as there are features.
    There is no class_weight: a weight multiplies C, not the pull, and an example that costs nothing still pulls.
    See Tsai, Tseng, Lee and Pao: Passive and aggressive algorithm with class mean information.

    Examples
    --------
    >>> from palearn.sklearn import PAMeanClassifier
    >>> model = PAMeanClassifier(gamma=1.0, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("pa_mean", "pa_mean1", "pa_mean2")
    one_versus_all: ClassVar[bool] = True

    gamma: float = 0.5
    queue: int = 0
    freeze_mean_after: int | None = None


@estimator
class PAMClassifier(_Variances, _Priced, _Weighted):
    """Passive-aggressive in Mahalanobis distance: seldom seen directions move further.

    See Nguyen, Chang and Hui: Distribution-aware online classifiers, IJCAI 2011, section 3.2.

    Examples
    --------
    >>> from palearn.sklearn import PAMClassifier
    >>> model = PAMClassifier(C=0.1, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("pam", "pam1", "pam2")

    covariance: str = "diagonal"
    projection: str = "covariance"
    initial_variance: float = 1.0
    max_full_features: int = 2048
    constraints: int | str = 1


@estimator
class CWClassifier(_Variances, OnlineClassifier):
    """Confidence-weighted: each example shall be right with a given probability.

    See Dredze, Crammer and Pereira: Confidence-weighted linear classification, ICML 2008.

    Examples
    --------
    >>> from palearn.sklearn import CWClassifier
    >>> model = CWClassifier(eta=0.8, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("cw",)

    eta: float | None = None
    phi: float | None = None
    form: str = "variance"
    covariance: str = "diagonal"
    projection: str = "covariance"
    initial_variance: float = 1.0
    max_full_features: int = 2048


@estimator
class AROWClassifier(_Variances, _Weighted):
    """Adaptive regularisation of weights.

    See Crammer, Kulesza and Dredze: Adaptive regularization of weight vectors, NIPS 2009 / Machine Learning 91, 2013.

    Examples
    --------
    >>> from palearn.sklearn import AROWClassifier
    >>> model = AROWClassifier(r=0.5, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("arow",)

    r: float = 1.0
    loss: str = "squared_hinge"
    covariance: str = "diagonal"
    projection: str = "covariance"
    initial_variance: float = 1.0
    max_full_features: int = 2048
    max_classes: int = 16
    constraints: int | str = 1


@estimator
class SCWClassifier(_Variances, _Weighted):
    """Soft confidence-weighted: loss="hinge" is SCW-I, "squared_hinge" SCW-II.

    See Wang, Zhao and Hoi: Exact soft confidence-weighted learning, ICML 2012.

    Examples
    --------
    >>> from palearn.sklearn import SCWClassifier
    >>> model = SCWClassifier(eta=0.8, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("scw1", "scw2")

    C: float = 1.0
    loss: str = "hinge"
    eta: float | None = None
    phi: float | None = None
    covariance: str = "diagonal"
    projection: str = "covariance"
    initial_variance: float = 1.0
    max_full_features: int = 2048

    def _algorithm(self) -> str:
        return self.algorithms[0 if LOSS.check(self.loss, type(self).__name__) == "hinge" else 1]


@estimator
class NHERDClassifier(_Variances, _Weighted):
    """Normal herd.

    See Crammer and Lee: Learning via Gaussian herding, NIPS 2010.

    Examples
    --------
    >>> from palearn.sklearn import NHERDClassifier
    >>> model = NHERDClassifier(C=0.5, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("nherd",)

    C: float = 1.0
    covariance: str = "diagonal"
    projection: str = "covariance"
    initial_variance: float = 1.0
    max_full_features: int = 2048


@estimator
class AdaGradRDAClassifier(_Weighted):
    """AdaGrad with regularised dual averaging and L1: weights that earn too little are exactly 0.

    See Duchi, Hazan and Singer: Adaptive subgradient methods for online learning and stochastic optimization,
    JMLR 12, 2011, equation 24.

    Examples
    --------
    >>> from palearn.sklearn import AdaGradRDAClassifier
    >>> model = AdaGradRDAClassifier(eta=0.5, shuffle=False).fit([[1, 0], [0, 1], [2, 1], [1, 3]], [0, 1, 0, 1])
    >>> model.predict([[0, 2], [2, 0]])
    array([1, 0])
    """

    algorithms: ClassVar[tuple[str, ...]] = ("adagrad_rda",)

    eta: float = 1.0
    delta: float = 1.0
    l1: float = 0.0001
