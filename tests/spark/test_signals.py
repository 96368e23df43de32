"""SIGTERM and SIGINT at any moment: the job stops with status 0 and few words, and goes on bit for bit.

``python -m tests.spark.test_signals N`` sends N of them at random moments.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from palearn import tables
from tests.spark.conftest import assert_accounts_balance, assert_same_learning, learn_without_spark, make_topic, send
from tests.spark.conftest import config as config_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

LEARNERS = [{"algorithm": "arow"}]
RECORDS = 300
#: At most so many lines are said after a signal.
MOST_LINES = 5
QUIET = {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.log.level=ERROR pyspark-shell"}


def prepared(broker: str, topic: str, folder: Path) -> tuple[Path, list]:
    """Fill a topic; return the configuration's file, and the topic's messages."""
    make_topic(broker, topic, 2)
    values = [b'{"label": %d, "features": {"f%d": 1, "g": 0.%d}}' % ((-1) ** i, i % 7, i % 9) for i in range(RECORDS)]
    messages = send(broker, [(topic, i % 2, b"k%d" % (i % 10), value) for i, value in enumerate(values)])
    tree = {
        "source": {
            "kafka": {"bootstrap_servers": broker, "topics": [topic], "max_offsets_per_trigger": 30},
        },
        "learners": LEARNERS,
        "state": {"buckets": 4, "partitions": 2},
        "metrics": {"window": 50},
        "output": {"path": str(folder / "out"), "models": {"every_batches": 3}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"processing_time": "100 milliseconds"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path, messages


def start(path: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "palearn", "stream", "--config", str(path), "--master", "local[2]"],
            stdout=file, stderr=file, env=os.environ | QUIET, start_new_session=True,
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes], log: Path, number: int, *, group: bool = False) -> tuple[int, list[str]]:
    """Send a signal; return the status and the lines that were said after it."""
    before = log.stat().st_size
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    status = process.wait(120)
    return status, log.read_bytes()[before:].decode().splitlines()


def wait_for(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 180
    while not path.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until
        time.sleep(0.05)


def assert_stopped(status: int, lines: list[str]) -> None:
    assert status == 0, lines
    assert len(lines) <= MOST_LINES, lines
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize(
    ("number", "group"),
    [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, False), (signal.SIGINT, True)],
)  # a terminal sends its Ctrl-C to all processes of the job, systemd its SIGTERM
def test_a_signal_between_and_in_batches(number: int, group: bool, broker: str, topic: str, tmp_path: Path) -> None:
    path, messages = prepared(broker, topic, tmp_path)
    log = tmp_path / "log"
    process = start(path, log)
    wait_for(tmp_path / "checkpoint" / "commits" / "1", process, log)
    status, lines = stop(process, log, number, group=group)
    assert_stopped(status, lines)
    assert any("stopped after batch" in line for line in lines)
    last = max(int(file.name) for file in (tmp_path / "checkpoint" / "commits").iterdir() if file.name.isdecimal())
    models = tables.latest_models(tmp_path / "out")  # every third batch has a snapshot, and the last one here
    assert models["batch_id"].max() == last
    go_on(path, messages, broker, topic, tmp_path)


def go_on(path: Path, messages: list, broker: str, topic: str, folder: Path) -> None:
    """Let the job take the rest, and compare with what learned all at once."""
    subprocess.run(
        [sys.executable, "-m", "palearn", "stream", "--once", "--config", str(path), "--master", "local[2]"],
        check=True, capture_output=True, env=os.environ | QUIET,
    )  # fmt: skip
    assert_accounts_balance(folder / "out", RECORDS)
    chosen = config_of(broker, topic, folder, learners=LEARNERS)
    assert_same_learning(folder / "out", learn_without_spark(chosen, messages))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("what", ["imports", "the claim", "Spark"])
def test_a_signal_before_the_query(what: str, number: int, broker: str, topic: str, tmp_path: Path) -> None:
    path, _ = prepared(broker, topic, tmp_path)
    log = tmp_path / "log"
    process = start(path, log)
    if what == "imports":
        while b"pyarrow" not in Path(f"/proc/{process.pid}/maps").read_bytes():  # in the middle of them
            assert process.poll() is None
    else:
        wait_for(tmp_path / "checkpoint" / "palearn.json", process, log)
        time.sleep(0 if what == "the claim" else 2)
    assert_stopped(*stop(process, log, number))


def test_a_second_signal_ends_at_once(broker: str, topic: str, tmp_path: Path) -> None:
    path, messages = prepared(broker, topic, tmp_path)
    log = tmp_path / "log"
    process = start(path, log)
    wait_for(tmp_path / "checkpoint" / "commits" / "0", process, log)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, 128 + signal.SIGTERM)
    assert time.monotonic() - began < 10
    go_on(path, messages, broker, topic, tmp_path)


def main(count: int) -> None:
    """Send signals at random moments of a job that is started again each time."""
    from palearn.kafka import local_broker
    from tests.conftest import free_port_pair

    chosen, port = random.Random(19), free_port_pair()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local_broker.start(port, folder / "broker")
        try:
            worst, statuses = 0, dict[int, int]()
            for i in range(count):
                job = folder / f"job-{i // 10}"
                if i % 10 == 0:
                    job.mkdir()
                    path, messages = prepared(f"127.0.0.1:{port}", f"t{i}", job)
                process = start(path, job / "log")
                time.sleep(chosen.uniform(0.1, 25))
                status, lines = stop(process, job / "log", chosen.choice([signal.SIGTERM, signal.SIGINT]))
                statuses[status] = statuses.get(status, 0) + 1
                worst = max(worst, len(lines))
                if status or len(lines) > MOST_LINES:
                    print(i, status, *lines[-20:], sep="\n", flush=True)
                if i % 10 == 9:
                    go_on(path, messages, f"127.0.0.1:{port}", f"t{i - 9}", job)
                    print(f"{i + 1} signals: statuses {statuses}, at most {worst} lines, bits equal", flush=True)
        finally:
            local_broker.stop(port, folder / "broker")


if __name__ == "__main__":
    main(int(sys.argv[1]))
