"""What the estimators' documentation says, and which parameters they take and refuse."""

import doctest
import inspect
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import palearn.sklearn as adapters
from palearn.errors import LearnerError
from palearn.learners import LEARNERS, Parameter
from palearn.sklearn import AROWClassifier, CWClassifier, NHERDClassifier, SCWClassifier
from palearn.sklearn.documented import AVERAGE, COMMON

ROOT = Path(__file__).parents[2]
CLASSES = [getattr(adapters, name) for name in adapters.__all__]
each_class = pytest.mark.parametrize("made", CLASSES, ids=lambda made: made.__name__)


def problem(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy examples of each class."""
    random = np.random.default_rng(0)
    y = np.arange(60) % classes
    return random.normal(size=(60, 5)) + np.eye(5)[y], np.array(["ham", "spam", "eggs"])[y]


# -- the documentation -----------------------------------------------------------------------------------


@each_class
def test_the_example_of_a_docstring_runs(made):
    (test,) = doctest.DocTestFinder(recurse=False).find(made, made.__name__, globs={})
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


@each_class
def test_a_docstring_names_each_parameter_with_its_default(made):
    section = re.search(r"Parameters\n-+\n(.*?)\n\nAttributes\n-+\n", made.__doc__, flags=re.DOTALL).group(1)
    documented = dict(re.findall(r"^(\w+) : .*default=(.*)$", section, flags=re.MULTILINE))
    assert documented == {name: repr(value) for name, value in made().get_params().items()}


@each_class
def test_defaults_are_those_of_the_table(made):
    table = {p.name: p.default for name in made.algorithms for p in LEARNERS[name].parameters}
    own = {name: value for name, value in made().get_params().items() if name in table}
    # None leaves the choice of eta or phi to the table, where eta is 0.9.
    assert own == {name: None if "phi" in own and name == "eta" else table[name] for name in own}
    common = {p.name: p.default for p in COMMON}
    assert {name: made().get_params()[name] for name in common} == common
    assert set(table) - set(own) <= {"as_printed"}


def test_the_example_of_the_document_runs():
    text = (ROOT / "docs" / "sklearn.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(code, "sklearn.md", "exec"), scope)
    assert list(scope["model"].predict(["a free prize"])) == ["spam"]
    assert scope["search"].best_score_ == 1.0


def test_the_document_lists_every_estimator():
    text = (ROOT / "docs" / "sklearn.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|(.*)\|$", text, flags=re.MULTILINE)
    assert {
        name: (re.findall(r"`(\w+)`", learners), classes, weights.strip()) for name, learners, classes, weights in rows
    } == {
        made.__name__: (
            [*made.algorithms[1:], made.algorithms[0]] if made.hard_margin else list(made.algorithms),
            "one against all others" if made.one_versus_all else "one model",
            "yes" if "class_weight" in made().get_params() else "",
        )
        for made in CLASSES
    }


def test_without_scikit_learn_the_import_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; import palearn.sklearn"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: palearn.sklearn needs scikit-learn 1.6 or newer: pip install 'palearn[sklearn]'" in done.stderr


# -- parameters ------------------------------------------------------------------------------------------


def faults(parameter: Parameter) -> list[object]:
    """Values outside a parameter's domain."""
    bad: list[object] = ["no such word", [], np.nan, -1, math.inf]
    bad += [0] * (parameter.above == 0) + [1.5] * (parameter.integer or parameter.below == 1)
    return bad + [None] * (not parameter.optional)


@each_class
def test_parameters_are_checked_when_learning_begins(made):
    x, y = problem(3)
    declared = {p.name: p for name in made.algorithms for p in LEARNERS[name].parameters} | {p.name: p for p in COMMON}
    declared |= {AVERAGE.name: AVERAGE}
    for name in set(made().get_params()) & set(declared):
        for value in faults(declared[name]):
            if name == "C" and value == math.inf and made.hard_margin:
                continue
            estimator = made(**{name: value})
            with pytest.raises(LearnerError, match=rf": {name} must be .*, got "):
                estimator.fit(x, y)
            with pytest.raises(LearnerError, match=rf": {name} must be .*, got "):
                estimator.partial_fit(x, y, classes=np.unique(y))
            with pytest.raises(NotFittedError):
                estimator.predict(x)


def test_numbers_of_numpy_are_numbers():
    x, y = problem(3)
    grid = {"r": np.logspace(-1, 1, 3), "constraints": np.arange(1, 3), "fit_intercept": np.array([True, False])}
    search = GridSearchCV(AROWClassifier(random_state=0), grid, cv=2).fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(x).shape == (60,)


@pytest.mark.parametrize("made", [CWClassifier, SCWClassifier])
def test_eta_or_phi_but_not_both(made):
    x, y = problem(2)
    usual = made(eta=0.9, random_state=0).fit(x, y)
    assert made(random_state=0).fit(x, y).coef_.tolist() == usual.coef_.tolist()
    one_deviation = made(eta=0.8413447460685429, random_state=0).fit(x, y)
    assert made(phi=1.0, random_state=0).fit(x, y).coef_ == pytest.approx(one_deviation.coef_, rel=1e-9)
    with pytest.raises(LearnerError, match="give phi or eta, not both"):
        made(eta=0.9, phi=1.0).fit(x, y)


def test_a_covariance_that_would_not_fit_is_refused():
    x, y = problem(3)
    with pytest.raises(LearnerError, match=r"holds at most 4 features \(max_full_features\), got 5"):
        NHERDClassifier(covariance="full", max_full_features=4).fit(x, y)
    NHERDClassifier(covariance="full", max_full_features=5).fit(x, y)
    with pytest.raises(LearnerError, match=r"holds at most 2 classes \(max_classes\), got 3"):
        AROWClassifier(covariance="joint", max_classes=2).fit(x, y)
    with pytest.raises(LearnerError, match="joint"):
        AROWClassifier(covariance="joint").fit(*problem(2))


def test_signatures_have_keywords_only():
    for made in CLASSES:
        kinds = {parameter.kind for parameter in inspect.signature(made).parameters.values()}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
