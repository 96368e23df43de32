"""What ``palearn evaluate`` costs from file to figures: a whole process on a9a, and rows a second on a large file.

``python -m benchmarks.evaluate --json``. Contenders take turns, round after round, after a first one that compiles
and fills caches. Clock time and processor time are medians of the rounds; ratios are of processor time, which other
programs of the machine disturb less.

===========  ========================================================================================================
``process``  a process of its own, imports included, on a9a as plain text: ``palearn evaluate``; Python, and Python
             with numpy or numba, that do nothing; scikit-learn's reader and PA-I; SOL, if it is there. Beside
             them (``imported``) ours in this process, which has all imported and compiled
``big``      a9a's rows again and again: ours from file to figures, and its reading alone; scikit-learn's reader
             and PA-I, and its reading alone; the learner's kernel over rows in memory; our records, an object each
===========  ========================================================================================================

SOL is the C++ library of Hoi, Wang, Zhao and others, https://github.com/LIBOL/SOL; ``--sol`` is its ``sol_train``.
"""

import argparse
import gzip
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from inspect import getsource
from itertools import islice
from pathlib import Path
from typing import Any

from sklearn.datasets import load_svmlight_file

from benchmarks import kernels
from benchmarks.common import environment, show
from palearn import datasets, files
from palearn.evaluate import libsvm_blocks
from palearn.evaluate.prequential import evaluate
from palearn.learners import Learner
from palearn.models.state import Settings
from palearn.models.vectorize import Vocabulary
from palearn.records import Record

#: The bars: times SOL's whole process; rows a second.
MOST_TIMES_SOL, ROWS_PER_SECOND = 3.0, 1_000_000
#: Rows of the contender that makes an object of each.
RECORDS = 50_000
_PALEARN = "from palearn.cli import main; main()"


def scikit_learn(path: str) -> None:
    """Read a file and learn it by scikit-learn's PA-I with C = 1; a process of its own runs this source, too."""
    import numpy as np
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import SGDClassifier

    x, y = load_svmlight_file(path)
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)  # it learns from no others
    model = SGDClassifier(penalty=None, learning_rate="pa1", eta0=1.0, shuffle=False)
    model.partial_fit(x, y, classes=[-1, 1])


def costs(seconds: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians of clock and processor time."""
    clock, processor = zip(*seconds, strict=True)
    return {"seconds": statistics.median(clock), "processor seconds": statistics.median(processor)}


def race(runs: dict[str, Callable[[], object]], rounds: int, *, who: int) -> dict[str, dict[str, float]]:
    """Let contenders take turns; return their costs. ``who`` runs them: this process or its children."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            used, began = _processor(who), time.perf_counter()
            run()
            if number:
                taken[name].append((time.perf_counter() - began, _processor(who) - used))
    return {name: costs(seconds) for name, seconds in taken.items()}


def _processor(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def processes(path: Path, sol: Path | None, rounds: int) -> dict[str, dict[str, float]]:
    """Return what whole processes cost."""
    python = [sys.executable, "-c"]
    commands = {
        "python": [*python, "pass"],
        "python, numpy": [*python, "import numpy"],
        "python, numba": [*python, "import numba"],
        "scikit-learn pa1": [*python, f"{getsource(scikit_learn)}\nscikit_learn({str(path)!r})"],
    }
    for name in ("pa1", "arow"):
        commands[f"palearn {name}"] = [*python, _PALEARN, "evaluate", str(path), "--learner", name, "--json"]
        if sol is not None:
            commands[f"SOL {name}"] = [str(sol), "-a", name, str(path), str(path.with_suffix(".model"))]
    runs = {name: _runner(command) for name, command in commands.items()}
    imported: dict[str, Callable[[], object]] = {
        f"palearn {name}, imported": partial(evaluate, path, name) for name in ("pa1", "arow")
    }
    found = race(runs, rounds, who=resource.RUSAGE_CHILDREN)
    return found | race(imported, rounds, who=resource.RUSAGE_SELF)


def _runner(command: list[str]) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)


def big(path: Path, rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return what a large file costs in a process that has all imported and compiled, and rows a second."""
    runs: dict[str, Callable[[], object]] = {
        "palearn pa1": lambda: evaluate(path, "pa1"),
        "palearn arow": lambda: evaluate(path, "arow"),
        "palearn, reading": lambda: _exhaust(libsvm_blocks.columns(path, Vocabulary(), Settings(), limit=2**31 - 2)),
        "palearn pa1, records": lambda: evaluate(records(path, RECORDS), "pa1"),
        "scikit-learn pa1": lambda: scikit_learn(str(path)),
        "scikit-learn, reading": lambda: load_svmlight_file(str(path)),
    }
    found = race(runs, rounds, who=resource.RUSAGE_SELF)
    for name, cost in found.items():
        n = min(rows, RECORDS) if name.endswith("records") else rows
        cost["rows/s"] = n / cost["seconds"]
        cost["rows/processor s"] = n / cost["processor seconds"]
    return found | bare_kernels(rounds)


def bare_kernels(rounds: int) -> dict[str, dict[str, float]]:
    """Return what the learners' kernels do with a9a's rows in memory."""
    x, y = kernels.a9a()
    ready = [kernels.kernel(f"palearn {name}, kernel", Learner(name, name), x, y) for name in ("pa1", "arow")]
    return {name: {"rows/processor s": cost["examples/s"]} for name, cost in kernels.race(ready, rounds).items()}


def records(path: Path, most: int) -> Iterator[Record]:
    """Yield a file's first records."""
    for _, row in islice(files.read(path), most):
        assert isinstance(row, Record)
        yield row


def _exhaust(parts: Iterable[object]) -> None:
    for _ in parts:
        pass


def write_a9a(path: Path, times: int) -> int:
    """Write a9a as plain LIBSVM text, so many times; return the number of rows."""
    text = gzip.decompress(datasets.path("a9a").read_bytes())
    with path.open("wb") as out:
        for _ in range(times):
            out.write(text)
    return datasets.DATASETS["a9a"].rows * times


def check(path: Path) -> None:
    """Assert that ours learns from the file what it learns from the records."""
    rows = datasets.DATASETS["a9a"].rows
    from_file, from_records = evaluate(path, "arow"), evaluate(records(path, rows), "arow")
    assert {**from_file, "seconds": 0} == {**from_records, "seconds": 0}


def measure(rounds: int, times: int, sol: Path | None) -> dict[str, Any]:
    """Return all costs, ratios, and the bars with what was reached."""
    with tempfile.TemporaryDirectory(prefix="palearn-bench-") as name:
        small, large = Path(name) / "a9a.libsvm", Path(name) / "big.libsvm"
        write_a9a(small, 1)
        rows = write_a9a(large, times)
        check(small)
        process, many = processes(small, sol, rounds), big(large, rows, rounds)
    return {"rows": rows, "process": process, "big": many, **_verdict(process, many)}


def _verdict(process: dict[str, dict[str, float]], many: dict[str, dict[str, float]]) -> dict[str, Any]:
    used = {name: cost["processor seconds"] for name, cost in process.items()}
    speed = {name: cost["rows/processor s"] for name, cost in many.items()}
    ratios = {
        f"process: palearn arow to {name}": used["palearn arow"] / used[name] for name in used if "palearn" not in name
    }
    ratios |= {
        "big: palearn pa1 to scikit-learn": speed["palearn pa1"] / speed["scikit-learn pa1"],
        "big: palearn to scikit-learn, reading": speed["palearn, reading"] / speed["scikit-learn, reading"],
        "big: palearn pa1 to records": speed["palearn pa1"] / speed["palearn pa1, records"],
        "big: palearn arow to its kernel": speed["palearn arow"] / speed["palearn arow, kernel"],
    }
    ratios |= {
        f"{name}, imported, to SOL's process": used[f"palearn {name}, imported"] / used[f"SOL {name}"]
        for name in ("pa1", "arow")
        if f"SOL {name}" in used
    }
    bars = {}
    for name in ("pa1", "arow"):
        got = many[f"palearn {name}"]["rows/s"]
        bars[f"{name} rows/s"] = {"reached": got, "bar": ROWS_PER_SECOND, "met": got >= ROWS_PER_SECOND}
        if f"SOL {name}" in used:
            times = used[f"palearn {name}"] / used[f"SOL {name}"]
            bars[f"{name} to SOL"] = {"reached": times, "bar": MOST_TIMES_SOL, "met": times <= MOST_TIMES_SOL}
    return {"ratios": ratios, "bars": bars}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=46, help="how often the large file repeats a9a")
    parser.add_argument("--sol", type=Path, help="sol_train, built from its source")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result = measure(given.rounds, given.times, given.sol)
    if not given.json:
        tables = [name for name, found in result.items() if isinstance(found, dict)]
        result |= {f"{table}, {name}": found for table in tables for name, found in result.pop(table).items()}
    versions = {"scikit-learn": version("scikit-learn")}
    show({"environment": environment() | versions, "rounds": given.rounds, **result}, as_json=given.json)


if __name__ == "__main__":
    main()
