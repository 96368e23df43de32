"""AROW, figure 7: mistakes over time of AROW, CW, PA and SOP, without and with label noise."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.papers import data
from benchmarks.papers.arow_noise import LEARNERS, pair_of
from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import Options, Part, best, fit, random, shuffled, summary, written
from benchmarks.papers.results import Claim, Figure, Panel, Row, Table, curve
from palearn.types import BoolArray, FloatArray

RUNS = 10
NOISE = (0.0, 0.1)
DIFFERS = {
    "MNIST 3 and 5": "Of the test half (1,902 examples; the paper: 11,552), values in [0, 1]. {}",
    "a9a": "Not among the paper's data, but it ships with palearn. {}",
}
_COMMON = (
    "Mistakes of one pass against the labels before noise; diagonal covariances, no bias. Parameters are chosen on one "
    "more order, as in the paper; ours are means of ten orders. The paper's figure prints no numbers."
)


def _mnist(folder: Path) -> Iterator[Table | Figure]:
    return _compare("MNIST 3 and 5", "mnist", pair_of(data.mnist(folder), 3, 5))


def _a9a(_: Path) -> Iterator[Table | Figure]:
    return _compare("a9a", "a9a", data.a9a())


PARTS = [Part("as in figure 7, a9a", (), _a9a), Part("figure 7, MNIST 3 and 5", ("mnist",), _mnist)]


def _compare(name: str, short: str, examples: Examples) -> Iterator[Table | Figure]:
    rows: list[Row] = []
    curves: dict[float, dict[str, FloatArray]] = {}
    for noise in NOISE:
        curves[noise] = {}
        for title, (learner, options) in LEARNERS.items():
            chosen = best(options, lambda o, a=learner, p=noise: float(_wrong(examples, RUNS, p, a, o).sum()))  # type: ignore[misc]
            wrong = [_wrong(examples, number, noise, learner, chosen) for number in range(RUNS)]
            mean, spread = summary([float(each.sum()) for each in wrong])
            rows.append(Row(f"noise {noise:g}", title, None, mean, None, spread, written(chosen)))
            curves[noise][title] = np.cumsum(np.mean(wrong, axis=0))
    like = f"AROW, {'' if short == 'mnist' else 'as in '}figure 7, {name}"
    yield Table(like, "mistakes", DIFFERS[name].format(_COMMON), rows, _claims(curves))
    panels = [
        Panel(f"noise {noise:g}", "examples", "mistakes so far", [curve(*line) for line in each.items()])
        for noise, each in curves.items()
    ]
    yield Figure(f"arow-7-{short}", like, "Mistakes so far, mean of ten orders.", panels)


def _claims(curves: dict[float, dict[str, FloatArray]]) -> list[Claim]:
    ends = {noise: {title: float(y[-1]) for title, y in each.items()} for noise, each in curves.items()}
    clean, noisy = ends[NOISE[0]], ends[NOISE[1]]
    said = [
        Claim(f"AROW makes the fewest mistakes with {noise:.0%} noise", each["AROW"] == min(each.values()),
              ", ".join(f"{title} {count:.0f}" for title, count in each.items()))
        for noise, each in ends.items()
    ]  # fmt: skip
    for other in ("CW", "PA", "SOP"):
        before, after = clean[other] - clean["AROW"], noisy[other] - noisy["AROW"]
        said.append(
            Claim(f"the gap between AROW and {other} grows with noise", after > before, f"{before:.0f} to {after:.0f}")
        )
    return said


def _wrong(examples: Examples, number: int, noise: float, learner: str, options: Options) -> BoolArray:
    """Return which predictions of one pass were wrong, by the labels before noise."""
    order = shuffled(examples, number)
    flipped = random(number + 1_000).random(order.y.size) < noise
    noisy = Examples(order.x, np.where(flipped, 1 - order.y, order.y))
    wrong: BoolArray = fit(noisy, learner, options).outcome.predicted != order.y
    return wrong
