"""The forms of learners: which arrays a form keeps, which kernel learns them, how its weights are read.

A form turns a row's hyper-parameters into a kernel's constants. Most learners are :class:`Linear` with a rule.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from palearn.errors import LearnerError
from palearn.learners import adagrad as adagrad_kernels
from palearn.learners.arrays import ArraySpec, Layout, Outcome, Rows
from palearn.learners.class_means import COUNTS, class_means
from palearn.learners.linear import binary, joint, multiclass
from palearn.learners.second_order_perceptron import second_order_perceptron
from palearn.learners.sparse_ops import DIAGONAL, DIAGONAL_PRECISION, FULL, IDENTITY, JOINT
from palearn.learners.step_sizes import EXACT, PASSIVE_AGGRESSIVE, Step
from palearn.learners.views import agreeing_views
from palearn.types import FloatArray

Params = Mapping[str, Any]
Arrays = dict[str, FloatArray]
BINARY, MULTICLASS = "binary", "multiclass"
WEIGHTS = ArraySpec("w", "weights", 0.0)
#: A covariance: its diagonal, or its triangular factors (:mod:`palearn.learners.factored_covariance`).
SIGMA, FACTORS = "sigma", "factors"


class Family(Protocol):
    """What :class:`palearn.learners.learner.Learner` asks of a form; ``tie``: score 0 is positive."""

    def arrays(self, params: Params) -> tuple[ArraySpec, ...]:
        """Return the arrays a learner with these parameters keeps."""
        ...

    def run(
        self, params: Params, task: str, tie: bool, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome
    ) -> None:
        """Score and learn rows in place."""
        ...

    def weights(self, params: Params, layout: Layout, arrays: Arrays) -> FloatArray:
        """Return the weights of all keys, in the layout of a ``weights`` array."""
        ...


def _covariance(params: Params) -> int:
    """Return the code of the covariance that the parameters name."""
    name = params.get("covariance")
    if name is None:
        return IDENTITY
    if name == "diagonal":
        return DIAGONAL_PRECISION if params.get("projection") == "precision" else DIAGONAL
    return FULL if name == "full" else JOINT


def _sigma(covariance: int, variance: float) -> ArraySpec:
    if covariance in (FULL, JOINT):
        return ArraySpec(FACTORS, "packed" if covariance == FULL else "joint", variance)
    return ArraySpec(SIGMA, "weights", variance)


def _held(arrays: Arrays) -> FloatArray:
    """Return the covariance's array; a kernel of a first-order learner takes the weights and leaves them alone."""
    return arrays.get(SIGMA, arrays.get(FACTORS, arrays["w"]))


@dataclass(frozen=True)
class Rule:
    """A rule's part of :class:`palearn.learners.step_sizes.Step`; the rest follows from the options."""

    rule: int = PASSIVE_AGGRESSIVE
    cap: float = math.inf
    q: float = 0.0
    phi: float = 0.0
    r: float = 1.0
    weigh_r: bool = False
    printed: int = EXACT
    all_constraints: bool = False


@dataclass(frozen=True)
class Linear:
    """Weights and perhaps a covariance, moved by a rule: ``rule(params, task)``."""

    rule: Callable[[Params, str], Rule]

    def step(self, params: Params, task: str, tie: bool) -> Step:
        """Return the kernel's constants."""
        made, constraints = self.rule(params, task), params.get("constraints", 1)
        most = 2**31 if made.all_constraints or constraints == "all" else int(constraints)
        return Step(
            made.rule,
            float(made.cap),
            float(made.q),
            float(made.phi),
            float(made.r),
            made.weigh_r,
            most,
            _covariance(params),
            made.printed,
            tie,
        )

    def arrays(self, params: Params) -> tuple[ArraySpec, ...]:
        """Return the weights, and the covariance of a second-order learner."""
        covariance = _covariance(params)
        return (WEIGHTS,) if covariance == IDENTITY else (WEIGHTS, _sigma(covariance, params["initial_variance"]))

    def run(
        self, params: Params, task: str, tie: bool, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome
    ) -> None:
        """Score and learn rows in place."""
        step = self.step(params, task, tie)
        kernel = binary if task == BINARY else joint if step.covariance == JOINT else multiclass
        kernel(views[0], layout, arrays["w"], _held(arrays), step, out)

    def weights(self, params: Params, layout: Layout, arrays: Arrays) -> FloatArray:
        """Return the weights."""
        return arrays["w"]


@dataclass(frozen=True)
class SecondOrderPerceptron:
    """A^-1 and w = A^-1 v; A begins as ``a`` times the identity."""

    def arrays(self, params: Params) -> tuple[ArraySpec, ...]:
        """Return the weights and the inverse of A."""
        return WEIGHTS, _sigma(_covariance(params), 1.0 / params["a"])

    def run(
        self, params: Params, task: str, tie: bool, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome
    ) -> None:
        """Score and learn rows in place."""
        a, covariance = float(params["a"]), _covariance(params)
        second_order_perceptron(views[0], layout, arrays["w"], _held(arrays), a, covariance, tie, out)

    def weights(self, params: Params, layout: Layout, arrays: Arrays) -> FloatArray:
        """Return A^-1 v."""
        return arrays["w"]


@dataclass(frozen=True)
class ClassMeans:
    """Weights, the sums and counts of the two classes, and the weights of past steps (``queue``)."""

    cap: Callable[[Params], float] = field(default=lambda params: math.inf)
    q: Callable[[Params], float] = field(default=lambda params: 0.0)

    def arrays(self, params: Params) -> tuple[ArraySpec, ...]:
        """Return the weights, sums, counts and past weights."""
        sums, counts = ArraySpec("class_sums", "weights", 0.0, 2), ArraySpec("class_counts", "key", 0.0, len(COUNTS))
        kept = (WEIGHTS, sums, counts)
        return (*kept, ArraySpec("past", "weights", 0.0, params["queue"])) if params["queue"] else kept

    def run(
        self, params: Params, task: str, tie: bool, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome
    ) -> None:
        """Score and learn rows in place."""
        freeze = params["freeze_mean_after"]
        class_means(
            views[0], layout, arrays["w"], arrays["class_sums"], arrays["class_counts"],
            arrays.get("past", arrays["w"]), float(self.cap(params)), float(self.q(params)), float(params["gamma"]),
            int(params["queue"]), -1 if freeze is None else int(freeze), tie, out,
        )  # fmt: skip

    def weights(self, params: Params, layout: Layout, arrays: Arrays) -> FloatArray:
        """Return the weights."""
        return arrays["w"]


@dataclass(frozen=True)
class AdaGrad:
    """Sums of gradients and of their squares, and the number of examples."""

    def arrays(self, params: Params) -> tuple[ArraySpec, ...]:
        """Return the sums and the number."""
        sums = (ArraySpec("gradients", "weights", 0.0), ArraySpec("squares", "weights", 0.0))
        return (*sums, ArraySpec("examples", "key", 0.0))

    def run(
        self, params: Params, task: str, tie: bool, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome
    ) -> None:
        """Score and learn rows in place."""
        adagrad_kernels.adagrad(
            views[0], layout, arrays["gradients"], arrays["squares"], arrays["examples"],
            float(params["eta"]), float(params["delta"]), float(params["l1"]), task == MULTICLASS, tie, out,
        )  # fmt: skip

    def weights(self, params: Params, layout: Layout, arrays: Arrays) -> FloatArray:
        """Compute the weights from the sums."""
        found = adagrad_kernels.weights(
            arrays["gradients"], arrays["squares"], arrays["examples"], layout.start,
            float(params["eta"]), float(params["delta"]), float(params["l1"]),
        )  # fmt: skip
        return np.asarray(found)


@dataclass(frozen=True)
class AgreeingViews:
    """Weights of all views in one array: a feature belongs to one view."""

    def arrays(self, params: Params) -> tuple[ArraySpec, ...]:
        """Return the weights."""
        return (WEIGHTS,)

    def run(
        self, params: Params, task: str, tie: bool, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome
    ) -> None:
        """Score and learn rows in place."""
        if params["as_printed"] and len(views) != 2:
            raise LearnerError(f"two_view_pa: as_printed is the paper's algorithm for two views, got {len(views)}")
        agreeing_views(
            tuple(views), layout, arrays["w"], float(params["C"]), float(params["gamma"]), task == MULTICLASS,
            bool(params["as_printed"]), tie, out,
        )  # fmt: skip

    def weights(self, params: Params, layout: Layout, arrays: Arrays) -> FloatArray:
        """Return the weights."""
        return arrays["w"]
