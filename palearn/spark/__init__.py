"""Spark: the job, and :func:`score`, which scores a DataFrame with a job's models."""

from typing import TYPE_CHECKING, Any

from palearn.errors import missing_extra

if TYPE_CHECKING:
    from palearn.spark.scoring import score

__all__ = ["score"]


def __getattr__(name: str) -> Any:
    if name != "score":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What reads folders only (palearn compact) does not load pyspark.
    try:
        from palearn.spark.scoring import score
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return score
