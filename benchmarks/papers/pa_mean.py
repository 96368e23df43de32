"""PA with class means (Tsai, Tseng, Lee and Pao), tables III to V: updates, test error, its spread over orders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy import sparse

from benchmarks.papers import data
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
    online_error,
    powers,
    shuffled,
    summary,
    written,
)

ORDERS = 10
LEARNERS = {
    "PA": "pa", "PA-1": "pa1", "PA-2": "pa2", "PAm": "pa_mean", "PAm-1": "pa_mean1", "PAm-2": "pa_mean2"
}  # fmt: skip
PAIRS = (("PA", "PAm"), ("PA-1", "PAm-1"), ("PA-2", "PAm-2"))
#: Tables IV, V and III: test error, its standard deviation, updates, in the order of LEARNERS.
PUBLISHED = {
    "svmguide1": (
        (0.0788, 0.0830, 0.0731, 0.0778, 0.0716, 0.0712),
        (0.0447, 0.0644, 0.0599, 0.0437, 0.0362, 0.0238),
        (1053.7, 1069.0, 1231.9, 737.9, 728.3, 774.4),
    ),
    "adult": (
        (0.2013, 0.1654, 0.1715, 0.1788, 0.1606, 0.1629),
        (0.0329, 0.0070, 0.0102, 0.0141, 0.0062, 0.0079),
        (13020.6, 12378.2, 17343.3, 6436.3, 5485.0, 5565.3),
    ),
}
DIFFERS = (
    "The data are the paper's (adult is a9a). C, gamma, scaling and bias are not printed. Ours: a bias; C of 2^-8 ... "
    "2^4 and gamma of 10^-3 ... 10^2 by the mistakes on one more order of the training part; svmguide1 with each "
    "column brought to [0, 1], and once more as it is: PAm depends on the scale, as the "
    "margins of the means do. The inner products are the derivation's, not the misprinted pseudo code's."
)


def tables(folder: Path) -> Iterator[Table]:
    """Yield the figures of svmguide1 and adult."""
    train, test = data.svmguide1(folder)
    low, high = train.x.toarray().min(axis=0), train.x.toarray().max(axis=0)
    scaled = [Examples(sparse.csr_array((part.x.toarray() - low) / (high - low)), part.y) for part in (train, test)]
    yield _compare("svmguide1", "svmguide1 to [0, 1]", scaled[0], scaled[1])
    yield _compare("svmguide1", "svmguide1 as it is", train, test)
    yield _compare("adult", "adult", *data.a9a(folder))


def _compare(published: str, name: str, train: Examples, test: Examples) -> Table:
    errors, spreads, updates = PUBLISHED[published]
    orders = [shuffled(train, number) for number in range(ORDERS)]
    rows, ours = [], {}
    for i, (title, learner) in enumerate(LEARNERS.items()):
        options = _choose(learner, shuffled(train, ORDERS))
        fitted = [fit(order, learner, options, bias=True) for order in orders]
        mean, spread = summary([error(made.model, test) for made in fitted])
        count, count_spread = summary([int(made.outcome.updated.sum()) for made in fitted])
        rows.append(Row(f"{title} test error", errors[i], mean, spreads[i], spread, written(options)))
        rows.append(Row(f"{title} updates", updates[i], count, None, count_spread, written(options)))
        ours[title] = (mean, spread, count)
    claims = []
    for plain, means in PAIRS:
        for j, what in enumerate(("a lower test error", "a smaller spread over orders", "fewer updates")):
            figures = f"{ours[means][j]:.4g} to {ours[plain][j]:.4g}"
            claims.append(Claim(f"{means} has {what} than {plain}", ours[means][j] < ours[plain][j], figures))
    return Table(f"PA-MEAN, tables III to V, {name}", "means over 10 orders, one pass", DIFFERS, rows, claims)


def _choose(learner: str, order: Examples) -> Options:
    free: dict[str, Any] = {}
    if learner[-1] in "12":
        free["C"] = powers(2.0, -8, 4, 2)
    if learner.startswith("pa_mean"):
        free["gamma"] = powers(10.0, -3, 2)
    return best(grid(**free), lambda options: online_error(order, learner, options, bias=True))
