"""The estimators: scikit-learn's own checks, any kind of input, the very weights of `palearn.make`."""

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import palearn
import palearn.sklearn as adapters
from palearn.learners import LEARNERS
from palearn.sklearn import (
    AROWClassifier,
    PAMClassifier,
    PAMeanClassifier,
    PassiveAggressiveClassifier,
    SCWClassifier,
    SecondOrderPerceptronClassifier,
    SupportClassPAClassifier,
)

CLASSES = [getattr(adapters, name) for name in adapters.__all__]
#: One of each estimator, and those whose options change what is kept.
VARIANTS = [
    *(made() for made in CLASSES),
    PassiveAggressiveClassifier(loss="squared_hinge", average=True),
    PAMClassifier(covariance="full", constraints="all"),
    AROWClassifier(covariance="full", loss="hinge"),
    SecondOrderPerceptronClassifier(covariance="full"),
    PAMeanClassifier(queue=3, freeze_mean_after=20),
]
EPOCHS = {"max_iter": 3, "tol": None}


def problem(classes: int, n: int = 60, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noisy examples with some exact zeros; every class is there."""
    random = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), random.integers(0, classes, n - classes)])
    x = random.normal(size=(n, d)) + random.normal(size=(classes, d))[y]
    return np.where(random.random((n, d)) < 0.2, 0.0, x), np.array(["ham", "spam", "eggs"])[y]


def numbers(estimator):
    """Everything that an estimator has learned, as bytes."""
    found = [estimator.coef_, estimator.intercept_]
    if hasattr(type(estimator), "variances_"):
        found.append(estimator.variances_)
    return [np.ascontiguousarray(array).tobytes() for array in found]


each_class = pytest.mark.parametrize("made", CLASSES, ids=lambda made: made.__name__)
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=repr)
two_and_three = pytest.mark.parametrize("classes", [2, 3])


# -- scikit-learn's own checks ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # some checks allow few epochs only
@parametrize_with_checks([made() for made in CLASSES])
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it, scikit-learn skips one check
    check(estimator)


def test_every_learner_of_columns_has_an_estimator():
    assert {name for made in CLASSES for name in made.algorithms} == {
        name for name, row in LEARNERS.items() if not row.views
    }


# -- input -----------------------------------------------------------------------------------------------


@two_and_three
@each_variant
def test_dense_and_sparse_input_give_the_same_bits(variant, classes):
    x, y = problem(classes)
    estimator = clone(variant).set_params(random_state=3, **EPOCHS)
    expected = numbers(clone(estimator).fit(x, y))
    columns = np.tile(np.arange(x.shape[1])[::-1], (len(x), 1)).ravel()
    explicit = sparse.csr_array((x[:, ::-1].ravel(), columns, np.arange(len(x) + 1) * x.shape[1]), shape=x.shape)
    assert not explicit.has_sorted_indices
    before = explicit.copy()
    same = [sparse.csr_array(x), sparse.csr_matrix(x), sparse.csc_array(x), sparse.coo_matrix(x), np.asfortranarray(x)]
    for kind in [explicit, *same, x.tolist()]:
        assert numbers(clone(estimator).fit(kind, y)) == expected
    assert explicit.data.tobytes() == before.data.tobytes()
    assert np.array_equal(explicit.indices, before.indices)


def test_repeated_entries_are_summed():
    x, y = problem(2)
    twice = sparse.coo_array(
        (np.concatenate([x.ravel() / 2] * 2), (np.tile(np.repeat(np.arange(60), 5), 2), np.tile(np.arange(5), 120))),
        shape=x.shape,
    )
    assert numbers(AROWClassifier(random_state=0).fit(twice.tocsr(), y)) == numbers(
        AROWClassifier(random_state=0).fit(x, y)
    )


def test_float32_is_computed_as_the_float64_it_stands_for():
    x, y = problem(3)
    single = x.astype(np.float32)
    assert numbers(PAMClassifier(random_state=0).fit(single, y)) == numbers(
        PAMClassifier(random_state=0).fit(single.astype(np.float64), y)
    )


@each_variant
def test_input_is_not_changed_and_one_row_is_enough(variant):
    x, y = problem(3)
    weight = np.linspace(0.0, 1.0, len(y))
    kept = [array.copy() for array in (x, y, weight)]
    estimator = clone(variant).set_params(**EPOCHS).fit(x, y).partial_fit(x, y, sample_weight=weight)
    assert all(np.array_equal(array, was) for array, was in zip((x, y, weight), kept, strict=True))
    scores = estimator.decision_function(x)
    assert scores.shape == (60, 3)
    assert estimator.decision_function(x[:1]).shape == (1, 3)
    assert list(estimator.predict(sparse.csr_array(x[7:8]))) == list(estimator.predict(x)[7:8])
    assert list(estimator.predict(x)) == list(estimator.classes_[scores.argmax(axis=1)])


# -- the same learners as everywhere ---------------------------------------------------------------------


def approx(expected):
    """Equal but for rounding."""
    return pytest.approx(expected, rel=1e-12, abs=1e-12)


def options_of(estimator) -> dict[str, object]:
    """The learner's options, as `palearn.make` takes them."""
    row = LEARNERS[estimator._algorithm()]
    given = {name: value for name, value in estimator.get_params().items() if value is not None}
    return {p.name: given[p.name] for p in row.parameters if p.name in given}


@pytest.mark.parametrize("bias", [True, False])
@each_variant
def test_two_classes_have_the_bits_of_palearn_make(variant, bias):
    x, y = problem(2)
    x[x == 0.0] = 0.5
    estimator = clone(variant).set_params(fit_intercept=bias)
    if "average" in estimator.get_params():
        estimator.set_params(average=False)
    for low in range(0, 60, 20):
        estimator.partial_fit(x[low : low + 20], y[low : low + 20], classes=["ham", "spam"])
    model = palearn.make(estimator._algorithm(), positive="spam", bias=bias, **options_of(estimator))
    for row, label in zip(x, y, strict=True):
        model.learn_one({f"f{j}": value for j, value in enumerate(row.tolist())}, label)
    names = [f"f{j}" for j in range(5)]
    # In a full covariance, rounding depends on the order of the features: there the constant is first, here last.
    same = approx if bias and variant.get_params().get("covariance") == "full" else list
    weights, variances = model.weights(), model.variances()
    assert same([weights[name] for name in names]) == estimator.coef_[0].tolist()
    assert same([w for name, w in weights.items() if name not in names]) == estimator.intercept_.tolist()[: int(bias)]
    assert bool(variances) == hasattr(estimator, "variances_")
    if variances:
        assert same([variances[name] for name in names]) == estimator.variances_[0].tolist()
    row = x[0] + 0.25
    score = model.score_one(dict(zip(names, row.tolist(), strict=True)))
    assert estimator.decision_function([row])[0] == approx(score)


@pytest.mark.parametrize(
    "variant",
    [variant for variant in VARIANTS if not variant.one_versus_all] + [AROWClassifier(covariance="joint")],
    ids=repr,
)
def test_many_classes_have_the_bits_of_palearn_make(variant):
    x, y = problem(3)
    x[x == 0.0] = 0.5
    estimator = clone(variant).set_params(fit_intercept=False).partial_fit(x, y, classes=np.unique(y))
    model = palearn.make(estimator._algorithm(), task="multiclass", bias=False, **options_of(estimator))
    for label in estimator.classes_:
        model.learn_one({}, label)  # makes a class known, and moves nothing
    for row, label in zip(x, y, strict=True):
        model.learn_one({f"f{j}": value for j, value in enumerate(row.tolist())}, label)
    for found, expected in (
        (model.weights(), estimator.coef_),
        (model.variances(), getattr(estimator, "variances_", [])),
    ):
        assert [list(row.values()) for row in found.values()] == np.asarray(expected).tolist()


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.one_versus_all], ids=repr)
def test_one_against_all_others_is_a_model_a_class(variant):
    x, y = problem(3)
    estimator = clone(variant).set_params(shuffle=False, **EPOCHS)
    together = clone(estimator).fit(x, y)
    for k, label in enumerate(together.classes_):
        alone = clone(estimator).fit(x, y == label)
        assert together.coef_[k].tolist() == alone.coef_[0].tolist()
        assert together.decision_function(x)[:, k] == approx(alone.decision_function(x))


@pytest.mark.parametrize(
    ("made", "learners"),
    [
        (PassiveAggressiveClassifier, ("pa1", "pa2", "pa")),
        (SupportClassPAClassifier, ("spa1", "spa2", "spa")),
        (PAMClassifier, ("pam1", "pam2", "pam")),
        (PAMeanClassifier, ("pa_mean1", "pa_mean2", "pa_mean")),
        (SCWClassifier, ("scw1", "scw2")),
    ],
)
def test_the_loss_and_an_infinite_C_name_the_learner(made, learners):
    x, y = problem(2)
    chosen = [{"C": 0.1, "loss": "hinge"}, {"C": 0.1, "loss": "squared_hinge"}]
    chosen += [{"C": math.inf, "loss": "squared_hinge"}] * (len(learners) - 2)
    for name, options in zip(learners, chosen, strict=True):
        estimator = made(**options, fit_intercept=False).partial_fit(x, y, classes=["ham", "spam"])
        model = palearn.make(name, positive="spam", bias=False, **({} if math.isinf(options["C"]) else {"C": 0.1}))
        for row, label in zip(x, y, strict=True):
            model.learn_one({f"f{j}": value for j, value in enumerate(row.tolist())}, label)
        assert [model.weights()[f"f{j}"] for j in range(5)] == estimator.coef_[0].tolist()


@each_class
def test_a_score_of_zero_is_the_first_class(made):
    x, y = problem(2)
    estimator = made(fit_intercept=False, random_state=0).fit(x, y)
    assert estimator.decision_function(np.zeros((1, 5))).tolist() == [0.0]
    assert estimator.predict(np.zeros((1, 5))).tolist() == ["ham"]


# -- at home in scikit-learn -----------------------------------------------------------------------------

MAILS = ["free prize now", "meeting at noon", "free cash", "notes of the meeting", "cash prize", "lunch at noon"] * 3
FOLDERS = np.array(["spam", "work", "spam", "work", "spam", "home"] * 3, dtype=object)


@each_class
def test_in_a_pipeline_with_text(made):
    for vectorizer in (TfidfVectorizer(), HashingVectorizer(n_features=2**12)):
        pipeline = make_pipeline(vectorizer, made(random_state=0)).fit(MAILS, FOLDERS)
        assert pipeline.score(MAILS, FOLDERS) == 1.0
        assert list(pipeline.predict(["free cash prize"])) == ["spam"]
    assert clone(pipeline).get_params()["hashingvectorizer__n_features"] == 2**12


@each_class
def test_in_a_search_over_a_scaled_pipeline(made):
    x, y = problem(2)
    pipeline = make_pipeline(StandardScaler(), made(random_state=0))
    search = GridSearchCV(pipeline, {f"{made.__name__.lower()}__n_iter_no_change": [2, 5]}, cv=3).fit(x, y)
    assert search.best_score_ > 0.6


@two_and_three
@each_variant
def test_copies_learn_on_with_the_same_bits(variant, classes):
    x, y = problem(classes)
    estimator = clone(variant).partial_fit(x[:30], y[:30], classes=np.unique(y))
    copies = [pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)]
    estimator.partial_fit(x[30:], y[30:])
    for other in copies:
        assert numbers(other) != numbers(estimator)
        assert numbers(other.partial_fit(x[30:], y[30:])) == numbers(estimator)
        assert list(other.predict(x)) == list(estimator.predict(x))
