"""A Spark standalone cluster of a master and two workers on this machine, for tests."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.spark.test_jobs import wait_for

SPARK_HOME = Path(pyspark.__file__).parent


def environment() -> dict[str, str]:
    """Return the environment of a machine that knows Spark and Java, and nothing of this checkout."""
    own = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Yield the address of the master of two workers of one core each, which work in ``folder/worker-N``."""
    running = [daemon("Master", folder / "master", "--port", "0")]
    try:
        url = wait_for_url(running[0])
        for number in (1, 2):
            work = folder / f"worker-{number}"
            running.append(daemon("Worker", work, "--work-dir", str(work), "-c", "1", "-m", "1G", url))
            wait_for(running[-1], "Successfully registered with master")
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
            process.communicate()
        for unpacked in folder.glob("worker-*/app-*/*/environment"):
            shutil.rmtree(unpacked)  # 700 MB of memory each


def daemon(kind: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a master or a worker in a folder of its own."""
    folder.mkdir()
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
    return subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--webui-port", "0", *options],
        cwd=folder, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def wait_for_url(master: subprocess.Popen[str]) -> str:
    assert master.stdout is not None
    for line in master.stdout:
        if found := re.search(r"Starting Spark master at (spark://\S+)", line):
            return found[1]
    raise AssertionError("the master ended")
