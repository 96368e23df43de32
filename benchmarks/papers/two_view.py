"""Two-view PA (Nguyen, Chang and Hui 2012), table 2: F1 of 5 folds on Ads and WebKB, C = 0.1, gamma = 0.5."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import sparse

from benchmarks.papers import data
from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import Claim, Options, Row, Table, f1, fit, folds, predict, summary, without
from palearn.learners import Learner, Rows, empty_outcome, layout_of
from palearn.matrix import MatrixModel
from palearn.types import IntArray

REPETITIONS = 4
FOLDS = 5
C, GAMMA = 0.1, 0.5
PUBLISHED = {
    "Ads": ((83.69, 3.04), (76.01, 2.88), (81.08, 1.99), (85.74, 1.97)),
    "WebKB": ((92.83, 1.72), (92.71, 3.66), (94.97, 1.80), (97.50, 1.80)),
}
DIFFERS = (
    "Ads is the version without duplicates (1,966 of 3,279 rows, 929 and 606 columns). WebKB is our own vectorisation "
    "(3,000 and 484 terms; the paper has 3,000 and 1,840), as counts and once more with 1 for a term that is there. "
    "So compare the order, not the digits. One pass, no bias, the single views and their concatenation are PA-I with "
    "the same C; the 5 folds are drawn four times. Besides the paper's own settings: algorithm 1 as printed, and the "
    "exact step without a price of disagreement."
)
_TWO_VIEW: dict[str, Options] = {
    "two-view": {"C": C, "gamma": GAMMA},
    "two-view as printed": {"C": C, "gamma": GAMMA, "as_printed": True},
    "two-view, gamma 0": {"C": C, "gamma": 0.0},
}


def tables(folder: Path) -> Iterator[Table]:
    """Yield table 2."""
    ads, webkb = data.internet_ads(folder), data.webkb(folder)
    binary = (_binary(webkb[0]), _binary(webkb[1]))
    rows: list[Row] = []
    claims: list[Claim] = []
    for name, views in (("Ads", ads), ("WebKB counts", webkb), ("WebKB binary", binary)):
        _compare(name, *views, rows, claims)
    yield Table("TWO-VIEW, table 2", "F1 (%) of the positive class", DIFFERS, rows, claims)


def _compare(name: str, first: Examples, second: Examples, rows: list[Row], claims: list[Claim]) -> None:
    """Add the rows of a data set, and whether two views are best."""
    both = Examples(sparse.csr_array(sparse.hstack([first.x, second.x])), first.y)
    found: dict[str, list[float]] = {}
    for number in range(REPETITIONS):
        parts = folds(first.y.size, FOLDS, number)
        for fold, test in enumerate(parts):
            train = without(parts, fold)
            for title, single in (("view 1", first), ("view 2", second), ("concatenated", both)):
                model = fit(single.take(train), "pa1", {"C": C}).model
                found.setdefault(title, []).append(f1(predict(model, single.x[test]), first.y[test]))
            for title, options in _TWO_VIEW.items():
                predicted = _two_views((first, second), train, test, options)
                found.setdefault(title, []).append(f1(predicted, first.y[test]))
    published = PUBLISHED[name.split()[0]]
    known = dict(zip(("view 1", "view 2", "concatenated", "two-view"), published, strict=True))
    known["two-view as printed"] = known["two-view"]
    ours = {}
    for title, values in found.items():
        mean, spread = summary(values)
        ours[title] = mean
        theirs, their_spread = known.get(title, (None, None))
        rows.append(Row(f"{name} {title}", theirs, mean, their_spread, spread))
    for title in _TWO_VIEW:
        others = max(ours["view 1"], ours["view 2"], ours["concatenated"])
        figures = f"{ours[title]:.2f} to {others:.2f}"
        claims.append(
            Claim(f"{name}: {title} is better than each view and both together", ours[title] > others, figures)
        )


def _two_views(views: tuple[Examples, Examples], train: IntArray, test: IntArray, options: Options) -> IntArray:
    """Learn two views of the training rows; return the classes of the test rows."""
    learner = Learner("two_view_pa", "two_view_pa", options=options)
    widths = [view.x.shape[1] for view in views]
    layout = layout_of(np.array([sum(widths)]), np.ones(1, np.int64))
    arrays = {"w": np.zeros(sum(widths))}
    learned, scored = empty_outcome(train.size), empty_outcome(test.size)
    learner.run(_rows(views, train, views[0].y[train]), layout, arrays, learned)
    learner.run(_rows(views, test, np.full(test.size, -1)), layout, arrays, scored)
    return scored.predicted


def _rows(views: tuple[Examples, Examples], chosen: IntArray, y: IntArray) -> list[Rows]:
    """Return the chosen rows of each view; the second view's features come after the first's.

    A row with one empty view is learned from the other.
    """
    made = []
    for view in views:
        model = MatrixModel(Learner("pa", "pa"), view.x.shape[1], bias=False)
        made.append(model.rows(view.x[chosen], y))
    learn = made[0].learn | made[1].learn
    after = (made[1].slot + views[0].x.shape[1]).astype(np.int32)
    return [made[0]._replace(learn=learn), made[1]._replace(slot=after, learn=learn)]


def _binary(examples: Examples) -> Examples:
    return Examples(examples.x.sign(), examples.y)
