"""Models of a finished or running job in use: loaded by key, and served over HTTP; no Spark and no Kafka.

What answers is :mod:`palearn.engine.scoring`, as in ``palearn predict`` and ``palearn.spark.score``.
"""

from palearn.serving.loaded import Answer, Loaded, load

__all__ = ["Answer", "Loaded", "load"]
