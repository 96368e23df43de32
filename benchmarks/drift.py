"""Learners on streams whose concept drifts, with and without a test for drift: ``python -m benchmarks.drift --json``.

A made stream (20,000 examples of ten features whose labels turn round every 5,000), and, given ``--data FOLDER``, the
electricity prices of ``elec2/elec.csv.gz`` (label column ``class``) and the weather of
``noaa_weather/weather.csv.gz`` (``target``). Errors are test-then-train over the whole stream; deterministic.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import SEED, environment, show
from palearn.evaluate.examples import Examples
from palearn.evaluate.prequential import compare, settings_of
from palearn.files.options import ReadOptions
from palearn.learners import Learner
from palearn.records import Record
from palearn.report import plots

#: Files below the data folder, and their label columns.
FILES = {"elec2": ("elec2/elec.csv.gz", "class"), "weather": ("noaa_weather/weather.csv.gz", "target")}
ALGORITHMS = ("pa1", "pam1", "arow")
#: Per learner: no test, and a test at two thresholds.
TESTS: dict[str, Any] = {
    "alone": None,
    "restart": {"action": "restart"},
    "relax": {"action": "relax"},
    "restart at 20": {"action": "restart", "threshold": 20},
    "relax at 20": {"action": "relax", "threshold": 20},
}


def flipping(records: int = 20_000, every: int = 5_000, features: int = 10) -> Iterator[Record]:
    """Yield examples of one hyperplane whose two sides change places every so many."""
    rng = np.random.default_rng(SEED)
    truth = rng.normal(size=features)
    for i in range(records):
        x = rng.normal(size=features)
        label = int(truth @ x > 0) ^ (i // every % 2)
        yield Record(label=2 * label - 1, features={f"f{j}": float(v) for j, v in enumerate(x)})


def learners() -> list[Learner]:
    """Return every learner with every test that it can have."""
    return [
        Learner(f"{algorithm} {name}", algorithm, drift=test)
        for algorithm in ALGORITHMS
        for name, test in TESTS.items()
        if algorithm != "pa1" or "relax" not in name
    ]


def measured(examples: Examples, plot: Path | None) -> dict[str, Any]:
    """Return each learner's error and drifts on a stream; draw the error so far of those with the usual threshold."""
    made = learners()
    found = compare(examples, settings_of(), made, piece=200)
    if plot is not None:
        shown = [i for i, x in enumerate(made) if "20" not in x.name]
        curve = [(n, [mistakes[i] for i in shown]) for n, mistakes in found.curve]
        plots.errors_so_far(curve, [made[i].name for i in shown], plot)
    return {
        x["learner"]: {"error": round(x["error"], 4), "drifts": x.get("drifts")} for x in found.figures(per_key=False)
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with elec2/ and noaa_weather/")
    parser.add_argument("--plot", type=Path, help="draw each stream to a PNG in this folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    streams = {"flip": Examples(list(flipping()))}
    if given.data is not None:
        streams |= {
            name: Examples(given.data / file, ReadOptions(label=label)) for name, (file, label) in FILES.items()
        }
    result: dict[str, Any] = {"environment": environment(), "arguments": {"data": given.data is not None}}
    for name, examples in streams.items():
        result[name] = measured(examples, None if given.plot is None else given.plot / f"drift-{name}.png")
    show(result, as_json=given.json)


if __name__ == "__main__":
    main()
