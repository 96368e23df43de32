"""What the papers' experiments share: training, error and F1, orders, folds, grids."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.papers.data import Examples
from benchmarks.papers.results import Figure, Table
from palearn.learners import Learner, Outcome
from palearn.models.matrix import Matrix, MatrixModel
from palearn.types import IntArray

#: Of every random number that is drawn.
SEED = 20261128

Options = dict[str, Any]


class Fitted(NamedTuple):
    """A model and what happened in its last pass."""

    model: MatrixModel
    outcome: Outcome


def new(examples: Examples, learner: str, options: Options, classes: int = 2, *, bias: bool = False) -> MatrixModel:
    """Return an untrained model; more than two classes make it a multiclass one."""
    task = "binary" if classes == 2 else "multiclass"
    return MatrixModel(Learner(learner, learner, task=task, options=options), examples.x.shape[1], classes, bias=bias)


def fit(
    examples: Examples, learner: str, options: Options, classes: int = 2, *, bias: bool = False, passes: int = 1
) -> Fitted:
    """Learn the examples in their order."""
    model = new(examples, learner, options, classes, bias=bias)
    *_, last = learning(model, examples, passes)
    return Fitted(model, last)


def learning(model: MatrixModel, examples: Examples, passes: int) -> Iterator[Outcome]:
    """Learn pass after pass; yield what happened in each."""
    rows = model.rows(examples.x, examples.y)
    for _ in range(passes):
        yield model.run(rows)


def predict(model: MatrixModel, x: Matrix) -> IntArray:
    """Return class numbers."""
    scores = model.scores(x)
    return (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)


def error(model: MatrixModel, examples: Examples) -> float:
    """Return the part of the examples that is predicted wrong."""
    return float((predict(model, examples.x) != examples.y).mean())


def online_error(examples: Examples, learner: str, options: Options, *, bias: bool = False) -> float:
    """Return the mistake rate of one pass, each example predicted before it is learned."""
    return float((fit(examples, learner, options, bias=bias).outcome.predicted != examples.y).mean())


def f1(predicted: IntArray, y: IntArray, positive: int = 1) -> float:
    """Return F1 of a class, in percent."""
    both = ((predicted == positive) & (y == positive)).sum()
    either = (predicted == positive).sum() + (y == positive).sum()
    return float(200 * both / either) if either else 0.0


def random(number: int) -> np.random.Generator:
    """Return the generator of repetition ``number``."""
    return np.random.default_rng((SEED, number))


def shuffled(examples: Examples, number: int) -> Examples:
    """Return the examples in a random order."""
    return examples.take(random(number).permutation(examples.y.size))


def folds(n: int, count: int, number: int = 0) -> list[IntArray]:
    """Return ``count`` random parts of n examples."""
    return np.array_split(random(number).permutation(n), count)


def without(parts: Sequence[IntArray], *left_out: int) -> IntArray:
    """Return the examples of all parts but these."""
    return np.concatenate([part for number, part in enumerate(parts) if number not in left_out])


def grid(**values: Iterable[Any]) -> list[Options]:
    """Return every combination of the values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def powers(base: float, low: int, high: int, step: int = 1) -> list[float]:
    """Return the base to the powers low, low + step, ... high."""
    return [base**exponent for exponent in range(low, high + 1, step)]


def best(options: Iterable[Options], cost: Callable[[Options], float]) -> Options:
    """Return the options of the lowest cost, the first of equals."""
    return min(options, key=cost)


def written(options: Options) -> str:
    """Return options as text."""
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()
    )


def summary(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation."""
    return float(np.mean(values)), float(np.std(values))


class Part(NamedTuple):
    """A part of a paper that runs by itself.

    Parameters
    ----------
    name
        Which tables and figures of the paper it gives, and on which data.
    sets
        The data sets that it needs (:data:`benchmarks.papers.data.SOURCES`) beside those that ship with palearn.
    run
        Takes the folder of the data sets.
    """

    name: str
    sets: tuple[str, ...]
    run: Callable[[Path], Iterable[Table | Figure]]
