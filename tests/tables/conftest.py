"""An object store for the tests of tables: a real one, on this machine alone."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from palearn.tables import local_store
from tests.conftest import free_ports


@pytest.fixture(scope="session")
def store_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a SeaweedFS that lives as long as the tests."""
    port, data = free_ports(len(local_store.PORTS)), tmp_path_factory.mktemp("store")
    local_store.start(port, data)
    yield port
    local_store.stop(port, data)


@pytest.fixture
def bucket(store_port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a folder in the store that no other test has; the environment leads there."""
    for name, value in local_store.environment(store_port).items():
        monkeypatch.setenv(name, value)
    return f"s3://{local_store.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(params=["parquet", "delta", "s3-parquet", "s3-delta"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return where an output may lie, and what its tables are written as."""
    where, _, format = request.param.rpartition("-")
    return (f"{request.getfixturevalue('bucket')}/out" if where else str(tmp_path / "out")), format
