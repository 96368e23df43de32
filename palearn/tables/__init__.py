"""The output folder: its tables' schemas, which batches are whole, and reading (:mod:`palearn.tables.reading`)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palearn.tables.reading import batches, columns, latest_models, metrics, newest, read

__all__ = ["batches", "columns", "latest_models", "metrics", "newest", "read"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Who asks for a schema or a folder only does not load pyarrow.dataset, which loads pandas.
    from palearn.tables import reading

    return getattr(reading, name)
