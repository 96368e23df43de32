"""What the job's rate depends on: learners, keys, features, buckets, batch size; and keys that a batch does not touch.

``python -m benchmarks.scale --json --plot DIRECTORY`` (``--series NAME`` for some only), through the real broker.
Every series varies one thing and leaves the others as they are in :mod:`benchmarks.stream`; its rates are
of all batches but the first.

============  ==========================================================================================
features      distinct features a key (14 in each record), 100 keys
sparse        every batch holds one record of each of a tenth of the keys, all of which are in state; one Spark
              group a key, and Quix Streams from the topic's beginning, beside the job on the same topic
touched       milliseconds of a batch that touches 100, 1,000, … of ``--keys`` keys in state, for numbers of buckets
============  ==========================================================================================
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from benchmarks.common import SEED, drawn, environment, fill_topic, in_turn, own_broker, show
from benchmarks.others import consume, made_venv
from benchmarks.stream import configuration, group_a_key, palearn, rate, run
from palearn.records import Record, encode
from palearn.spark.session import session

RACE = ("arow", "pa1", "pam1", "perceptron", "pa2", "cw", "scw1", "pa")
BATCH = 100_000
Point = dict[str, float]


class Bench:
    """A broker, a Spark session and a scratch folder that all series share."""

    def __init__(self, servers: str, scratch: Path, records: int) -> None:
        self.servers, self.scratch, self.records = servers, scratch, records
        self.runs = 0
        self.topics: set[str] = set()
        self.spark: SparkSession = session(self.config("none", "none"), name="scale", master="local[2]")
        self.spark.sparkContext.setLogLevel("ERROR")

    def config(self, topic: str, folder: str, batch: int = BATCH, learners: int = 1, **parts: Any) -> Any:
        """Return the configuration of a run in a folder of that name."""
        race = [{"algorithm": name} for name in RACE[:learners]]
        return configuration(self.servers, topic, self.scratch / folder, batch, race, **parts)

    def topic(self, keys: int, features: int | None = None) -> str:
        """Return a topic of records drawn uniformly over so many keys."""
        name = f"keys-{keys}-features-{features}"
        if name not in self.topics:
            self.topics.add(name)
            values = None if features is None else synthetic(features)
            fill_topic(self.servers, name, drawn(self.records, keys), values)
        return name

    def batches(self, topic: str, batch: int = BATCH, learners: int = 1, **parts: Any) -> list[dict[str, Any]]:
        """Run the job from a topic's beginning in a folder of its own."""
        self.runs += 1
        return run(self.spark, palearn, self.config(topic, f"run-{self.runs}", batch, learners, **parts))

    def rate(
        self,
        *,
        keys: int = 20_000,
        features: int | None = None,
        learners: int = 1,
        buckets: int = 64,
        batch: int = BATCH,
    ) -> float:
        """Return the job's rows a second."""
        state = {"buckets": buckets, "max_features": max(10_000, features or 0)}
        return rate(self.batches(self.topic(keys, features), batch, learners, state=state))

    def series(self, name: str, values: tuple[int, ...], **others: int) -> list[Point]:
        """Return the rate for each value of one argument of :meth:`rate`; the first value is run once more before."""
        self.rate(**{name: values[0]}, **others)
        return [{name: value, "rows_per_s": self.rate(**{name: value}, **others)} for value in values]

    def sparse(self, keys: int) -> dict[str, float]:
        """Return rows a second of the job, and of others, where no batch meets a key twice."""
        batch = keys // 10
        fill_topic(self.servers, "sparse", in_turn(2 * keys, keys))
        out = {}
        for name, query, batches in (("palearn", palearn, 20), ("group_a_key", group_a_key, 12)):
            done = run(self.spark, query, self.config("sparse", name, batch), batches=batches)
            out[name] = statistics.median(1000 * b["rows"] / b["ms"] for b in done[10:])  # all keys are in state
        python = made_venv(self.scratch / "venv")
        out["quix"] = consume(python, "quix.py", self.scratch / "quix", self.servers, "sparse", state=True)[
            "rows_per_s"
        ]
        return out | {f"palearn / {name}": out["palearn"] / out[name] for name in ("group_a_key", "quix")}

    def touched(self, keys: int, buckets: tuple[int, ...], batches: tuple[int, ...]) -> list[Point]:
        """Return the milliseconds of a batch of one record each of so many keys, all of which are in state."""
        topic = f"touched-{keys}"
        fill_topic(self.servers, topic, in_turn(keys, keys))
        state = {count: f"touched-{count}" for count in buckets}
        for count, folder in state.items():
            run(self.spark, palearn, self.config(topic, folder, state={"buckets": count}))
        out = []
        for batch in batches:
            fill_topic(self.servers, topic, in_turn(4 * batch, keys))
            for count, folder in state.items():
                done = run(self.spark, palearn, self.config(topic, folder, batch, state={"buckets": count}))
                ms = statistics.median(b["ms"] for b in done[1:] if b["rows"] > 0.9 * batch)
                out.append({"keys": keys, "buckets": count, "touched": batch, "ms": ms})
        return out


def synthetic(features: int) -> list[bytes]:
    """Return records of 14 features drawn from so many, with a linear label."""
    random = np.random.default_rng(SEED)
    weights = random.standard_normal(features)
    out = []
    for _ in range(30_000):
        drawn = random.choice(features, min(14, features), replace=False)
        label = 1 if weights[drawn].sum() > 0 else -1
        out.append(encode(Record(label=label, features={f"f{i}": 1.0 for i in drawn.tolist()})))
    return out


#: Series: the values of its argument, and the other arguments.
SERIES: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "learners": ((1, 2, 4, 8), {}),
    "keys": ((1_000, 10_000, 100_000, 1_000_000), {}),
    "features": ((10, 100, 1_000, 10_000, 100_000), {"keys": 100}),
    "buckets": ((16, 64, 256, 1024), {}),
    "batch": ((10_000, 30_000, 100_000, 250_000), {}),
}
_LABELS = {
    "batch": "records a batch",
    "features": "distinct features a key, 100 keys",
    "touched": "keys a batch touches",
}


def plot(name: str, points: list[Point], folder: Path) -> None:
    """Draw one series; ``touched`` has a line for each number of buckets."""
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log", base=2 if name == "learners" else 10)
    if name == "touched":
        counts = sorted({p["buckets"] for p in points})
        for count, color, marker in zip(counts, _COLORS, "osD^v", strict=False):
            line = [p for p in points if p["buckets"] == count]
            x, y = [p["touched"] for p in line], [p["ms"] for p in line]
            axes.plot(x, y, marker=marker, color=color, label=f"{count:,.0f} buckets")
        axes.set_yscale("log")
        axes.legend(frameon=False)
        axes.set_ylabel("milliseconds a batch, 2 cores")
    else:
        axes.plot([p[name] for p in points], [p["rows_per_s"] for p in points], marker="o", color=_COLORS[0])
        axes.set_ylim(bottom=0)
        axes.set_ylabel("rows a second, 2 cores")
    axes.set_xlabel(_LABELS.get(name, name))
    axes.grid(alpha=0.3)
    figure.savefig(folder / f"scale-{name}.png", dpi=150)


_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run the named series."""
    out: dict[str, Any] = {}
    with own_broker() as (servers, scratch):
        bench = Bench(servers, scratch, given.records)
        for name in given.series or NAMES:
            if name == "sparse":
                out[name] = bench.sparse(given.keys)
                continue
            if name == "touched":
                out[name] = bench.touched(given.keys, tuple(given.buckets), (100, 1_000, 10_000))
            else:
                values, others = SERIES[name]
                out[name] = bench.series(name, values, **others)
            if given.plot is not None:
                plot(name, out[name], given.plot)
    return out


NAMES = (*SERIES, "sparse", "touched")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", action="append", choices=NAMES, help="one of them; default all")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=200_000, help="keys in state, of sparse and touched")
    parser.add_argument("--buckets", type=int, nargs="+", default=[64, 512, 4096], help="of touched")
    parser.add_argument("--plot", type=Path, metavar="DIRECTORY")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given)
    arguments = {name: str(value) for name, value in vars(given).items()}
    show({"environment": environment(), "arguments": arguments, **found}, as_json=given.json)


if __name__ == "__main__":
    main()
