"""Published rates: LIBOL's protocol on the a9a training file (Hoi, Wang, Zhao: LIBOL, JMLR 15, 2014).

Random permutations, one pass, no bias, a score of 0 predicts the positive class, mistake rate. The figures are of
a re-run of LIBOL's equations over 20 permutations. Ours is the mean over 5, and may differ by two of their standard
deviations; with a bias feature by .002.

LIBOL validates C over 2^-4 ... 2^4 and eta over .55 ... .95. Three rows leave something open:

- NHERD is printed without C. LIBOL's validation takes 2^-4 on four of five orders, and 2^-2 once; its default C = 1
  would miss (.1579).
- SCW-II is printed without C and eta. With those printed for SCW-I we get .1565, with one outcome of LIBOL's
  validation (eta = .90, C = 2^-4) .1545; both are within the tolerance, and so are the others tried.
- Neither has a standard deviation. Their tolerance is that of SCW-I, the nearest row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from palearn import datasets
from palearn.learners import Learner
from palearn.models.matrix import MatrixModel

PERMUTATIONS = 5
FEATURES = 123
FULL = {"covariance": "full"}
LIKE_SCW1 = 0.0006
PUBLISHED: list[tuple[str, dict[str, Any], float, float]] = [
    # learner, parameters, mistake rate, its standard deviation
    ("perceptron", {}, 0.2098, 0.0017),
    ("pa", {}, 0.2103, 0.0018),
    ("pa1", {"C": 2.0**-4}, 0.1790, 0.0016),
    ("pa2", {"C": 2.0**-4}, 0.1932, 0.0012),
    ("sop", FULL, 0.2055, 0.0012),
    ("cw", {"form": "stdev", "eta": 0.55, **FULL}, 0.2112, 0.0016),
    ("nherd", {"C": 2.0**-4, **FULL}, 0.1555, LIKE_SCW1),
    ("arow", {"r": 16.0, **FULL}, 0.1539, 0.0006),
    ("arow", {"r": 16.0, "projection": "covariance"}, 0.1542, 0.0007),
    ("arow", {"r": 16.0, "projection": "precision"}, 0.1542, 0.0007),
    ("scw1", {"C": 1 / 8, "eta": 0.75, **FULL}, 0.1552, 0.0006),
    ("scw2", {"C": 1 / 8, "eta": 0.75, **FULL}, 0.1554, LIKE_SCW1),
    ("scw2", {"C": 2.0**-4, "eta": 0.90, **FULL}, 0.1554, LIKE_SCW1),
]


@pytest.fixture(scope="module")
def permuted() -> list[tuple[Any, Any]]:
    column = {name: j for j, name in enumerate(datasets.names("a9a"))}
    records = list(datasets.a9a())
    sizes = [len(record.features or {}) for record in records]
    columns = [column[name] for record in records for name in record.features or {}]
    x = sparse.csr_array(
        (np.ones(len(columns)), columns, np.concatenate([[0], np.cumsum(sizes)])), shape=(len(records), FEATURES)
    )
    y = np.array([record.label == 1 for record in records], np.int64)
    random = np.random.default_rng(0)
    orders = [random.permutation(y.size) for _ in range(PERMUTATIONS)]
    return [(x[order], y[order]) for order in orders]


@pytest.mark.parametrize(("learner", "params", "published", "deviation"), PUBLISHED)
def test_a9a_gives_the_published_rates(
    permuted: list[tuple[Any, Any]], learner: str, params: dict[str, Any], published: float, deviation: float
) -> None:
    chosen = Learner(learner, learner, tie="positive", options=params)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for bias, found in rates.items():
        for x, y in permuted:
            outcome = MatrixModel(chosen, FEATURES, bias=bias).learn(x, y)
            found.append(float((outcome.predicted != y).mean()))
    assert abs(np.mean(rates[False]) - published) <= 2 * deviation
    assert abs(np.mean(rates[True]) - published) <= 0.002
