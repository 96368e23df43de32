"""What one example costs each learner, and the same beside scikit-learn, River and numpy, in one run.

``python -m benchmarks.kernels --json``: one core; every learner and covariance over rows in memory, one example after
the other. The contenders take turns, round after round; best and median are of the rounds after a first one that
compiles. Processor time, which other programs of the machine disturb less than the clock. No bias, C and r of 1.

==============  =====================================================================================================
``binary``      a9a: 123 features of value 1, 14 a row
``multiclass``  a9a without its occupation, which is the class: 14 classes, 108 features, 13 a row
``synthetic``   normal values at 14 random places of 1,000, 200,000 rows, 10 % of the labels flipped
``batch``       a9a again: our kernels, and from a CSR matrix to a learned model ours and scikit-learn's
``one_a_call``  a9a again, one example a call: ours, scikit-learn's and River's
==============  =====================================================================================================
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from river.linear_model import PAClassifier
from scipy import sparse
from sklearn.linear_model import SGDClassifier

import palearn
from benchmarks.common import SEED, environment, show
from palearn import datasets
from palearn.learners import LEARNERS, Algorithm, Learner, Outcome, Rows, empty_outcome, layout_of
from palearn.models.matrix import Matrix, MatrixModel
from palearn.types import FloatArray, IntArray

#: Rows of the slow forms: full covariances of many classes, one joint covariance, and whatever is not compiled.
FULL_MULTICLASS_ROWS, JOINT_ROWS, PYTHON_ROWS, SKLEARN_CALLS = 3_000, 200, 3_000, 500
#: The bars: as fast as scikit-learn, nanoseconds a non-zero, updates a second of a full covariance of 123 features.
AS_FAST, MOST_NS, FULL_UPDATES = 1.0, 30.0, 150_000.0
#: The learner of that last bar, and of the comparison with numpy.
FULL_AROW = Learner("arow", "arow", options={"r": 16.0, "covariance": "full"})


@dataclass(frozen=True)
class Contender:
    """One learner over one set of rows.

    Parameters
    ----------
    name
        Learner and options.
    examples, nonzeros
        Of its rows.
    prepare
        Makes a new model; returns what is timed: a pass over the rows.
    """

    name: str
    examples: int
    nonzeros: int
    prepare: Callable[[], Callable[[], Outcome | None]]


def race(contenders: list[Contender], rounds: int) -> dict[str, Any]:
    """Let the contenders take turns; return what an example, a non-zero and an update cost each."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    updates: dict[str, int] = {}
    for number in range(rounds + 1):
        for contender in contenders:
            run = contender.prepare()
            began = time.process_time()
            out = run()
            spent = time.process_time() - began
            if number:
                seconds[contender.name].append(spent)
            if out is not None:
                updates[contender.name] = int(out.updated.sum())
    return {c.name: _costs(c, seconds[c.name], updates.get(c.name)) for c in contenders}


def _costs(contender: Contender, seconds: list[float], updates: int | None) -> dict[str, float]:
    best, median = min(seconds), statistics.median(seconds)
    costs = {
        "ns an example": 1e9 * best / contender.examples,
        "median ns an example": 1e9 * median / contender.examples,
        "ns a non-zero": 1e9 * best / contender.nonzeros,
        "examples/s": contender.examples / best,
    }
    if updates is None:
        return costs
    return costs | {"updates/s": updates / best, "updates an example": updates / contender.examples}


def a9a() -> tuple[Matrix, IntArray]:
    """Return the training rows, and 1 for each positive one."""
    columns = {name: number for number, name in enumerate(datasets.names("a9a"))}
    records = list(datasets.a9a())
    slots = [[columns[name] for name in record.features or {}] for record in records]
    ptr = np.concatenate([[0], np.cumsum([len(row) for row in slots])])
    column = np.concatenate(slots)
    # scikit-learn takes indices of 32 bits only.
    indices = column.astype(np.int32), ptr.astype(np.int32)
    x = sparse.csr_array((np.ones(column.size), *indices), shape=(len(records), len(columns)))
    return x, np.array([record.label == 1 for record in records], np.int64)


def occupations(x: Matrix) -> tuple[Matrix, IntArray]:
    """Return a9a's rows that have an occupation, without it, and which one it is."""
    is_occupation = np.array([name.startswith("occupation=") for name in datasets.names("a9a")])
    occupation = x[:, np.flatnonzero(is_occupation)]
    rows = np.flatnonzero(occupation.sum(axis=1) > 0)
    y = np.asarray(occupation[rows].argmax(axis=1)).ravel().astype(np.int64)
    return x[rows][:, np.flatnonzero(~is_occupation)], y


def synthetic(rows: int = 200_000, features: int = 1_000, nonzeros: int = 14) -> tuple[Matrix, IntArray]:
    """Return rows of normal values at random places, with the sign of a hidden score, some flipped."""
    draw = np.random.default_rng(SEED)
    column = np.sort(draw.integers(features, size=(rows, nonzeros)), axis=1)
    x = sparse.csr_array(
        (draw.normal(size=column.size), column.ravel(), nonzeros * np.arange(rows + 1)), shape=(rows, features)
    )
    x.sum_duplicates()
    positive = (x @ draw.normal(size=features) > 0) != (draw.random(rows) < 0.1)
    return x, positive.astype(np.int64)


def kernel(name: str, learner: Learner, x: Matrix, y: IntArray, classes: int = 2) -> Contender:
    """Return a learner of one view over rows that are ready."""
    rows = _model(learner, x, classes).rows(x, y)

    def prepare() -> Callable[[], Outcome | None]:
        model = _model(learner, x, classes)
        return lambda: model.run(rows)

    return Contender(name, x.shape[0], x.nnz, prepare)


def _model(learner: Learner, x: Matrix, classes: int) -> MatrixModel:
    return MatrixModel(learner, x.shape[1], classes, bias=False)


def view_kernel(name: str, learner: Learner, x: Matrix, y: IntArray, classes: int = 2) -> Contender:
    """Return a learner of two views: the first and the second half of the columns."""
    model = _model(Learner("pa", "pa"), x, classes)
    half = x.shape[1] // 2
    cut = sparse.csr_array(x)
    views: list[Rows] = []
    for chosen in (cut.indices < half, cut.indices >= half):
        part = sparse.csr_array((cut.data * chosen, cut.indices, cut.indptr), shape=cut.shape)
        views.append(model.rows(part, y)._replace(known=np.full(y.size, classes)))
    blocks = 1 if learner.task == "binary" else classes
    layout = layout_of(np.array([x.shape[1]]), np.array([blocks]))

    def prepare() -> Callable[[], Outcome | None]:
        w, out = np.zeros(x.shape[1] * blocks), empty_outcome(y.size)

        def run() -> Outcome:
            learner.run(views, layout, {"w": w}, out)
            return out

        return run

    return Contender(name, x.shape[0], x.nnz, prepare)


def every_kernel(task: str, x: Matrix, y: IntArray, classes: int = 2) -> list[Contender]:
    """Return every learner of the table that can do the task, with each form of covariance it has."""
    found = []
    for name, row in LEARNERS.items():
        if task not in row.tasks:
            continue
        for form in _forms(row, task):
            learner = Learner(name, name, task=task, options={} if form is None else {"covariance": form})
            most = {"full": FULL_MULTICLASS_ROWS, "joint": JOINT_ROWS}.get(form or "", y.size)
            n = y.size if task == "binary" else min(most, y.size)
            make = view_kernel if row.views else kernel
            found.append(make(f"{name} {form}" if form else name, learner, x[:n], y[:n], classes))
    return found


def _forms(row: Algorithm, task: str) -> list[str | None]:
    """Return the forms of covariance that the learner has in the task; a first-order learner: [None]."""
    words = next((p.words for p in row.parameters if p.name == "covariance"), ())
    return [word for word in words if word != "joint" or task == "multiclass"] or [None]


def batches(x: Matrix, y: IntArray) -> list[Contender]:
    """Return ours and scikit-learn's way from a CSR matrix to a model."""

    def ours(name: str) -> Contender:
        learner = Learner(name, name)

        def prepare() -> Callable[[], Outcome | None]:
            model = _model(learner, x, 2)
            return lambda: model.learn(x, y)

        return Contender(f"palearn {name}", x.shape[0], x.nnz, prepare)

    def theirs() -> Callable[[], Outcome | None]:
        model = _sgd()

        def run() -> None:
            model.partial_fit(x, y, classes=[0, 1])

        return run

    kernels = [kernel(f"palearn {name} kernel", Learner(name, name), x, y) for name in ("pa1", "arow")]
    return [*kernels, ours("pa1"), ours("arow"), Contender("scikit-learn pa1", x.shape[0], x.nnz, theirs)]


def _sgd() -> Any:
    """Return scikit-learn's PA-I with C = 1: it keeps the rows' order and has no penalty."""
    return SGDClassifier(penalty=None, learning_rate="pa1", eta0=1.0, shuffle=False, fit_intercept=False)


def _river() -> Any:
    """Return River's PA-I with C = 1."""
    made: Any = PAClassifier
    return made(C=1.0, mode=1, learn_intercept=False)


def _mappings(x: Matrix) -> list[dict[str, float]]:
    """Return a9a's rows as mappings of feature names to 1."""
    names = datasets.names("a9a")
    return [{names[j]: 1.0 for j in x.indices[first:last]} for first, last in itertools.pairwise(x.indptr)]


def calls(x: Matrix, y: IntArray) -> list[Contender]:
    """Return the ways of one example a call, and a full covariance in numpy."""
    n = PYTHON_ROWS
    mappings, labels, dense = _mappings(x[:n]), y[:n].tolist(), x[:n].toarray()

    def mapped(name: str, make: Callable[[], Any]) -> Contender:
        def prepare() -> Callable[[], Outcome | None]:
            model = make()

            def run() -> None:
                for mapping, label in zip(mappings, labels, strict=True):
                    model.learn_one(mapping, label)

            return run

        return Contender(name, n, int(x.indptr[n]), prepare)

    def scikit_learn() -> Callable[[], Outcome | None]:
        model = _sgd()
        singles = [(x[i : i + 1], y[i : i + 1]) for i in range(SKLEARN_CALLS)]

        def run() -> None:
            for row, label in singles:
                model.partial_fit(row, label, classes=[0, 1])

        return run

    def numpy() -> Callable[[], Outcome | None]:
        def run() -> None:
            numpy_arow(dense, y[:n])

        return run

    return [
        mapped("palearn pa1 learn_one", lambda: palearn.make("pa1", bias=False)),
        mapped("palearn arow learn_one", lambda: palearn.make("arow", bias=False)),
        mapped("river PAClassifier learn_one", _river),
        Contender("scikit-learn pa1 partial_fit", SKLEARN_CALLS, int(x.indptr[SKLEARN_CALLS]), scikit_learn),
        Contender("numpy arow full", n, int(x.indptr[n]), numpy),
    ]


def numpy_arow(x: Matrix, y: IntArray, r: float = 16.0) -> FloatArray:
    """Learn AROW with a full covariance as one writes it in numpy; return the weights."""
    w, sigma = np.zeros(x.shape[1]), np.eye(x.shape[1])
    for row, sign in zip(x, 2.0 * y - 1.0, strict=True):
        loss = 1.0 - sign * (w @ row)
        if loss > 0.0:
            moved = sigma @ row
            beta = 1.0 / (row @ moved + r)
            w += loss * beta * sign * moved
            sigma -= beta * np.outer(moved, moved)
    return w


def check(x: Matrix, y: IntArray) -> None:
    """Assert that the contenders learn the same, before their times are compared."""
    first, signs = x[:PYTHON_ROWS], y[:PYTHON_ROWS]
    ours, full = (_model(learner, x, 2) for learner in (Learner("pa1", "pa1"), FULL_AROW))
    ours.learn(x, y)
    full.learn(first, signs)
    theirs = _sgd().partial_fit(x, y, classes=[0, 1])
    np.testing.assert_allclose(ours.weights()[0], theirs.coef_[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(full.weights()[0], numpy_arow(first.toarray(), signs), rtol=1e-9, atol=1e-9)
    river, one = _river(), palearn.make("pa1", bias=False)
    for mapping, sign in zip(_mappings(first), signs.tolist(), strict=True):
        river.learn_one(mapping, sign)
        one.learn_one(mapping, sign)
    weights = one.weights()
    assert all(abs(weights[name] - river.weights[name]) < 1e-9 for name in weights)


def measure(rounds: int) -> dict[str, Any]:
    """Return the costs of every contender, ratios, and the bars with what was reached."""
    x, y = a9a()
    check(x, y)
    binary = race([*every_kernel("binary", x, y), kernel("arow full r=16", FULL_AROW, x, y)], rounds)
    others, which = occupations(x)
    multiclass = race(every_kernel("multiclass", others, which, int(which.max()) + 1), rounds)
    drawn, sign = synthetic()
    both = [kernel(name, Learner(name, name), drawn, sign) for name in ("perceptron", "pa1", "arow")]
    batch, one_a_call = race(batches(x, y), rounds), race(calls(x, y), rounds)
    tables = {
        "binary": binary,
        "multiclass": multiclass,
        "synthetic": race(both, rounds),
        "batch": batch,
        "one_a_call": one_a_call,
    }
    return {**tables, "ratios": _ratios(tables), "bars": _bars(tables)}


def _ratios(tables: dict[str, Any]) -> dict[str, float]:
    """Return how many times faster ours is, by the best rounds."""
    speed = {name: costs["examples/s"] for name, costs in (tables["batch"] | tables["one_a_call"]).items()}
    arow_full = tables["binary"]["arow full r=16"]["examples/s"]
    return {
        "pa1 kernel to scikit-learn": speed["palearn pa1 kernel"] / speed["scikit-learn pa1"],
        "arow kernel to scikit-learn": speed["palearn arow kernel"] / speed["scikit-learn pa1"],
        "pa1 to scikit-learn, CSR": speed["palearn pa1"] / speed["scikit-learn pa1"],
        "arow to scikit-learn, CSR": speed["palearn arow"] / speed["scikit-learn pa1"],
        "pa1 to River, one a call": speed["palearn pa1 learn_one"] / speed["river PAClassifier learn_one"],
        "pa1 to scikit-learn, one a call": speed["palearn pa1 learn_one"] / speed["scikit-learn pa1 partial_fit"],
        "pa1 kernel to River": tables["binary"]["pa1"]["examples/s"] / speed["river PAClassifier learn_one"],
        "arow full to numpy": arow_full / speed["numpy arow full"],
    }


def _bars(tables: dict[str, Any]) -> dict[str, Any]:
    """Return what was to be reached, what was, and whether it is enough."""
    binary, ratios = tables["binary"], _ratios(tables)
    compared = ("pa1 kernel to scikit-learn", "arow kernel to scikit-learn")
    at_least = {name: (ratios[name], AS_FAST) for name in compared}
    at_least["arow full updates/s"] = (binary["arow full r=16"]["updates/s"], FULL_UPDATES)
    at_most = {f"{name} ns a non-zero": (binary[name]["ns a non-zero"], MOST_NS) for name in ("pa1", "arow diagonal")}
    bars = {name: {"reached": got, "bar": bar, "met": got >= bar} for name, (got, bar) in at_least.items()}
    return bars | {name: {"reached": got, "bar": bar, "met": got <= bar} for name, (got, bar) in at_most.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    versions = {name: version(name) for name in ("scikit-learn", "river")}
    result = measure(given.rounds)
    if not given.json:
        result = {f"{table}, {name}": found for table, costs in result.items() for name, found in costs.items()}
    show({"environment": environment() | versions, "rounds": given.rounds, **result}, as_json=given.json)


if __name__ == "__main__":
    main()
