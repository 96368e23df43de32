"""Fixtures that several folders of tests share."""

import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from palearn.kafka import broker as kafka_broker

#: A disk in memory, where there is one, and the room that the tests want on it.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 * 2**30
PACKAGE = Path(__file__).parents[1] / "palearn"
#: The JVMs of tests live for seconds: what compiling once more would gain never pays, and takes a third of their time.
ONCE = "-XX:TieredStopAtLevel=1"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put the tests' folders on a disk in memory, and let Java compile once.

    Spark and Kafka wait for the disk after every batch.
    """
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    if config.option.basetemp is None and roomy and os.access(MEMORY, os.W_OK):
        config.option.basetemp = str(MEMORY / f"palearn-tests-{os.getpid()}")

    for name in ("SPARK_SUBMIT_OPTS", "KAFKA_OPTS"):
        os.environ.setdefault(name, ONCE)
    _forget_stale_kernels()


def _forget_stale_kernels() -> None:
    """Remove compiled kernels older than any source: numba looks only at the file of the kernel itself."""
    sources = [file for file in PACKAGE.rglob("*.py") if "njit" in file.read_text(encoding="utf-8")]
    newest = max(file.stat().st_mtime for file in sources)
    compiled = [*PACKAGE.rglob("*.nbi"), *PACKAGE.rglob("*.nbc")]
    if any(file.stat().st_mtime < newest for file in compiled):
        for file in compiled:
            file.unlink(missing_ok=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back."""
    if str(config.option.basetemp).startswith(f"{MEMORY}/palearn-tests-"):
        shutil.rmtree(config.option.basetemp, ignore_errors=True)


def free_port_pair() -> int:
    """Return a port that is free now, together with the next one, which the broker's controller takes."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports in a row")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real Kafka broker that lives as long as the tests."""
    port, data = free_port_pair(), tmp_path_factory.mktemp("broker")
    kafka_broker.start(port, data)
    yield f"127.0.0.1:{port}"
    kafka_broker.stop(port, data)


@pytest.fixture
def topic() -> str:
    """Return a topic's name that no other test has."""
    return f"test-{uuid.uuid4().hex}"
