"""Public path of :mod:`palearn.evaluate.grid_search`."""

from palearn.evaluate.grid_search import search

__all__ = ["search"]
