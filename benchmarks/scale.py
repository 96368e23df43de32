"""What the job's rate depends on: learners, keys, buckets, batch size; and sparse batches over many keys.

``python -m benchmarks.scale --json --plot DIRECTORY`` (``--series NAME`` for some only), through the real broker.
Every series varies one thing and leaves the others as they are in :mod:`benchmarks.stream`; its rates are
of all batches but the first. ``sparse``: every batch holds one record of each of a tenth of the keys, all of which
are in state, and one Spark group a key runs beside the job on the same topic.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from benchmarks.common import environment, fill_topic, own_broker, show
from benchmarks.stream import configuration, group_a_key, palearn, rate, run
from palearn.spark.session import session

RACE = ("arow", "pa1", "pam1", "perceptron", "pa2", "cw", "scw1", "pa")
Point = dict[str, float]


class Bench:
    """A broker, a Spark session and a scratch folder that all series share."""

    def __init__(self, servers: str, scratch: Path, records: int) -> None:
        self.servers, self.scratch, self.records = servers, scratch, records
        self.runs = 0
        self.topics: set[str] = set()
        first = configuration(servers, "none", scratch, 1, [{"algorithm": "arow"}])
        self.spark: SparkSession = session(first, name="scale", master="local[2]")
        self.spark.sparkContext.setLogLevel("ERROR")

    def topic(self, keys: int) -> str:
        """Return a topic of records drawn uniformly over so many keys."""
        name = f"keys-{keys}"
        if name not in self.topics:
            self.topics.add(name)
            fill_topic(self.servers, name, self.records, keys)
        return name

    def rate(self, *, keys: int = 20_000, learners: int = 1, buckets: int = 64, batch: int = 100_000) -> float:
        """Return the job's rows a second."""
        self.runs += 1
        race = [{"algorithm": name} for name in RACE[:learners]]
        folder = self.scratch / f"run-{self.runs}"
        topic = self.topic(keys)
        config = configuration(self.servers, topic, folder, batch, race, state={"buckets": buckets})
        return rate(run(self.spark, palearn, config))

    def series(self, name: str, values: tuple[int, ...]) -> list[Point]:
        """Return the rate for each value of one argument of :meth:`rate`; the first value is run once more before."""
        self.rate(**{name: values[0]})
        return [{name: value, "rows_per_s": self.rate(**{name: value})} for value in values]

    def sparse(self, keys: int) -> dict[str, float]:
        """Return rows a second of the job, and of one group a key, where no batch meets a key twice."""
        batch = keys // 10
        fill_topic(self.servers, "sparse", 2 * keys, keys, rounds=True)
        out = {}
        for name, query, batches in (("palearn", palearn, 20), ("group_a_key", group_a_key, 12)):
            config = configuration(self.servers, "sparse", self.scratch / name, batch, [{"algorithm": "arow"}])
            done = run(self.spark, query, config, batches=batches)
            out[name] = statistics.median(1000 * b["rows"] / b["ms"] for b in done[10:])  # all keys are in state
        return {**out, "palearn / group_a_key": out["palearn"] / out["group_a_key"]}


SERIES = {
    "learners": (1, 2, 4, 8),
    "keys": (1_000, 10_000, 100_000, 1_000_000),
    "buckets": (16, 64, 256, 1024),
    "batch": (10_000, 30_000, 100_000, 250_000),
}


def plot(name: str, points: list[Point], folder: Path) -> None:
    """Draw one series."""
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([p[name] for p in points], [p["rows_per_s"] for p in points], marker="o", color="#0072B2")
    axes.set_xscale("log", base=2 if name == "learners" else 10)
    axes.set_ylim(bottom=0)
    axes.set_xlabel({"batch": "records a batch"}.get(name, name))
    axes.set_ylabel("rows a second, 2 cores")
    axes.grid(alpha=0.3)
    figure.savefig(folder / f"scale-{name}.png", dpi=150)


def measure(names: list[str], records: int, sparse_keys: int, folder: Path | None) -> dict[str, Any]:
    """Run the named series."""
    out: dict[str, Any] = {}
    with own_broker() as (servers, scratch):
        bench = Bench(servers, scratch, records)
        for name in names:
            if name == "sparse":
                out[name] = bench.sparse(sparse_keys)
                continue
            out[name] = bench.series(name, SERIES[name])
            if folder is not None:
                plot(name, out[name], folder)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", action="append", choices=[*SERIES, "sparse"], help="one of them; default all")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--sparse-keys", type=int, default=200_000)
    parser.add_argument("--plot", type=Path, metavar="DIRECTORY")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.series or [*SERIES, "sparse"], given.records, given.sparse_keys, given.plot)
    arguments = {name: str(value) for name, value in vars(given).items()}
    show({"environment": environment(), "arguments": arguments, **found}, as_json=given.json)


if __name__ == "__main__":
    main()
