"""A real Kafka broker on one machine, for demos, tests and development.

One node in KRaft's combined mode (broker and controller in one process), from the jars that Apache publishes
on Maven Central. It listens on 127.0.0.1 only: clients on ``port``, the controller on ``port`` + 1; whoever wants
other listeners (TLS, passwords) gives them among Kafka's own settings to :func:`start`.
Everything it writes is in one data folder:

======================  ==========================================================
``log/``                the topics; they outlive a stop
``cluster-id``          the identity that the folder was formatted with
``server.properties``   Kafka's configuration, written by every start
``log4j2.properties``   Kafka's logging, written by every start
``broker.log``          what Kafka printed, since the folder exists
``broker.json``         process id and port of the running broker
======================  ==========================================================
"""

import base64
import contextlib
import fcntl
import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from palearn.errors import BrokerError
from palearn.kafka.jars import KAFKA_VERSION, find_java, kafka_jars
from palearn.kafka.reachability import answers

_log = logging.getLogger(__name__)

#: A record of 3 MB fits, with its key and headers.
MAX_MESSAGE_BYTES = 4 * 2**20

#: After this long without an answer to a polite stop, the process is killed.
STOP_TIMEOUT_S = 30.0

_POLL_S = 0.05
_PROC = Path("/proc")

_PROPERTIES = """\
# Written by `palearn broker start`; changes are lost.
process.roles=broker,controller
node.id=1
listeners=CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=CLIENT://127.0.0.1:{port}
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller_port}
log.dirs=log
num.partitions=4
auto.create.topics.enable=false
message.max.bytes={max_message_bytes}
# History is there to be replayed: it is never deleted.
log.retention.ms=-1
# There is one node, so there is one copy of everything.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# A consumer's first group need not wait for others to join.
group.initial.rebalance.delay.ms=0
# The default, 128 MB, is a quarter of the heap.
log.cleaner.dedupe.buffer.size=16777216
"""

_LOGGING = """\
# Written by `palearn broker start`; changes are lost.
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""


@dataclass(frozen=True)
class BrokerStatus:
    """What is known of the broker of a data folder; ``pid`` is None when it does not run."""

    running: bool
    pid: int | None
    port: int
    data: Path
    version: str = KAFKA_VERSION


def default_data(port: int) -> Path:
    """Return the data folder of a port's broker, in the user's state folder."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "palearn" / f"broker-{port}"


def start(
    port: int = 9092,
    data: str | Path | None = None,
    timeout_s: float = 60.0,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Start the broker, and return when it answers; one that runs already is left alone.

    Parameters
    ----------
    port
        Where clients connect; the controller takes the next one.
    data
        The data folder, made when it is not there; by default :func:`default_data`.
    timeout_s
        How long to wait for the first answer, once the jars are there.
    settings
        Kafka's own, which win over palearn's. A further listener is one in ``listeners``, in
        ``advertised.listeners`` and in ``listener.security.protocol.map``; CLIENT on ``port`` has to stay.

    Raises
    ------
    BrokerError
        Java is missing or too old, a port is taken, the folder cannot be made, the jars cannot be fetched, or Kafka
        ended or did not answer in time; what was started is stopped again.
    """
    if not 1 <= port <= 65534:
        message = f"port must be from 1 to 65534 (the controller takes the next one), got {port}"
        raise BrokerError(message)
    folder = Path(data or default_data(port)).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data folder {folder} cannot be made: {error.strerror}; choose another with --data"
        raise BrokerError(message) from None
    with _locked(folder):
        if _runs_already(folder, port, timeout_s):
            return
        java = find_java()
        _check_free(port)
        jars = kafka_jars()
        _configure(folder, port, settings or {})
        _format(java, jars, folder)
        _launch(java, jars, folder, port, timeout_s)
    _log.info("Kafka %s answers on 127.0.0.1:%d, data in %s", KAFKA_VERSION, port, folder)


def stop(port: int = 9092, data: str | Path | None = None) -> bool:
    """Stop the broker, and return when its process is gone: whether there was one.

    Raises
    ------
    BrokerError
        The process belongs to another user.
    """
    folder = Path(data or default_data(port)).absolute()
    known = status(port, folder)
    if known.pid is not None:
        _end(known.pid, folder)
        _log.info("the broker on port %d is stopped", known.port)
    (folder / "broker.json").unlink(missing_ok=True)
    return known.running


def status(port: int = 9092, data: str | Path | None = None) -> BrokerStatus:
    """Return whether the broker of the data folder runs, and where; a stale process file does not count."""
    folder = Path(data or default_data(port)).absolute()
    try:
        known = json.loads((folder / "broker.json").read_text())
        pid, known_port = int(known["pid"]), int(known["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return BrokerStatus(running=False, pid=None, port=port, data=folder)
    if not _is_ours(pid, folder):
        return BrokerStatus(running=False, pid=None, port=port, data=folder)
    return BrokerStatus(running=True, pid=pid, port=known_port, data=folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one start of a folder's broker wait for another."""
    with (folder / ".start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _runs_already(folder: Path, port: int, timeout_s: float) -> bool:
    """Say whether there is nothing to start; a process that is just ending counts for nothing."""
    known = status(port, folder)
    if known.pid is None:
        return False
    if known.port != port:
        message = (
            f"the broker of {folder} runs already, on port {known.port}; stop it first (palearn broker stop "
            f"--port {known.port} --data {folder}), or choose another --data"
        )
        raise BrokerError(message)
    failure = _wait_for_answer(known.pid, folder, port, timeout_s)
    if failure is None:
        _log.info("the broker on port %d runs already (process %d)", port, known.pid)
        return True
    if status(port, folder).running:
        message = f"the broker runs already (process {known.pid}), but {failure}; stop it, then start it again"
        raise BrokerError(message)
    return False


def _mark(folder: Path) -> str:
    """Return the argument by which a broker's process is known as this folder's."""
    return f"-Dpalearn.data={folder}"


def _is_ours(pid: int, folder: Path) -> bool:
    """Say whether the process is this folder's broker, and not another program that got its number."""
    if (_PROC / "self" / "cmdline").exists():
        for _ in range(20):
            try:
                command = (_PROC / str(pid) / "cmdline").read_bytes()
            except OSError:
                return False
            if command:
                return os.fsencode(_mark(folder)) in command.split(b"\0")
            time.sleep(0.01)  # it is just being executed, else it has ended and will stay without a command
        return False
    # There is no /proc on macOS.
    answer = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return f"{_mark(folder)} " in answer.stdout


def _check_free(port: int) -> None:
    """Refuse a port that is taken; one that was, by a broker that has just ended, is waited for."""
    deadline = time.monotonic() + 1.0
    for number, user in ((port, "the broker"), (port + 1, "its controller")):
        while (problem := _cannot_bind(number)) is not None:
            if time.monotonic() > deadline:
                message = (
                    f"port {number}, for {user}, cannot be had ({problem}); end the program that has it, or "
                    "choose another with --port (the controller takes the one after it)"
                )
                raise BrokerError(message)
            time.sleep(_POLL_S)


def _cannot_bind(port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror
    return None


def _configure(folder: Path, port: int, settings: Mapping[str, str]) -> None:
    own = _PROPERTIES.format(port=port, controller_port=port + 1, max_message_bytes=MAX_MESSAGE_BYTES)
    given = "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())
    properties = folder / "server.properties"
    properties.touch()
    properties.chmod(0o600)  # a password of a key store may be among the settings
    properties.write_text(own + given)  # Java takes the last of a name
    (folder / "log4j2.properties").write_text(_LOGGING)


def _escaped(value: str) -> str:
    """Return a value as Java's properties have it."""
    pairs = value.encode("utf-16-be")
    units = (int.from_bytes(pairs[i : i + 2], "big") for i in range(0, len(pairs), 2))
    return "".join(chr(unit) if 32 < unit < 127 and unit != 92 else f"\\u{unit:04x}" for unit in units)


def _java_command(java: Path, jars: Path, folder: Path, heap_mb: int, main: str) -> list[str]:
    return [
        str(java),
        "-Xms128m",
        f"-Xmx{heap_mb}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dlog4j2.configurationFile=log4j2.properties",
        *shlex.split(os.environ.get("KAFKA_OPTS", "")),  # as Kafka's own scripts take it
        _mark(folder),
        "-cp",
        f"{jars}/*",
        main,
    ]


def _format(java: Path, jars: Path, folder: Path) -> None:
    """Give a new data folder its cluster id, once; Kafka refuses to start in an unformatted one."""
    if (folder / "log" / "meta.properties").exists():
        return
    identity = folder / "cluster-id"
    if not identity.exists():
        identity.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
    command = [
        *_java_command(java, jars, folder, 256, "kafka.tools.StorageTool"),
        "format",
        f"--cluster-id={identity.read_text()}",
        "--config=server.properties",
    ]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        message = f"Kafka cannot format {folder / 'log'}: {_last_lines(result.stdout + result.stderr)}"
        raise BrokerError(message)


def _launch(java: Path, jars: Path, folder: Path, port: int, timeout_s: float) -> None:
    """Start the process, detached from this one, and wait for its first answer."""
    log = folder / "broker.log"
    before = log.stat().st_size if log.exists() else 0
    command = [*_java_command(java, jars, folder, 512, "kafka.Kafka"), "server.properties"]
    # The shell ends at once and leaves Kafka to init, so that it is nobody's child and outlives its parent.
    shell = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'
    started = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", "broker.log", *command],
        cwd=folder, start_new_session=True, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    pid = int(started.stdout)
    (folder / "broker.json").write_text(json.dumps({"pid": pid, "port": port}))
    failure = _wait_for_answer(pid, folder, port, timeout_s)
    if failure is not None:
        stop(port, folder)
        with log.open("rb") as file:
            file.seek(before)
            printed = file.read().decode(errors="replace")
        message = f"Kafka {failure}; the end of {log}: {_last_lines(printed)}"
        raise BrokerError(message)


def _wait_for_answer(pid: int, folder: Path, port: int, timeout_s: float) -> str | None:
    """Return None when the broker has answered a request for metadata, else what happened instead."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not _is_ours(pid, folder):
            return "ended while starting"
        if answers(f"127.0.0.1:{port}"):
            return None
        time.sleep(_POLL_S)
    return f"did not answer on port {port} within {timeout_s:g} s"


def _end(pid: int, folder: Path) -> None:
    """Ask the process to end; kill it when it does not."""
    for sign, patience_s in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            return
        except PermissionError:
            message = f"process {pid} runs the broker of {folder}, but belongs to another user"
            raise BrokerError(message) from None
        deadline = time.monotonic() + patience_s
        while _is_ours(pid, folder):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        else:
            return
    message = f"process {pid}, the broker of {folder}, cannot be ended"
    raise BrokerError(message)


def _last_lines(printed: str) -> str:
    """Return what a log says of errors, else its last lines, in one line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Exception" in line or "Error:" in line]
    return " | ".join((errors or lines)[-3:]) or "(nothing)"
