"""The output folder: its tables' schemas, which batches are whole, and reading."""

from palearn.tables.reading import batches, columns, latest_models, metrics, read

__all__ = ["batches", "columns", "latest_models", "metrics", "read"]
