"""``make demo``: a real broker, a real topic, the streaming job, its results, and a replay that must agree."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from palearn import datasets, report, tables
from palearn.errors import FileFormatError, StreamError
from palearn.kafka import broker
from palearn.kafka.produce import produce
from palearn.spark.session import CONNECTOR

PORT = 29092
TOPIC = "adult"
#: The model whose weights are shown.
SHOWN = ("Exec-managerial", "arow")


def demo(console: Console, checkout: Path) -> None:
    """Run the demonstration in a checkout; everything it makes is in ``.demo``."""
    if not (checkout / "jobs" / "stream.py").exists():
        message = f"{checkout} is no checkout of palearn: run make demo where jobs/stream.py is"
        raise FileFormatError(message)
    folder = checkout / ".demo"
    broker.stop(PORT, folder / "broker")
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    with _step(console, "1/5  starting a real Kafka broker (KRaft, one node)"):
        broker.start(PORT, folder / "broker")
    try:
        _stream_and_replay(console, checkout, folder)
    finally:
        with _step(console, "     stopping the broker"):
            broker.stop(PORT, folder / "broker")
    _show(console, folder / "out")
    _compare(console, folder / "out", folder / "replay")
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. Next: README.md, 'Your own topic in five minutes'.")


def _stream_and_replay(console: Console, checkout: Path, folder: Path) -> None:
    with _step(console, f"2/5  producing UCI Adult to the topic {TOPIC}, keyed by occupation"):
        produced = produce(
            [datasets.path("a9a")], topic=TOPIC, bootstrap=f"127.0.0.1:{PORT}", key="occupation",
            missing_key="unknown", names=datasets.names("a9a"),
        )  # fmt: skip
    console.print(f"     {produced.sent:,} records")
    _submit(console, checkout, "3/5  spark-submit jobs/stream.py --config conf/demo.yaml", "stream")
    replay = ["--set", f"output.path={folder / 'replay'}"]
    _submit(
        console,
        checkout,
        "4/5  spark-submit jobs/replay.py: the same topic again, as one batch",
        "replay",
        *replay,
    )


def _submit(console: Console, checkout: Path, title: str, job: str, *options: str) -> None:
    """Run a job as a user would; its log lines go to the terminal as they come."""
    console.print(title, highlight=False)
    spark_submit = Path(sys.executable).with_name("spark-submit")
    command = [
        str(spark_submit), "--master", "local[2]", "--packages", CONNECTOR, "--conf", "spark.ui.enabled=false",
        "--conf", "spark.log.level=ERROR", f"jobs/{job}.py", "--config", "conf/demo.yaml", *options,
    ]  # fmt: skip
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    log = checkout / ".demo" / f"{job}.log"
    with (
        log.open("w", encoding="utf-8") as kept,
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
                console.print(f"     {line.rstrip()}", highlight=False, markup=False, soft_wrap=True)
    if process.returncode:
        message = f"the {job} job ended with status {process.returncode}; its output is in {log}"
        raise StreamError(message)


def _show(console: Console, out: Path) -> None:
    console.print("\nError of each occupation's models, test-then-train, beside predicting no change", highlight=False)
    found = report.summary(out)
    console.print(report.fates(found), highlight=False)
    console.print(report.error_table(found))
    key, learner = SHOWN
    title = f"strongest weights of {learner} for {key} (+: earns over 50,000 a year)"
    table = Table("feature", Column("weight", justify="right"), box=box.SIMPLE, title=title)
    for _, feature, weight in report.strongest(out, key, learner):
        table.add_row(feature, f"{weight:+.3f}")
    console.print(table)
    picture = out.parent / "error.png"
    report.plot(out, picture)
    console.print(f"Tables (Parquet): {out}\nPlot of the rolling error: {picture}", highlight=False, soft_wrap=True)


def _compare(console: Console, streamed: Path, replayed: Path) -> None:
    """Say whether stream and replay ended with the same models and mistakes, bit for bit."""
    from pandas.testing import assert_frame_equal

    same_models = ["batch_id", "updated_batch"]
    try:
        for read, ignored in ((tables.latest_models, same_models), (_final_metrics, ["batch_id"])):
            mine, other = (read(path).drop(columns=ignored) for path in (streamed, replayed))
            assert_frame_equal(mine, other, check_exact=True)
    except AssertionError as difference:
        message = f"the replay's tables differ from the stream's: {difference}"
        raise StreamError(message) from None
    console.print("5/5  replay and stream: models and metrics are equal bit for bit", style="bold green")


def _final_metrics(path: Path) -> Any:
    newest = tables.metrics(path, latest=True)
    return newest[newest["key"].notna()].reset_index(drop=True)


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    with console.status(title):
        yield
    console.print(title, highlight=False)
