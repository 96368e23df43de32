"""The learners: pure numerics over arrays, without names, bytes, clocks or randomness."""

from palearn.learners import adapt, drift
from palearn.learners.arrays import ArraySpec, Layout, Outcome, Rows, empty_outcome, layout_of, pointers
from palearn.learners.growth import grown, without_features
from palearn.learners.learner import TIES, Learner
from palearn.learners.parameters import Parameter
from palearn.learners.table import LEARNERS, TASKS, Algorithm

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
    "adapt",
    "drift",
    "empty_outcome",
    "grown",
    "layout_of",
    "pointers",
    "without_features",
]
