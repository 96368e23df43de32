"""Every step of every learner is the optimum of the problem it states, and the covariance follows its rule.

The reference is :mod:`tests.naive`: an exhaustive search over the faces of the problem's dual, and scipy's general
solver on the primal. Run with ``-rP`` to see the worst gaps. CW and SCW, whose problem is over distributions, are in
``test_kl.py``.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import palearn
from tests import naive
from tests.cases import (
    CASES,
    Case,
    assert_same,
    assert_same_variances,
    both_learn,
    but,
    dense,
    examples,
    load,
    of,
    pair,
)
from tests.twins import covariance_after

UPDATES = 300
"""Steps compared a case, at least."""
SCIPY_EVERY = 20
"""SLSQP takes a thousand times as long as a step, so it judges one update in this many."""
GAP = 1e-8


@pytest.mark.parametrize("case", but("perceptron", "sop", "cw", "scw1", "scw2"), ids=str)
def test_every_step_is_the_optimum(case: Case) -> None:
    worst = {"faces": 0.0, "scipy": 0.0, "scipy is behind": 0.0, "margin": 0.0}
    updates = 0
    for seed, strength in enumerate(case.settings()):
        model, twin = pair(case, strength, bias=False)
        goal = updates + -(-UPDATES // len(case.settings()))
        for problem, after, _ in both_learn(model, twin, examples(case, seed)):
            value = problem.objective(after)
            scale = max(1.0, value)
            worst["margin"] = max(worst["margin"], problem.violation(after))
            worst["faces"] = max(worst["faces"], abs(value - problem.objective(twin.place(twin.w))) / scale)
            updates += 1
            if updates % SCIPY_EVERY == 0:
                gap = (value - problem.objective(problem.solve_scipy())) / scale
                worst["scipy"] = max(worst["scipy"], gap)
                worst["scipy is behind"] = max(worst["scipy is behind"], -gap)
            if updates == goal:
                break
    print(f"{case}: {updates} updates, worst gap", ", ".join(f"{name} {gap:.1e}" for name, gap in worst.items()))
    assert updates >= UPDATES
    assert max(worst["faces"], worst["scipy"], worst["margin"]) <= GAP
    assert worst["scipy is behind"] <= 1e-7, "scipy did not come near the optimum: it judges nothing"


@pytest.mark.parametrize("case", of("two_view_pa"), ids=str)
def test_views_of_any_size_reach_the_optimum(case: Case) -> None:
    """Counts beside shares: the squared norms of an example's views differ by up to 1e6."""
    rng, worst, updates = np.random.default_rng(5), 0.0, 0
    model, twin = pair(case, {"C": 10.0, "gamma": 1.0}, bias=False)
    weights = model.weights()
    for full, y in examples(case, 5):
        sizes = 10.0 ** rng.uniform(-1.5, 1.5, size=case.views)
        x = {v: {f: u * size for f, u in part.items()} for (v, part), size in zip(full.items(), sizes, strict=True)}
        load(twin, weights, {})
        problem = twin.learn(x, y)
        model.learn_one(x, y)
        weights = model.weights()
        if problem is not None:
            value = problem.objective(twin.place(dense(twin, weights, 0.0)))
            worst = max(worst, (value - problem.objective(twin.place(twin.w))) / max(1.0, value))
            updates += 1
        if updates == UPDATES // 3:
            break
    print(f"{case}: {updates} updates, worst gap {worst:.1e}")
    assert worst <= GAP


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_stream_is_learned_as_its_twin_learns_it(case: Case, bias: bool) -> None:
    """Twin and learner run apart: scores, predictions, weights and variances stay together to 1e-9."""
    model, twin = pair(case, case.settings()[-int(bias)], bias=bias)
    one = {"(bias)": 1.0} if bias else {}
    for x, y in itertools.islice(examples(case, 99), 30):
        shown = {v: {**f, **one} for v, f in x.items()} if case.views else {**x, **one}
        expected = twin.score(shown)
        assert model.score_one(x) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        if case.task == "multiclass":
            assert model.predict_one(x) == twin.predict(shown)
        else:
            assert (model.predict_one(x) > 0) == (expected > 0.0)
        if any(x.values()):  # an empty example is never learned, whatever the bias
            twin.learn(shown, y)
        model.learn_one(x, y)
    assert_same(twin, model.weights(), twin.w, 0.0)
    assert_same_variances(twin, model.variances())


def test_the_covariance_rule_adds_to_the_precision() -> None:
    """The twins' rule is the statement itself: the inverse grows by f f'/r, and what is not kept is dropped."""
    rng = np.random.default_rng(7)
    for r in (0.05, 1.0, 20.0):
        root = rng.normal(size=(4, 4))
        sigma, f = root @ root.T + 0.1 * np.eye(4), rng.normal(size=4)
        after = np.linalg.inv(np.linalg.inv(sigma) + np.outer(f, f) / r)
        np.testing.assert_allclose(covariance_after(sigma, f, r, 1, "full"), after, rtol=1e-9, atol=1e-12)
        diagonal = np.diag(np.diag(sigma))
        after = np.linalg.inv(np.linalg.inv(diagonal) + np.outer(f, f) / r)
        kept = covariance_after(diagonal, f, r, 1, "covariance")
        np.testing.assert_allclose(np.diag(kept), np.diag(after), rtol=1e-9)
        kept = covariance_after(diagonal, f, r, 1, "precision")
        np.testing.assert_allclose(1.0 / np.diag(kept), np.diag(np.linalg.inv(after)), rtol=1e-9)


def covariance(model: Any) -> naive.Matrix:
    """Read a full covariance through what learning one unit vector moves: a multiple of its column."""
    names, variances = list(model.variances()), model.variances()
    columns = []
    for name in names:
        probe: Any = palearn.from_bytes(model.to_bytes())
        before = probe.weights()
        probe.learn_one({name: 1.0}, -1 if probe.score_one({name: 1.0}) > 0.0 else 1)
        step = np.array([probe.weights()[n] - before[n] for n in names])
        columns.append(step * variances[name] / step[names.index(name)])
    return np.array(columns)


@pytest.mark.parametrize("name", ["pam", "pam1", "pam2", "arow", "cw", "scw1", "scw2", "nherd", "sop"])
@pytest.mark.parametrize("seed", range(4))
def test_a_full_covariance_stays_symmetric_and_positive(name: str, seed: int) -> None:
    model: Any = palearn.make(name, covariance="full", bias=False)
    for x, y in itertools.islice(examples(Case(name, "binary", "none"), seed), 80):
        model.learn_one(x, y)
    sigma = covariance(model)
    assert np.abs(sigma - np.diag(np.diag(sigma))).max() > 1e-3
    np.testing.assert_allclose(sigma, sigma.T, rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(sigma).min() > 0.0


@pytest.mark.parametrize("projection", ["covariance", "precision"])
@pytest.mark.parametrize("x", [1e-3, 1.0, 1e3, 1e6, 1e9])
def test_a_large_feature_leaves_the_variance_that_the_rule_says(projection: str, x: float) -> None:
    """1 / (1 + x^2): a difference of nearly equal numbers, if one takes it as it is written."""
    model = palearn.make("arow", projection=projection, bias=False).learn_one({"a": x}, 1)
    assert model.variances()["a"] == pytest.approx(1.0 / (1.0 + x * x), rel=1e-6, abs=0.0)


def test_a_view_of_unseen_features_is_a_view_of_score_zero() -> None:
    """The score is the mean over the views that have features, and it is the one that learning starts from."""
    model = palearn.make("two_view_pa", bias=False, C=100.0, gamma=0.0)
    model.learn_one({"page": {}, "link": {"a": 1.0}}, 1)
    x = {"page": {"new": 1.0}, "link": {"a": 1.0}}
    assert model.score_one({"page": {}, "link": {"a": 1.0}}) == 1.0
    assert model.score_one(x) == 0.5
    model.learn_one(x, 1)
    assert model.score_one(x) == pytest.approx(1.0)
    assert model.weights() == {"page": {"new": pytest.approx(0.5)}, "link": {"a": pytest.approx(1.5)}}


HINGE = [c for c in but("perceptron", "sop", "cw", "scw1", "scw2") if c.options.get("constraints", 1) == 1]


@pytest.mark.parametrize("case", HINGE, ids=str)
def test_a_loss_of_at_most_1e_10_is_no_loss(case: Case) -> None:
    """Examples scaled so that their margin is 1 - loss."""
    model, _ = pair(case, case.settings()[-1], bias=False)
    x = case.shape({"a": 1.0}, {"b": 1.0}) if case.views else {"a": 1.0, "b": 0.5}
    first, second = ("c", "d") if case.task == "multiclass" else (-1, 1)
    for y in (first, *[second] * 10):
        model.learn_one(x, y)
    score = model.score_one(x)
    margin = score[second] - score[first] if case.task == "multiclass" else score
    for loss, learned in ((1e-8, 1), (3e-10, 1), (3e-11, 0), (0.0, 0), (-1.0, 0)):
        scale = (1.0 - loss) / margin
        scaled = {f: {g: u * scale for g, u in v.items()} if isinstance(v, dict) else v * scale for f, v in x.items()}
        copy: Any = palearn.from_bytes(model.to_bytes())
        copy.learn_one(scaled, second)
        assert (loss, copy.n_updates - model.n_updates) == (loss, learned)


@pytest.mark.parametrize("case", [c for c in CASES if c.task == "binary"], ids=str)
@pytest.mark.parametrize(("tie", "sign"), [("negative", -1), ("positive", 1)])
def test_a_score_of_zero_predicts_what_tie_says(case: Case, tie: str, sign: int) -> None:
    model = palearn.make(case.name, tie=tie, bias=False, **case.options)
    zero, one = case.shape({"zero": 1.0}), case.shape({"one": 1.0})
    other = case.shape({}, {"other": 1.0}) if case.views else {"other": 1.0}
    for _ in range(2):
        assert model.score_one(zero) == 0.0
        assert model.predict_one(zero) == sign
        model.learn_one(one, -sign).learn_one(other, sign)
    assert palearn.from_bytes(model.to_bytes()).predict_one(zero) == sign


def test_equal_scores_predict_the_class_that_came_first() -> None:
    model: Any = palearn.make("pa", task="multiclass", bias=False)
    assert model.predict_one({"new": 1.0}) is None
    for x, y in (({"a": 1.0}, "z"), ({"b": 1.0}, "a"), ({"b": 1.0}, "m")):
        model.learn_one(x, y)
    assert list(model.score_one({"new": 1.0}).items()) == [("z", 0.0), ("a", 0.0), ("m", 0.0)]
    assert model.predict_one({"new": 1.0}) == "z"


# With a joint covariance two equal weights are equal up to the tolerance of Hildreth's method, and no tie.
FEW_CONSTRAINTS = [
    c
    for c in but("spa", "spa1", "spa2")
    if c.task == "multiclass" and c.options.get("constraints", 1) in ((1,) if "joint" in c.options.values() else (1, 2))
]


@pytest.mark.parametrize("case", FEW_CONSTRAINTS, ids=str)
def test_of_wrong_classes_that_tie_the_earlier_take_part(case: Case) -> None:
    model, _ = pair(case, case.settings()[0], bias=False)
    constraints = case.options.get("constraints", 1)
    examples = [(case.shape({"old": 1.0}), label) for label in ("z", "a", "m", "k")]
    expected = ["z", "a"][:constraints]
    if constraints == 2:  # and where a better one, met later, pushes one of them out
        examples.append((case.shape({"k": 1.0}), "k"))
        expected = ["z", "k"]
    for x, y in examples:
        model.learn_one(x, y)
    model.learn_one(case.shape({"new": 1.0, "k": 0.01}), "m")
    blocks = {label: weights["page"] if case.views else weights for label, weights in model.weights().items()}
    assert [label for label, weights in blocks.items() if weights.get("new", 0.0) < 0.0] == expected
