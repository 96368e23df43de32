"""Brokers that go away and disks that are full: the job goes on, or stops with a sentence; nothing is lost.

``python -m tests.spark.test_outages SECONDS`` keeps a broker away for longer than a test may.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession

from palearn.config import Config
from palearn.errors import PalearnError, StreamError
from palearn.kafka import local_broker as kafka_broker
from tests.conftest import free_port_pair
from tests.spark.conftest import (
    assert_accounts_balance,
    assert_same_outputs,
    batches,
    config,
    people,
    produce_people,
    stream,
)
from tests.spark.test_store import IMPATIENT

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("spark")]

#: A batch every tenth of a second, for jobs that run until they are stopped.
GOING = "trigger.processing_time=100 milliseconds"
#: Six batches of a thousand people; the last has what rounding left.
MOST, COUNT, BATCHES = "source.kafka.max_offsets_per_trigger=200", 1000, 6
FEW = [{"name": "pa1", "algorithm": "pa1", "C": 0.1}, {"name": "arow", "algorithm": "arow", "r": 1.0}]


class Broker:
    """A broker that may be hurt."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port_pair(), folder
        self.address = f"127.0.0.1:{self.port}"

    def start(self) -> None:
        kafka_broker.start(self.port, self.folder)

    def stop(self) -> None:
        kafka_broker.stop(self.port, self.folder)

    def kill(self) -> None:
        pid = kafka_broker.status(self.port, self.folder).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


@contextmanager
def own_broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class Job:
    """A job in a thread of its own."""

    def __init__(self, chosen: Config) -> None:
        self.out = Path(chosen.output.path)
        self.error: PalearnError | None = None
        self._config = chosen
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            stream(self._config)
        except PalearnError as error:
            self.error = error

    def wait_for(self, count: int, seconds: float = 60) -> None:
        """Wait until there are so many batches."""
        until = time.monotonic() + seconds
        while not (self.out / "_palearn" / "batches" / f"{count - 1}.json").exists():
            assert time.monotonic() < until, f"no batch {count - 1}"
            assert self._thread.is_alive(), self.error
            time.sleep(0.02)

    def end(self, seconds: float = 60) -> str:
        """Wait until the job ends by itself; return its sentence."""
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        assert self.error is not None
        return sentence(self.error)

    def stop(self) -> None:
        session = SparkSession.builder.getOrCreate()  # the job's; which one is active here depends on earlier tests
        until = time.monotonic() + 120
        while self._thread.is_alive():
            assert time.monotonic() < until
            for query in session.streams.active:
                query.stop()
            self._thread.join(0.1)


@contextmanager
def running(chosen: Config) -> Iterator[Job]:
    job = Job(chosen)
    try:
        yield job
    finally:
        job.stop()


def sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert "Traceback" not in text
    assert len(text) < 700
    return text


def refused(chosen: Config) -> str:
    with pytest.raises(PalearnError) as error:
        stream(chosen)
    return sentence(error.value)


# -- a broker that goes away ------------------------------------------------------------------------------


def job_of(broker: str, topic: str, folder: Path, *overrides: str) -> Config:
    return config(broker, topic, folder, *overrides, learners=FEW)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests may take away; it has a thousand people in ``adult``."""
    folder = tmp_path_factory.mktemp("own")
    with own_broker(folder / "broker") as broker:
        produce_people(broker.address, "adult", folder / "people.jsonl", people(COUNT))
        yield broker


@pytest.fixture(scope="module")
def whole(own: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of an uninterrupted run."""
    out = stream(job_of(own.address, "adult", tmp_path_factory.mktemp("whole"), MOST))
    assert_accounts_balance(out, COUNT)
    assert batches(out, "batches") == [*range(BATCHES)]
    return out


def outages(broker: Broker, folder: Path, seconds: float) -> list[str]:
    """Stop a job's broker, later kill it, each for so long; tell when the job went on, by itself."""
    told = []
    chosen = job_of(broker.address, "adult", folder, MOST, GOING)
    with running(chosen) as job:
        for how in ("stop", "kill"):
            job.wait_for(len(batches(job.out, "batches")) + 1 if told else 1)
            getattr(broker, how)()
            time.sleep(seconds)
            broker.start()
            back, done = time.monotonic(), len(batches(job.out, "batches"))
            assert done < BATCHES
            job.wait_for(done + 1, 300)
            took = time.monotonic() - back
            told.append(f"{how}, {seconds:g} s away: the next batch was there {took:.1f} s after the broker was back")
        job.wait_for(BATCHES, 300)
    assert job.error is None
    return told


def test_a_job_goes_on_by_itself_when_its_broker_is_back(own: Broker, whole: Path, tmp_path: Path) -> None:
    outages(own, tmp_path, 2)
    assert_same_outputs(tmp_path / "out", whole)


def test_a_broker_that_stays_away_is_one_sentence(own: Broker, whole: Path, tmp_path: Path) -> None:
    chosen = job_of(own.address, "adult", tmp_path, MOST, GOING, f"source.kafka.options={IMPATIENT}")
    with running(chosen) as job:
        job.wait_for(2)
        own.kill()
        told = job.end()
        assert own.address in told
        assert "start the job again, and it goes on" in told
        own.start()
    assert_same_outputs(stream(job_of(own.address, "adult", tmp_path, MOST)), whole)


# -- disks that are full ----------------------------------------------------------------------------------


#: A file takes whole pages of a file system in memory.
PAGE = 4096


class Disks:
    """Small file systems in memory, which only the processes of one namespace see: mounted without any rights."""

    def __init__(self, *folders: Path, pages: int) -> None:
        for folder in folders:
            folder.mkdir(parents=True)
        mount = 'for folder; do mount -t tmpfs -o size=$0 none "$folder" || exit; done; echo mounted; exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, str(pages * PAGE), *map(str, folders)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "mounted\n", "unprivileged user namespaces are needed (unshare)"
        #: What runs a command inside.
        self.enter = ["nsenter", "--target", str(self._holder.pid), "--user", "--mount", "--preserve-credentials"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._holder.communicate()

    def from_outside(self, folder: Path) -> Path:
        """Return where a folder is for processes outside."""
        return Path(f"/proc/{self._holder.pid}/root{folder}")

    def make_room(self, folder: Path, pages: int = 2048) -> None:
        size = f"remount,size={pages * PAGE}"
        subprocess.run([*self.enter, "mount", "-o", size, str(folder)], check=True)


def assert_names_the_folders(told: str, chosen: Config) -> None:
    assert "a disk is full" in told
    assert chosen.output.path in told
    assert chosen.checkpoint in told
    assert "Free some space" in told


def test_an_output_disk_that_is_full(own: Broker, whole: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with Disks(disk, pages=1) as disks:
        out = disks.from_outside(disk) / "out"
        chosen = job_of(own.address, "adult", tmp_path, MOST, f"output.path={out}")
        assert_names_the_folders(refused(chosen), chosen)  # there is not even room to say whose it is
        disks.make_room(disk, pages=4)
        with pytest.raises(StreamError) as error:
            stream(chosen)
        assert_names_the_folders(sentence(error.value), chosen)
        assert "Python worker" in str(error.value.__cause__)
        disks.make_room(disk)
        assert_same_outputs(stream(chosen), whole)


def test_an_output_disk_that_is_full_for_the_driver(own: Broker, whole: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with Disks(disk, pages=2) as disks:  # for the lock and the owner
        chosen = job_of(own.address, "adult", tmp_path, MOST)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "_palearn").symlink_to(disks.from_outside(disk))
        with pytest.raises(StreamError) as error:
            stream(chosen)
        assert_names_the_folders(sentence(error.value), chosen)
        assert "Python worker" not in str(error.value.__cause__)
        disks.make_room(disk)
        assert_same_outputs(stream(chosen), whole)


#: Runs the job of a configuration once more each time that a line comes; tells how it ended.
AGAIN = """\
import sys
from palearn.cli import stream_job
sys.argv = ["stream", "--config", sys.argv[1], "--master", "local[2]"]
for _ in sys.stdin:
    status = 0
    try:
        stream_job()
    except SystemExit as ended:
        status = ended.code
    print("ended with", status, flush=True)
"""


def test_a_checkpoint_disk_that_is_full(own: Broker, whole: Path, tmp_path: Path) -> None:
    chosen = job_of(own.address, "adult", tmp_path, MOST)
    path, out = tmp_path / "job.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(msgspec.to_builtins(chosen)))
    of_workers, of_driver = (tmp_path / "checkpoint" / name for name in ("state", "offsets"))
    with Disks(of_workers, of_driver, pages=1) as disks:
        quiet = "--conf spark.ui.enabled=false --conf spark.log.level=OFF pyspark-shell"
        with subprocess.Popen(
            [*disks.enter, sys.executable, "-c", AGAIN, str(path)], env=os.environ | {"PYSPARK_SUBMIT_ARGS": quiet},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            # The driver cannot even plan the first batch; then the workers cannot keep its state.
            for disk, planned in ((of_driver, False), (of_workers, True)):
                assert_names_the_folders(told_again(process, status=1), chosen)
                assert (disks.from_outside(of_driver) / "0").exists() == planned
                disks.make_room(disk)
            assert told_again(process, status=0) == ""
        assert_same_outputs(out, whole)


def told_again(process: "subprocess.Popen[str]", status: int) -> str:
    """Run the job once more, which ends so; return its last words."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    printed: list[str] = []
    while not printed or not printed[-1].startswith("ended with"):
        printed.append(process.stdout.readline())
        assert printed[-1], "".join(printed)
    assert printed[-1] == f"ended with {status}\n", "".join(printed)
    return "".join(line for line in printed if line.startswith("palearn:"))


def main(seconds: float) -> None:
    """Print how a job takes up its work after outages of so many seconds."""
    with tempfile.TemporaryDirectory() as name, own_broker(Path(name) / "broker") as broker:
        folder = Path(name)
        produce_people(broker.address, "adult", folder / "people.jsonl", people(COUNT))
        for part in ("whole", "hurt"):
            (folder / part).mkdir()
        whole = stream(job_of(broker.address, "adult", folder / "whole", MOST))
        print(*outages(broker, folder / "hurt", seconds), sep="\n", flush=True)
        assert_same_outputs(folder / "hurt" / "out", whole)


if __name__ == "__main__":
    main(float(sys.argv[1]))
