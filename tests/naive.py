"""Slow, literal twins of the learners, and the minimisation that each of their steps solves.

Nothing here comes from palearn, and no step that has a problem is taken by a closed form: the problem
(:mod:`tests.problems`) is written down on dense vectors and matrices and handed to an exhaustive search over the
faces of its dual, which is exact, or to scipy. The margin learners are in :mod:`tests.twins`; here are the others,
and the table of all.

To add a learner: a subclass of :class:`Twin` (or another factory of :class:`MarginTwin`) and a line in ``TWINS``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm

from tests.problems import ConfidenceStep, DualAveragingStep, Matrix, Slack, Step, Vector
from tests.twins import BINARY, NO_LOSS, Features, HerdTwin, JointTwin, Label, MarginTwin, Twin, ViewsTwin

__all__ = ["BINARY", "TWINS", "Matrix", "Twin", "Vector", "make"]


class PerceptronTwin(Twin):
    """The perceptron: on a mistake the label's weights gain x, those of the class predicted lose it."""

    def learn(self, x: Features, y: Label) -> None:
        """Move on a mistake; the very first example of a multiclass model has no class predicted, nothing moves."""
        predicted = self.predict(x)
        self.meet(x, y if self.task == "multiclass" else BINARY)
        if predicted in (y, None):
            return
        if self.task == "binary":
            self.w[BINARY] = self.w[BINARY] + y * self.dense(x)
        else:
            self.w[y] = self.w[y] + self.dense(x)
            self.w[predicted] = self.w[predicted] - self.dense(x)


class SecondOrderPerceptronTwin(Twin):
    """The second-order perceptron: v = sum of y x and A = a I + sum of x x', both over its mistakes."""

    def __init__(self, *, a: float = 1.0, covariance: str = "diagonal", **common: Any) -> None:
        super().__init__(**common)
        self.a, self.full = a, covariance == "full"
        self.mistakes: list[tuple[Features, int]] = []

    def matrices(self, *more: Features) -> tuple[Vector, Matrix]:
        """Return v, and A with the outer products of `more`."""
        v, matrix = np.zeros(len(self.names)), self.a * np.eye(len(self.names))
        for x, y in self.mistakes:
            v = v + y * self.dense(x)
        for x in (*(x for x, _ in self.mistakes), *more):
            matrix += np.outer(self.dense(x), self.dense(x))
        return v, matrix if self.full else np.diag(np.diag(matrix))

    def score(self, x: Features) -> float:
        """Return v' inv(A + x x') x; of a name never seen v has 0, and A a on the diagonal."""
        all_names = copy.deepcopy(self)
        all_names.meet(x, BINARY)
        v, matrix = all_names.matrices(x)
        return float(v @ np.linalg.solve(matrix, all_names.dense(x)))

    def variances(self) -> dict[Label, Vector]:
        """Return the diagonal of the inverse of A."""
        return {BINARY: np.diag(np.linalg.inv(self.matrices()[1]))}

    def learn(self, x: Features, y: Label) -> None:
        """Add a mistake, and nothing else."""
        mistake = self.predict(x) != y
        self.meet(x, BINARY)
        if mistake:
            self.mistakes.append((x, y))
        v, matrix = self.matrices()
        self.w[BINARY] = np.linalg.solve(matrix, v)


class ClassMeansTwin(Twin):
    """PA that is also pulled to the difference of the class means, from the mean of the last `queue` weights."""

    def __init__(
        self, *, slack: Slack, gamma: float, queue: int = 0, freeze_mean_after: int | None = None, **common: Any
    ) -> None:
        super().__init__(**common)
        self.slack, self.gamma, self.queue, self.freeze = slack, gamma, queue, freeze_mean_after
        self.shown: dict[int, list[Features]] = {-1: [], 1: []}
        self.past: list[Vector] = []

    def mean(self) -> Vector:
        """Return the mean of the positive examples less that of the negative ones; without any, 0."""
        positive, negative = ([self.dense(x) for x in self.shown[y]] or [self.dense({})] for y in (1, -1))
        return np.asarray(np.mean(positive, axis=0) - np.mean(negative, axis=0))

    def learn(self, x: Features, y: Label) -> Step | None:
        """Move the means; where w has a loss, push it, and go to the minimiser from the queue's mean."""
        self.meet(x, BINARY)
        if not any(x.values()):
            return None
        if self.freeze is None or sum(map(len, self.shown.values())) < self.freeze:
            self.shown[y].append(x)
        w, margin = self.w[BINARY], y * self.dense(x)
        if 1.0 - margin @ w <= NO_LOSS:
            return None
        start = w
        if self.queue:
            self.past = [*self.past, w][-self.queue :]
            start = np.mean([np.append(v, np.zeros(len(w) - len(v))) for v in self.past], axis=0)
        problem = Step(start, np.eye(len(w)), margin[None, :], self.slack, pull=self.gamma, mean=self.mean())
        self.w[BINARY] = problem.solve_exact()
        return problem


class DualAveragingTwin(Twin):
    """AdaGrad-RDA from the list of all gradients of the hinge loss."""

    def __init__(self, *, eta: float = 1.0, delta: float = 1.0, l1: float = 1e-4, **common: Any) -> None:
        super().__init__(**common)
        self.eta, self.delta, self.l1 = eta, delta, l1
        self.gradients: list[dict[Label, tuple[int, Features]]] = []
        self.t = 0

    def gradient(self, x: Features, y: Label) -> dict[Label, tuple[int, Features]]:
        """Return the sign of x in each block of the loss's gradient."""
        score = self.score(x)
        if self.task == "binary":
            return {BINARY: (-y, x)} if 1.0 - y * score > NO_LOSS else {}
        wrong = max((label for label in self.blocks if label != y), key=lambda label: score[label], default=None)
        if wrong is None or 1.0 - (score[y] - score[wrong]) <= NO_LOSS:
            return {}
        return {y: (-1, x), wrong: (1, x)}

    def learn(self, x: Features, y: Label) -> DualAveragingStep | None:
        """Add the example's gradient; every example makes the price of a weight higher."""
        self.meet(x, y if self.task == "multiclass" else BINARY)
        if not any(x.values()):
            return None
        self.gradients.append(self.gradient(x, y))
        self.t += 1
        rows = [self.place({b: sign * self.dense(f) for b, (sign, f) in g.items()}) for g in self.gradients]
        problem = DualAveragingStep(np.array(rows), self.t, self.eta, self.delta, self.l1)
        self.w = self.split(problem.solve_exact())
        return problem


class ConfidenceTwin(MarginTwin):
    """CW and SCW: the nearest normal distribution that is as sure of the example as it is asked to be."""

    def __init__(self, *, phi: float | None = None, eta: float = 0.9, form: str, **options: Any) -> None:
        super().__init__(**options)
        self.phi, self.form = float(norm.ppf(eta)) if phi is None else phi, form

    def learn(self, x: Features, y: Label) -> Any:
        """Move to the problem's minimiser; of its covariance the learner keeps what it can."""
        margins = self.meet_example(x, y)
        if not margins:
            return None
        start, sigma = self.place(self.w), self.joint_sigma()
        problem = ConfidenceStep(start, sigma, margins[0], self.slack, self.phi, self.form)
        if problem.hinge(start, sigma) <= NO_LOSS:
            return None
        w, s = problem.solve_margin()
        self.w = self.split(w)
        self.r = 1.0 / (1.0 / s - 1.0 / float(margins[0] @ sigma @ margins[0]))
        self.put_sigma(self.shrunk(sigma, margins[0]))
        return problem


SLACKS: dict[str, Callable[[float], Slack]] = {
    "": lambda _: Slack(),
    "1": lambda C: Slack(1, C),
    "2": lambda C: Slack(2, C),
}


def _keep(covariance: str, projection: str) -> str:
    return "full" if covariance == "full" else projection


def _first_order(suffix: str, constraints: int | str) -> Callable[..., Twin]:
    def build(C: float = 1.0, **common: Any) -> Twin:
        return MarginTwin(slack=SLACKS[suffix](C), constraints=constraints, **common)

    return build


def _pam(suffix: str) -> Callable[..., Twin]:
    def build(C: float = 1.0, covariance: str = "diagonal", projection: str = "covariance", **common: Any) -> Twin:
        return MarginTwin(slack=SLACKS[suffix](C), keep=_keep(covariance, projection), **common)

    return build


def _arow(
    r: float = 1.0,
    loss: str = "squared_hinge",
    covariance: str = "diagonal",
    projection: str = "covariance",
    task: str = "binary",
    **common: Any,
) -> Twin:
    slack = Slack(2 if loss == "squared_hinge" else 1, 1.0 / (2.0 * r))
    if covariance == "joint":
        return JointTwin(slack=slack, r=r, **common)
    return MarginTwin(slack=slack, keep=_keep(covariance, projection), r=r, task=task, **common)


def _means(suffix: str) -> Callable[..., Twin]:
    def build(C: float = 1.0, gamma: float = 0.5, **common: Any) -> Twin:
        return ClassMeansTwin(slack=SLACKS[suffix](C), gamma=gamma, **common)

    return build


def _herd(C: float = 1.0, covariance: str = "diagonal", projection: str = "covariance", **common: Any) -> Twin:
    return HerdTwin(C=C, keep=_keep(covariance, projection), **common)


def _confidence(suffix: str) -> Callable[..., Twin]:
    def build(
        C: float = 1.0, form: str = "stdev", covariance: str = "diagonal", projection: str = "covariance", **common: Any
    ) -> Twin:
        return ConfidenceTwin(slack=SLACKS[suffix](C), form=form, keep=_keep(covariance, projection), **common)

    return build


TWINS: dict[str, Callable[..., Twin]] = {
    "perceptron": PerceptronTwin,
    "sop": SecondOrderPerceptronTwin,
    **{f"pa{s}": _first_order(s, 1) for s in SLACKS},
    **{f"spa{s}": _first_order(s, "all") for s in SLACKS},
    "cw": lambda form="variance", **options: _confidence("")(form=form, **options),
    **{f"scw{s}": _confidence(s) for s in ("1", "2")},
    **{f"pam{s}": _pam(s) for s in SLACKS},
    "arow": _arow,
    **{f"pa_mean{s}": _means(s) for s in SLACKS},
    "two_view_pa": ViewsTwin,
    "adagrad_rda": DualAveragingTwin,
    "nherd": _herd,
}


def make(name: str, **params: Any) -> Twin:
    """Return a new twin of the learner of this name."""
    return TWINS[name](**params)
