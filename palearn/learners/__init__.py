"""The learners: pure numerics over arrays, without names, bytes, clocks or randomness."""

import sys
from types import ModuleType
from typing import Any

from palearn.learners import drift_response, drift_test
from palearn.learners.arrays import ArraySpec, Layout, Outcome, Rows, empty_outcome, layout_of, pointers
from palearn.learners.hyperparameters import Parameter
from palearn.learners.learner import TIES, Learner
from palearn.learners.registry import LEARNERS, TASKS, Algorithm, described
from palearn.learners.resize import grown, without_features

__all__ = [
    "LEARNERS",
    "TASKS",
    "TIES",
    "Algorithm",
    "ArraySpec",
    "Layout",
    "Learner",
    "Outcome",
    "Parameter",
    "Rows",
    "drift_response",
    "drift_test",
    "empty_outcome",
    "grown",
    "layout_of",
    "pointers",
    "without_features",
]


class _Callable(ModuleType):
    """``palearn.learners()`` is the table of all learners, and ``palearn.learners`` this package."""

    def __call__(self) -> list[dict[str, Any]]:
        """Return every learner (:func:`palearn.learners.registry.described`)."""
        return described()


sys.modules[__name__].__class__ = _Callable
