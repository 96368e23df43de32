"""PA with class means (Tsai, Tseng, Lee and Pao), tables III to VI and figures 1 to 3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers import data
from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import (
    Options,
    Part,
    best,
    error,
    fit,
    grid,
    learning,
    new,
    online_error,
    powers,
    shuffled,
    summary,
    written,
)
from benchmarks.papers.results import Claim, Figure, Panel, Row, Table, curve
from palearn.types import FloatArray

ORDERS = 10
#: Passes of figures 1 to 3.
PASSES = 20
LEARNERS = {
    "PA": "pa", "PA-1": "pa1", "PA-2": "pa2", "PAm": "pa_mean", "PAm-1": "pa_mean1", "PAm-2": "pa_mean2"
}  # fmt: skip
PAIRS = (("PA", "PAm"), ("PA-1", "PAm-1"), ("PA-2", "PAm-2"))
#: Tables IV, V, III and VI: test error, its standard deviation, updates, lowest test error, in the order of LEARNERS.
PUBLISHED = {
    "svmguide1": (
        (0.0788, 0.0830, 0.0731, 0.0778, 0.0716, 0.0712),
        (0.0447, 0.0644, 0.0599, 0.0437, 0.0362, 0.0238),
        (1053.7, 1069.0, 1231.9, 737.9, 728.3, 774.4),
        (0.0458, 0.0443, 0.0443, 0.0438, 0.0430, 0.0428),
    ),
    "adult": (
        (0.2013, 0.1654, 0.1715, 0.1788, 0.1606, 0.1629),
        (0.0329, 0.0070, 0.0102, 0.0141, 0.0062, 0.0079),
        (13020.6, 12378.2, 17343.3, 6436.3, 5485.0, 5565.3),
        (0.1666, 0.1603, 0.1582, 0.1589, 0.1526, 0.1540),
    ),
}
DIFFERS = (
    "The data are the paper's (adult is a9a). C, gamma, scaling and bias are not printed. Ours: a bias; C of 2^-8 ... "
    "2^4 and gamma of 10^-3 ... 10^2 by the mistakes on one more order of the training part; svmguide1 with each "
    "column brought to [0, 1], and once more as it is: PAm depends on the scale, as the "
    "margins of the means do. The inner products are the derivation's, not the misprinted pseudo code's."
)


def _svmguide1(folder: Path) -> Iterator[Table | Figure]:
    train, test = data.svmguide1(folder)
    scaled = data.to_unit(train, test)
    for name, parts in (("svmguide1 to [0, 1]", scaled), ("svmguide1 as it is", (train, test))):
        yield _compare("svmguide1", name, *parts)
    yield _passes("svmguide1 to [0, 1]", "svmguide1", scaled[0])
    yield _passes("svmguide1 as it is", "svmguide1-as-it-is", train)


def _adult(folder: Path) -> Iterator[Table | Figure]:
    yield _compare("adult", "adult", *data.a9a_parts(folder))


def _adult_passes(_: Path) -> Iterator[Table | Figure]:
    yield _passes("adult", "adult", data.a9a())


PARTS = [
    Part("figures 1 and 3, adult", (), _adult_passes),
    Part("tables III to VI, adult", ("a9a-test",), _adult),
    Part("tables III to VI, figures 1 and 3, svmguide1", ("svmguide1",), _svmguide1),
]


def _compare(published: str, name: str, train: Examples, test: Examples) -> Table:
    errors, spreads, updates, lowest = PUBLISHED[published]
    orders = [shuffled(train, number) for number in range(ORDERS)]
    rows, ours = [], {}
    for i, (title, learner) in enumerate(LEARNERS.items()):
        options = _choose(learner, train)
        fitted = [fit(order, learner, options, bias=True) for order in orders]
        wrong = [error(made.model, test) for made in fitted]
        mean, spread = summary(wrong)
        count, count_spread = summary([int(made.outcome.updated.sum()) for made in fitted])
        rows += [
            Row("test error", title, errors[i], mean, spreads[i], spread, written(options)),
            Row("updates", title, updates[i], count, None, count_spread, written(options)),
            Row("lowest test error", title, lowest[i], min(wrong), None, None, written(options)),
        ]
        ours[title] = (mean, spread, count)
    claims = []
    for plain, means in PAIRS:
        for j, what in enumerate(("a lower test error", "a smaller spread over orders", "fewer updates")):
            figures = f"{ours[means][j]:.5g} to {ours[plain][j]:.5g}"
            claims.append(Claim(f"{means} has {what} than {plain}", ours[means][j] < ours[plain][j], figures))
    return Table(f"PA-MEAN, tables III to VI, {name}", "over 10 orders, one pass", DIFFERS, rows, claims)


def _choose(learner: str, train: Examples) -> Options:
    order = shuffled(train, ORDERS)
    free: dict[str, Any] = {}
    if learner[-1] in "12":
        free["C"] = powers(2.0, -8, 4, 2)
    if learner.startswith("pa_mean"):
        free["gamma"] = powers(10.0, -3, 2)
    return best(grid(**free), lambda options: online_error(order, learner, options, bias=True))


def _passes(name: str, short: str, train: Examples) -> Figure:
    """Return the likeness of the weights after two consecutive passes, and the updates in each pass."""
    found = {who: _pass_by_pass(learner, train) for who, learner in LEARNERS.items()}
    passes = np.arange(2, PASSES + 1)
    panels = [
        Panel(name, "passes", "cosine of the weights after two passes",
              [curve(who, alike, passes) for who, (alike, _) in found.items()]),
        Panel(name, "passes", "updates", [curve(who, updates) for who, (_, updates) in found.items()]),
    ]  # fmt: skip
    alike = found["PAm-1"][0][3:]
    text = f"{name}: PAm-1's weights are almost the same (cosine 0.99) from the 5th pass on"
    claims = [Claim(text, bool(alike.min() >= 0.99), f"at least {alike.min():.5f}")]
    for plain, means in PAIRS:
        less, more = found[means][1][-1], found[plain][1][-1]
        text = f"{name}: {means} updates less often in the last pass than {plain}"
        claims.append(Claim(text, bool(less < more), f"{less:.0f} to {more:.0f}"))
    shows = (
        f"One order, {PASSES} passes, the tables' options; the means stay as they are after the first pass. The paper "
        "draws its figure 2, the test error pass by pass, of two large data sets, which are not at hand."
    )
    return Figure(f"pa-mean-{short}", f"PA-MEAN, figures 1 and 3, {name}", shows, panels, claims)


def _pass_by_pass(learner: str, train: Examples) -> tuple[FloatArray, FloatArray]:
    """Return the cosine between the weights after each pass and the one before it, and each pass's updates."""
    options = _choose(learner, train)
    if learner.startswith("pa_mean"):
        options = options | {"freeze_mean_after": train.y.size}
    model = new(train, learner, options, bias=True)
    weights, updates = [], []
    for outcome in learning(model, shuffled(train, 0), PASSES):
        weights.append(model.weights()[0].copy())
        updates.append(float(outcome.updated.sum()))
    unit = np.array([w / np.linalg.norm(w) for w in weights])
    return (unit[1:] * unit[:-1]).sum(axis=1), np.array(updates)
