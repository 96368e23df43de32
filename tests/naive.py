"""Slow, literal twins of the learners, and the minimisation that each of their steps solves.

Nothing here comes from palearn, and no step is taken by a closed form. A twin writes down the problem that an
example poses (:class:`Step`) on dense vectors and matrices; the problem is handed to an exhaustive search over
the faces of its dual, which is exact, or to scipy's general solver. A constant feature is the caller's business:
it is a feature like any other.

To add a learner: a subclass of :class:`Twin` (or another factory of :class:`MarginTwin`) and a line in ``TWINS``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Features = Mapping[str, float]
Label = Any

NO_LOSS = 1e-10
"""A hinge of at most this is no loss: a step that lands on its margin must not be taken twice."""

BINARY = ""
"""Name of the only block of weights of a binary model of one view."""


@dataclass(frozen=True)
class Slack:
    """The price of a missed margin: ``price * xi`` (power 1), ``price * xi**2`` (2), or it is not allowed (0)."""

    power: int = 0
    price: float = 0.0


@dataclass(frozen=True)
class Step:
    """One example's problem, over the weights of all blocks laid end to end.

    minimise  1/2 (w - start)' inv(sigma) (w - start) + price xi^power + gamma |agree' w|
    such that margins w >= 1 - xi,  xi >= 0
    """

    start: Vector
    sigma: Matrix
    margins: Matrix
    slack: Slack
    gamma: float = 0.0
    agree: Vector | None = None

    def hinge(self, w: Vector) -> float:
        """Largest hinge loss over the constraints."""
        return max(0.0, float(np.max(1.0 - self.margins @ w)))

    def objective(self, w: Vector) -> float:
        """Value of the problem at `w`, the slack being as small as `w` allows; hard margins: without them."""
        moved = w - self.start
        value = 0.5 * float(moved @ np.linalg.solve(self.sigma, moved))
        if self.slack.power:
            value += self.slack.price * self.hinge(w) ** self.slack.power
        if self.agree is not None:
            value += self.gamma * abs(float(self.agree @ w))
        return value

    def violation(self, w: Vector) -> float:
        """By how much `w` misses a hard margin."""
        return 0.0 if self.slack.power else self.hinge(w)

    def solve_exact(self) -> Vector:
        """Return the minimiser, from the dual: a concave quadratic of tau (a margin each) and delta (the agreement)."""
        rows, n = self.margins, len(self.margins)
        gain = 1.0 - rows @ self.start
        ends = [(0.0, np.inf)] * n
        if self.agree is not None:
            rows = np.vstack([rows, -self.agree])
            gain = np.append(gain, self.agree @ self.start)
            ends.append((-self.gamma, self.gamma))
        curve = rows @ self.sigma @ rows.T
        capped = np.array([1.0] * n + [0.0] * (len(rows) - n))
        if self.slack.power == 2:
            curve = curve + np.outer(capped, capped) / (2.0 * self.slack.price)
        cap = self.slack.price if self.slack.power == 1 else np.inf
        dual = minimise_by_faces(curve, gain, ends, capped, cap)
        return self.start + self.sigma @ (rows.T @ dual)

    def solve_scipy(self) -> Vector:
        """Return the minimiser as SLSQP finds it on the primal, in w = start + root z, root root' = sigma."""
        root, n, m = np.linalg.cholesky(self.sigma), len(self.start), len(self.margins)
        price, power = self.slack.price, self.slack.power
        agree = np.zeros(n) if self.agree is None else self.agree
        # Unknowns: z, xi, and t >= |agree' w|.
        rows = np.vstack([self.margins, agree, -agree]) @ root
        normals = np.column_stack([rows, [1.0] * m + [0.0] * 2, [0.0] * m + [1.0] * 2])
        apart = agree @ self.start
        offsets = np.concatenate([1.0 - self.margins @ self.start, [-apart, apart]])

        def value(z: Vector) -> float:
            return float(0.5 * z[:n] @ z[:n] + price * z[n] ** power + self.gamma * z[-1])

        def slope(z: Vector) -> Vector:
            return np.concatenate([z[:n], [price if power == 1 else 2.0 * price * z[n], self.gamma]])

        found = minimize(
            value,
            np.concatenate([np.zeros(n), [max(0.0, np.max(offsets[:m])) if power else 0.0, abs(apart)]]),
            jac=slope,
            method="SLSQP",
            bounds=[(None, None)] * n + [(0.0, None if power else 0.0), (0.0, None)],
            constraints={"type": "ineq", "fun": lambda z: normals @ z - offsets, "jac": lambda _: normals},
            options={"ftol": 1e-16, "maxiter": 500},
        )
        return np.asarray(self.start + root @ found.x[:n])


def minimise_by_faces(
    curve: Matrix, gain: Vector, ends: list[tuple[float, float]], capped: Vector, cap: float
) -> Vector:
    """Minimise 1/2 z'curve z - gain'z over low <= z <= high, capped'z <= cap, by trying every face.

    The minimum is the stationary point of the face it lies on. So of all stationary points that are allowed, the
    lowest is the answer. Each variable is at one of its ends or free (NaN); the cap holds with room or not.
    """
    low, high = np.array(ends).T
    best, best_value = low, np.inf
    for face in itertools.product(*([end for end in pair if np.isfinite(end)] + [np.nan] for pair in ends)):
        free = np.isnan(face)
        for tight in (False, True) if np.isfinite(cap) and capped[free].any() else (False,):
            point = np.where(free, 0.0, face)
            point[free] = _stationary(curve, gain, point, free, capped if tight else None, cap)
            room = 1e-12 * max(1.0, np.abs(point).max())
            if capped @ point > cap + room or (point < low - room).any() or (point > high + room).any():
                continue
            value = float(0.5 * point @ curve @ point - gain @ point)
            if value < best_value:
                best, best_value = np.clip(point, low, high), value
    return np.asarray(best)


def _stationary(
    curve: Matrix, gain: Vector, fixed: Vector, free: NDArray[np.bool_], tight: Vector | None, cap: float
) -> Vector:
    """Free variables at which the quadratic is stationary, the others fixed, on tight'z = cap if given."""
    system, right = curve[free][:, free], gain[free] - curve[free] @ fixed
    if tight is None:
        return np.asarray(np.linalg.solve(system, right), np.float64)
    bordered = np.zeros((len(right) + 1,) * 2)
    bordered[:-1, :-1], bordered[-1, :-1], bordered[:-1, -1] = system, tight[free], tight[free]
    return np.asarray(np.linalg.solve(bordered, np.append(right, cap - tight @ fixed))[:-1], np.float64)


def covariance_after(sigma: Matrix, f: Vector, r: float, blocks: int, keep: str) -> Matrix:
    """Return the covariance over all blocks after an example with joint features `f`: inv(sigma) + f f'/r is kept.

    `keep`: "full" keeps one matrix a block, "covariance" the diagonal, "precision" the inverse's diagonal.
    """
    if keep == "precision":
        return np.diag(1.0 / (1.0 / np.diag(sigma) + f * f / r))
    moved = sigma @ f
    after = sigma - np.outer(moved, moved) / (r + f @ moved)
    if keep == "covariance":
        return np.diag(np.diag(after))
    size = len(f) // blocks
    return np.asarray(after * np.kron(np.eye(blocks), np.ones((size, size))))


class Twin:
    """What every twin has: blocks of weights over feature names, both in order of first appearance.

    A block is a class (multiclass), a view (two views) or the one vector of a binary model.
    """

    def __init__(self, *, task: str = "binary", tie: str = "negative", initial_variance: float = 1.0) -> None:
        self.task, self.tie, self.initial_variance = task, tie, initial_variance
        self.names: list[str] = []
        self.blocks: list[Label] = [] if task == "multiclass" else [BINARY]
        self.w: dict[Label, Vector] = {block: np.zeros(0) for block in self.blocks}
        self.sigma: dict[Label, Matrix] = {block: np.zeros((0, 0)) for block in self.blocks}

    def dense(self, x: Features) -> Vector:
        """Return `x` over the names known; names never seen are left out."""
        return np.array([float(x.get(name, 0.0)) for name in self.names])

    def meet(self, x: Features, block: Label) -> None:
        """Make room for the names of `x` and for the block: weight 0, variance `initial_variance`."""
        self.names += [name for name in x if name not in self.names]
        if block not in self.blocks:
            self.blocks.append(block)
            self.w[block], self.sigma[block] = np.zeros(0), np.zeros((0, 0))
        for known in self.blocks:
            old, size = len(self.w[known]), len(self.names)
            if old < size:
                sigma = self.initial_variance * np.eye(size)
                sigma[:old, :old] = self.sigma[known]
                self.w[known], self.sigma[known] = np.append(self.w[known], np.zeros(size - old)), sigma

    def score(self, x: Any) -> Any:
        """Score of the positive class, or of each class known."""
        scores = {block: float(self.w[block] @ self.dense(x)) for block in self.blocks}
        return scores if self.task == "multiclass" else scores[BINARY]

    def predict(self, x: Any) -> Label:
        """Return +1 or -1; or the earliest class of the highest score (None: no class is known)."""
        score = self.score(x)
        if self.task == "multiclass":
            return max(self.blocks, key=lambda block: score[block], default=None)
        return 1 if score > 0.0 or (score == 0.0 and self.tie == "positive") else -1

    def step(self, x: Any, y: Label) -> Step | None:
        """Return the problem that the example poses, or None where nothing is learned from it."""
        raise NotImplementedError

    def learn(self, x: Any, y: Label) -> Step | None:
        """Learn one example; return the problem solved, None where the weights stay."""
        raise NotImplementedError

    def place(self, parts: Mapping[Label, Vector]) -> Vector:
        """Lay vectors of some blocks end to end, zeros for the others."""
        zero = np.zeros(len(self.names))
        return np.concatenate([parts.get(block, zero) for block in self.blocks])

    def split(self, joint: Vector) -> dict[Label, Vector]:
        """Cut a joint vector into its blocks."""
        return dict(zip(self.blocks, np.split(joint, len(self.blocks)), strict=True))

    def joint_sigma(self) -> Matrix:
        """Covariance over all blocks laid end to end; blocks do not correlate."""
        size = len(self.names)
        joint = np.zeros((size * len(self.blocks),) * 2)
        for i, block in enumerate(self.blocks):
            joint[i * size : (i + 1) * size, i * size : (i + 1) * size] = self.sigma[block]
        return joint


class MarginTwin(Twin):
    """PA, PAM, AROW and SPA: the nearest weights that keep the margins, or pay for what they miss.

    Parameters
    ----------
    slack
        Price of a missed margin.
    constraints
        How many wrong classes take part, best score first, or "all".
    keep
        What is kept of the covariance: None (first order, the identity), "full", "covariance" or "precision".
    r
        Noise of the covariance's update.
    """

    def __init__(
        self,
        *,
        slack: Slack,
        constraints: int | str = 1,
        keep: str | None = None,
        r: float = 1.0,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.slack, self.constraints, self.keep, self.r = slack, constraints, keep, r

    def sides(self, x: Features, y: Label) -> list[dict[Label, Vector]]:
        """One constraint each: the signed features of every block it touches."""
        dense = self.dense(x)
        if self.task == "binary":
            return [{BINARY: y * dense}]
        scores = self.score(x)
        wrong = sorted((u for u in self.blocks if u != y), key=lambda u: -scores[u])
        taking_part = wrong if self.constraints == "all" else wrong[: int(self.constraints)]
        return [{y: dense, u: -dense} for u in taking_part]

    def step(self, x: Features, y: Label) -> Step | None:
        """Return the problem; None without a wrong class, a norm or a loss."""
        self.meet(x, y if self.task == "multiclass" else BINARY)
        sides = self.sides(x, y)
        dense = self.dense(x)
        norms = [dense @ self.sigma[block] @ dense for side in sides for block in side]
        if not sides or not all(np.isfinite(v) and v > 0.0 for v in norms):
            return None
        margins = np.array([self.place(side) for side in sides])
        problem = Step(self.place(self.w), self.joint_sigma(), margins, self.slack)
        return problem if problem.hinge(problem.start) > NO_LOSS else None

    def joint_features(self, x: Features, y: Label) -> Vector:
        """Return the f whose outer product the precision grows by: Delta f for one constraint, else all classes'."""
        if self.task == "binary" or self.constraints == 1:
            return self.place(self.sides(x, y)[0])
        return self.place(dict.fromkeys(self.blocks, self.dense(x)))

    def learn(self, x: Features, y: Label) -> Step | None:
        """Move to the problem's minimiser, then shrink the covariance."""
        problem = self.step(x, y)
        if problem is None:
            return None
        f = self.joint_features(x, y)
        self.w = self.split(problem.solve_exact())
        if self.keep is not None:
            after = covariance_after(problem.sigma, f, self.r, len(self.blocks), self.keep)
            size = len(self.names)
            cuts = [slice(i * size, (i + 1) * size) for i in range(len(self.blocks))]
            self.sigma = {block: after[cut, cut] for block, cut in zip(self.blocks, cuts, strict=True)}
        return problem


class TwoViewTwin(Twin):
    """Two-view PA: both views' weights move as little as the margin of their mean, and their agreement, ask for."""

    def __init__(self, *, C: float = 1.0, gamma: float = 0.5, tie: str = "negative") -> None:
        super().__init__(tie=tie)
        self.C, self.gamma = C, gamma
        self.blocks, self.w, self.sigma = [], {}, {}

    def score(self, x: Mapping[str, Features]) -> float:
        """Mean score of the views that have features, known or not."""
        present = [view for view, features in x.items() if any(features.values())]
        scores = [float(self.w[view] @ self.dense(x[view])) for view in present if view in self.w]
        return sum(scores) / len(present) if present else 0.0

    def step(self, x: Mapping[str, Features], y: Label) -> Step | None:
        """Return the problem over the views that have features; None without any or without a loss."""
        for view, features in x.items():
            self.meet(features, view)
        parts = {view: self.dense(features) for view, features in x.items() if any(features.values())}
        if not parts:
            return None
        margin = self.place({view: y * d / len(parts) for view, d in parts.items()})
        agree = None
        if len(parts) == 2:
            first, second = parts
            agree = self.place({first: parts[first], second: -parts[second]})
        start = self.place(self.w)
        problem = Step(start, np.eye(len(start)), margin[None, :], Slack(1, self.C), self.gamma, agree)
        return problem if problem.hinge(start) > NO_LOSS else None

    def learn(self, x: Mapping[str, Features], y: Label) -> Step | None:
        """Move to the problem's minimiser."""
        problem = self.step(x, y)
        if problem is not None:
            self.w = self.split(problem.solve_exact())
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
    **common: Any,
) -> Twin:
    slack = Slack(2 if loss == "squared_hinge" else 1, 1.0 / (2.0 * r))
    return MarginTwin(slack=slack, keep=_keep(covariance, projection), r=r, **common)


TWINS: dict[str, Callable[..., Twin]] = {
    **{f"pa{s}": _first_order(s, 1) for s in SLACKS},
    **{f"spa{s}": _first_order(s, "all") for s in SLACKS},
    **{f"pam{s}": _pam(s) for s in SLACKS},
    "arow": _arow,
    "two_view_pa": TwoViewTwin,
}


def make(name: str, **params: Any) -> Twin:
    """Return a new twin of the learner of this name."""
    return TWINS[name](**params)
