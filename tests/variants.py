"""Every learner with its tasks and options, streams to run it on, and what can be read of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import palearn

Example = tuple[Any, Any]

FEATURES = "abcde"
CLASSES: dict[str, list[Any]] = {"binary": [-1, 1], "multiclass": ["x", "y", "z"]}
LEARNERS = {row["name"]: row["parameters"] for row in palearn.learners()}
TASKS = {row["name"]: row["tasks"] for row in palearn.learners()}


@dataclass(frozen=True)
class Variant:
    """A learner, its task and options; and the views that it learns on."""

    name: str
    task: str
    options: dict[str, Any] = field(default_factory=dict)
    views: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join([self.name, self.task, *map(str, self.options.values()), *self.views[2:]])

    def make(self, **more: Any) -> Any:
        return palearn.make(self.name, task=self.task, **{"bias": False, **self.options, **more})

    def view(self, feature: str) -> str:
        return self.views[{"c": 1, "d": 1, "e": -1}.get(feature, 0)]

    def shape(self, features: dict[str, float]) -> Any:
        """Features as the learner takes them: views share them by the letter."""
        if not self.views:
            return features
        return {v: {f: x for f, x in features.items() if self.view(f) == v} for v in self.views}

    def normal(self, seed: int, n: int) -> list[Example]:
        """Return `n` examples of normal values: no two scores tie, but at 0."""
        rng, classes = np.random.default_rng(seed), CLASSES[self.task]
        rows = rng.normal(size=(n, len(FEATURES))) * (rng.random((n, len(FEATURES))) < 0.7)
        labels = rng.integers(len(classes), size=n)
        return [
            (self.shape({f: float(v) for f, v in zip(FEATURES, row, strict=True) if v}), classes[y])
            for row, y in zip(rows, labels, strict=True)
        ]

    def streams(self, values: st.SearchStrategy[float]) -> st.SearchStrategy[list[Example]]:
        """Draw short streams of any such values."""
        x = st.dictionaries(st.sampled_from(FEATURES), values, max_size=len(FEATURES)).map(self.shape)
        return st.lists(st.tuples(x, st.sampled_from(CLASSES[self.task])), min_size=1, max_size=12)


COVARIANCES: list[dict[str, Any]] = [{"covariance": "full"}, {"projection": "precision"}, {"projection": "covariance"}]


def variants(task: str) -> Iterator[Variant]:
    """Every learner of the task; every word of its options is in one of them."""
    some: dict[str, Any] = {} if task == "binary" else {"constraints": "all"}
    for name in ("perceptron", "pa", "pa1", "pa2", "spa", "spa1", "spa2"):
        yield Variant(name, task)
    for l1 in (0.0, 0.01):
        yield Variant("adagrad_rda", task, {"l1": l1})
    for name in ("pam", "pam1", "pam2", "arow"):
        for covariance, constraints in zip(COVARIANCES, (some, {}, some), strict=True):
            yield Variant(name, task, {**covariance, **constraints})
    for covariance in COVARIANCES:
        for form in ("variance", "stdev"):
            yield Variant("cw", task, {"form": form, **covariance})
        for name in ("scw1", "scw2", "nherd"):
            yield Variant(name, task, covariance)
    for views in (("page", "link"), ("page", "link", "text")):
        yield Variant("two_view_pa", task, views=views)
    yield Variant("two_view_pa", task, {"as_printed": True}, views=("page", "link"))
    yield Variant("arow", task, {"loss": "hinge", "covariance": "full" if task == "binary" else "joint", **some})
    if task == "multiclass":
        yield Variant("arow", task, {"loss": "hinge", "covariance": "full", "constraints": 2})
        yield Variant("arow", task, {"covariance": "joint"})
        for name in ("pa1", "pa2", "spa1", "spa2"):
            yield Variant(name, task, {"as_printed": True})
        return
    for covariance in ("diagonal", "full"):
        yield Variant("sop", task, {"covariance": covariance})
    for name, options in (("pa_mean", {}), ("pa_mean1", {"queue": 3}), ("pa_mean2", {"freeze_mean_after": 4})):
        yield Variant(name, task, options)


VARIANTS = [variant for task in CLASSES for variant in variants(task)]
#: Their misprint may leave a loss without a step.
PRINTED_SPA = [v for v in VARIANTS if v.name.startswith("spa") and v.options.get("as_printed")]
SIXTEENTHS = st.integers(-64, 64).map(lambda i: i / 16)
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def learned(model: Any, examples: list[Example]) -> Any:
    for x, y in examples:
        model.learn_one(x, y)
    return model


def flat(values: dict[Any, Any], path: tuple[Any, ...] = ()) -> dict[Any, float]:
    """Weights or variances by path: (feature), (class, feature) or (view, feature)."""
    out: dict[Any, float] = {}
    for name, value in values.items():
        out |= flat(value, (*path, name)) if isinstance(value, dict) else {(*path, name): value}
    return out


def moved(model: Any) -> dict[Any, float]:
    """Weights that are not 0."""
    return {path: w for path, w in flat(model.weights()).items() if w != 0.0}
