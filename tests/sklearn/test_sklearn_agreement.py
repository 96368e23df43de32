"""PassiveAggressiveClassifier beside scikit-learn's own: the same where theirs is exact, and each difference shown."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier

from palearn.sklearn import PassiveAggressiveClassifier

ORDER = {"fit_intercept": False, "shuffle": False}
RATES = {"hinge": "pa1", "squared_hinge": "pa2"}

both_losses = pytest.mark.parametrize("loss", RATES)
two_and_four = pytest.mark.parametrize("classes", [2, 4])


def problem(classes: int, n: int = 200, d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Noisy examples, a third of the values exactly 0."""
    random = np.random.default_rng(classes)
    y = random.integers(0, classes, n)
    x = random.normal(size=(n, d)) + random.normal(size=(classes, d))[y]
    return np.where(random.random((n, d)) < 0.3, 0.0, x), np.array(["a", "b", "c", "d"])[y]


def deprecated(**options):
    """Return scikit-learn's PassiveAggressiveClassifier, which warns that it will go."""
    with pytest.warns(FutureWarning, match="deprecated in version 1.8 and will be removed in 1.10"):
        return linear_model.PassiveAggressiveClassifier(**options)


def theirs(loss: str = "hinge", C: float = 1.0, **options) -> SGDClassifier:
    """Return the estimator that scikit-learn names in its place."""
    return SGDClassifier(loss="hinge", penalty=None, learning_rate=RATES[loss], eta0=C, **options)


def assert_same(ours, others) -> None:
    assert ours.coef_ == pytest.approx(others.coef_, rel=1e-12, abs=1e-12)
    assert ours.intercept_ == pytest.approx(others.intercept_, rel=1e-12, abs=1e-12)
    assert ours.classes_.tolist() == others.classes_.tolist()
    assert (ours.n_iter_, ours.t_) == (others.n_iter_, others.t_)


# -- the same --------------------------------------------------------------------------------------------


def test_it_has_the_parameters_methods_and_attributes():
    ours, others = PassiveAggressiveClassifier(), deprecated()
    assert ours.get_params() == {
        name: value for name, value in others.get_params().items() if name in ours.get_params()
    }
    assert set(others.get_params()) == set(ours.get_params())
    x, y = problem(4)
    public = {name for name in dir(others.fit(x, y)) if not name.startswith("_")}
    public -= {"loss_functions", "loss_function_"}
    # Parameters of SGD that scikit-learn's class inherits and does not document.
    public -= {"alpha", "epsilon", "eta0", "l1_ratio", "learning_rate", "penalty", "power_t"}
    assert public <= set(dir(ours.fit(x, y)))


@pytest.mark.parametrize("C", [0.01, 1.0, np.inf])
@both_losses
@two_and_four
def test_fit_gives_the_same_weights_over_epochs(classes, loss, C):
    x, y = problem(classes)
    for epochs in (1, 7):
        options = {"max_iter": epochs, "tol": None, "C": C, "loss": loss, **ORDER}
        ours = PassiveAggressiveClassifier(**options).fit(x, y)
        assert_same(ours, deprecated(**options).fit(x, y))
        assert ours.decision_function(x[:5]) == pytest.approx(deprecated(**options).fit(x, y).decision_function(x[:5]))


@both_losses
@two_and_four
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_fit_ends_after_the_same_epoch(container, classes, loss):
    x, y = problem(classes)
    for options in ({}, {"n_iter_no_change": 2}, {"tol": 0.01}):
        ours = PassiveAggressiveClassifier(C=0.1, loss=loss, **options, **ORDER).fit(container(x), y)
        others = theirs(loss, 0.1, **options, **ORDER).fit(container(x), y)
        assert 1 < ours.n_iter_ < 1000
        assert_same(ours, others)


@both_losses
@two_and_four
def test_partial_fit_gives_the_same_weights(classes, loss):
    x, y = problem(classes)
    ours, others = PassiveAggressiveClassifier(C=0.2, loss=loss, **ORDER), deprecated(C=0.2, loss=loss, **ORDER)
    for low in range(0, 200, 40):
        for model in (ours, others):
            model.partial_fit(x[low : low + 40], y[low : low + 40], classes=np.unique(y))
        assert_same(ours, others)


@both_losses
@two_and_four
@pytest.mark.parametrize("average", [True, 30, 10_000])
def test_averages_are_the_same(average, classes, loss):
    x, y = problem(classes)
    options = {"C": 0.2, "average": average, **ORDER}
    ours = PassiveAggressiveClassifier(loss=loss, max_iter=4, tol=None, **options).fit(x, y)
    assert_same(ours, theirs(loss, max_iter=4, tol=None, **options).fit(x, y))
    ours, others = PassiveAggressiveClassifier(loss=loss, **options), theirs(loss, **options)
    for low in (0, 20, 40):
        for model in (ours, others):
            model.partial_fit(x[low : low + 20], y[low : low + 20], classes=np.unique(y))
        assert_same(ours, others)


@two_and_four
def test_given_first_weights_and_warm_starts_are_the_same(classes):
    x, y = problem(classes)
    start = np.random.default_rng(0).normal(size=(1 if classes == 2 else classes, 12))
    options = {"C": 0.2, "max_iter": 2, "tol": None, "warm_start": True, **ORDER}
    ours, others = PassiveAggressiveClassifier(**options), deprecated(**options)
    for _ in range(2):
        assert_same(ours.fit(x, y, coef_init=start), others.fit(x, y, coef_init=start.copy()))
        assert_same(ours.fit(x, y), others.fit(x, y))


@two_and_four
def test_weights_are_the_same_where_every_step_is_at_the_cap(classes):
    """At the cap a step of C times the weight is both C of a weighted example and a weighted step."""
    x, y = problem(classes, n=40)
    weight = np.linspace(0.5, 2.0, 40)
    options = {"C": 1e-6, "max_iter": 3, "tol": None, **ORDER}
    ours, others = PassiveAggressiveClassifier(**options), theirs(**options)
    for model in (ours, others):
        for _ in range(3):
            model.partial_fit(x, y, classes=np.unique(y), sample_weight=weight)
    assert_same(ours, others)
    if classes == 2:
        for class_weight in ("balanced", {"a": 3.0, "b": 0.5}):
            ours = PassiveAggressiveClassifier(class_weight=class_weight, **options).fit(x, y)
            assert_same(ours, deprecated(class_weight=class_weight, **options).fit(x, y))


# -- not the same ----------------------------------------------------------------------------------------

ONE, TWO = np.array([[1.0], [0.0]]), np.array([1, 0])
ONCE = {"max_iter": 1, "tol": None, "shuffle": False}


def after_one(model, container=np.asarray, **weights) -> tuple[float, float]:
    """Return weight and constant after the one positive example x = 1, from nothing."""
    model.partial_fit(container(np.array([[1.0]])), [1], classes=[0, 1], **weights)
    return model.coef_.item(), model.intercept_.item()


def test_the_intercept_counts_in_the_norm():
    """The exact step lands on the margin 1; theirs ignores the constant's part of the norm and goes to 2."""
    weight, constant = after_one(PassiveAggressiveClassifier(C=10.0))
    assert (weight, constant) == (0.5, 0.5)
    weight, constant = after_one(deprecated(C=10.0))
    assert (weight, constant) == (1.0, 1.0)


def test_the_intercept_is_learned_from_sparse_input_as_from_dense():
    """Theirs decays the constant's step to a hundredth where the input is sparse."""
    assert after_one(PassiveAggressiveClassifier(C=10.0), sparse.csr_array) == (0.5, 0.5)
    assert after_one(deprecated(C=10.0), sparse.csr_array) == (1.0, 0.01)


@pytest.mark.parametrize(("loss", "step"), [("hinge", 1.0), ("squared_hinge", 1.0 / (1.0 + 1.0 / 40.0))])
def test_a_weight_multiplies_C_not_the_step(loss, step):
    """C is 10 and the weight 2: PA-I does not reach its cap of 20, PA-II is that of C = 20. Theirs doubles the step."""
    twice = {"sample_weight": [2.0]}
    ours = after_one(PassiveAggressiveClassifier(C=10.0, loss=loss, fit_intercept=False), **twice)
    assert ours == (pytest.approx(step, rel=1e-15), 0.0)
    others = after_one(theirs(loss, 10.0, fit_intercept=False), **twice)
    assert others == (pytest.approx({"hinge": 2.0, "squared_hinge": 2.0 / (1.0 + 1.0 / 20.0)}[loss], rel=1e-15), 0.0)


def test_a_class_weighs_the_same_in_every_model():
    """Theirs weighs a class in its own model, and by 1 in those of the other classes."""
    x, y = problem(4, n=40)
    class_weight = {"a": 3.0, "b": 0.5, "c": 1.0, "d": 2.0}
    options = {"C": 1e-6, "max_iter": 3, "tol": None, **ORDER}
    ours = PassiveAggressiveClassifier(class_weight=class_weight, **options).fit(x, y)
    sample_weight = np.array([class_weight[label] for label in y])
    assert_same(ours, theirs(**options).fit(x, y, sample_weight=sample_weight))
    assert ours.coef_ != pytest.approx(deprecated(class_weight=class_weight, **options).fit(x, y).coef_, rel=0.1)


def test_an_example_of_weight_zero_is_left_out():
    """Theirs learns nothing from it, but counts it in the average."""
    x, y, weight = np.eye(2), np.array([1, 0]), np.array([1.0, 0.0])
    options = {"average": True, "C": 10.0, "fit_intercept": False, "shuffle": False}
    ours, others = PassiveAggressiveClassifier(**options), theirs(**options)
    for _ in range(2):
        ours.partial_fit(x[::-1], y[::-1], classes=[0, 1], sample_weight=weight[::-1])
        others.partial_fit(x[::-1], y[::-1], classes=[0, 1], sample_weight=weight[::-1])
    assert ours.coef_.tolist() == [[1.0, 0.0]]
    assert others.coef_.tolist() == [[0.75, 0.0]]


def test_partial_fit_keeps_the_order():
    x, y = problem(2)
    ours = [PassiveAggressiveClassifier(random_state=0, shuffle=shuffle) for shuffle in (True, False)]
    others = [deprecated(random_state=0, shuffle=shuffle) for shuffle in (True, False)]
    for model in (*ours, *others):
        model.partial_fit(x, y, classes=["a", "b"])
    assert ours[0].coef_.tolist() == ours[1].coef_.tolist()
    assert others[0].coef_.tolist() != others[1].coef_.tolist()


def test_a_warm_start_goes_on_from_the_last_weights_not_from_their_average():
    x, y = problem(2)
    options = {**ORDER, "max_iter": 1, "tol": None, "average": True}
    first = PassiveAggressiveClassifier(**options, warm_start=True).fit(x, y)
    others = deprecated(**options, warm_start=True).fit(x, y)
    assert_same(first, others)
    from_average = clone(first).fit(x, y, coef_init=first.coef_)
    assert_same(from_average, others.fit(x, y))
    last = PassiveAggressiveClassifier(**options | {"average": False}).fit(x, y)
    from_last = clone(first).fit(x, y, coef_init=last.coef_)
    assert first.fit(x, y).coef_ == pytest.approx(from_last.coef_, rel=1e-12, abs=1e-12)
    assert from_last.coef_ != pytest.approx(from_average.coef_, rel=1e-3)


def test_n_jobs_and_verbose_are_accepted():
    x, y = problem(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = PassiveAggressiveClassifier(random_state=0).fit(x, y)
        assert PassiveAggressiveClassifier(random_state=0, n_jobs=-1, verbose=1).fit(x, y).coef_.tolist() == (
            quiet.coef_.tolist()
        )
