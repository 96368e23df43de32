"""Learning and scoring files in one process, without Spark."""

from palearn.evaluate.prequential import Examples, evaluate, held_out, race, settings_of

__all__ = ["Examples", "evaluate", "held_out", "race", "settings_of"]
