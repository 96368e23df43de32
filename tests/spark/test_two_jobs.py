"""Two jobs on one checkpoint where no lock keeps the second out (HDFS): one stops, and what is written is whole."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from palearn.spark import checkpoint
from tests.spark.conftest import MOST, PEOPLE, assert_accounts_balance, assert_same_outputs, config, stream, visible
from tests.spark.killing import DRIVER, NO_LOCK, NO_LOCK_SECOND, WAIT, WORKER, Kill, killing, site_of
from tests.spark.test_jobs import palearn_lines, start, submit, write_config

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PREDICTIONS = "output.predictions={}"


NO_LOCK_HERE = (checkpoint, "locked", lambda *of: nullcontext())

#: Where the first job is held in batch 1, while the second goes through the whole topic.
POINTS = {
    "while it learns": Kill(
        WORKER, "palearn.engine.bucket.Bucket.learn", "args[0].batch_id == 1", after=True, what=WAIT
    ),
    "before its tables are put in place": Kill(
        DRIVER, "palearn.tables.store.Store.commit", "args[1] == 1", after=False, what=WAIT
    ),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_comes_back_after_another_took_over(
    broker: str, adult: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    command = submit("stream", "--config", str(write_config(broker, adult, tmp_path, MOST, PREDICTIONS)))
    first = start(command, tmp_path, PYTHONPATH=site_of(tmp_path, NO_LOCK + killing(tmp_path, POINTS[point])))
    while not (tmp_path / "killed").exists():
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.1)
    monkeypatch.setattr(*NO_LOCK_HERE)
    out = stream(config(broker, adult, tmp_path, MOST, PREDICTIONS))
    assert_same_outputs(out, finished / "out")
    before = snapshot(out)
    (tmp_path / "go").touch()
    printed, _ = first.communicate()
    assert_stopped(first.returncode, printed)
    assert snapshot(out) == before
    stream(config(broker, adult, tmp_path, MOST, PREDICTIONS))
    assert snapshot(out) == before


def snapshot(out: Path) -> dict[Path, bytes]:
    """Return every file that readers see."""
    return {path: path.read_bytes() for table in visible(out) for path in table.rglob("*") if path.is_file()}


def assert_stopped(status: int, printed: str) -> None:
    assert status == 1, printed
    assert len(palearn_lines(printed)) == 1, printed
    assert palearn_lines(printed)[0].startswith("palearn: the stream stopped: "), printed
    assert "other job" in palearn_lines(printed)[0], printed


def test_two_jobs_at_once_without_a_lock(broker: str, adult: str, finished: Path, tmp_path: Path) -> None:
    command = submit("stream", "--config", str(write_config(broker, adult, tmp_path, MOST, PREDICTIONS)))
    jobs = [start(command, tmp_path, PYTHONPATH=site_of(tmp_path, code)) for code in (NO_LOCK, NO_LOCK_SECOND)]
    for job, printed in [(job, job.communicate()[0]) for job in jobs]:
        if job.returncode:
            assert_stopped(job.returncode, printed)
    out = stream(config(broker, adult, tmp_path, MOST, PREDICTIONS))
    assert assert_accounts_balance(out, PEOPLE)["learned"].sum() == PEOPLE
    assert_same_outputs(out, finished / "out")
