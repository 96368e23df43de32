"""The learners: pure numerics over arrays, without names, bytes, clocks or randomness."""

from palearn.learners.parameters import Parameter
from palearn.learners.steps import Layout, Outcome, Rows
from palearn.learners.table import LEARNERS, TASKS, TIES, Algorithm, ArraySpec, Learner

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
]
