"""Learners that are the same learner: the theorems and limits that tie them together, on streams."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import palearn
from palearn.learners import Learner
from palearn.models.matrix import MatrixModel
from tests.cases import COVARIANCES, JOINT, VIEWS, Case, examples, second_order

Shown = Callable[[Any, Any], tuple[Any, Any] | None]
Pair = tuple[Case, Case, Shown]
TASKS = ("binary", "multiclass")
SECOND_ORDER: list[tuple[str, dict[str, Any]]] = [
    ("pam", {}),
    ("pam1", {}),
    ("pam2", {}),
    ("arow", {}),
    ("arow", {"loss": "hinge"}),
    ("cw", {}),
    ("cw", {"form": "stdev"}),
    ("scw1", {}),
    ("scw2", {}),
    ("nherd", {}),
]


def alike(x: Any, y: Any) -> tuple[Any, Any]:
    return x, x


def two_classes(x: Any, y: Any) -> tuple[Any, Any] | None:
    return (x, x) if y in ("c", "a") else None


def three_classes(x: Any, y: Any) -> tuple[Any, Any] | None:
    return (x, x) if y != "b" else None


def one_feature(x: Any, y: Any) -> tuple[Any, Any] | None:
    return ({"f0": x["f0"]}, {"f0": x["f0"]}) if "f0" in x else None


def case(name: str, task: str = "binary", views: int = 0, **options: Any) -> Case:
    return Case(name, task, "none", options, views)


def of_support_classes() -> Iterator[Pair]:
    """SPA has one constraint where there are two classes: PA's (Matsushima et al. 2010, section 3.2)."""
    for suffix in ("", "1", "2"):
        yield case(f"pa{suffix}"), case(f"spa{suffix}"), alike
        yield case(f"pa{suffix}", "multiclass"), case(f"spa{suffix}", "multiclass"), two_classes


def of_constraints() -> Iterator[Pair]:
    """The top k >= K - 1 wrong classes are all of them; with two classes, or a covariance a class, one is enough."""
    for name, loss in (("pam", {}), ("pam1", {}), ("pam2", {}), ("arow", {}), ("arow", {"loss": "hinge"})):
        for options in (*COVARIANCES, *([JOINT] if name == "arow" else [])):
            every = case(name, "multiclass", **loss, **options, constraints="all")
            yield case(name, "multiclass", **loss, **options, constraints=3), every, alike
            yield case(name, "multiclass", **loss, **options, constraints=50), every, alike
            yield case(name, "multiclass", **loss, **options, constraints=2), every, three_classes
            if options is not JOINT:
                yield case(name, "multiclass", **loss, **options, constraints=1), every, two_classes


def of_one_feature() -> Iterator[Pair]:
    """On one feature a diagonal is the whole covariance."""
    yield case("sop"), case("sop", covariance="full"), one_feature
    for (name, options), task in itertools.product(SECOND_ORDER, TASKS):
        full = case(name, task, **options, covariance="full")
        yield full, case(name, task, **options, projection="covariance"), one_feature
        # With many classes the joint precision has an entry for each two, and its diagonal is a form of its own.
        if task == "binary":
            yield full, case(name, task, **options, projection="precision"), one_feature


def of_parameters() -> Iterator[Pair]:
    """What one parameter makes of a learner."""
    for task in TASKS:
        for options in second_order(task):
            # A cap on SCW-I's step that no step reaches is no cap.
            yield case("cw", task, form="stdev", **options), case("scw1", task, C=1e300, **options), alike
            # PAM's noise is 1; AROW's is r, and its price is 1/(2r).
            yield case("pam2", task, C=0.5, **options), case("arow", task, r=1.0, **options), alike
            yield case("pam1", task, C=0.5, **options), case("arow", task, r=1.0, loss="hinge", **options), alike
        yield case("pa", task), case("pa1", task, C=1e300), alike
        yield case("spa", task), case("spa1", task, C=1e300), alike
    for suffix in ("", "1", "2"):
        yield case(f"pa{suffix}"), case(f"pa_mean{suffix}", gamma=0.0), alike
        yield case(f"pa_mean{suffix}", queue=0), case(f"pa_mean{suffix}", queue=1), alike
        yield case(f"pa_mean{suffix}"), case(f"pa_mean{suffix}", freeze_mean_after=1000), alike


def of_views() -> Iterator[Pair]:
    """A view alone is PA-I, whatever the views without features are called."""
    for task, views in itertools.product(TASKS, (2, 3, 4)):
        alone = case("two_view_pa", task, views, C=0.1)
        yield case("pa1", task, C=0.1), alone, lambda x, y, alone=alone: (x, alone.shape(x))


IDENTITIES = [of_support_classes, of_constraints, of_one_feature, of_parameters, of_views]


def names(pairs: list[Pair]) -> list[str]:
    return [f"{one}={other}" for one, other, _ in pairs]


ALL = [pair for family in IDENTITIES for pair in family()]


def values(found: dict[Any, Any]) -> dict[Any, float]:
    """Weights or variances of all classes and views under one name each; what nothing moved is left out."""
    flat: dict[Any, float] = {}
    for name, value in found.items():
        flat |= {(name, *path): v for path, v in values(value).items()} if isinstance(value, dict) else {(name,): value}
    return flat


def assert_equal(ours: dict[Any, float], theirs: dict[Any, float]) -> None:
    """To what two ways to the same number may differ by."""
    assert ours
    assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-10)


@pytest.mark.parametrize(("one", "other", "shown"), ALL, ids=names(ALL))
@pytest.mark.parametrize("seed", range(2))
def test_these_are_one_learner(one: Case, other: Case, shown: Shown, seed: int) -> None:
    models: list[Any] = [palearn.make(c.name, task=c.task, bias=False, **c.options) for c in (one, other)]
    for x, y in itertools.islice(examples(one, seed), 40):
        for model, part in zip(models, shown(x, y) or (), strict=False):
            model.learn_one(part, y)
    assert models[0].n_updates == models[1].n_updates > 5
    first, second = (values(m.variances()) for m in models)
    if first and second:
        assert first == pytest.approx(second, rel=1e-7)
    first, second = (m.weights() for m in models)
    if other.views:
        second = {label: w[VIEWS[0]] for label, w in second.items()} if other.task == "multiclass" else second[VIEWS[0]]
    assert_equal(values(first), values(second))


@pytest.mark.parametrize("suffix", ["", "1", "2"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("options", COVARIANCES, ids=str)
def test_pam_with_sigma_fixed_to_the_identity_is_pa(suffix: str, task: str, options: dict[str, Any]) -> None:
    """From any weights; the covariance is put back to the identity after every step."""
    rng, n, classes = np.random.default_rng(3), 4, 2 if task == "binary" else 3
    learners = [Learner("", name, task=task, options=o) for name, o in ((f"pa{suffix}", {}), (f"pam{suffix}", options))]
    pa, pam = (MatrixModel(learner, n, classes) for learner in learners)
    covariance = "factors" if options["covariance"] == "full" else "sigma"
    identity = pam.arrays[covariance].copy()
    updates = 0
    for _ in range(40):
        x, y = rng.normal(size=(1, n)), rng.integers(classes, size=1)
        updates += pa.learn(x, y).updated[0]
        pam.learn(x, y)
        pam.arrays[covariance][:] = identity
        np.testing.assert_allclose(pam.weights(), pa.weights(), rtol=1e-9, atol=1e-12)
    assert updates > 15


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("views", [2, 3, 4])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_equal_views_are_pa1_with_their_share_of_c(task: str, views: int, gamma: float) -> None:
    """V equal views of x learn, each of them, what PA-I with C/V learns on x.

    Their weights begin equal, so by symmetry they stay so: w_v = w. Then no two views disagree, whatever gamma, and
    the mean of the margins is that of w. The problem, minimise sum_v |dw_v|^2 / 2 + C xi, is V times
    |dw|^2 / 2 + (C/V) xi.
    """
    C, wide = 0.3, case("two_view_pa", task, views)
    pa: Any = palearn.make("pa1", task=task, bias=False, C=C / views)
    equal: Any = palearn.make("two_view_pa", task=task, bias=False, C=C, gamma=gamma)
    for x, y in itertools.islice(examples(case("pa1", task), 4), 60):
        pa.learn_one(x, y)
        equal.learn_one(wide.shape(*[x] * views), y)
    parts = equal.weights().values() if task == "multiclass" else [equal.weights()]
    own = pa.weights().values() if task == "multiclass" else [pa.weights()]
    for found, expected in zip(parts, own, strict=True):
        for view in VIEWS[:views]:
            assert_equal(found[view], expected)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("views", [2, 3, 4])
def test_views_that_need_not_agree_are_pa1_on_their_average(task: str, views: int) -> None:
    """With gamma = 0, V views that have features are PA-I, with the same C, on all of their features divided by V.

    The mean of the margins, sum_v w_v.x_v / V, is that of the weights laid end to end on such an example, and the
    distance is that of the weights laid end to end.
    """
    wide = case("two_view_pa", task, views)
    apart: Any = palearn.make("two_view_pa", task=task, bias=False, C=0.3, gamma=0.0)
    pa: Any = palearn.make("pa1", task=task, bias=False, C=0.3)
    for x, y in itertools.islice((e for e in examples(wide, 6) if all(e[0].values())), 60):
        apart.learn_one(x, y)
        pa.learn_one({f"{v} {f}": u / views for v, part in x.items() for f, u in part.items()}, y)
    ours, theirs = values(apart.weights()), values(pa.weights())
    assert_equal({(*path[:-2], f"{path[-2]} {path[-1]}"): w for path, w in ours.items()}, theirs)
    assert apart.n_updates == pa.n_updates > 20


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_joint_arow_with_two_classes_is_binary_arow(loss: str) -> None:
    """Of two classes, one constraint and joint covariance s I, the difference of the weights is binary AROW from 2 s I.

    The mean of the two classes' weights is independent of their difference u = w_a - w_b and no constraint asks for
    it, so it stays 0 and w_a = u/2 = -w_b. The margin of u is that of Delta f, and u begins with variance 2 s.
    """
    joint: Any = palearn.make("arow", task="multiclass", bias=False, loss=loss, initial_variance=0.7, **JOINT)
    binary: Any = palearn.make("arow", bias=False, loss=loss, initial_variance=1.4, covariance="full")
    joint.learn_one({}, "b").learn_one({}, "a")
    for x, y in itertools.islice(examples(case("arow"), 8), 60):
        joint.learn_one(x, "a" if y > 0 else "b")
        binary.learn_one(x, y)
        assert joint.predict_one(x) == ("a" if binary.predict_one(x) > 0 else "b")
    assert_equal({f: 2.0 * w for f, w in joint.weights()["a"].items()}, binary.weights())
    assert_equal({f: -2.0 * w for f, w in joint.weights()["b"].items()}, binary.weights())


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_first_step_of_nherd_is_that_of_pa2(covariance: str) -> None:
    """While the covariance is the identity; NHERD's price of a squared loss is C/2."""
    for x, y in itertools.islice(examples(case("nherd"), 2), 40):
        herd, pa = palearn.make("nherd", C=0.6, covariance=covariance), palearn.make("pa2", C=0.3)
        assert_equal(values(herd.learn_one(x, y).weights()), values(pa.learn_one(x, y).weights()))


def test_the_second_order_perceptron_scores_as_ridge_regression_does() -> None:
    """On its mistakes and their labels, and the example to score with label 0 (Cesa-Bianchi et al. 2005)."""
    model: Any = palearn.make("sop", a=0.5, covariance="full", bias=False)
    names = [f"f{i}" for i in range(6)]
    rows, labels = [np.sqrt(0.5) * np.eye(6)], [np.zeros(6)]
    for x, y in itertools.islice(examples(case("sop"), 3), 60):
        dense = np.array([[x.get(name, 0.0) for name in names]])
        w = np.linalg.lstsq(np.vstack([*rows, dense]), np.concatenate([*labels, [0.0]]), rcond=None)[0]
        assert model.score_one(x) == pytest.approx(float(dense[0] @ w), rel=1e-9, abs=1e-9)
        mistake = (model.score_one(x) > 0.0) != (y > 0)
        before = model.n_updates
        model.learn_one(x, y)
        assert model.n_updates - before == mistake
        if mistake:
            rows.append(dense)
            labels.append(np.array([float(y)]))
    assert len(rows) > 15


PRICES: list[tuple[str, str, dict[str, Any]]] = [
    *((name, "C", {}) for name in ("pa1", "pa2", "spa1", "spa2", "pam1", "pam2", "scw1", "scw2", "nherd")),
    ("two_view_pa", "C", {}),
    ("arow", "1/r", {}),
    ("arow", "1/r", {"loss": "hinge"}),
    ("pa_mean1", "C", {"queue": 2}),
    ("pa_mean2", "C", {"queue": 2}),
    *((name, "", {}) for name in ("pa", "spa", "pam", "sop", "cw")),
    ("cw", "", {"form": "stdev"}),
    ("pa_mean", "", {}),
]


WEIGHED = [
    (*row, task) for row in PRICES for task in TASKS if task == "binary" or not row[0].startswith(("sop", "pa_mean"))
]


@pytest.mark.parametrize(("name", "price", "options", "task"), WEIGHED, ids=str)
@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_an_examples_weight_multiplies_its_price(
    name: str, price: str, options: dict[str, Any], task: str, weight: float
) -> None:
    """It multiplies C and divides r, and means nothing to a learner without such a price."""
    own: dict[str, Any] = {"C": {"C": 0.5}, "1/r": {"r": 0.5}, "": {}}[price]
    other: dict[str, Any] = {"C": {"C": 0.5 * weight}, "1/r": {"r": 0.5 / weight}, "": {}}[price]
    weighed: Any = palearn.make(name, task=task, bias=False, **options, **own)
    priced: Any = palearn.make(name, task=task, bias=False, **options, **other)
    for x, y in itertools.islice(examples(case(name, task, 2 if name == "two_view_pa" else 0), 7), 40):
        weighed.learn_one(x, y, weight)
        priced.learn_one(x, y)
    assert_equal(values(weighed.weights()), values(priced.weights()))
    assert values(weighed.variances()) == pytest.approx(values(priced.variances()), rel=1e-7)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_an_examples_weight_multiplies_its_gradient(task: str, weight: float) -> None:
    """The perceptron's weights grow with it; AdaGrad's do not where delta and l1 grow as the gradients do."""
    for name, own, factor in (
        ("perceptron", {}, weight),
        ("adagrad_rda", {"delta": 0.1 * weight, "l1": 0.01 * weight}, 1.0),
    ):
        other = {"delta": 0.1, "l1": 0.01} if own else {}
        weighed: Any = palearn.make(name, task=task, bias=False, **own)
        plain: Any = palearn.make(name, task=task, bias=False, **other)
        for x, y in itertools.islice(examples(case(name, task), 7), 60):
            weighed.learn_one(x, y, weight)
            plain.learn_one(x, y)
        assert_equal(values(weighed.weights()), {f: factor * w for f, w in values(plain.weights()).items()})
