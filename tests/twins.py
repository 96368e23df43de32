"""Slow twins of the margin learners: blocks of weights over names, and the problem that each example poses.

Nothing here comes from palearn. A twin writes an example's problem down on dense vectors and matrices and takes its
minimiser from :mod:`tests.problems`. A constant feature is the caller's business: it is a feature like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.problems import Matrix, Slack, Step, Vector

Features = Mapping[str, float]
Label = Any

NO_LOSS = 1e-10
"""A loss of at most this is no loss: a step that lands on its margin must not be taken twice."""

BINARY = ""
"""Name of the only block of weights of a binary model of one view."""


def kept(sigma: Matrix, blocks: int, keep: str) -> Matrix:
    """Return what a learner keeps of a covariance over all blocks.

    `keep`: "joint" all of it, "full" one matrix a block, "covariance" the diagonal, "precision" the inverse's diagonal.
    """
    if keep == "joint":
        return sigma
    if keep == "precision":
        return np.diag(1.0 / np.diag(np.linalg.inv(sigma)))
    if keep == "covariance":
        return np.diag(np.diag(sigma))
    size = len(sigma) // blocks
    return np.asarray(sigma * np.kron(np.eye(blocks), np.ones((size, size))))


def covariance_after(sigma: Matrix, f: Vector, r: float, blocks: int, keep: str) -> Matrix:
    """Return the covariance over all blocks after an example with joint features `f`: inv(sigma) + f f'/r is kept."""
    if keep == "precision":
        return np.diag(1.0 / (1.0 / np.diag(sigma) + f * f / r))
    moved = sigma @ f
    return kept(sigma - np.outer(moved, moved) / (r + f @ moved), blocks, keep)


class Twin:
    """What every twin has: blocks of weights over feature names, both in order of first appearance.

    A block is a class (multiclass), a view, a class and a view, or the one vector of a binary model; ``depth`` is
    how many of them name a block.
    """

    def __init__(self, *, task: str = "binary", tie: str = "negative", initial_variance: float = 1.0) -> None:
        self.task, self.tie, self.initial_variance = task, tie, initial_variance
        self.depth = int(task == "multiclass")
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
            return max(score, key=lambda label: score[label], default=None)
        return 1 if score > 0.0 or (score == 0.0 and self.tie == "positive") else -1

    def variances(self) -> dict[Label, Vector]:
        """Return the diagonal of each block's covariance; {} for a first-order learner."""
        return {}

    def learn(self, x: Any, y: Label) -> Any:
        """Learn one example; return the problem solved, None where there is none."""
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
        What is kept of the covariance: None (first order, the identity), or as :func:`kept` says.
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

    def variances(self) -> dict[Label, Vector]:
        """Return the diagonal of each block's covariance; {} for a first-order learner."""
        return {} if self.keep is None else {block: np.diag(sigma) for block, sigma in self.sigma.items()}

    def sides(self, x: Features, y: Label) -> list[dict[Label, Vector]]:
        """One constraint each: the signed features of every block it touches."""
        dense = self.dense(x)
        if self.task == "binary":
            return [{BINARY: y * dense}]
        scores = self.score(x)
        wrong = sorted((u for u in self.blocks if u != y), key=lambda u: -scores[u])
        taking_part = wrong if self.constraints == "all" else wrong[: int(self.constraints)]
        return [{y: dense, u: -dense} for u in taking_part]

    def meet_example(self, x: Features, y: Label) -> list[Vector]:
        """Make room for the example; return its constraints, none where an example cannot be learned."""
        self.meet(x, y if self.task == "multiclass" else BINARY)
        margins = [self.place(side) for side in self.sides(x, y)]
        sigma = self.joint_sigma()
        norms = [margin @ sigma @ margin for margin in margins]
        return margins if all(np.isfinite(v) and v > 0.0 for v in norms) else []

    def step(self, x: Features, y: Label) -> Step | None:
        """Return the problem; None without a wrong class, a norm or a loss."""
        margins = self.meet_example(x, y)
        if not margins:
            return None
        problem = Step(self.place(self.w), self.joint_sigma(), np.array(margins), self.slack)
        return problem if problem.hinge(problem.start) > NO_LOSS else None

    def joint_features(self, x: Features, y: Label) -> Vector:
        """Return the f whose outer product the precision grows by: Delta f for one constraint, else all classes'."""
        if self.task == "binary" or self.constraints == 1:
            return self.place(self.sides(x, y)[0])
        return self.place(dict.fromkeys(self.blocks, self.dense(x)))

    def shrunk(self, sigma: Matrix, f: Vector) -> Matrix:
        """Return what is kept of the covariance after a step."""
        assert self.keep is not None
        return covariance_after(sigma, f, self.r, len(self.blocks), self.keep)

    def put_sigma(self, after: Matrix) -> None:
        """Cut a covariance over all blocks into theirs."""
        size = len(self.names)
        cuts = [slice(i * size, (i + 1) * size) for i in range(len(self.blocks))]
        self.sigma = {block: after[cut, cut] for block, cut in zip(self.blocks, cuts, strict=True)}

    def learn(self, x: Features, y: Label) -> Step | None:
        """Move to the problem's minimiser, then shrink the covariance."""
        problem = self.step(x, y)
        if problem is None:
            return None
        f = self.joint_features(x, y)
        self.w = self.split(problem.solve_exact())
        if self.keep is not None:
            self.put_sigma(self.shrunk(problem.sigma, f))
        return problem


class JointTwin(MarginTwin):
    """AROW with one covariance over the weights of all classes, blocks and names in order of first appearance."""

    def __init__(self, **options: Any) -> None:
        super().__init__(keep="joint", task="multiclass", **options)
        self.joint: dict[tuple[tuple[Label, str], tuple[Label, str]], float] = {}

    def joint_sigma(self) -> Matrix:
        """Covariance over all blocks laid end to end; a weight never seen is independent of the others."""
        weights = list(itertools.product(self.blocks, self.names))
        fresh = self.initial_variance
        return np.array([[self.joint.get((a, b), fresh if a == b else 0.0) for b in weights] for a in weights])

    def put_sigma(self, after: Matrix) -> None:
        """Keep every entry under the names of its two weights."""
        super().put_sigma(after)
        pairs = itertools.product(itertools.product(self.blocks, self.names), repeat=2)
        self.joint = dict(zip(pairs, after.ravel().tolist(), strict=True))


class HerdTwin(MarginTwin):
    """NHERD: every weight vector of the normal cloud moves to where its own squared loss has its best price.

    The way there is one linear map, so the cloud stays normal: its mean moves as in PA-II, and its covariance is that
    of the moved vectors (Crammer and Lee 2010, section 4).
    """

    def __init__(self, *, C: float, **options: Any) -> None:
        super().__init__(slack=Slack(2, 0.5 * C), **options)
        self.C = C

    def shrunk(self, sigma: Matrix, f: Vector) -> Matrix:
        """Move one deviation a column of sigma's root; f's sign does not matter to them."""
        assert self.keep is not None
        # 1/2 (u - w)' inv(sigma) (u - w) + C/2 (1 - f'u)^2 is least where this matrix times u is linear in w.
        precision = np.linalg.inv(sigma)
        moved = np.linalg.solve(precision + self.C * np.outer(f, f), precision @ np.linalg.cholesky(sigma))
        return kept(moved @ moved.T, len(self.blocks), self.keep)


class ViewsTwin(Twin):
    """Two-view PA for any number of views: the margin of their mean is kept, and each two views should agree.

    With many classes a margin is the score of the label less that of the wrong class with the highest mean.
    """

    def __init__(self, *, C: float = 1.0, gamma: float = 0.5, **common: Any) -> None:
        super().__init__(**common)
        self.C, self.gamma = C, gamma
        self.depth += 1
        self.labels: list[Label] = []
        self.blocks, self.w, self.sigma = [], {}, {}

    def view_scores(self, x: Mapping[str, Features], label: Label) -> list[float]:
        """Score of each view that has features, known or not."""
        scores = []
        for view, features in x.items():
            if any(features.values()):
                block = self.block(label, view)
                scores.append(float(self.w[block] @ self.dense(features)) if block in self.w else 0.0)
        return scores

    def block(self, label: Label, view: str) -> Label:
        """Name of a block of weights."""
        return (label, view) if self.task == "multiclass" else view

    def score(self, x: Mapping[str, Features]) -> Any:
        """Mean score of the views that have features; 0 without any."""
        means = {}
        for label in self.labels if self.task == "multiclass" else [BINARY]:
            scores = self.view_scores(x, label)
            means[label] = sum(scores) / len(scores) if scores else 0.0
        return means if self.task == "multiclass" else means[BINARY]

    def step(self, x: Mapping[str, Features], y: Label) -> Step | None:
        """Return the problem over the views that have features; None without any or without a loss."""
        self.labels += [y] if y not in self.labels else []
        for view, features in x.items():
            self.meet(features, self.block(y, view))
        parts = {view: self.dense(features) for view, features in x.items() if any(features.values())}
        scores = self.score(x)
        if not parts or (self.task == "multiclass" and len(self.labels) < 2):
            return None
        if self.task == "binary":
            sides = [self.place({view: y * part}) for view, part in parts.items()]
        else:
            rival = max((label for label in self.labels if label != y), key=lambda label: scores[label])
            sides = [self.place({(y, view): part, (rival, view): -part}) for view, part in parts.items()]
        pairs = [one - other for one, other in itertools.combinations(sides, 2)]
        start = self.place(self.w)
        problem = Step(
            start,
            np.eye(len(start)),
            np.mean(sides, axis=0)[None, :],
            Slack(1, self.C),
            self.gamma,
            np.array(pairs) if pairs else None,
        )
        return problem if problem.hinge(start) > NO_LOSS else None

    def learn(self, x: Mapping[str, Features], y: Label) -> Step | None:
        """Move to the problem's minimiser."""
        problem = self.step(x, y)
        if problem is not None:
            self.w = self.split(problem.solve_exact())
        return problem
