"""CW and SCW: every step is the nearest normal distribution, by Kullback-Leibler divergence, that the example allows.

The reference is :class:`tests.problems.ConfidenceStep`: its optimality conditions along the margin, bracketed, and
scipy's SLSQP over all weights and all Cholesky factors. Run with ``-rP`` to see the worst gaps.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import palearn
from palearn.learners import Learner
from palearn.models.matrix import MatrixModel
from tests.cases import Case, both_learn, dense, examples, of, pair
from tests.naive import SLACKS
from tests.problems import ConfidenceStep, Matrix, Vector
from tests.twins import Twin

STEPS = 300
GAP = 1e-8
SCIPY_EVERY = 5
"""SLSQP judges one problem in this many: 60 a learner, in two or three dimensions."""
STREAM = 25
"""Examples a stream: on more of them, as noisy as they are, the hard forms' variances fall below 1e-100."""

LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("cw", {"form": "variance"}),
    ("cw", {"form": "stdev"}),
    ("scw1", {}),
    ("scw2", {}),
]
FORMS = pytest.mark.parametrize(("name", "options"), LEARNERS, ids=["cw-variance", "cw-stdev", "scw1", "scw2"])


def packed(sigma: Matrix) -> Vector:
    """Return the columns of U and D, sigma = U D U' with U unit upper triangular, as palearn keeps them."""
    turned = np.linalg.cholesky(sigma[::-1, ::-1])[::-1, ::-1]
    d = np.diag(turned)
    u = turned / d
    return np.concatenate([np.append(u[:j, j], d[j] ** 2) for j in range(len(d))])


def unpacked(columns: Vector, n: int) -> Matrix:
    """Return U D U'."""
    u, d = np.eye(n), np.zeros(n)
    for j in range(n):
        first = j * (j + 1) // 2
        u[:j, j], d[j] = columns[first : first + j], columns[first + j]
    return np.asarray(u * d @ u.T)


@FORMS
def test_every_step_is_the_nearest_distribution(name: str, options: dict[str, Any]) -> None:
    """Random weights and full covariances, conditioned up to 1e4; the whole of mean and covariance is judged."""
    rng = np.random.default_rng(11)
    worst = dict.fromkeys(("margin", "bracketed", "scipy", "scipy is behind"), 0.0)
    capped = steps = 0
    while steps < STEPS:
        n = int(rng.integers(2, 4))
        C, phi = 10.0 ** rng.uniform(-2.0, 1.0), 10.0 ** rng.uniform(-1.5, 0.5)
        params = {**options, "phi": phi, "covariance": "full"} | ({"C": C} if name != "cw" else {})
        model = MatrixModel(Learner(name, name, options=params), n, bias=False)
        turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
        sigma = turn * 10.0 ** rng.uniform(-2.0, 2.0, size=n) @ turn.T
        start, x, y = rng.normal(size=n), rng.normal(size=n), int(rng.integers(2))
        model.arrays["w"][:] = start
        model.arrays["factors"][:] = packed(sigma)
        slack = SLACKS[name[3:]](C)
        problem = ConfidenceStep(start, sigma, (2 * y - 1) * x, slack, phi, options.get("form", "stdev"))
        updated = model.learn(x[None, :], np.array([y])).updated[0]
        assert updated == (problem.hinge(start, sigma) > 1e-10)
        if not updated:
            continue
        w, after = model.weights()[0], unpacked(model.arrays["factors"], n)
        value = problem.objective(w, after)
        scale = max(1.0, value)
        worst["margin"] = max(worst["margin"], problem.violation(w, after))
        worst["bracketed"] = max(worst["bracketed"], abs(value - problem.objective(*problem.solve_exact())) / scale)
        capped += problem.hinge(w, after) > GAP
        steps += 1
        if steps % SCIPY_EVERY == 0:
            gap = (value - problem.objective(*problem.solve_scipy())) / scale
            worst["scipy"], worst["scipy is behind"] = max(worst["scipy"], gap), max(worst["scipy is behind"], -gap)
    print(name, *options.values(), f"{steps} steps, {capped} with a loss left,", worst)
    assert max(worst["margin"], worst["bracketed"], worst["scipy"]) <= GAP
    assert worst["scipy is behind"] <= 1e-7, "scipy did not come near the optimum: it judges nothing"
    assert {"cw": capped == 0, "scw1": 50 < capped < 250, "scw2": capped == steps}[name]


def assembled(twin: Twin, optimum: Matrix, variances: Any) -> Matrix:
    """Return the best covariance with palearn's variances in place of its own: what is not kept cannot be judged."""
    ours = twin.place(dense(twin, variances, twin.initial_variance))
    if getattr(twin, "keep", None) == "precision":
        precision = np.linalg.inv(optimum)
        precision[np.diag_indices_from(precision)] = 1.0 / ours
        return np.linalg.inv(precision)
    found = optimum.copy()
    found[np.diag_indices_from(found)] = ours
    return found


@pytest.mark.parametrize("case", of("cw", "scw1", "scw2"), ids=str)
def test_every_step_of_a_stream_is_the_nearest_distribution(case: Case) -> None:
    """All forms of the covariance; with many classes the margin is Delta f's, over the blocks of two of them."""
    worst = {"bracketed": 0.0, "margin": 0.0}
    steps, seeds = 0, itertools.count()
    while steps < STEPS:
        seed = next(seeds)
        model, twin = pair(case, case.settings()[seed % len(case.settings())], bias=False)
        for problem, after, variances in both_learn(model, twin, itertools.islice(examples(case, seed), STREAM)):
            best = problem.solve_exact()
            sigma = assembled(twin, best[1], variances)
            value, least = problem.objective(after, sigma), problem.objective(*best)
            worst["bracketed"] = max(worst["bracketed"], abs(value - least) / max(1.0, value))
            worst["margin"] = max(worst["margin"], problem.violation(after, sigma))
            steps += 1
    print(f"{case}: {steps} steps, worst gap", worst)
    assert max(worst.values()) <= GAP


@FORMS
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_a_confidence_missed_by_at_most_1e_10_is_no_loss(name: str, options: dict[str, Any], covariance: str) -> None:
    """Two features that are well known, and of one never seen as much as makes the loss."""
    phi, model = 0.5, palearn.make(name, phi=0.5, bias=False, covariance=covariance, **options)
    for _ in range(3):
        model.learn_one({"a": 1.0}, 1).learn_one({"b": 1.0}, 1)
    margin = model.score_one({"a": 1.0, "b": 1.0})
    known = sum(model.variances().values())

    def loss(amount: float) -> float:
        v = known + amount**2
        return float(phi * (v if options.get("form") == "variance" else np.sqrt(v)) - margin)

    for missed, learned in ((1e-8, 1), (3e-10, 1), (3e-11, 0), (0.0, 0)):
        amount = float(brentq(lambda amount, missed=missed: loss(amount) - missed, 0.0, 1e3, xtol=1e-15))
        copy: Any = palearn.from_bytes(model.to_bytes())
        copy.learn_one({"a": 1.0, "b": 1.0, "new": amount}, 1)
        assert (missed, copy.n_updates - model.n_updates) == (missed, learned)


@FORMS
def test_phi_is_the_normal_quantile_of_eta(name: str, options: dict[str, Any]) -> None:
    models: list[Any] = [
        palearn.make(name, bias=False, **options, **how)
        for how in ({}, {"eta": 0.9}, {"phi": float(norm.ppf(0.9))}, {"eta": 0.6}, {"phi": float(norm.ppf(0.6))})
    ]
    for model in models:
        for x, y in ({"a": 1.0, "b": 2.0}, 1), ({"b": -1.0}, 1), ({"a": 3.0}, -1):
            model.learn_one(x, y)
    default, *sure, unsure, quantile = (model.weights() for model in models)
    assert [default, unsure] == [pytest.approx(sure[1], rel=1e-12), pytest.approx(quantile, rel=1e-12)]
    assert default == sure[0]
    assert default != pytest.approx(unsure, rel=1e-3)
