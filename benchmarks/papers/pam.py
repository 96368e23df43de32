"""PAM (Nguyen, Chang and Hui 2011), table 1: F1 of both classes, PA-II beside PAM-II and CW."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.papers import data
from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import (
    Claim,
    Options,
    Row,
    Table,
    best,
    f1,
    fit,
    grid,
    online_error,
    powers,
    random,
    shuffled,
    summary,
    written,
)

REPETITIONS = 10
#: The repetitions on whose mistakes C and phi are chosen.
CHOOSING = 3
LEARNERS = {"PA-II": "pa2", "PAM-II": "pam2", "CW": "cw"}
#: Mean and standard deviation of F1 of the positive and of the negative class.
PUBLISHED: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "BUPA": {
        "PA-II": (61.21, 2.78, 57.85, 1.31),
        "PAM-II": (64.28, 1.13, 60.20, 2.55),
        "CW": (61.79, 2.43, 57.61, 2.00),
    },
    "CRX": {
        "PA-II": (68.54, 0.40, 77.83, 0.62),
        "PAM-II": (80.37, 0.51, 84.13, 0.62),
        "CW": (78.28, 0.93, 82.54, 0.60),
    },
    "USPS": {
        "PA-II": (94.08, 2.77, 93.84, 2.78),
        "PAM-II": (95.26, 2.56, 95.05, 2.56),
        "CW": (94.81, 2.79, 94.57, 2.79),
    },
    "MNIST": {
        "PA-II": (57.85, 3.43, 58.97, 2.47),
        "PAM-II": (59.51, 1.72, 60.47, 1.48),
        "CW": (58.64, 0.90, 58.52, 1.12),
    },
    "WebKB": {
        "PA-II": (77.02, 1.14, 90.98, 0.66),
        "PAM-II": (78.90, 1.63, 92.94, 0.84),
        "CW": (76.49, 1.40, 90.78, 0.74),
    },
}
DIFFERS = (
    "No scaling is described: numbers are taken as they are, and for BUPA and CRX once more with each column brought "
    "to [0, 1]. BUPA's positive class is not named; selector 1 here. MNIST is the test half (10,000). WebKB is "
    "the page view as counts of 3,000 terms, our own vectorisation, with diagonal covariances (full ones of 3,000 "
    "features would take minutes more). F1 is that of the online predictions of one pass; no bias; C and phi are "
    "chosen by the mistakes of the first three repetitions."
)


def tables(folder: Path) -> Iterator[Table]:
    """Yield table 1."""
    bupa, crx, webkb = data.bupa(folder), data.crx(folder), data.webkb(folder)[0]
    digits = {"USPS": data.usps(folder)[0], "MNIST": data.mnist(folder)}
    rows: list[Row] = []
    claims: list[Claim] = []
    for name, whole in (
        ("BUPA", bupa),
        ("BUPA to [0, 1]", _scaled(bupa)),
        ("CRX", crx),
        ("CRX to [0, 1]", _scaled(crx)),
    ):
        _compare(name, [shuffled(whole, i) for i in range(REPETITIONS)], "full", rows, claims)
    for name, whole in digits.items():
        _compare(name, [_one_against_sample(whole, i) for i in range(REPETITIONS)], "full", rows, claims)
    _compare("WebKB", [shuffled(webkb, i) for i in range(REPETITIONS)], "diagonal", rows, claims)
    yield Table("PAM, table 1", "F1 (%) of the positive (+) and negative (-) class", DIFFERS, rows, claims)


def _compare(name: str, repetitions: list[Examples], covariance: str, rows: list[Row], claims: list[Claim]) -> None:
    """Add the rows of a data set and whether PAM-II is best on it."""
    ours = {}
    for title, learner in LEARNERS.items():
        options = _choose(learner, repetitions[:CHOOSING], covariance)
        predicted = [fit(part, learner, options).outcome.predicted for part in repetitions]
        known = PUBLISHED[name.split()[0]][title]
        for i, positive in enumerate((1, 0)):
            mean, spread = summary([f1(p, part.y, positive) for p, part in zip(predicted, repetitions, strict=True)])
            rows.append(Row(f"{name}{'+-'[i]} {title}", known[2 * i], mean, known[2 * i + 1], spread, written(options)))
            ours[title, positive] = mean
    holds = all(ours["PAM-II", c] > ours[other, c] for c in (0, 1) for other in ("PA-II", "CW"))
    figures = ", ".join(f"{title} {ours[title, 1]:.2f}/{ours[title, 0]:.2f}" for title in LEARNERS)
    claims.append(Claim(f"{name}: PAM-II has the best F1 of both classes", holds, figures))


def _choose(learner: str, repetitions: list[Examples], covariance: str) -> Options:
    first: dict[str, Any] = {"phi": [0.1, 0.25, 0.5, 1.0, 2.0, 4.0]} if learner == "cw" else {"C": powers(4.0, -8, 3)}
    forms: dict[str, Any] = {} if learner == "pa2" else {"covariance": [covariance]}
    return best(
        grid(**first, **forms),
        lambda options: float(np.mean([online_error(part, learner, options) for part in repetitions])),
    )


def _scaled(examples: Examples) -> Examples:
    """Return the examples with each column brought to [0, 1]."""
    x = examples.x.toarray()
    return Examples(sparse.csr_array((x - x.min(axis=0)) / np.maximum(np.ptp(x, axis=0), 1e-12)), examples.y)


def _one_against_sample(examples: Examples, number: int) -> Examples:
    """Return a random class against as many examples of the others, in random order."""
    draw = random(number)
    chosen = draw.integers(10)
    positive = np.flatnonzero(examples.y == chosen)
    negative = draw.choice(np.flatnonzero(examples.y != chosen), positive.size, replace=False)
    order = draw.permutation(np.concatenate([positive, negative]))
    return Examples(examples.x[order], (examples.y[order] == chosen).astype(np.int64))
