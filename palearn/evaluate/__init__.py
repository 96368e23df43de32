"""Learning and scoring files in one process, without Spark."""

from palearn.evaluate.examples import Examples
from palearn.evaluate.prequential import compare, evaluate, held_out, settings_of

__all__ = ["Examples", "compare", "evaluate", "held_out", "settings_of"]
