"""Numbers at the ends of float64, long ill-conditioned runs, and matrices: no NaN, no negative variance, same bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

import palearn
from palearn.learners import Learner, factored_covariance
from palearn.models.matrix import MatrixModel
from tests.variants import CLASSES, FEATURES, PRINTED_SPA, SIXTEENTHS, VARIANTS, Variant, every_variant, flat, learned

Array = NDArray[np.float64]

EXTREMES = st.builds(lambda m, e: m * 10.0**e, st.floats(-9.9, 9.9), st.integers(-307, 307))
#: Denormals; numbers whose squares vanish or overflow, or sum up to nearly that; and usual ones.
ENDS = [5e-324, 2.2e-308, 1e-300, 1e-154, 1e-8, 0.3, 1.0, 1e8, 1e100, 1e150, 9e153, 1.3e154, 1e300]
NO_SHRINKAGE = Variant("adagrad_rda", "binary", {"delta": 0.0, "l1": 0.0})


def assert_sound(variant: Variant, model: Any, x: Any, *, finite: bool = True) -> None:
    weights, variances = [*flat(model.weights()).values()], np.array([*flat(model.variances()).values()])
    assert np.isfinite(weights).all() if finite else not np.isnan(weights).any()
    assert np.isfinite(variances).all()
    assert (variances >= 0.0).all()
    scores = model.score_one(x)
    assert not np.isnan([*scores.values()] if isinstance(scores, dict) else scores).any()
    assert model.predict_one(x) in CLASSES[variant.task]


@every_variant
@given(data=st.data())
@settings(deadline=None, max_examples=8)
def test_extreme_values_never_give_nan(variant: Variant, data: Any) -> None:
    values = st.one_of(EXTREMES, SIXTEENTHS, st.sampled_from([s * v for v in ENDS for s in (1.0, -1.0)]))
    model = variant.make(bias=data.draw(st.booleans()))
    for x, y in data.draw(variant.streams(values)):
        model.learn_one(x, y)
        assert_sound(variant, model, x)


def mixed(variant: Variant, seed: int, n: int) -> list[tuple[Any, Any]]:
    """Examples of very small, usual and very large features together."""
    rng, classes = np.random.default_rng(seed), CLASSES[variant.task]
    rows = rng.choice([s * v for v in ENDS for s in (1.0, -1.0)], size=(n, len(FEATURES)))
    kept = rng.random(rows.shape) < 0.6
    return [
        (
            variant.shape({f: float(v) for f, v, k in zip(FEATURES, row, keep, strict=True) if k}),
            classes[rng.integers(len(classes))],
        )
        for row, keep in zip(rows, kept, strict=True)
    ]


@pytest.mark.parametrize("variant", [*VARIANTS, NO_SHRINKAGE], ids=str)
def test_mixed_scales_in_one_example_never_give_nan(variant: Variant) -> None:
    for seed in range(4):
        model = variant.make(bias=seed % 2 == 0)
        for x, y in mixed(variant, seed, 25):
            model.learn_one(x, y)
            assert_sound(variant, model, x)


@every_variant
def test_extreme_weights_of_examples_never_give_nan(variant: Variant) -> None:
    """An infinite weight of a feature is possible: that of an example multiplies a step without a limit."""
    model = variant.make()
    for (x, y), weight in zip(mixed(variant, 5, 40), itertools.cycle([1e300, 1.0, 1e-300, 5e-324]), strict=False):
        model.learn_one(x, y, weight=weight)
        assert_sound(variant, model, x, finite=False)


def test_scores_that_overflow_in_both_directions_are_no_nan() -> None:
    """Features that pull to plus and to minus infinity say nothing together."""
    huge = {"a": 1e300, "c": 1e300}
    for variant in [v for v in VARIANTS if v.name in ("pa", "spa", "pam", "two_view_pa")]:
        model = variant.make(**({"C": 1e300, "gamma": 0.0} if variant.name == "two_view_pa" else {}))
        negative, positive = CLASSES[variant.task][:2]
        learned(model, [(variant.shape({"a": 1e-150}), negative), (variant.shape({"c": 1e-150}), positive)])
        learned(model, [(variant.shape({"a": 1e-150}), negative)])
        score = model.score_one(variant.shape(huge))
        assert not np.isnan(list(score.values()) if isinstance(score, dict) else score).any(), str(variant)
        assert model.predict_one(variant.shape(huge)) in CLASSES[variant.task]


@every_variant
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_numpy_numbers_are_learned_as_the_float64_of_the_same_value(variant: Variant, kind: Any) -> None:
    def each(x: Any, change: Callable[[float], Any]) -> Any:
        return {f: each(v, change) if isinstance(v, dict) else change(v) for f, v in x.items()}

    one, other = variant.make(bias=True), variant.make(bias=True)
    for x, y in [*variant.normal(2, 15), (variant.shape({"a": 6e-8, "b": 6e4}), CLASSES[variant.task][0])]:
        assert one.score_one(each(x, kind)) == other.score_one(each(x, lambda v: float(kind(v))))
        one.learn_one(each(x, kind), y)
        other.learn_one(each(x, lambda v: float(kind(v))), y)
    assert one.to_bytes() == other.to_bytes()


MANY: list[tuple[str, dict[str, Any], float, float]] = [  # with the q (less v_y) and the cap of the step's problem
    ("pa1", {"C": 0.25}, 0.0, 0.25),
    ("pa2", {"C": 0.25}, 2.0, np.inf),
    ("spa1", {"C": 0.25}, 0.0, 0.25),
    ("spa2", {"C": 0.25}, 2.0, np.inf),
    ("pam1", {"C": 0.25, "constraints": 2}, 0.0, 0.25),
    ("pam2", {"C": 0.25, "constraints": "all"}, 2.0, np.inf),
    *(
        ("arow", {"r": 2.0, "covariance": form, "loss": loss, "constraints": "all"}, q, cap)
        for form in ("diagonal", "full")
        for loss, q, cap in (("squared_hinge", 2.0, np.inf), ("hinge", 0.0, 0.25))
    ),
]


@pytest.mark.parametrize(("name", "options", "q", "cap"), MANY)
@pytest.mark.parametrize("x", [1e-4, 1e-8, 1e-150])
def test_a_step_for_many_classes_is_right_however_small_v_is(
    name: str, options: dict[str, Any], q: float, cap: float, x: float
) -> None:
    """Classes of equal losses take equal parts; with v far below q, or 1 / cap, they are no difference of thetas."""
    model = palearn.make(name, task="multiclass", bias=False, **options)
    for label in "abc":
        model.learn_one({}, label)
    model.learn_one({"f": x}, "c")
    n, v = 1 if name.startswith("pa") and "constraints" not in options else 2, x * x
    tau = min(cap / n, 1.0 / (v + n * (v + q)))
    weights = [model.weights()[label]["f"] for label in "abc"]
    assert weights == pytest.approx([-tau * x, -tau * x if n == 2 else 0.0, n * tau * x], rel=1e-12, abs=0.0)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_a_joint_step_is_right_where_r_is_far_above_v(loss: str) -> None:
    """Every model gets there: its variances fall to r / n. The classes' steps then all but block each other."""
    joint, alone = (
        palearn.make("arow", task="multiclass", bias=False, loss=loss, r=2.0, constraints="all", covariance=covariance)
        for covariance in ("joint", "full")
    )
    for model in (joint, alone):  # one problem, as long as the blocks are independent
        learned(model, [({}, "a"), ({}, "b"), ({}, "d"), ({"f": 0.01}, "c")])
    assert flat(joint.weights()) == pytest.approx(flat(alone.weights()), rel=1e-9, abs=0.0)


def test_a_huge_example_moves_scw2_like_its_limit() -> None:
    """With v far above 1/(2C) it is CW's standard-deviation form; the square of v overflows."""
    for y in (-1, 1):
        soft, hard = (palearn.make(name, bias=False, **o) for name, o in (("scw2", {}), ("cw", {"form": "stdev"})))
        for model in (soft, hard):
            learned(model, [({"a": 1e90, "b": -2e90}, 1), ({"a": 3e100}, y)])
        assert soft.weights() == pytest.approx(hard.weights(), rel=1e-12)
        assert soft.variances() == pytest.approx(hard.variances(), rel=1e-12)
        assert soft.n_updates == hard.n_updates >= 1


# -- a covariance against an exact one -----------------------------------------------------------------------------

FEATURE_COUNT, UPDATES, PRIOR = 12, 100_000, 2.0**20
FULL: dict[str, dict[str, Any]] = {
    **{name: {"initial_variance": PRIOR} for name in ("arow", "pam", "pam1", "pam2", "cw", "scw1", "scw2", "nherd")},
    "sop": {"a": 1.0 / PRIOR},
}
CONDITION = 1e12


def full_model(name: str, **options: Any) -> MatrixModel:
    return MatrixModel(Learner("", name, options={"covariance": "full", **options}), FEATURE_COUNT, bias=False)


def factors(model: MatrixModel) -> tuple[Array, Array]:
    """U and D of Sigma = U D U'."""
    n = int(model.layout.features[0])
    u, d = np.eye(n), np.empty(n)
    for j in range(n):
        column = model.arrays["factors"][j * (j + 1) // 2 :][: j + 1]
        u[:j, j], d[j] = column[:j], column[j]
    return u, d


def rotation() -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(0).normal(size=(FEATURE_COUNT,) * 2))[0])


def ill_conditioned(seed: int, n: int) -> Array:
    """Rows of whole numbers / 1024 whose second moments have a condition of 1e12, from 1e12 down to 1."""
    scales = np.sqrt(np.logspace(math.log10(CONDITION), 0.0, FEATURE_COUNT))
    rows = np.random.default_rng(seed).normal(size=(n, FEATURE_COUNT)) * scales
    return np.asarray(np.round(rows @ rotation().T * 1024.0) / 1024.0)


def run_ill_conditioned(name: str) -> tuple[MatrixModel, Array]:
    """Learn random labels until there have been enough updates; returns the rows with an update."""
    model, taken, rng = full_model(name, **FULL[name]), [], np.random.default_rng(1)
    for seed in itertools.count():
        x = ill_conditioned(seed, 20_000)
        out = model.learn(x, rng.integers(2, size=len(x)))
        taken.append(x[out.updated])
        u, d = factors(model)
        assert not np.isnan(out.score).any()
        assert np.isfinite(model.weights()).all()
        assert np.isfinite(u).all()
        assert (d >= 0.0).all()
        assert (model.variances() >= 0.0).all()
        if sum(map(len, taken)) >= UPDATES:
            return model, np.concatenate(taken)
    raise AssertionError


def exact_covariance(x: Array) -> list[list[Fraction]]:
    """(I/PRIOR + X'X)^-1 in whole numbers and fractions."""
    whole = np.round(x * 1024.0).astype(np.int64)
    high, n = whole >> 20, FEATURE_COUNT
    low = whole - (high << 20)
    products = np.zeros((n, n), object)
    for rows in np.array_split(np.arange(len(x)), len(x) // 1000):
        h, m = high[rows], low[rows]
        for part, shift in ((h.T @ h, 40), (h.T @ m + m.T @ h, 20), (m.T @ m, 0)):
            products = products + (part.astype(object) << shift)
    table = [
        [Fraction(int(products[i, j]), 2**20) + (i == j) / Fraction(PRIOR) for j in range(n)]
        + [Fraction(int(i == j)) for j in range(n)]
        for i in range(n)
    ]
    for i in range(n):  # Gauss and Jordan; the matrix is positive definite, so no pivot is 0
        table[i] = [value / table[i][i] for value in table[i]]
        for k in set(range(n)) - {i}:
            table[k] = [a - table[k][i] * b for a, b in zip(table[k], table[i], strict=True)]
    return [row[n:] for row in table]


@pytest.mark.parametrize("name", FULL)
def test_100_000_updates_at_a_condition_of_1e12(name: str) -> None:
    """The directions are those of the data: along each the variance is right, from 1e-17 up to 1e-5."""
    model, x = run_ill_conditioned(name)
    if name not in ("arow", "pam", "pam1", "pam2", "sop"):  # the others do not add x x' alone
        return
    sigma, (u, d) = exact_covariance(x), factors(model)
    for direction in rotation().T:
        whole = [Fraction(float(value)) for value in direction]
        right = float(sum(a * sigma[i][j] * b for i, a in enumerate(whole) for j, b in enumerate(whole)))
        assert (u.T @ direction) ** 2 @ d == pytest.approx(right, rel=1e-10, abs=0.0)


def test_subtraction_loses_the_same_covariance() -> None:
    """Sigma - Sigma x x' Sigma / (1 + v), as the papers write it, has a negative v on the same rows."""
    sigma, smallest = PRIOR * np.eye(FEATURE_COUNT), np.inf
    for x in ill_conditioned(0, 2000):
        moved = sigma @ x
        smallest = min(smallest, float(x @ moved))
        sigma -= np.outer(moved, moved) / (1.0 + x @ moved)
    assert smallest < -1.0


def pull(name: str, tau: float, v: Any, options: dict[str, Any]) -> Any:
    """beta of Sigma - beta Sigma x x' Sigma, as algorithms state it: from the step and v = x'Sigma x."""
    phi, c = NormalDist().inv_cdf(0.9), 1.0
    if name == "cw" and options.get("form", "variance") == "variance":
        return 2.0 * tau * phi / (1.0 + 2.0 * tau * phi * v)
    if name in ("cw", "scw1", "scw2"):
        root = 0.5 * (-tau * v * phi + np.sqrt(tau * tau * v * v * phi * phi + 4.0 * v))
        return tau * phi / (root + v * tau * phi)
    if name == "nherd":
        return (c * c * v + 2.0 * c) / (1.0 + c * v) ** 2
    return 1.0 / (1.0 + v)


@pytest.mark.parametrize(("name", "form"), [*((name, None) for name in FULL), ("cw", "stdev")])
def test_a_well_conditioned_covariance_agrees_with_a_longer_float(name: str, form: str | None) -> None:
    options = {"form": form} if form else {}
    x = np.random.default_rng(4).normal(size=(300, FEATURE_COUNT))
    model = full_model(name, **options)
    out = model.learn(x, np.random.default_rng(5).integers(2, size=300))
    assert out.updated.sum() >= 100
    sigma = np.eye(FEATURE_COUNT, dtype=np.longdouble)
    for row, tau in zip(x[out.updated].astype(np.longdouble), out.tau[out.updated], strict=True):
        moved = sigma @ row
        sigma -= pull(name, tau, row @ moved, options) * np.outer(moved, moved)
    u, d = factors(model)
    np.testing.assert_allclose((u * d) @ u.T, sigma.astype(np.float64), rtol=1e-13, atol=1e-14 * np.abs(sigma).max())
    np.testing.assert_allclose(model.variances()[0], np.diag(sigma).astype(np.float64), rtol=1e-13)
    variances = np.empty(FEATURE_COUNT)
    factored_covariance.variances(model.arrays["factors"], 0, FEATURE_COUNT, variances)
    assert (variances == model.variances()[0]).all()


# -- matrices ------------------------------------------------------------------------------------------------------

IN_MATRIX = pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.views], ids=str)


def matrix_model(variant: Variant, features: int, *, bias: bool = True) -> MatrixModel:
    learner = Learner("", variant.name, task=variant.task, options=variant.options)
    return MatrixModel(learner, features, len(CLASSES[variant.task]), bias=bias)


def labels(variant: Variant, n: int) -> NDArray[np.int64]:
    return np.random.default_rng(n).integers(len(CLASSES[variant.task]), size=n)


def assert_same_bits(one: MatrixModel, other: MatrixModel) -> None:
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name


def diagonals(model: MatrixModel) -> Array:
    """D of each triangle that the model has."""
    joint = model.learner.params.get("covariance") == "joint"
    n = int(model.layout.features[0] * (model.classes if joint else 1))
    return model.arrays.get("factors", np.zeros(0)).reshape(-1, n * (n + 1) // 2)[:, np.cumsum(np.arange(n) + 1) - 1]


@IN_MATRIX
def test_a_long_ill_conditioned_run_never_gives_nan(variant: Variant) -> None:
    model, x = matrix_model(variant, FEATURE_COUNT), ill_conditioned(7, 5000)
    out = model.learn(x, labels(variant, len(x)))
    assert out.updated.any() or variant in PRINTED_SPA
    assert not np.isnan(out.score).any()
    assert not np.isnan(model.scores(x)).any()
    assert np.isfinite(model.weights()).all()
    assert model.variances() is None or (model.variances() >= 0.0).all()
    assert (diagonals(model) >= 0.0).all()


@IN_MATRIX
def test_dense_and_sparse_matrices_of_any_kind_give_the_same_bits(variant: Variant) -> None:
    rng, y = np.random.default_rng(3), labels(variant, 40)
    dense = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.5)
    by_hand = matrix_model(variant, 6)
    for i in range(40):  # one row at a time is the same as all
        by_hand.learn(dense[i : i + 1], y[i : i + 1])
    rows, columns = np.nonzero(dense)
    values = dense[rows, columns]
    # Each value as two summands, columns in falling order, and a zero that is written down.
    order = np.lexsort((-columns, rows))
    twice = np.repeat(values[order], 2) * 0.5
    ends = np.searchsorted(rows[order], np.arange(41)) * 2
    duplicated = sparse.csr_array((twice, np.repeat(columns[order], 2), ends), shape=(40, 6))
    written = sparse.csr_array(np.where(dense == 0.0, 7.0, dense))
    written.data[written.data == 7.0] = 0.0
    for x in (dense, np.asfortranarray(dense), *(c(dense) for c in KINDS), duplicated, written):
        before = x.copy()
        model = matrix_model(variant, 6)
        model.learn(x, y)
        assert_same_bits(model, by_hand)
        assert (model.scores(x) == by_hand.scores(dense)).all()
        if sparse.issparse(x) and x.format == "csr":
            assert [a.tobytes() for a in (x.data, x.indices)] == [a.tobytes() for a in (before.data, before.indices)]


KINDS = (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array, sparse.lil_array)


@IN_MATRIX
def test_matrices_of_short_numbers_are_their_float64(variant: Variant) -> None:
    x = np.random.default_rng(6).normal(size=(30, 5)) * np.logspace(-4, 4, 5)
    for kind in (np.float32, np.float16, np.int16, np.bool_):
        short, model, other = x.astype(kind), matrix_model(variant, 5), matrix_model(variant, 5)
        other.learn(short.astype(np.float64), labels(variant, 30))
        model.learn(short, labels(variant, 30))
        assert_same_bits(model, other)
        if kind is not np.float16:  # scipy has no sparse float16
            sparsely = matrix_model(variant, 5)
            sparsely.learn(sparse.csr_array(short), labels(variant, 30))
            assert_same_bits(sparsely, other)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.views and v.task == "binary"], ids=str)
def test_a_matrix_and_a_stream_of_its_rows_give_the_same_bits(variant: Variant) -> None:
    x, y = np.random.default_rng(8).normal(size=(40, 4)), labels(variant, 40)
    model, stream = matrix_model(variant, 4, bias=False), variant.make()
    for row, label in zip(x, y, strict=True):
        stream.learn_one(dict(zip("abcd", row, strict=True)), int(label))
    out = model.learn(x, y)
    assert [*stream.weights().values()] == model.weights()[0].tolist()
    assert [*stream.variances().values()] == ([] if model.variances() is None else model.variances()[0].tolist())
    assert stream.n_updates == out.updated.sum()
    assert palearn.from_bytes(stream.to_bytes()).weights() == stream.weights()
