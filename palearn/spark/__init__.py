"""Spark: the job, and :func:`score`, which scores a DataFrame with a job's models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palearn.spark.scoring import score

__all__ = ["score"]


def __getattr__(name: str) -> Any:
    if name != "score":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What reads folders only (palearn compact) does not load pyspark.
    from palearn.spark.scoring import score

    return score
