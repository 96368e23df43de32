"""Public path of :mod:`palearn.models.matrix`; pickles of estimators name it."""

from palearn.models.matrix import Matrix, MatrixModel

__all__ = ["Matrix", "MatrixModel"]
