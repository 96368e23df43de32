"""Two-view PA (Nguyen, Chang and Hui 2012): table 2, figures 1 and 3, on Ads and WebKB with C = 0.1, gamma = 0.5."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import sparse

from benchmarks.papers import data
from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import Options, Part, f1, fit, folds, predict, random, summary, without
from benchmarks.papers.results import Claim, Figure, Panel, Row, Table, curve
from palearn.learners import Learner, Outcome, Rows, empty_outcome, layout_of
from palearn.models.matrix import MatrixModel
from palearn.types import FloatArray, IntArray

Views = tuple[Examples, Examples]

REPETITIONS = 4
FOLDS = 5
C, GAMMA = 0.1, 0.5
#: A point of the view difference is the mean of so many rounds; single ones would only be a cloud.
ROUNDS = 20
PUBLISHED = {
    "Ads": ((83.69, 3.04), (76.01, 2.88), (81.08, 1.99), (85.74, 1.97)),
    "WebKB": ((92.83, 1.72), (92.71, 3.66), (94.97, 1.80), (97.50, 1.80)),
}
_COMMON = (
    "One pass, no bias, the single views and their concatenation are PA-I with the same C; the 5 folds are drawn four "
    "times. Besides the paper's own settings: algorithm 1 as printed, and the exact step without a price of "
    "disagreement."
)
DIFFERS = {
    "Ads": "The version without duplicates (1,966 of 3,279 rows, 929 and 606 columns), which ships with palearn: "
    f"compare the order, not the digits. {_COMMON}",
    "WebKB": "Our own vectorisation (3,000 and 484 terms; the paper has 3,000 and 1,840), as counts and once more with "
    f"1 for a term that is there: compare the order, not the digits. {_COMMON}",
}
_TWO_VIEW: dict[str, Options] = {
    "two-view": {"C": C, "gamma": GAMMA},
    "two-view as printed": {"C": C, "gamma": GAMMA, "as_printed": True},
    "two-view, gamma 0": {"C": C, "gamma": 0.0},
}


def _ads(_: Path) -> Iterator[Table | Figure]:
    return _both("Ads", {"Ads": data.internet_ads()})


def _webkb(folder: Path) -> Iterator[Table | Figure]:
    counts = data.webkb(folder)
    return _both("WebKB", {"WebKB counts": counts, "WebKB binary": (_binary(counts[0]), _binary(counts[1]))})


PARTS = [
    Part("table 2 and figure 1, Ads", (), _ads),
    Part("table 2 and figure 3, WebKB", ("webkb",), _webkb),
]
_FIGURES = {"Ads": 1, "WebKB": 3}


def _both(name: str, forms: dict[str, Views]) -> Iterator[Table | Figure]:
    """Yield table 2 and the view difference of a data set; the picture is of its first form."""
    rows: list[Row] = []
    claims: list[Claim] = []
    for form, views in forms.items():
        _compare(form, views, rows, claims)
    yield Table(f"TWO-VIEW, table 2, {name}", "F1 (%) of the positive class", DIFFERS[name], rows, claims)
    yield _difference(name, *next(iter(forms.items())))


def _compare(name: str, views: Views, rows: list[Row], claims: list[Claim]) -> None:
    """Add the rows of a data set, and whether two views are best."""
    first, second = views
    both = _concatenated(views)
    found: dict[str, list[float]] = {}
    for number in range(REPETITIONS):
        parts = folds(first.y.size, FOLDS, number)
        for fold, test in enumerate(parts):
            train = without(parts, fold)
            for title, single in (("view 1", first), ("view 2", second), ("concatenated", both)):
                model = fit(single.take(train), "pa1", {"C": C}).model
                found.setdefault(title, []).append(f1(predict(model, single.x[test]), first.y[test]))
            for title, options in _TWO_VIEW.items():
                predicted = _two_views(views, train, test, options)[1].predicted
                found.setdefault(title, []).append(f1(predicted, first.y[test]))
    published = PUBLISHED[name.split()[0]]
    known = dict(zip(("view 1", "view 2", "concatenated", "two-view"), published, strict=True))
    known["two-view as printed"] = known["two-view"]
    ours = {}
    for title, values in found.items():
        mean, spread = summary(values)
        ours[title] = mean
        theirs, their_spread = known.get(title, (None, None))
        rows.append(Row(name, title, theirs, mean, their_spread, spread))
    for title in _TWO_VIEW:
        others = max(ours["view 1"], ours["view 2"], ours["concatenated"])
        figures = f"{ours[title]:.2f} to {others:.2f}"
        claims.append(
            Claim(f"{name}: {title} is better than each view and both together", ours[title] > others, figures)
        )


def _difference(name: str, form: str, views: Views) -> Figure:
    """Return |w1 x1 - w2 x2| of each round, before it is learned, and its mean so far."""
    order = random(0).permutation(views[0].y.size)
    found = {"PA on each view": np.abs(_scores(views[0].take(order)) - _scores(views[1].take(order)))}
    for title, options in _TWO_VIEW.items():
        found[title] = _two_views(views, order, order[:0], options)[0].difference
    rounds = np.flatnonzero(found["two-view"] >= 0)  # it is -1 where a view has no features
    found = {who: each[rounds] for who, each in found.items()}
    means = {who: np.cumsum(each) / np.arange(1, rounds.size + 1) for who, each in found.items()}
    ends = np.arange(ROUNDS, rounds.size + 1, ROUNDS)
    panels = [
        Panel(
            f"{form}: mean of {ROUNDS} rounds", "rounds", "view difference",
            [
                curve(who, each[: ends[-1]].reshape(-1, ROUNDS).mean(axis=1), rounds[ends - 1] + 1)
                for who, each in found.items()
            ],
        ),
        Panel(
            f"{form}: mean of all rounds so far", "rounds", "cumulative view difference",
            [curve(who, each, rounds + 1) for who, each in means.items()],
        ),
    ]  # fmt: skip
    claims = [
        Claim(f"{form}: {title}'s cumulative view difference is smaller than PA's at the end",
              bool(means[title][-1] < means["PA on each view"][-1]),
              f"{means[title][-1]:.3f} to {means['PA on each view'][-1]:.3f}")
        for title in _TWO_VIEW
    ]  # fmt: skip
    shows = (
        f"All examples in one random order; counted are the {rounds.size:,} of {order.size:,} that have features in "
        "both views. PA on each view is two PA-I models with the same C."
    )
    return Figure(f"two-view-{name.lower()}", f"TWO-VIEW, figure {_FIGURES[name]}, {name}", shows, panels, claims)


def _scores(examples: Examples) -> FloatArray:
    """Return PA-I's score of each example before it is learned."""
    return fit(examples, "pa1", {"C": C}).outcome.score


def _concatenated(views: Views) -> Examples:
    return Examples(sparse.csr_array(sparse.hstack([view.x for view in views])), views[0].y)


def _two_views(views: Views, train: IntArray, test: IntArray, options: Options) -> tuple[Outcome, Outcome]:
    """Learn two views of the training rows; return what happened to them, and to the test rows, which are scored."""
    learner = Learner("two_view_pa", "two_view_pa", options=options)
    widths = [view.x.shape[1] for view in views]
    layout = layout_of(np.array([sum(widths)]), np.ones(1, np.int64))
    arrays = {"w": np.zeros(sum(widths))}
    learned, scored = empty_outcome(train.size), empty_outcome(test.size)
    learner.run(_rows(views, train, views[0].y[train]), layout, arrays, learned)
    learner.run(_rows(views, test, np.full(test.size, -1)), layout, arrays, scored)
    return learned, scored


def _rows(views: Views, chosen: IntArray, y: IntArray) -> list[Rows]:
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
