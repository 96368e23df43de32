"""Killed at any point, a job goes on at its next start as if nothing had happened: the same tables, bit for bit."""

import signal
import time
from pathlib import Path

import pytest

from benchmarks.common import drawn, fill_topic
from benchmarks.kills import soak
from tests.spark.clusters import standalone
from tests.spark.conftest import (
    MOST,
    PEOPLE,
    assert_accounts_balance,
    assert_same_outputs,
    batches,
    config,
    stream,
    visible,
)
from tests.spark.killing import DRIVER, EXECUTOR, ITSELF, WORKER, Kill, kill_job, killing, run_killed, site_of
from tests.spark.test_jobs import palearn_lines, start, start_job, submit, write_config

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PREDICTIONS = "output.predictions={}"
TABLES = ["batches", "metrics", "models", "predictions"]
BUCKET = "palearn.engine.bucket.Bucket.learn"

#: Where the job is killed in batch 1, and which tables are in place then.
POINTS: dict[str, tuple[Kill, list[str]]] = {
    "while it learns": (Kill(WORKER, BUCKET, "args[0].batch_id == 1", after=True), []),
    "some tables in place": (
        Kill(DRIVER, "palearn.tables.folder.Folder.has", "args[1:] == ('metrics', 'batch_id=1')", after=False),
        ["batches"],
    ),
    "all tables in place, Spark not told": (
        Kill(DRIVER, "palearn.tables.store.Store.commit", "args[1] == 1", after=True),
        TABLES,
    ),
}


def assert_goes_on(broker: str, topic: str, folder: Path, finished: Path) -> None:
    """Assert that the job's next start leaves what an uninterrupted run leaves."""
    out = stream(config(broker, topic, folder, MOST, PREDICTIONS))
    assert assert_accounts_balance(out, PEOPLE)["learned"].sum() == PEOPLE
    assert_same_outputs(out, finished / "out")


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_job_goes_on(broker: str, adult: str, finished: Path, tmp_path: Path, point: str) -> None:
    kill, there = POINTS[point]
    status, printed = run_killed(broker, adult, tmp_path, kill, MOST, PREDICTIONS)
    assert status == -signal.SIGKILL, printed
    assert (tmp_path / "checkpoint/offsets/1").exists()
    assert not (tmp_path / "checkpoint/commits/1").exists()
    out = tmp_path / "out"
    assert [table for table in TABLES if 1 in batches(out, table)] == there
    assert_goes_on(broker, adult, tmp_path, finished)


def test_a_job_that_is_killed_between_two_batches_goes_on_and_keeps_others_out_until_then(
    broker: str, adult: str, finished: Path, tmp_path: Path
) -> None:
    # The second batch has its records, and would start in some thousand years.
    late = "trigger={processing_time: 1000000 days}"
    first = start_job("stream", broker, adult, tmp_path, MOST, PREDICTIONS, late)
    checkpoint = tmp_path / "checkpoint"
    try:
        while not (checkpoint / "commits/0").exists():
            assert first.poll() is None, first.communicate()[0]
            time.sleep(0.1)
        before = contents(tmp_path)
        second = start_job("stream", broker, adult, tmp_path, MOST, PREDICTIONS)
        printed, _ = second.communicate()
        assert second.returncode == 1
        (line,) = palearn_lines(printed)
        assert line.startswith(f"palearn: another job runs on {checkpoint} (process ")
        assert contents(tmp_path) == before
    finally:
        kill_job(first)
    assert batches(tmp_path / "out", "batches") == [0]
    assert not (checkpoint / "offsets/1").exists()
    assert_goes_on(broker, adult, tmp_path, finished)


def contents(folder: Path) -> dict[Path, bytes]:
    """Return every file of checkpoint and output, but what says who runs."""
    files = [path for name in ("checkpoint", "out") for path in (folder / name).rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if path.name != "palearn.lock"}


def test_a_killed_python_worker_is_one_sentence(broker: str, adult: str, finished: Path, tmp_path: Path) -> None:
    kill = Kill(WORKER, BUCKET, "args[0].batch_id == 1", after=True, what=ITSELF)
    status, printed = run_killed(broker, adult, tmp_path, kill, MOST, PREDICTIONS)
    assert status == 1
    (line,) = palearn_lines(printed)
    assert line.startswith("palearn: the stream stopped: a Python worker ended in the middle of its work: killed, ")
    assert line.endswith("start the job again, and it goes on with the batch that failed")
    assert_goes_on(broker, adult, tmp_path, finished)


def test_a_job_outlives_its_executor(broker: str, adult: str, finished: Path, tmp_path: Path) -> None:
    kill = Kill(WORKER, BUCKET, "args[0].batch_id == 1", after=True, what=EXECUTOR)
    settings = (
        "spark.driver.host=127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio=1",  # no batch before both executors are there
        f"spark.executorEnv.PYTHONPATH={site_of(tmp_path, killing(tmp_path, kill))}",
    )
    path = write_config(broker, adult, tmp_path, MOST, PREDICTIONS)
    with standalone(tmp_path) as url:
        process = start(submit("stream", "--config", str(path), "--master", url, conf=settings), tmp_path)
        printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert (tmp_path / "killed").exists()
    assert assert_accounts_balance(tmp_path / "out", PEOPLE)["learned"].sum() == PEOPLE
    assert_same_outputs(tmp_path / "out", finished / "out")


def test_a_job_that_is_killed_again_and_again(broker: str, topic: str, spark: object, tmp_path: Path) -> None:
    fill_topic(broker, topic, drawn(1000, 50))
    found = soak(broker, topic, tmp_path, kills=2, batch=50)
    assert found["kills"] == 2
    assert found["batches"] == len(batches(tmp_path / "whole/out", "batches"))
    assert found["equal"]
    assert [folder.name for folder in visible(tmp_path / "killed/out")] == TABLES
