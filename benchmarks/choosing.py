"""Which learner is best where, each at its best hyper-parameter: ``python -m benchmarks.choosing DATA_FOLDER --json``.

Every learner of :data:`GRIDS` takes each data set in one pass, test-then-train, with each value of its grid. The
mistakes among the first half choose the value, those among the second half are told
(:mod:`palearn.evaluate.grid_search`). Sets without an order of their own are taken in five random orders; a learner
is *tied* with the best one where the difference between the two, order by order, is on average at most twice its
standard deviation. What an example costs is that of ``benchmarks.kernels``.

The folder is laid out as :mod:`benchmarks.papers.data` says, and has ``reuters/reuters.trn.bz2`` and
``reuters.tst.bz2`` (LIBSVM text), ``sms_spam/sms_spam.tsv.gz`` (label, tab, text), ``elec2/elec.csv.gz`` and
``noaa_weather/weather.csv.gz`` (CSV in the order of time, the label in the last column) beside them. Sets named
``scaled`` have each feature brought to [0, 1] by the smallest and the largest value of all examples, which a stream
would have to know beforehand.
"""

import argparse
import gzip
import itertools
import json
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from benchmarks.common import environment, show
from benchmarks.papers import data
from benchmarks.papers.data import Examples
from palearn import datasets
from palearn.evaluate import grid_search
from palearn.evaluate.examples import Examples as Source
from palearn.evaluate.prequential import settings_of
from palearn.types import IntArray

ORDERS = 5
#: Wider sets are not learned with a full covariance.
MOST_FULL = 130
#: Small ones are for features as large as a hundred, whose squared norm the step is divided by.
POWERS = [2.0**k for k in (-20, -16, -12, -8, -6, -4, -2, 0, 2, 4, 6, 8)]
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "perceptron": {},
    "pa": {},
    "pa1": {"C": POWERS},
    "pa2": {"C": POWERS},
    "spa1": {"C": POWERS},
    "pa_mean1": {"C": POWERS[::2], "gamma": [0.001, 0.1]},
    "sop": {"a": POWERS},
    "cw": {"eta": [0.55, 0.6, 0.7, 0.8, 0.9, 0.95]},
    "scw1": {"C": POWERS[::2], "eta": [0.6, 0.9]},
    "nherd": {"C": POWERS},
    "pam1": {"C": POWERS},
    "arow": {"r": POWERS},
    "arow full": {"r": POWERS, "covariance": ["full"]},
    "adagrad_rda": {"eta": POWERS},
}
BINARY_ONLY = ("sop", "pa_mean1")


class DataSet(NamedTuple):
    """How a data set is read; ``ordered``: its order is that of time."""

    read: Callable[[Path], Examples]
    task: str = "binary"
    ordered: bool = False


def _both(parts: tuple[Examples, Examples]) -> Examples:
    first, second = parts
    return Examples(sparse.csr_array(sparse.vstack([first.x, second.x])), np.concatenate([first.y, second.y]))


def _signed(path: Path, features: int) -> Examples:
    """LIBSVM text with labels -1 and 1."""
    x, y = load_svmlight_file(str(path), n_features=features)
    return Examples(sparse.csr_array(x), (y > 0).astype(np.int64))


def _table(path: Path) -> Examples:
    """CSV of numbers with a header, the label last."""
    with gzip.open(path) as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return Examples(sparse.csr_array(table[:, :-1]), (table[:, -1] > 0).astype(np.int64))


def _messages(path: Path) -> Examples:
    """Text messages, spam or not: 1 for a word that is there."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.partition("\t") for line in file]
    number: dict[str, int] = {}
    ptr, column = [0], list[int]()
    for _, _, text in rows:
        words = dict.fromkeys(re.findall(r"\w+", text.lower()))
        column += sorted(number.setdefault(word, len(number)) for word in words)
        ptr.append(len(column))
    x = sparse.csr_array((np.ones(len(column)), column, ptr), shape=(len(rows), len(number)))
    return Examples(x, np.array([label == "spam" for label, _, _ in rows], np.int64))


def _reuters(folder: Path) -> Examples:
    """Reports on foreign exchange, or on anything else."""
    train, test = (_signed(folder / f"reuters/reuters.{part}.bz2", 8315) for part in ("trn", "tst"))
    return _both((train, test))


def _guide(folder: Path) -> Examples:
    return _both(data.svmguide1(folder))


def _weather(folder: Path) -> Examples:
    return _table(folder / "noaa_weather/weather.csv.gz")


SETS: dict[str, DataSet] = {
    "a9a": DataSet(lambda folder: _both(data.a9a_parts(folder))),
    "svmguide1": DataSet(_guide),
    "svmguide1 scaled": DataSet(lambda folder: data.to_unit(_guide(folder))[0]),
    "internet_ads": DataSet(lambda folder: _signed(datasets.path("internet_ads"), 1555)),
    "sms_spam": DataSet(lambda folder: _messages(folder / "sms_spam/sms_spam.tsv.gz")),
    "reuters": DataSet(_reuters),
    "elec2": DataSet(lambda folder: _table(folder / "elec2/elec.csv.gz"), ordered=True),
    "weather": DataSet(_weather, ordered=True),
    "weather scaled": DataSet(lambda folder: data.to_unit(_weather(folder))[0], ordered=True),
    "usps": DataSet(lambda folder: _both(data.usps(folder)), "multiclass"),
    "20news": DataSet(data.news, "multiclass"),
}


def _candidates(task: str, features: int) -> dict[str, tuple[tuple[str, dict[str, Any]], ...]]:
    """Return what each learner is tried with."""
    return {
        name: grid_search.candidates([name.split()[0]], grid)
        for name, grid in GRIDS.items()
        if (task == "binary" or name not in BINARY_ONLY) and (task == "multiclass" or name != "spa1")
        if name != "arow full" or features <= MOST_FULL
    }


def _written(examples: Examples, task: str, path: Path) -> Path:
    labels: IntArray = 2 * examples.y - 1 if task == "binary" else examples.y
    x = examples.x.copy()
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)  # scikit-learn writes no others
    dump_svmlight_file(x, labels, str(path), zero_based=False)
    return path


def _compared(found: Mapping[str, list[grid_search.Tried]]) -> dict[str, Any]:
    """Return each learner's errors after the choice, by order, and who is best or tied with it."""
    means = {name: statistics.mean(x.error for x in tried) for name, tried in found.items()}
    best = min(means, key=lambda name: means[name])
    out: dict[str, Any] = {}
    for name, tried in found.items():
        apart = [x.error - y.error for x, y in zip(tried, found[best], strict=True)]
        chosen = Counter(json.dumps(x.params) for x in tried).most_common(1)[0][0]
        out[name] = {
            "error": round(means[name], 5),
            "chosen": json.loads(chosen),
            "errors": [round(x.error, 5) for x in tried],
        }
        if len(tried) > 1:
            out[name]["sd"] = round(statistics.stdev(x.error for x in tried), 5)
            out[name]["tied"] = statistics.mean(apart) <= 2.0 * statistics.stdev(apart)
    return {"best": best, "learners": out}


def measured(made: DataSet, folder: Path, scratch: Path) -> dict[str, Any]:
    """Return what each learner is worth on a data set."""
    examples = made.read(folder)
    path = _written(examples, made.task, scratch / "examples.libsvm")
    names = _candidates(made.task, examples.x.shape[1])
    found: dict[str, list[grid_search.Tried]] = {name: [] for name in names}
    orders: list[int | None] = [None] if made.ordered else list(range(ORDERS))
    settings = settings_of(task=made.task)
    for seed, (name, tried) in itertools.product(orders, names.items()):
        plan = grid_search.Plan(Source(path, shuffle=seed), settings, tried)
        found[name].append(grid_search.search(plan, processes=1)[0])
    rows, features = examples.x.shape
    return {
        "examples": rows,
        "features": features,
        "non-zeros an example": round(examples.x.nnz / rows, 1),
        "classes": len(np.unique(examples.y)),
        "orders": len(orders),
        "told": found["pa1"][0].n,
        "no change": round(float(np.mean(examples.y[rows // 2 :] != examples.y[rows // 2 - 1 : -1])), 5)
        if made.ordered
        else None,
        "most frequent": round(1.0 - float(np.bincount(examples.y).max()) / rows, 5),
        **_compared(found),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data sets")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "grids": GRIDS}
    with tempfile.TemporaryDirectory(prefix="palearn-choosing-") as scratch:
        for name in given.sets:
            result[name] = measured(SETS[name], given.folder, Path(scratch))
    show(result, as_json=given.json)


if __name__ == "__main__":
    main()
