"""AROW, figures 5 and 6: synthetic examples with 10 % of the training labels flipped."""

from typing import NamedTuple

import numpy as np

from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import (
    Claim,
    Options,
    Row,
    Table,
    best,
    error,
    fit,
    grid,
    powers,
    random,
    summary,
    written,
)
from palearn.types import BoolArray, IntArray

RUNS = 25
TRAIN, TEST, NOISE_FEATURES = 5_000, 10_000, 18
#: Standard deviations along the long axis; across it is 1.
LONG_AXES = (3.0, 10.0)
FORMS = ["full", "diagonal"]
LEARNERS: dict[str, tuple[str, list[Options]]] = {
    "Perceptron": ("perceptron", [{}]),
    "PA": ("pa", [{}]),
    "PA-I": ("pa1", grid(C=powers(10.0, -4, 1))),
    **{f"SOP-{form}": ("sop", grid(a=powers(10.0, -1, 2), covariance=[form])) for form in FORMS},
    **{f"CW-{form}": ("cw", grid(phi=[0.01, 0.03, 0.1, 0.3, 1.0, 3.0], covariance=[form])) for form in FORMS},
    **{f"AROW-{form}": ("arow", grid(r=powers(10.0, -1, 4), covariance=[form])) for form in FORMS},
}
DIFFERS = (
    "Drawn anew as the paper describes: a separator along the long axis of a Gaussian turned by 45 degrees, 18 "
    "coordinates of variance 2. It gives one standard deviation, 1; we take it across the long axis, and 3 or 10 "
    "along it. Parameters are chosen on one more run, as in the paper; 25 runs (the paper: 100). Mistakes are counted "
    "against the labels before the flip. The paper's PA is the hard margin's or a tuned PA-I's, which it does not say: "
    "both. The figures print no numbers."
)


class Run(NamedTuple):
    """One draw: training examples with flipped labels, their true labels, test examples."""

    train: Examples
    truth: IntArray
    test: Examples


def table() -> Table:
    """Return the mistakes and the test errors, and what the paper says of them."""
    rows: list[Row] = []
    claims: list[Claim] = []
    for long_axis in LONG_AXES:
        _compare(long_axis, rows, claims)
    return Table("AROW, figures 5 and 6", "mistakes in 5,000, and test error (%)", DIFFERS, rows, claims)


def _compare(long_axis: float, rows: list[Row], claims: list[Claim]) -> None:
    chooser = _draw(RUNS, long_axis)
    runs = [_draw(number, long_axis) for number in range(RUNS)]
    mistakes: dict[str, float] = {}
    errors: dict[str, float] = {}
    for title, (learner, options) in LEARNERS.items():
        chosen = best(options, lambda o, learner=learner: _measure(chooser, learner, o)[0])  # type: ignore[misc]
        found = np.array([_measure(run, learner, chosen) for run in runs])
        for what, values, kept in (("mistakes", found[:, 0], mistakes), ("test error", 100 * found[:, 1], errors)):
            mean, spread = summary(values.tolist())
            kept[title] = mean
            rows.append(Row(f"{long_axis:g} to 1 {title} {what}", None, mean, None, spread, written(chosen)))
    claims += _claims(f"{long_axis:g} to 1", mistakes, errors)


def _claims(name: str, mistakes: dict[str, float], errors: dict[str, float]) -> list[Claim]:
    cw = min(mistakes["CW-full"], mistakes["CW-diagonal"])
    fewer = 100 * (1 - mistakes["AROW-full"] / cw)
    others = {title: count for title, count in mistakes.items() if not title.startswith("AROW")}
    following = min(others, key=others.__getitem__)
    cw_error = min(errors["CW-full"], errors["CW-diagonal"])
    said = [
        Claim(f"{name}: AROW-full makes about 75 % fewer mistakes than CW", 70 <= fewer <= 80, f"{fewer:.0f} % fewer"),
        Claim(f"{name}: AROW-full makes the fewest mistakes, and CW the fewest after AROW", following.startswith("CW")
              and mistakes["AROW-full"] == min(mistakes.values()), f"{following} {mistakes[following]:.0f}"),
        Claim(f"{name}: CW-full is worse than CW-diagonal", mistakes["CW-full"] > mistakes["CW-diagonal"],
              f"{mistakes['CW-full']:.0f} to {mistakes['CW-diagonal']:.0f} mistakes"),
    ]  # fmt: skip
    for other in ("Perceptron", "PA", "PA-I"):
        said.append(
            Claim(f"{name}: CW's better form is worse than {other} on the test part", cw_error > errors[other],
                  f"{cw_error:.2f} to {errors[other]:.2f} %")
        )  # fmt: skip
    return said


def _measure(run: Run, learner: str, options: Options) -> tuple[float, float]:
    """Return mistakes against the true labels, and the test error."""
    made = fit(run.train, learner, options)
    return float((made.outcome.predicted != run.truth).sum()), error(made.model, run.test)


def _draw(number: int, long_axis: float) -> Run:
    draw = random(number)
    x, truth = _points(draw, TRAIN, long_axis)
    flipped: BoolArray = draw.random(TRAIN) < 0.1
    return Run(Examples(x, np.where(flipped, 1 - truth, truth)), truth, Examples(*_points(draw, TEST, long_axis)))


def _points(draw: np.random.Generator, n: int, long_axis: float) -> tuple[np.ndarray, IntArray]:
    along, across = long_axis * draw.normal(size=n), draw.normal(size=n)
    turned = np.column_stack([along - across, along + across]) / np.sqrt(2.0)
    noise = np.sqrt(2.0) * draw.normal(size=(n, NOISE_FEATURES))
    return np.column_stack([turned, noise]), (across > 0).astype(np.int64)
