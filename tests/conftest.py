"""Fixtures that several folders of tests share."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palearn import cli
from palearn.kafka import local_broker as kafka_broker
from palearn.tables import local_store
from tests import archives

#: A disk in memory, where there is one, and the room that the tests want on it.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 * 2**30
PACKAGE = Path(__file__).parents[1] / "palearn"
ROOT = PACKAGE.parent
ARCHIVES = pytest.StashKey[tuple[tempfile.TemporaryDirectory[str], subprocess.Popen[bytes]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put the tests' folders on a disk in memory, and let Java compile once and load classes from an archive.

    Spark and Kafka wait for the disk after every batch.
    """
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    if config.option.basetemp is None and roomy and os.access(MEMORY, os.W_OK):
        config.option.basetemp = str(MEMORY / f"palearn-tests-{os.getpid()}")

    _forget_stale_kernels()
    # Of the process that has no tests of its own. Without the slow tests too few JVMs start to be worth the archives.
    if getattr(config.option, "numprocesses", None) and "not slow" not in config.option.markexpr:
        _make_archives(config)
    for name in archives.FILES:
        os.environ.setdefault(name, archives.ONCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that start processes: at the end, alone, they would leave the other workers idle."""
    whole_jobs = {item.path for item in items if item.get_closest_marker("slow")}
    processes = {item.path for item in items if item.get_closest_marker("spark") or item.get_closest_marker("kafka")}
    items.sort(key=lambda item: (item.path not in whole_jobs, item.path not in processes))


def _make_archives(config: pytest.Config) -> None:
    """Begin to make archives for the JVMs of tests; in the background, as it takes a minute."""
    near = config.option.basetemp
    folder = tempfile.TemporaryDirectory(prefix="palearn-archives-", dir=near and Path(near).parent)
    command = [sys.executable, "-m", "tests.archives", folder.name]
    config.stash[ARCHIVES] = folder, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    for name, options in archives.using(Path(folder.name)).items():
        os.environ.setdefault(name, options)  # the workers, which start later, have it from here


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
    if ARCHIVES in config.stash:
        folder, making = config.stash[ARCHIVES]
        making.wait()
        folder.cleanup()
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


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A function that runs the command as a shell does, in this process: status, standard output, standard error."""

    def palearn(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["palearn", *arguments])
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return palearn


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that are free now."""
    for _ in range(100):
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                for number in [*range(port + 1, port + count), *range(port + 10_000, port + 10_000 + count)]:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except (OSError, OverflowError):
                continue
            return port
    raise AssertionError("no free ports in a row")


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
