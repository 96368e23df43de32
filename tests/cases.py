"""Learners with their options, streams to run them on, and how one compares with its twin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import palearn
from tests import naive

VIEWS = ["page", "link", "title", "body"]
CLASSES: dict[str, list[Any]] = {"binary": [-1, 1], "multiclass": ["c", "a", "d", "b"]}

STRENGTHS: dict[str, list[dict[str, float]]] = {
    "none": [{}],
    "soft": [{"C": 0.2}, {"C": 1.0}, {"C": 0.02}, {"C": 20.0}],
    "noise": [{"r": 0.5}, {"r": 2.0}, {"r": 0.05}, {"r": 20.0}],
    "ridge": [{"a": 1.0}, {"a": 0.1}, {"a": 10.0}],
    "means": [{"gamma": 0.5}, {"gamma": 0.02}, {"gamma": 3.0}],
    "soft means": [{"C": 0.2, "gamma": 0.5}, {"C": 1.0, "gamma": 0.02}, {"C": 0.02, "gamma": 3.0}],
    "views": [
        {"C": 0.2, "gamma": 0.5},
        {"C": 1.0, "gamma": 0.0},
        {"C": 2.0, "gamma": 0.02},
        {"C": 0.02, "gamma": 0.1},
        {"C": 20.0, "gamma": 3.0},
    ],
    "averaging": [
        {"eta": 1.0, "delta": 1.0, "l1": 0.01},
        {"eta": 0.1, "delta": 0.0, "l1": 0.1},
        {"eta": 3.0, "delta": 0.01, "l1": 0.0},
    ],
    "sure": [{"eta": 0.9}, {"phi": 0.1}, {"eta": 0.55}, {"phi": 2.0}],
    "soft sure": [{"C": 0.2, "eta": 0.9}, {"C": 1.0, "phi": 0.1}, {"C": 0.02, "eta": 0.55}, {"C": 20.0, "phi": 2.0}],
}
VARIANCES = [1.0, 0.3, 4.0, 1.0]
COVARIANCES: list[dict[str, Any]] = [
    {"covariance": "diagonal", "projection": "covariance"},
    {"covariance": "diagonal", "projection": "precision"},
    {"covariance": "full"},
]
JOINT: dict[str, Any] = {"covariance": "joint"}


@dataclass(frozen=True)
class Case:
    """A learner with its options, the strengths its stream is run with, and how many views that has (0: none)."""

    name: str
    task: str
    strengths: str
    options: dict[str, Any] = field(default_factory=dict)
    views: int = 0

    def __str__(self) -> str:
        views = [f"{self.views} views"] if self.views else []
        return "-".join([self.name, self.task, *views, *(f"{k}={v}" for k, v in self.options.items())])

    def settings(self) -> list[dict[str, Any]]:
        """Hyper-parameters to run with, one stream each."""
        strengths = STRENGTHS[self.strengths]
        if "covariance" not in self.options or self.name == "sop":
            return strengths
        return [{**strengths[i % len(strengths)], "initial_variance": v} for i, v in enumerate(VARIANCES)]

    def shape(self, *parts: dict[str, float]) -> Any:
        """Return features as the learner takes them: of its first views, or the first alone."""
        if not self.views:
            return parts[0]
        return {view: parts[i] if i < len(parts) else {} for i, view in enumerate(VIEWS[: self.views])}


def second_order(task: str, *counts: int | str) -> Iterator[dict[str, Any]]:
    """Covariances, and for many classes the numbers of constraints."""
    for covariance in COVARIANCES:
        if task == "binary" or not counts:
            yield covariance
        else:
            for constraints in counts if covariance["covariance"] == "full" else (counts[0], counts[-1]):
                yield {**covariance, "constraints": constraints}


def cases() -> Iterator[Case]:
    """All learners x tasks x options."""
    for task in CLASSES:
        yield Case("perceptron", task, "none")
        yield Case("adagrad_rda", task, "averaging")
        for suffix, strengths in (("", "none"), ("1", "soft"), ("2", "soft")):
            yield Case(f"pa{suffix}", task, strengths)
            yield Case(f"spa{suffix}", task, strengths)
            for options in second_order(task, 1, 2, "all"):
                yield Case(f"pam{suffix}", task, strengths, options)
        for loss in ("squared_hinge", "hinge"):
            for options in second_order(task, 1, 2, "all"):
                yield Case("arow", task, "noise", {"loss": loss, **options})
        for options in second_order(task):
            yield Case("nherd", task, "soft", options)
            for form in ("variance", "stdev"):
                yield Case("cw", task, "sure", {"form": form, **options})
            for name in ("scw1", "scw2"):
                yield Case(name, task, "soft sure", options)
        for views in (2, 3, 4):
            yield Case("two_view_pa", task, "views", views=views)
    for loss in ("squared_hinge", "hinge"):
        for constraints in (1, 2, "all"):
            yield Case("arow", "multiclass", "noise", {"loss": loss, **JOINT, "constraints": constraints})
    for covariance in ("diagonal", "full"):
        yield Case("sop", "binary", "ridge", {"covariance": covariance})
    for queue in ({}, {"queue": 3}, {"queue": 3, "freeze_mean_after": 20}):
        yield Case("pa_mean", "binary", "means", queue)
        yield Case("pa_mean1", "binary", "soft means", queue)
        yield Case("pa_mean2", "binary", "soft means", queue)


CASES = list(cases())


def of(*names: str) -> list[Case]:
    """Return the cases of these learners."""
    return [case for case in CASES if case.name in names]


def but(*names: str) -> list[Case]:
    """Return the cases of all other learners."""
    return [case for case in CASES if case.name not in names]


def examples(case: Case, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield an endless noisy stream: a feature in six is missing, features and classes appear as it goes on."""
    rng = np.random.default_rng(seed)
    classes, views = CLASSES[case.task], max(1, case.views)
    teacher = rng.normal(size=(len(classes), views * 6))
    seen = 0
    while True:
        known_features, known_classes = min(6, 3 + seen // 10), min(len(classes), 2 + seen // 15)
        dense = rng.normal(size=(views, 6)) * 10.0 ** rng.uniform(-0.5, 0.5)
        dense *= (rng.random(dense.shape) < 5 / 6) & (np.arange(6) < known_features)
        if case.views and rng.random() < 0.2:
            dense[rng.permutation(views)[: rng.integers(1, views)]] = 0.0
        best = int(np.argmax(teacher[:known_classes] @ dense.ravel()))
        label = classes[best if rng.random() < 0.7 else int(rng.integers(known_classes))]
        yield case.shape(*({f"f{i}": float(v) for i, v in enumerate(row) if v != 0.0} for row in dense)), label
        seen += 1


def pair(case: Case, strength: Mapping[str, float], **more: Any) -> tuple[Any, naive.Twin]:
    """Return the learner and its twin."""
    params = {**case.options, **strength}
    return palearn.make(case.name, task=case.task, **params, **more), naive.make(case.name, task=case.task, **params)


def dense(twin: naive.Twin, values: Mapping[Any, Any], absent: float) -> dict[Any, naive.Vector]:
    """Palearn's weights or variances as the twin's vectors."""
    blocks: dict[Any, Any] = {(): values}
    for _ in range(twin.depth):
        blocks = {(*path, name): part for path, inner in blocks.items() for name, part in inner.items()}
    named = {path if len(path) > 1 else path[0] if path else naive.BINARY: part for path, part in blocks.items()}
    assert set(named) <= set(twin.blocks)
    parts = {block: named.get(block, {}) for block in twin.blocks}
    assert all(set(part).issubset(twin.names) for part in parts.values())
    return {block: np.array([part.get(name, absent) for name in twin.names]) for block, part in parts.items()}


def load(twin: naive.Twin, weights: Mapping[Any, Any], variances: Mapping[Any, Any]) -> None:
    """Put the twin where palearn is. Off the diagonal of a full covariance it stays where it came to itself."""
    twin.w = dense(twin, weights, 0.0)
    if getattr(twin, "keep", None) in ("covariance", "precision"):
        diagonals = dense(twin, variances, twin.initial_variance)
        twin.sigma = {block: np.diag(diagonal) for block, diagonal in diagonals.items()}


def both_learn(
    model: Any, twin: naive.Twin, stream: Iterable[tuple[Any, Any]]
) -> Iterator[tuple[Any, naive.Vector, Mapping[Any, Any]]]:
    """Let both learn; yield each step that was to be taken: its problem, palearn's weights after it, its variances."""
    weights, variances = model.weights(), model.variances()
    for x, y in stream:
        load(twin, weights, variances)
        problem = twin.learn(x, y)
        model.learn_one(x, y)
        weights, variances = model.weights(), model.variances()
        after = twin.place(dense(twin, weights, 0.0))
        assert_same_variances(twin, variances)
        if problem is None:
            assert np.array_equal(after, twin.place(twin.w))
        else:
            yield problem, after, variances


def assert_same(twin: naive.Twin, values: Mapping[Any, Any], expected: Mapping[Any, Any], absent: float) -> None:
    """Palearn's weights or variances are the twin's vectors, to 1e-9."""
    ours, theirs = twin.place(dense(twin, values, absent)), twin.place(expected)
    assert np.all(np.abs(ours - theirs) <= 1e-9 * np.maximum(1.0 if absent == 0.0 else theirs, np.abs(theirs)))


def assert_same_variances(twin: naive.Twin, variances: Mapping[Any, Any]) -> None:
    """Palearn's variances are the diagonals of the twin's covariances."""
    expected = twin.variances()
    if expected:
        assert_same(twin, variances, expected, twin.initial_variance)
