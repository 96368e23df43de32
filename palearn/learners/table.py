"""The one table of learners: each row names its step, arrays, hyper-parameters and source.

A new learner is a row here, a step function (where no step of the table fits) and an oracle test.

Papers
------
CDKSS06
    Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online passive-aggressive algorithms, JMLR 7, 2006.
SPA
    Matsushima, Shimizu, Yoshida, Ninomiya, Nakagawa: Exact passive-aggressive algorithm for multiclass
    classification using support class, SDM 2010.
PAM
    Nguyen, Chang, Hui: Distribution-aware online classifiers, IJCAI 2011.
AROW
    Crammer, Kulesza, Dredze: Adaptive regularization of weight vectors, NIPS 2009 / Machine Learning 91, 2013.
TWO-VIEW
    Nguyen, Chang, Hui: Two-view online learning, PAKDD 2012.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palearn.errors import LearnerError
from palearn.learners.parameters import Parameter, Value, resolve
from palearn.learners.steps import (
    DIAGONAL,
    DIAGONAL_PRECISION,
    FULL,
    IDENTITY,
    Layout,
    Outcome,
    Rows,
    Step,
    binary,
    multiclass,
)
from palearn.learners.two_view import two_view
from palearn.types import FloatArray

Params = Mapping[str, Any]
Arrays = dict[str, FloatArray]

TASKS = ("binary", "multiclass")
TIES = ("negative", "positive")

C = Parameter("C", 1.0, "Aggressiveness: how much one example may move the weights.", above=0)
R = Parameter("r", 1.0, "Regularisation: large values make small, careful steps.", above=0)
GAMMA = Parameter("gamma", 0.5, "Price of disagreement between the two views.", at_least=0)
CONSTRAINTS = Parameter(
    "constraints",
    1,
    "How many wrong classes take part (multiclass).",
    at_least=1,
    integer=True,
    words=("all",),
)
SECOND_ORDER = (
    Parameter("covariance", "diagonal", "Form of the covariance.", words=("diagonal", "full")),
    Parameter("projection", "covariance", "What a diagonal keeps.", words=("covariance", "precision")),
    Parameter("initial_variance", 1.0, "Variance of a feature never seen.", above=0),
    Parameter("max_full_features", 2048, "Most features of a full covariance.", at_least=1, integer=True),
)
LOSS = Parameter("loss", "squared_hinge", "Loss of the mean's step.", words=("squared_hinge", "hinge"))


@dataclass(frozen=True)
class ArraySpec:
    """An array a learner keeps a key: ``weights`` or ``packed`` (see :mod:`palearn.learners.steps`).

    ``fill`` is the value of a weight, or of the diagonal of a packed matrix, never touched.
    """

    name: str
    shape: str
    fill: float


@dataclass(frozen=True)
class Algorithm:
    """A row of the table.

    Parameters
    ----------
    name
        As in ``palearn.make(name)`` and the configuration.
    summary
        One line on what it does.
    source
        Paper, section and equation.
    parameters
        Hyper-parameters with domains and defaults.
    constants
        From the parameters to ``(cap, q, r, weigh_r, constraints)`` of :class:`palearn.learners.steps.Step`.
    tasks
        The tasks it can do.
    views
        Whether it learns on two views.
    """

    name: str
    summary: str
    source: str
    parameters: tuple[Parameter, ...]
    constants: Callable[[Params], tuple[float, float, float, bool, Value]]
    tasks: tuple[str, ...] = TASKS
    views: bool = False

    @property
    def second_order(self) -> bool:
        """Whether it keeps a covariance."""
        return any(p.name == "covariance" for p in self.parameters)


def _pa(p: Params) -> tuple[float, float, float, bool, Value]:
    return math.inf, 0.0, 1.0, False, p.get("constraints", 1)


def _pa1(p: Params) -> tuple[float, float, float, bool, Value]:
    return p["C"], 0.0, 1.0, False, p.get("constraints", 1)


def _pa2(p: Params) -> tuple[float, float, float, bool, Value]:
    return math.inf, 1.0 / (2.0 * p["C"]), 1.0, False, p.get("constraints", 1)


def _all(family: Callable[[Params], tuple[float, float, float, bool, Value]]) -> Callable[[Params], Any]:
    return lambda p: family({**p, "constraints": "all"})


def _arow(p: Params) -> tuple[float, float, float, bool, Value]:
    if p["loss"] == "hinge":
        return 1.0 / (2.0 * p["r"]), 0.0, p["r"], True, p["constraints"]
    return math.inf, p["r"], p["r"], True, p["constraints"]


_PAM = (*SECOND_ORDER, CONSTRAINTS)

LEARNERS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm("pa", "Passive-aggressive, hard margin", "CDKSS06 eq. 4, section 8", (), _pa),
        Algorithm("pa1", "Passive-aggressive, step capped at C", "CDKSS06 eq. 6 (PA-I)", (C,), _pa1),
        Algorithm("pa2", "Passive-aggressive, squared slack", "CDKSS06 eq. 7 (PA-II)", (C,), _pa2),
        Algorithm("spa", "Exact multiclass PA over all wrong classes", "SPA section 3.1", (), _all(_pa)),
        Algorithm("spa1", "Exact multiclass PA-I", "SPA section 3.2, sign of theta corrected", (C,), _all(_pa1)),
        Algorithm("spa2", "Exact multiclass PA-II", "SPA section 3.3, denominator corrected", (C,), _all(_pa2)),
        Algorithm("pam", "PA in Mahalanobis distance, hard margin", "PAM section 3.2; multiclass ours", _PAM, _pa),
        Algorithm("pam1", "PA-I in Mahalanobis distance", "PAM section 3.2; multiclass ours", (C, *_PAM), _pa1),
        Algorithm("pam2", "PA-II in Mahalanobis distance", "PAM section 3.2; multiclass ours", (C, *_PAM), _pa2),
        Algorithm(
            "arow",
            "Adaptive regularisation of weights",
            "AROW figure 1 (squared hinge), section 4 (hinge), eq. 25-30 (multiclass)",
            (R, LOSS, *SECOND_ORDER, CONSTRAINTS),
            _arow,
        ),
        Algorithm(
            "two_view_pa",
            "Two views that must agree, exact solution",
            "TWO-VIEW section 3; algorithm 1 as printed is not its optimum",
            (Parameter("C", 0.1, C.meaning, above=0), GAMMA),
            _pa1,
            tasks=("binary",),
            views=True,
        ),
    )
}


class Learner:
    """A row of the table with its options: checks them, declares the arrays, runs the steps.

    Parameters
    ----------
    name
        The user's name for it; several learners race on one stream under their names.
    algorithm
        A name of :data:`LEARNERS`.
    task
        ``binary`` or ``multiclass``.
    tie
        The class that a binary score of exactly 0 predicts: ``negative`` or ``positive``.
    view
        Learn on this view alone; None: on all features.
    options
        Hyper-parameters.
    """

    def __init__(
        self,
        name: str,
        algorithm: str,
        *,
        task: str = "binary",
        tie: str = "negative",
        view: str | None = None,
        options: Params | None = None,
    ) -> None:
        if algorithm not in LEARNERS:
            raise LearnerError(f"unknown learner {algorithm!r}; known are {', '.join(LEARNERS)}")
        self.row = LEARNERS[algorithm]
        for word, value, words in (("task", task, TASKS), ("tie", tie, TIES)):
            if value not in words:
                raise LearnerError(f"{algorithm}: {word} must be one of {', '.join(words)}, got {value!r}")
        if task not in self.row.tasks:
            raise LearnerError(f"{algorithm}: task must be {' or '.join(self.row.tasks)}, got {task!r}")
        if view is not None and self.row.views:
            raise LearnerError(f"{algorithm} learns on two views at once; leave out view={view!r}")
        self.name, self.algorithm, self.task, self.tie, self.view = name, algorithm, task, tie, view
        self.params = resolve(algorithm, self.row.parameters, options or {})
        self.step = self._step()
        self.arrays = self._arrays()

    def _step(self) -> Step:
        cap, q, r, weigh_r, constraints = self.row.constants(self.params)
        covariance = IDENTITY
        if self.row.second_order:
            precise = self.params["projection"] == "precision"
            covariance = DIAGONAL_PRECISION if precise else DIAGONAL
            if self.params["covariance"] == "full":
                covariance = FULL
        most = 2**31 if constraints == "all" else int(constraints)
        return Step(float(cap), float(q), float(r), weigh_r, most, covariance, self.tie == "positive")

    def _arrays(self) -> tuple[ArraySpec, ...]:
        weights = ArraySpec("w", "weights", 0.0)
        if not self.row.second_order:
            return (weights,)
        shape = "packed" if self.step.covariance == FULL else "weights"
        return weights, ArraySpec("sigma", shape, float(self.params["initial_variance"]))

    @property
    def max_features(self) -> int | None:
        """Most features it can hold, or None where nothing limits them."""
        return int(self.params["max_full_features"]) if self.step.covariance == FULL else None

    @property
    def spec(self) -> dict[str, Any]:
        """What is needed to make the learner again, apart from task and tie."""
        return {"name": self.name, "algorithm": self.algorithm, "view": self.view, "params": self.params}

    @property
    def identity(self) -> dict[str, Any]:
        """What a stored state must agree on: :attr:`spec` and the tie rule."""
        return self.spec | {"tie": self.tie}

    def run(self, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome) -> None:
        """Score and learn a run of rows in place; ``views`` has one selection of features, or one a view."""
        if self.row.views:
            if len(views) != 2:
                raise LearnerError(f"{self.algorithm} needs two views, got {len(views)}")
            step = self.step
            two_view(views[0], views[1], layout, arrays["w"], step.cap, float(self.params["gamma"]), step.tie, out)
            return
        kernel = binary if self.task == "binary" else multiclass
        kernel(views[0], layout, arrays["w"], arrays.get("sigma", arrays["w"]), self.step, out)
