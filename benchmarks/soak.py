"""Whether the job stays as it is: memory, state and time of a batch over minutes of steady traffic.

``python -m benchmarks.soak --minutes 30 --plot FILE.png --json``. A producer sends records at a steady rate to a real
broker; ``palearn stream`` runs as a user starts it, a batch every few seconds, and is asked to stop in the end. Every
five seconds it is noted what its processes hold (their share of resident memory, as the workers share pages) and how
large its checkpoint is. Steady is told by halves of the time after the first quarter, in which keys are new and Java
warms up. Needs Linux's /proc.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kafka import KafkaProducer
from matplotlib.figure import Figure

from benchmarks.common import drawn, environment, family, fill_topic, key_text, own_broker, show
from palearn import datasets, tables
from palearn.records import encode
from palearn.types import IntArray

_EVERY_S = 5.0


class Sample(NamedTuple):
    """What was seen at a moment: seconds since the start, MB of memory and on disk, Python workers."""

    seconds: float
    java_mb: float
    python_mb: float
    workers: int
    checkpoint_mb: float
    output_mb: float


def send(servers: str, topic: str, keys: IntArray, rate: int) -> None:
    """Send a record a key at a steady rate."""
    values = [encode(record) for record in datasets.a9a()]
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, linger_ms=20)
    began = time.monotonic()
    for i, key in enumerate(keys.tolist()):
        producer.send(topic, value=values[i % len(values)], key=key_text(key).encode())
        if i % 100 == 0:
            time.sleep(max(0.0, began + i / rate - time.monotonic()))
    producer.flush()
    producer.close()


def sample(root: int, began: float, folder: Path) -> Sample:
    """Look at the job."""
    java, python, workers = 0.0, 0.0, 0
    for pid in family(root):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # it has ended meanwhile
        memory = int(re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)[1]) / 1024  # type: ignore[index]
        if "java" in command.split(" ")[0]:
            java += memory
        elif "pyspark.daemon" in command:
            python += memory
            workers += 1
    sizes = (_mb(folder / "checkpoint"), _mb(folder / "out"))
    return Sample(time.monotonic() - began, java, python, workers, *sizes)


def _mb(folder: Path) -> float:
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(top, name)).st_size
            except OSError:
                continue  # Spark has deleted it meanwhile
    return total / 2**20


def halves(samples: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians of the two halves of what comes after the first quarter, and their ratio."""
    late = [value for _, value in samples[len(samples) // 4 :]]
    first, second = statistics.median(late[: len(late) // 2]), statistics.median(late[len(late) // 2 :])
    return {"first": first, "second": second, "ratio": second / first}


def run(servers: str, folder: Path, minutes: float, rate: int, keys: int) -> tuple[list[Sample], int, int, str]:
    """Let the job run so long; return what was seen of it, the records sent, its exit status, and what it logged."""
    config = {
        "source": {"kafka": {"bootstrap_servers": servers, "topics": ["soak"]}},
        "learners": [{"algorithm": "arow"}, {"algorithm": "pa1"}],
        "output": {"path": str(folder / "out"), "models": {"every_batches": 10}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"processing_time": "5 seconds"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(config))
    records = drawn(int(60 * minutes * rate), keys)
    fill_topic(servers, "soak", records[:1])
    sender = threading.Thread(target=send, args=(servers, "soak", records[1:], rate))
    with (folder / "log").open("w") as log:
        command = [
            str(Path(sys.executable).with_name("palearn")),
            "stream",
            "--config",
            "job.yaml",
            "--master",
            "local[2]",
        ]
        job = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        began, samples = time.monotonic(), []
        sender.start()
        while sender.is_alive():
            sender.join(_EVERY_S)
            samples.append(sample(job.pid, began, folder))
            if job.poll() is not None:
                raise SystemExit((folder / "log").read_text())
        time.sleep(4 * _EVERY_S)  # the last batches
        job.send_signal(signal.SIGINT)
        job.wait(120)
    return samples, records.size, job.returncode, (folder / "log").read_text()


def measure(minutes: float, rate: int, keys: int, picture: Path | None) -> dict[str, Any]:
    """Run, and say how steady it was."""
    with own_broker() as (servers, folder):
        samples, sent, status, log = run(servers, folder, minutes, rate, keys)
        accounts = tables.read(folder / "out", "batches")
    lines = re.findall(r"batch (\d+): ([\d,]+) records .*?, ([\d,]+) rows/s", log)
    counts = [(int(n), int(records.replace(",", "")), int(rows.replace(",", ""))) for n, records, rows in lines]
    batches = [(float(n), 1000 * records / rows) for n, records, rows in counts if records]
    if picture is not None:
        plot(samples, batches, picture)
    return {
        "sent": sent,
        "learned": int(accounts["learned"].sum()),
        "exit_status": status,
        "batches": len(accounts),
        "java_mb": halves([(s.seconds, s.java_mb) for s in samples]),
        "python_mb": halves([(s.seconds, s.python_mb) for s in samples]),
        "python_workers": max(s.workers for s in samples),
        "checkpoint_mb": halves([(s.seconds, s.checkpoint_mb) for s in samples]),
        "batch_ms": halves(batches),
        "output_mb": samples[-1].output_mb,
    }


def plot(samples: list[Sample], batches: list[tuple[float, float]], path: Path) -> None:
    """Draw memory, checkpoint and the time of a batch."""
    figure = Figure(figsize=(8, 7), layout="constrained")
    memory, disk, time_ = figure.subplots(3, 1)
    minutes = [s.seconds / 60 for s in samples]
    memory.plot(minutes, [s.java_mb for s in samples], color="#0072B2", label="JVM")
    memory.plot(
        minutes, [s.python_mb for s in samples], color="#D55E00", linestyle="--", label="Python workers, together"
    )
    memory.set_ylabel("resident memory, MB")
    memory.legend(frameon=False)
    disk.plot(minutes, [s.checkpoint_mb for s in samples], color="#009E73", label="checkpoint")
    disk.set_ylabel("checkpoint, MB")
    disk.set_xlabel("minutes")
    time_.plot(*zip(*batches, strict=True), color="#CC79A7", linewidth=0.8)
    time_.set_ylabel("a batch, ms")
    time_.set_xlabel("batch")
    for axes in (memory, disk, time_):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    parser.add_argument("--keys", type=int, default=5_000)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.minutes, given.rate, given.keys, given.plot)
    arguments = {name: str(value) for name, value in vars(given).items()}
    show({"environment": environment(), "arguments": arguments, **found}, as_json=given.json)


if __name__ == "__main__":
    main()
