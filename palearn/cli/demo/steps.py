"""What the demonstrations share: a broker of their own, jobs run as a user would, a replay that must agree."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from palearn import datasets
from palearn.errors import FileFormatError, StreamError
from palearn.kafka import local_broker
from palearn.kafka.produce import produce
from palearn.spark.connectors import CONNECTOR
from palearn.tables import reading


def fresh_folder(checkout: Path, target: str, port: int) -> Path:
    """Return ``.TARGET`` in a checkout, cleared of what an earlier run left, its broker too.

    Raises
    ------
    FileFormatError
        The checkout has no jobs to submit.
    """
    if not (checkout / "jobs" / "stream.py").exists():
        message = f"{checkout} is no checkout of palearn: run make {target} where jobs/stream.py is"
        raise FileFormatError(message)
    folder = checkout / f".{target}"
    local_broker.stop(port, folder / "broker")
    shutil.rmtree(folder, ignore_errors=True)
    return folder


@contextmanager
def step(console: Console, title: str) -> Iterator[None]:
    """Show what is being done, then that it is done."""
    with console.status(title):
        yield
    console.print(title, highlight=False)


@contextmanager
def running_broker(console: Console, number: str, port: int, folder: Path) -> Iterator[None]:
    """Start a broker as step ``number``, and stop it at the end."""
    with step(console, f"{number}  starting a real Kafka broker (KRaft, one node)"):
        local_broker.start(port, folder)
    try:
        yield
    finally:
        with step(console, "     stopping the broker"):
            local_broker.stop(port, folder)


def produce_adult(console: Console, number: str, port: int, topic: str) -> None:
    """Produce the people of UCI Adult as step ``number``."""
    with step(console, f"{number}  producing UCI Adult to the topic {topic}, keyed by occupation"):
        produced = produce(
            [datasets.path("a9a")], topic=topic, bootstrap=f"127.0.0.1:{port}", key="occupation",
            missing_key="unknown", names=datasets.names("a9a"),
        )  # fmt: skip
    console.print(f"     {produced.sent:,} records")


def submit(console: Console, config: Path, log: Path, job: str, *options: str, errors: bool = True) -> None:
    """Run a job as a user would, in the checkout that ``config`` is in; its log lines are printed as they come.

    Parameters
    ----------
    console
        Where the lines are printed.
    config
        ``conf/NAME.yaml`` of the checkout.
    log
        A file that all that the job prints is added to.
    job
        ``stream`` or ``replay``.
    options
        Further options of the job.
    errors
        Whether to print the errors of all keys that a batch's line ends with.

    Raises
    ------
    StreamError
        The job failed.
    """
    spark_submit = Path(sys.executable).with_name("spark-submit")
    submitted = [
        str(spark_submit), "--master", "local[2]", "--packages", CONNECTOR, "--conf", "spark.ui.enabled=false",
        "--conf", "spark.log.level=ERROR", f"jobs/{job}.py",
    ]  # fmt: skip
    _run(
        console,
        config,
        log,
        job,
        [*submitted, "--config", str(config.relative_to(config.parents[1])), *options],
        errors,
    )


def command(console: Console, config: Path, log: Path, job: str, *options: str) -> None:
    """Run a job by ``palearn JOB``, which brings Spark what it needs for a store; see :func:`submit`."""
    words = [sys.executable, "-m", "palearn", job, "--master", "local[2]", "--config", str(config), *options]
    _run(console, config, log, job, words, True)


def _run(console: Console, config: Path, log: Path, job: str, command: list[str], errors: bool) -> None:
    checkout = config.parents[1]
    quiet = "--conf spark.ui.enabled=false --conf spark.log.level=ERROR pyspark-shell"
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": quiet}
    with (
        log.open("a", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            cwd=checkout,
            env=os.environ | python,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            if " batch " in line or "learning " in line or line.startswith("palearn:"):
                told = line.rstrip() if errors else line.rstrip().partition(", error ")[0]
                console.print(f"     {told}", highlight=False, markup=False, soft_wrap=True)
    if process.returncode:
        message = f"the {job} job ended with status {process.returncode}; its output is in {log}"
        raise StreamError(message)


def require_equal(counts: dict[str, int]) -> None:
    """Raise StreamError unless all readers found as many rows."""
    if len(set(counts.values())) > 1:
        raise StreamError(f"readers differ: {', '.join(f'{name} {count:,}' for name, count in counts.items())} rows")


def require_same(streamed: Path | str, replayed: Path | str) -> None:
    """Raise StreamError unless stream and replay ended with the same models and metrics, bit for bit."""
    from pandas.testing import assert_frame_equal

    same_models = ["batch_id", "updated_batch"]
    try:
        for read, ignored in ((reading.latest_models, same_models), (_final_metrics, ["batch_id"])):
            mine, other = (read(path).drop(columns=ignored) for path in (streamed, replayed))
            assert_frame_equal(mine, other, check_exact=True)
    except AssertionError as difference:
        message = f"the replay's tables differ from the stream's: {difference}"
        raise StreamError(message) from None


def _final_metrics(path: Path | str) -> Any:
    newest = reading.metrics(path, latest=True)
    return newest[newest["key"].notna()].reset_index(drop=True)
