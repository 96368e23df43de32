"""How the estimators learn: epochs and their end, batches, weights, averages, models that go on."""

import logging

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit

import palearn.sklearn as adapters
from palearn.errors import LearnerError
from palearn.sklearn import (
    AROWClassifier,
    CWClassifier,
    PAMClassifier,
    PassiveAggressiveClassifier,
    PerceptronClassifier,
    SecondOrderPerceptronClassifier,
    SupportClassPAClassifier,
)

CLASSES = [getattr(adapters, name) for name in adapters.__all__]
each_class = pytest.mark.parametrize("made", CLASSES, ids=lambda made: made.__name__)
two_and_three = pytest.mark.parametrize("classes", [2, 3])


def problem(classes: int, n: int = 60, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Examples around a centre a class; every class is there."""
    random = np.random.default_rng(1)
    y = np.concatenate([np.arange(classes), random.integers(0, classes, n - classes)])
    return spread * random.normal(size=(n, 4)) + 3.0 * np.eye(4)[y], y


def learned(estimator):
    """Weights and constants as one list."""
    return np.column_stack([estimator.coef_, estimator.intercept_]).tolist()


# -- epochs ----------------------------------------------------------------------------------------------


@two_and_three
@each_class
def test_epochs_batches_and_warm_starts_are_the_same_steps(made, classes):
    x, y = problem(classes)
    once = made(shuffle=False, max_iter=2, tol=None).fit(x, y)
    assert (once.n_iter_, once.t_) == (2, 121.0)
    warm = made(shuffle=False, max_iter=1, tol=None, warm_start=True)
    assert learned(warm.fit(x, y).fit(x, y)) == learned(once)
    batches = made()
    for _ in range(2):
        for low, high in ((0, 1), (1, 17), (17, 60)):
            batches.partial_fit(x[low:high], y[low:high], classes=np.arange(classes))
    assert learned(batches) == learned(once)
    assert (batches.n_iter_, batches.t_) == (1, 121.0)


@each_class
def test_the_seed_gives_the_order(made):
    x, y = problem(3, spread=3.0)
    first, again, other = (made(random_state=seed, max_iter=2, tol=None).fit(x, y) for seed in (0, 0, 1))
    assert learned(first) == learned(again) != learned(other)


@each_class
def test_each_epoch_has_an_order_of_its_own(made):
    x, y = problem(3, spread=3.0)
    twice = made(random_state=np.random.RandomState(0), max_iter=2, tol=None).fit(x, y)
    warm = made(random_state=np.random.RandomState(0), max_iter=1, tol=None, warm_start=True).fit(x, y).fit(x, y)
    assert learned(warm) == learned(twice)


def test_fit_ends_after_epochs_without_gain():
    x, y = problem(2, spread=0.1)
    model = PassiveAggressiveClassifier(n_iter_no_change=4, shuffle=False).fit(x, y)
    losses, single = [], PassiveAggressiveClassifier(shuffle=False, max_iter=1, tol=None, warm_start=True)
    while len(losses) < model.n_iter_:
        before = single.decision_function(x) if losses else np.zeros(60)
        losses.append(before)
        single.fit(x, y)
    assert learned(single) == learned(model)
    # Separable: soon nothing is lost any more, then four epochs more gain nothing.
    signs = 2 * y - 1
    hinges = [np.maximum(0.0, 1.0 - signs * scores).mean() for scores in losses]
    assert max(hinges[-4:]) < 1e-3 < hinges[0]


def test_an_end_by_max_iter_is_a_warning_unless_it_is_asked_for():
    x, y = problem(3, spread=3.0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 epochs") as caught:
        PerceptronClassifier(max_iter=2).fit(x, y)
    assert caught[0].filename == __file__
    assert PerceptronClassifier(max_iter=2, tol=None).fit(x, y).n_iter_ == 2


@two_and_three
@each_class
def test_early_stopping_holds_out_a_part(made, classes):
    x, y = problem(classes, n=100)
    x = sparse.block_array([[sparse.csr_array(x), sparse.eye_array(100, format="csr")]], format="csr")
    model = made(early_stopping=True, validation_fraction=0.2, n_iter_no_change=3, random_state=0).fit(x, y)
    assert model.n_iter_ < 50
    assert model.t_ == 1 + 80 * model.n_iter_
    # Each example has a column of its own: those held out moved none of theirs.
    moved = np.abs(model.coef_[:, 4:]).max(axis=0) > 0.0
    assert 0 < moved.sum() <= 80
    with pytest.raises(ValueError, match="early_stopping should be False with partial_fit"):
        made(early_stopping=True).partial_fit(x, y, classes=np.unique(y))


def test_early_stopping_ends_after_epochs_without_gain_in_weighted_accuracy():
    x, y = problem(3, n=200, spread=3.0)
    class_weight = {0: 0.1, 1: 1.0, 2: 4.0}
    weight = np.array([class_weight[label] for label in y])
    epochs = []
    for seed in range(10):
        options = {"random_state": seed, "shuffle": False, "class_weight": class_weight}
        split = StratifiedShuffleSplit(n_splits=1, test_size=0.25, random_state=seed)
        ((train, held_out),) = split.split(x, y)
        single = AROWClassifier(**options, max_iter=1, tol=None, warm_start=True)
        best, stale, epoch = -np.inf, 0, 0
        while stale < 2:
            single.fit(x[train], y[train])
            accuracy = single.score(x[held_out], y[held_out], sample_weight=weight[held_out])
            stale = stale + 1 if accuracy < best + 0.01 else 0
            best, epoch = max(best, accuracy), epoch + 1
        stopped = AROWClassifier(
            **options, early_stopping=True, validation_fraction=0.25, n_iter_no_change=2, tol=0.01
        ).fit(x, y)
        assert (stopped.n_iter_, learned(stopped)) == (epoch, learned(single))
        epochs.append(epoch)
    assert len(set(epochs)) > 1


def test_verbose_logs_each_epoch(caplog):
    x, y = problem(3)
    with caplog.at_level(logging.INFO, logger="palearn.sklearn"):
        PerceptronClassifier(verbose=1, max_iter=2, tol=None).fit(x, y)
    assert [record.getMessage().partition(": mean loss ")[0] for record in caplog.records] == ["epoch 1", "epoch 2"]
    caplog.clear()
    PerceptronClassifier(max_iter=2, tol=None).fit(x, y)
    assert not caplog.records


# -- weights ---------------------------------------------------------------------------------------------


def epochs(estimator, x, y, weight=None):
    """Learn the examples three times in their order."""
    for _ in range(3):
        estimator.partial_fit(x, y, classes=np.unique(y), sample_weight=weight)
    return estimator


@two_and_three
@each_class
def test_weight_zero_leaves_an_example_out(made, classes):
    x, y = problem(classes)
    weight = np.where(np.arange(60) % 3 == 2, 0.0, 1.0)
    kept = weight > 0.0
    first, second = epochs(made(), x, y, weight), epochs(made(), x[kept], y[kept])
    assert learned(first) == learned(second)
    assert first.t_ == second.t_


@two_and_three
def test_a_weight_multiplies_C_and_divides_r(classes):
    x, y = problem(classes, spread=3.0)
    three = np.full(60, 3.0)
    for plain, heavy in (
        (PassiveAggressiveClassifier(C=0.03), PassiveAggressiveClassifier(C=0.01)),
        (
            SupportClassPAClassifier(C=0.03, loss="squared_hinge"),
            SupportClassPAClassifier(C=0.01, loss="squared_hinge"),
        ),
        (AROWClassifier(r=2.0), AROWClassifier(r=6.0)),
    ):
        expected = np.array(learned(epochs(plain, x, y)))
        assert np.array(learned(epochs(clone(heavy), x, y, three))) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert np.array(learned(epochs(heavy, x, y))) != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "estimator",
    [CWClassifier(), SecondOrderPerceptronClassifier(), PAMClassifier(C=np.inf), PassiveAggressiveClassifier(C=np.inf)],
    ids=repr,
)
def test_learners_without_a_price_know_only_zero_and_more(estimator):
    x, y = problem(3)
    unweighted = learned(epochs(clone(estimator), x, y))
    assert learned(epochs(estimator, x, y, np.linspace(0.1, 9.0, 60))) == unweighted


@two_and_three
@pytest.mark.parametrize(
    "made", [made for made in CLASSES if "class_weight" in made().get_params()], ids=lambda made: made.__name__
)
def test_a_class_weighs_as_its_examples(made, classes):
    x, y = problem(classes, spread=3.0)
    x, y = x[(y != 1) | (np.arange(60) % 2 == 0)], y[(y != 1) | (np.arange(60) % 2 == 0)]
    balanced = len(y) / (classes * np.bincount(y))
    sample = np.linspace(0.5, 2.0, len(y))
    for class_weight, of_class in (
        ("balanced", balanced),
        ({0: 0.25, 1: 2.0, 2: 1.0}, np.array([0.25, 2.0, 1.0])),
        ({0: 0.0}, np.array([0.0, 1.0, 1.0])),
    ):
        if isinstance(class_weight, dict):
            class_weight = {label: weight for label, weight in class_weight.items() if label < classes}
        estimator = made(class_weight=class_weight, max_iter=3, tol=None, shuffle=False)
        assert learned(clone(estimator).fit(x, y)) == learned(epochs(made(), x, y, of_class[y]))
        if class_weight != "balanced":
            assert learned(epochs(estimator, x, y, sample)) == learned(epochs(made(), x, y, sample * of_class[y]))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(59), r"sample_weight must have shape \(60,\), got \(59,\)"),
        (np.ones((60, 1)), r"sample_weight must have shape \(60,\), got \(60, 1\)"),
        (np.zeros(60), "weights must not be negative, nor zero for all"),
        (np.linspace(-1.0, 1.0, 60), "weights must not be negative, nor zero for all"),
        (np.full(60, np.nan), "sample_weight contains NaN"),
    ],
)
def test_bad_weights_are_refused(weight, message):
    x, y = problem(2)
    with pytest.raises(ValueError, match=message):
        AROWClassifier().partial_fit(x, y, classes=[0, 1], sample_weight=weight)
    with pytest.raises(ValueError, match="weights must not be negative"):
        AROWClassifier(class_weight={0: -1.0}).fit(x, y)


# -- batches, and models that go on ----------------------------------------------------------------------


def test_partial_fit_refuses_what_it_cannot_mean():
    x, y = problem(2)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        AROWClassifier().partial_fit(x, y)
    with pytest.raises(ValueError, match="'balanced' is not supported for partial_fit"):
        AROWClassifier(class_weight="balanced").partial_fit(x, y, classes=[0, 1])
    with pytest.raises(ValueError, match="unseen labels"):
        AROWClassifier().partial_fit(x, y, classes=[0, 2])
    model = AROWClassifier().partial_fit(x, y, classes=[1, 0])
    assert model.classes_.tolist() == [0, 1]
    before = learned(model)
    with pytest.raises(ValueError, match="not the same as on the last call"):
        model.partial_fit(x, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="unseen labels"):
        model.partial_fit(x, y + 1)
    with pytest.raises(ValueError, match="3 features, but AROWClassifier is expecting 4"):
        model.partial_fit(x[:, :3], y)
    assert learned(model) == before


def test_parameters_may_change_between_batches_but_not_what_is_kept():
    x, y = problem(2, spread=3.0)
    model = PAMClassifier(C=0.01).partial_fit(x[:30], y[:30], classes=[0, 1])
    slow, fast = clone(model), clone(model)
    for estimator, price in ((slow, 0.01), (fast, 1.0)):
        estimator.partial_fit(x[:30], y[:30], classes=[0, 1])
        estimator.set_params(C=price).partial_fit(x[30:], y[30:])
    assert learned(slow) != learned(fast)
    with pytest.raises(LearnerError, match="keep other numbers"):
        fast.set_params(covariance="full").partial_fit(x, y)
    with pytest.raises(LearnerError, match="fit_intercept=False is not what the model was begun with"):
        fast.set_params(covariance="diagonal", fit_intercept=False).partial_fit(x, y)


def test_a_warm_start_needs_the_same_classes_and_columns():
    x, y = problem(3)
    model = PassiveAggressiveClassifier(warm_start=True).fit(x, y)
    with pytest.raises(ValueError, match="warm_start needs the model's classes"):
        model.fit(x, y + 1)
    with pytest.raises(ValueError, match="3 features"):
        model.fit(x[:, :3], y)
    assert clone(model).fit(x[:, :3], y == 1).coef_.shape == (1, 3)


@two_and_three
def test_fit_can_begin_from_given_weights(classes):
    x, y = problem(classes, spread=3.0)
    halves = PassiveAggressiveClassifier(shuffle=False, max_iter=1, tol=None)
    first = clone(halves).fit(x, y)
    expected = clone(halves).set_params(max_iter=2).fit(x, y)
    again = halves.fit(x, y, coef_init=first.coef_, intercept_init=first.intercept_)
    assert learned(again) == learned(expected)
    with pytest.raises(ValueError, match="coef_init must have shape"):
        halves.fit(x, y, coef_init=first.coef_[:, :3])
    with pytest.raises(ValueError, match="intercept_init must have shape"):
        halves.fit(x, y, intercept_init=np.zeros(5))


def test_sparse_weights_predict_and_learn_on():
    x, y = problem(3)
    model = PassiveAggressiveClassifier(random_state=0).fit(x, y)
    dense, scores = model.coef_.copy(), model.decision_function(x)
    assert sparse.issparse(model.sparsify().coef_)
    assert model.decision_function(x) == pytest.approx(scores, rel=1e-12)
    assert model.densify().densify().coef_.tolist() == dense.tolist()
    assert isinstance(model.sparsify().partial_fit(x, y).coef_, np.ndarray)


# -- averages --------------------------------------------------------------------------------------------


@two_and_three
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("start", [1, 10, 100])
def test_the_average_is_that_of_the_weights_after_each_example(classes, loss, start):
    x, y = problem(classes, spread=3.0)
    options = {"C": 0.1, "loss": loss}
    steps, single = [], PassiveAggressiveClassifier(**options)
    for _ in range(2):
        for i in range(60):
            steps.append(np.array(learned(single.partial_fit(x[i : i + 1], y[i : i + 1], classes=np.arange(classes)))))
    expected = np.mean(steps[start - 1 :], axis=0)
    fitted = PassiveAggressiveClassifier(**options, average=start, max_iter=2, tol=None, shuffle=False).fit(x, y)
    assert np.array(learned(fitted)) == pytest.approx(expected, rel=1e-12, abs=1e-14)
    batches = PassiveAggressiveClassifier(**options, average=start)
    for low, high in ((0, 7), (7, 60), (0, 60)):
        batches.partial_fit(x[low:high], y[low:high], classes=np.arange(classes))
    assert np.array(learned(batches)) == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_until_the_average_begins_the_weights_are_used():
    x, y = problem(2)
    late = PassiveAggressiveClassifier(average=61).partial_fit(x, y, classes=[0, 1])
    assert learned(late) == learned(PassiveAggressiveClassifier().partial_fit(x, y, classes=[0, 1]))
    begun = late.partial_fit(x[:1], y[:1])
    assert learned(begun) == learned(
        PassiveAggressiveClassifier().partial_fit(x, y, classes=[0, 1]).partial_fit(x[:1], y[:1])
    )


def test_an_average_may_begin_between_batches():
    x, y = problem(2, spread=3.0)
    late = PassiveAggressiveClassifier().partial_fit(x, y, classes=[0, 1])
    steps = [np.array(learned(late))]
    for i in range(10):
        steps.append(np.array(learned(late.partial_fit(x[i : i + 1], y[i : i + 1]))))
    again = PassiveAggressiveClassifier().partial_fit(x, y, classes=[0, 1])
    again.set_params(average=True).partial_fit(x[:10], y[:10])
    assert np.array(learned(again)) == pytest.approx(np.mean(steps[1:], axis=0), rel=1e-12)


def test_a_warm_start_begins_a_new_average_from_the_last_weights():
    x, y = problem(2, spread=3.0)
    options = {"shuffle": False, "max_iter": 1, "tol": None, "warm_start": True}
    averaged = PassiveAggressiveClassifier(average=True, **options).fit(x, y).fit(x, y)
    plain = PassiveAggressiveClassifier(**options).fit(x, y)
    expected = PassiveAggressiveClassifier(**options, average=True).fit(
        x, y, coef_init=plain.coef_, intercept_init=plain.intercept_
    )
    assert np.array(learned(averaged)) == pytest.approx(np.array(learned(expected)), rel=1e-12)
