"""Public path of :mod:`palearn.models.single`; pickles of models name it."""

from palearn.models.single import Model, from_bytes, learners, make

__all__ = ["Model", "from_bytes", "learners", "make"]
