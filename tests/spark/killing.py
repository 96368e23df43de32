"""Jobs that are killed (``kill -9``) or held at one exact call, as real processes under spark-submit."""

import os
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.spark.test_jobs import start, submit, write_config

#: Take the lock of a checkpoint away, as on file systems that have none.
NO_LOCK = """\
import contextlib, sys

if any("jobs/stream.py" in word for word in sys.orig_argv):
    from palearn.spark import checkpoint
    checkpoint.locked = lambda *of: contextlib.nullcontext()
"""
#: The same, of a job that begins when another has: else they might differ about whose the output is.
NO_LOCK_SECOND = f"""\
{NO_LOCK}
    import pathlib, time
    until = time.monotonic() + 300
    while not pathlib.Path("out/_palearn/owner.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
"""

#: Change one function in one kind of process.
_KILL = """\
import os, pkgutil, signal, sys, time

GROUP, PARENT = os.getpgrp(), os.getppid()  # PySpark's workers leave the job's group later

def strike():
    try:
        open({marker!r}, "x").close()  # once, whoever comes here too
    except FileExistsError:
        return
    {what}

def changed(real):
    def call(*args, **kwargs):
        now = {when}
        if now and not {after}:
            strike()
        result = real(*args, **kwargs)
        if now and {after}:
            strike()
        return result
    return call

if any({process!r} in word for word in sys.orig_argv):
    owner = pkgutil.resolve_name({owner!r})
    setattr(owner, {name!r}, changed(getattr(owner, {name!r})))
"""

DRIVER, WORKER = "jobs/stream.py", "pyspark.daemon"
#: What happens: the driver is killed with its JVM; the JVM that a Python worker works for; the Python worker itself; or
#: the process waits until there is a file ``go`` in the folder that the job was started in.
JOB = "os.killpg(GROUP, signal.SIGKILL)"
EXECUTOR = "os.kill(PARENT, signal.SIGKILL)"
ITSELF = "os.kill(os.getpid(), signal.SIGKILL)"
WAIT = "while not os.path.exists('go'): time.sleep(0.02)"


class Kill(NamedTuple):
    """Where a process is killed: at a call of ``function`` in ``process`` for which ``when`` (of ``args``) is true."""

    process: str
    function: str
    when: str
    after: bool
    what: str = JOB


def killing(folder: Path, kill: Kill) -> str:
    """Return code for :func:`site_of`; the kill comes once in this folder, and leaves the file ``killed``."""
    owner, _, name = kill.function.rpartition(".")
    where = {"process": kill.process, "when": kill.when, "after": kill.after, "what": kill.what}
    return _KILL.format(marker=str(folder / "killed"), owner=owner, name=name, **where)


def site_of(folder: Path, code: str) -> str:
    """Return the ``PYTHONPATH`` with which every Python of a job begins with some code."""
    path = folder / f"site-{hash(code)}"
    path.mkdir(exist_ok=True)
    (path / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_killed(broker: str, topic: str, folder: Path, kill: Kill, *overrides: str) -> tuple[int, str]:
    """Run a job in local mode that is killed; return its status and what it printed."""
    command = submit("stream", "--config", str(write_config(broker, topic, folder, *overrides)))
    process = start(command, folder, PYTHONPATH=site_of(folder, killing(folder, kill)))
    printed, _ = process.communicate()
    assert (folder / "killed").exists(), printed
    return process.returncode, printed


def kill_job(process: subprocess.Popen[str]) -> None:
    """Kill a job: driver and JVM."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
