"""Where an output may lie, and what its tables are written as."""

from pathlib import Path

import pytest


@pytest.fixture(params=["parquet", "delta", "s3-parquet", "s3-delta"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return where an output may lie, and what its tables are written as."""
    where, _, format = request.param.rpartition("-")
    return (f"{request.getfixturevalue('bucket')}/out" if where else str(tmp_path / "out")), format
