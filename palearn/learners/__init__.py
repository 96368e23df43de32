"""The learners: pure numerics over arrays, without names, bytes, clocks or randomness."""

from palearn.learners import drift_response, drift_test
from palearn.learners.arrays import ArraySpec, Layout, Outcome, Rows, empty_outcome, layout_of, pointers
from palearn.learners.hyperparameters import Parameter
from palearn.learners.learner import TIES, Learner
from palearn.learners.registry import LEARNERS, TASKS, Algorithm
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
