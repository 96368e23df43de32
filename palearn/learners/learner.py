"""A learner: a row of the table with its options, as the streams, the files and the adapters use it."""

from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

import numpy as np

from palearn.errors import LearnerError
from palearn.learners import resize
from palearn.learners.arrays import JOINT, ArraySpec, Layout, Outcome, Rows
from palearn.learners.drift_test import STATE, drift_of
from palearn.learners.families import FACTORS, SIGMA, Arrays, Params
from palearn.learners.hyperparameters import resolve
from palearn.learners.registry import LEARNERS, TASKS
from palearn.types import FloatArray, IntArray

TIES = ("negative", "positive")


class Learner:
    """A row of the table with its options: checks them, declares the arrays, runs the steps.

    Parameters
    ----------
    name
        The user's name for it; the learners of a stream are compared by their names.
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
    drift
        What it does where its mistakes rise (:mod:`palearn.learners.drift_test`): an action, or the test's options;
        None: there is no test.
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
        drift: object = None,
    ) -> None:
        if algorithm not in LEARNERS:
            near = get_close_matches(algorithm, LEARNERS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise LearnerError(f"unknown learner {algorithm!r}; {hint}known are {', '.join(LEARNERS)}")
        self.row = LEARNERS[algorithm]
        for word, value, words in (("task", task, TASKS), ("tie", tie, TIES)):
            if value not in words:
                raise LearnerError(f"{algorithm}: {word} must be one of {', '.join(words)}, got {value!r}")
        if task not in self.row.tasks:
            raise LearnerError(f"{algorithm}: task must be {' or '.join(self.row.tasks)}, got {task!r}")
        if view is not None and self.row.views:
            raise LearnerError(f"{algorithm} learns on all views at once; leave out view={view!r}")
        self.name, self.algorithm, self.task, self.tie, self.view = name, algorithm, task, tie, view
        self.params: dict[str, Any] = resolve(algorithm, self.row.parameters, options or {})
        if self._joint and task != "multiclass":
            raise LearnerError(f"{algorithm}: covariance='joint' is for task='multiclass', got {task!r}")
        self.drift = drift_of(algorithm, drift)
        self.arrays: tuple[ArraySpec, ...] = self.row.form.arrays(self.params) + (STATE,) * (self.drift is not None)
        if self.drift is not None and self.drift.action == "relax" and self.covariance is None:
            raise LearnerError(f"{algorithm} keeps no variances that drift could relax; let it restart")

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.identity | {"task": self.task},)

    @property
    def _joint(self) -> bool:
        return self.params.get("covariance") == "joint"

    @property
    def ties_positive(self) -> bool:
        """Whether a binary score of exactly 0 predicts the positive class."""
        return self.tie == "positive"

    @property
    def covariance(self) -> ArraySpec | None:
        """The array of the covariance; None for a first-order learner."""
        return next((spec for spec in self.arrays if spec.name in (SIGMA, FACTORS)), None)

    @property
    def max_features(self) -> int | None:
        """Most features it can hold, or None where nothing limits them."""
        if self.covariance is None or not self.covariance.triangular:
            return None
        most: int = self.params["max_full_features"]
        return max(1, most // self.params["max_classes"]) if self._joint else most

    @property
    def max_classes(self) -> int | None:
        """Most classes it can hold, or None where nothing limits them."""
        return self.params["max_classes"] if self._joint else None

    @property
    def spec(self) -> dict[str, Any]:
        """What is needed to make the learner again, apart from task and tie."""
        made = {"name": self.name, "algorithm": self.algorithm, "view": self.view, "params": self.params}
        return made if self.drift is None else made | {"drift": asdict(self.drift)}

    @property
    def identity(self) -> dict[str, Any]:
        """What a stored state must agree on: :attr:`spec` and the tie rule."""
        return self.spec | {"tie": self.tie}

    def run(self, views: list[Rows], layout: Layout, arrays: Arrays, out: Outcome) -> None:
        """Score and learn a run of rows in place; ``views`` has one selection of features, or one a view."""
        if self.row.views and len(views) < 2:
            raise LearnerError(f"{self.algorithm} needs two views or more, got {len(views)}")
        self.row.form.run(self.params, self.task, self.ties_positive, views, layout, arrays, out)

    def weights(self, layout: Layout, arrays: Arrays) -> FloatArray:
        """Return the weights of all keys, in the layout of a ``weights`` array; not to be changed."""
        return self.row.form.weights(self.params, layout, arrays)

    def variances(self, layout: Layout, arrays: Arrays, keys: IntArray) -> FloatArray | None:
        """Return the variances of the keys' weights, in the layout of a ``weights`` array; None: there are none."""
        spec = self.covariance
        if spec is None or not spec.triangular:
            return None if spec is None else arrays[spec.name]
        return np.asarray(resize.variances(spec.shape == JOINT, arrays[spec.name], layout, keys))


def _again(spec: dict[str, Any]) -> Learner:
    """Return the learner of a pickle: its rules are functions of the table, which only their row's name brings back."""
    known = dict(spec)
    return Learner(known.pop("name"), known.pop("algorithm"), options=known.pop("params"), **known)
