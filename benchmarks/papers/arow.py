"""AROW (Crammer, Kulesza and Dredze 2013): figures 5 and 6, table 1 and table 3."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.papers import arow_noise, arow_synthetic, arow_text
from benchmarks.papers.protocol import Table


def tables(folder: Path) -> Iterator[Table]:
    """Yield figures 5 and 6, table 1 and table 3."""
    yield arow_synthetic.table()
    yield arow_noise.table(folder)
    yield arow_text.table(folder)
