"""Public path of :mod:`palearn.evaluate.grid_search`."""

from palearn.evaluate.grid_search import Plan, Tried, candidates, configuration, ends, grid, search

__all__ = ["Plan", "Tried", "candidates", "configuration", "ends", "grid", "search"]
