"""The classifiers: River's own checks, the very weights of `palearn.make`, labels and names of all kinds."""

import copy
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import checks, compose, evaluate, metrics, preprocessing

import palearn
import palearn.river as adapters
from palearn.errors import LearnerError, RecordError
from palearn.learners import LEARNERS
from palearn.river import AROWClassifier, PAClassifier, PAMClassifier, SCWClassifier, TwoViewPAClassifier
from tests.streams import bits

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/river.md").read_text(encoding="utf-8")
CLASSES = [getattr(adapters, name) for name in adapters.__all__]
SETTINGS = [(cls, params) for cls in CLASSES for params in cls._unit_test_params()]
MORE: list[tuple[Any, dict[str, Any]]] = [
    (AROWClassifier, {"covariance": "full", "bias": False, "r": 0.5}),
    (AROWClassifier, {"covariance": "joint", "task": "multiclass", "constraints": "all"}),
    (PAMClassifier, {"projection": "precision", "tie": "positive", "C": 0.1}),
    (PAClassifier, {"positive": False}),
    (SCWClassifier, {"phi": 1.0}),
]
VIEWS = {"page": ["f0", "f1"], "link": ["f2"]}


def name_of(setting: Any) -> str:
    if isinstance(setting, type):
        return setting.__name__
    return " ".join(f"{name}={value}" for name, value in setting.items() if name != "views") or "defaults"


each_setting = pytest.mark.parametrize(("cls", "params"), SETTINGS, ids=name_of)


def stream(labels: list[Any], n: int = 120, seed: int = 1) -> Iterator[tuple[dict[str, float], Any]]:
    """Noisy examples of classes; features come and go."""
    dice = np.random.default_rng(seed)
    centres = dice.normal(size=(len(labels), 5))
    for i in range(n):
        c = int(dice.integers(len(labels)))
        x = 2 * centres[c] + dice.normal(size=5)
        yield {f"f{j}": float(x[j]) for j in range(min(3 + i // 20, 5)) if dice.random() < 0.9}, labels[c]


def with_views(params: dict[str, Any]) -> dict[str, Any]:
    """Put views of the stream's own features in place of those for River's datasets."""
    return params | ({"views": VIEWS} if "views" in params else {})


def options_of(model: Any) -> dict[str, Any]:
    """The options of `palearn.make` that a classifier stands for."""
    params = {name: getattr(model, name) for name in inspect.signature(type(model)).parameters}
    known = {p.name for p in LEARNERS[algorithm_of(model)].parameters}
    second = {"eta"} if params.get("phi") is not None else set()
    return {name: v for name, v in params.items() if name in known - second or name in ("task", "bias", "tie")}


def algorithm_of(model: Any) -> str:
    return model.modes[getattr(model, "mode", min(model.modes))]


# -- River's own checks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "params"), SETTINGS + MORE, ids=name_of)
def test_river_s_own_checks(cls, params):
    assert cls(**params)._unit_test_skips() == set()
    checks.check_estimator(cls(**params))


# -- parameters -------------------------------------------------------------------------------------------


def test_every_learner_has_a_classifier():
    assert sorted(name for cls in CLASSES for name in cls.modes.values()) == sorted(LEARNERS)


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
def test_parameters_are_those_of_the_table(cls):
    rows = [LEARNERS[name] for name in cls.modes.values()]
    expected = {p.name: p.default for row in rows for p in row.parameters} | {"bias": True, "positive": None}
    expected |= {"tie": "negative"} | ({"task": "binary"} if len(rows[0].tasks) > 1 else {})
    expected |= {"mode": 1} if len(rows) > 1 else {}
    expected |= {"views": None} if rows[0].views else {}
    parameters = inspect.signature(cls).parameters
    assert {name: p.default for name, p in parameters.items()} == expected
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    for name in parameters:
        assert re.search(rf"^{name} : .+, default=", cls.__doc__, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("cls", "params", "message"),
    [
        (PAClassifier, {"C": -1.0}, "pa1: C must be .*> 0, got -1"),
        (PAClassifier, {"C": "1"}, "C must be"),
        (PAClassifier, {"mode": 3}, "PAClassifier: mode must be 0 or 1 or 2, got 3"),
        (PAClassifier, {"mode": [1]}, "mode must be"),
        (PAClassifier, {"mode": 0, "C": 0.1}, "pa: unknown option 'C'"),
        (PAClassifier, {"task": "regression"}, "task must be"),
        (PAClassifier, {"task": "multiclass", "positive": "spam"}, "positive"),
        (PAClassifier, {"positive": ["spam"]}, "positive must be a label"),
        (AROWClassifier, {"covariance": "joint"}, "multiclass"),
        (SCWClassifier, {"phi": 1.0, "eta": 0.8}, "phi or eta, not both"),
        (TwoViewPAClassifier, {"views": {"page": []}}, "two views or more"),
        (TwoViewPAClassifier, {"views": {"a:b": [], "c": []}}, "without ':'"),
        (TwoViewPAClassifier, {"views": {"a": ["f"], "c": ["f"]}}, "'f' is in two views"),
    ],
)
def test_parameters_are_checked_when_made(cls, params, message):
    with pytest.raises(LearnerError, match=message):
        cls(**params)


# -- the models of palearn.make ---------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "params"), SETTINGS + MORE[:3], ids=name_of)
def test_the_same_model_as_palearn_s(cls, params):
    model = cls(**with_views(params))
    plain = palearn.make(algorithm_of(model), **options_of(model))
    labels = ["x", "y", "z"] if model._multiclass else [True, False]
    for i, (x, y) in enumerate(stream(labels)):
        views = {"page": {}, "link": {}}
        for name, value in x.items():
            views["page" if name in VIEWS["page"] else "link"][name] = value
        features = views if "views" in params else x
        assert model.predict_one(x) == (plain.predict_one(features) if i else None)
        assert model.score_one(x) == plain.score_one(features)
        assert model.learn_one(x, y, w=1.0 + i % 2) is None
        plain.learn_one(features, y, weight=1.0 + i % 2)
    assert model.model.to_bytes() == plain.to_bytes()
    assert bits(model.weights) == bits(plain.weights())
    assert bits(model.variances) == bits(plain.variances())
    assert model.model.n_updates > 5


@each_setting
def test_copies_learn_on_alike(cls, params):
    model = cls(**params)
    labels = ["x", "y", "z"] if model._multiclass else ["spam", "ham"]
    examples = list(stream(labels))
    for x, y in examples[:60]:
        model.learn_one(x, y)
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.clone(include_attributes=True)]
    fresh = model.clone()
    assert fresh.weights == {}
    for x, y in examples[60:]:
        model.learn_one(x, y)
    for other in copies:
        for x, y in examples[60:]:
            other.learn_one(x, y)
        assert other.model.to_bytes() == model.model.to_bytes()
        assert repr(other) == repr(model)
    for x, y in examples:
        fresh.learn_one(x, y)
    assert fresh.model.to_bytes() == model.model.to_bytes()


def test_memory_follows_the_features_and_not_the_examples():
    model = PAClassifier()
    used = []
    for _ in range(3):
        for x, y in stream([True, False], n=2000):
            model.learn_one(x, y)
        used.append(model._raw_memory_usage)
    assert used[0] == used[1] == used[2]
    model.learn_one({f"new{j}": 1.0 for j in range(1000)}, True)
    assert 1000 * 8 < model._raw_memory_usage - used[2] < 1000 * 1000
    assert model._memory_usage.endswith("B")


# -- in River's company -----------------------------------------------------------------------------------


@each_setting
def test_in_a_pipeline_under_progressive_validation(cls, params):
    labels = ["x", "y", "z"] if "task" in params else ["spam", "ham"]
    params = with_views(params)
    pipeline = preprocessing.StandardScaler() | cls(**params)
    found = evaluate.progressive_val_score(stream(labels, 400), pipeline, metrics.Accuracy())
    # The same by hand: scale and predict, then learn to scale, scale and learn; no prediction, no score.
    scaler, model, right = preprocessing.StandardScaler(), cls(**params), []
    for x, y in stream(labels, 400):
        predicted = model.predict_one(scaler.transform_one(x))
        right += [] if predicted is None else [predicted == y]
        scaler.learn_one(x)
        model.learn_one(scaler.transform_one(x), y)
    assert found.get() == np.mean(right)
    assert len(right) > 390
    assert found.get() > 0.65  # by chance: a half, or a third
    assert bits(pipeline[cls.__name__].weights) == bits(model.weights)
    assert bits(pipeline.score_one(x)) == bits(model.score_one(scaler.transform_one(x)))


def test_weights_of_examples_come_with_the_stream():
    weighted = [(x, y, {"w": 1.0 + i % 3}) for i, (x, y) in enumerate(stream([True, False]))]
    model, plain = PAClassifier(C=0.1), PAClassifier(C=0.1)
    evaluate.progressive_val_score(copy.deepcopy(weighted), model, metrics.Accuracy())
    for x, y, kwargs in weighted:
        plain.learn_one(x, y, w=kwargs["w"])
    assert bits(model.weights) == bits(plain.weights)
    for x, y, _ in weighted:
        plain.learn_one(x, y)
    assert bits(model.weights) != bits(plain.weights)


def test_features_of_a_union_of_transformers():
    words = compose.TransformerUnion(compose.SelectType(float), compose.SelectType(str)) | PAClassifier(bias=False)
    words.learn_one({"free": 1.0, "lang": "en", "n": 3}, True)
    assert words["PAClassifier"].weights == {"free": 0.5, "lang=en": 0.5}


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_margin_is_no_probability(task):
    model = PAClassifier(task=task)
    model.learn_one({"f": 1.0}, True)
    with pytest.raises(NotImplementedError):
        model.predict_proba_one({"f": 1.0})
    with pytest.raises(NotImplementedError):
        evaluate.progressive_val_score(stream([True, False]), model, metrics.LogLoss())


# -- labels -----------------------------------------------------------------------------------------------


def test_the_first_text_label_is_the_positive_class():
    model, named, flags = PAClassifier(), PAClassifier(positive="ham"), PAClassifier()
    examples = list(dropwhile(lambda example: example[1] != "ham", stream(["ham", "spam"])))
    assert model.predict_one({"f0": 1.0}) is None
    for x, y in examples:
        model.learn_one(x, y)
        named.learn_one(x, y)
        flags.learn_one(x, y == "ham")
    assert model.model.labels == ["spam", "ham"]
    assert model.model.to_bytes() == named.model.to_bytes()
    assert bits(model.weights) == bits(flags.weights)
    assert {model.predict_one(x) for x, _ in examples} == {"ham", "spam"}
    assert all((model.predict_one(x) == "ham") == flags.predict_one(x) for x, _ in examples)
    assert model.positive is None
    assert model.clone().positive is None


def test_only_labels_that_were_seen_are_predicted():
    model = PAClassifier()
    for label in ("a", "b"):
        assert model.predict_one({"f": 1.0}) in (None, "a")
        model.learn_one({"f": 1.0 if label == "a" else -1.0}, label)
        assert model.predict_one({"f": 2.0}) == "a"
        assert model.predict_one({"f": -2.0}) == (None if label == "a" else "b")
    numbers = PAClassifier()
    numbers.learn_one({"f": 1.0}, 1)
    assert (numbers.predict_one({"f": 2.0}), numbers.predict_one({"f": -2.0})) == (1, None)
    numbers.learn_one({"f": -1.0}, 0)
    assert (numbers.predict_one({"f": 2.0}), numbers.predict_one({"f": -2.0})) == (1, 0)
    flags = PAClassifier()
    assert flags.predict_one({"f": 1.0}) is None
    flags.learn_one({"f": 1.0}, np.bool_(True))
    assert (flags.predict_one({"f": 2.0}), flags.predict_one({"f": -2.0})) == (True, False)


def test_labels_of_other_kinds_are_refused_and_change_nothing():
    for first, others in (("spam", ["ham", "eggs"]), (True, ["spam"]), (np.str_("spam"), ["ham", 3])):
        model = PAClassifier()
        model.learn_one({"f": 1.0}, first)
        for label in others[:-1]:
            model.learn_one({"f": -1.0}, label)
        before = model.model.to_bytes()
        with pytest.raises(RecordError, match=r"not_binary|bad_label"):
            model.learn_one({"f": 1.0}, others[-1])
        assert model.model.to_bytes() == before
    model = PAClassifier()
    with pytest.raises(RecordError, match="non_finite"):
        model.learn_one({"f": float("nan")}, "spam")
    model.learn_one({"f": 1.0}, True)
    assert model.predict_one({"f": 1.0}) is True


def test_classes_of_all_kinds():
    model = AROWClassifier(task="multiclass")
    assert model._multiclass
    assert model.predict_one({"f": 1.0}) is None
    for _ in range(3):
        for j, label in enumerate(["x", 3, True]):
            model.learn_one({j: 1.0}, label)
    assert [model.predict_one({j: 1.0}) for j in range(3)] == ["x", 3, True]
    assert list(model.score_one({0: 1.0})) == ["x", 3, True]


# -- features ---------------------------------------------------------------------------------------------


def test_names_that_are_no_text_are_taken_as_their_text():
    model = PAClassifier(bias=False)
    model.learn_one({0: 1.0, ("a", "b"): 1.0, "c": 1.0}, True)
    assert list(model.weights) == ["0", "('a', 'b')", "c"]
    assert model.predict_one({0: 1.0}) is True
    with pytest.raises(RecordError, match="same name"):
        model.learn_one({1: 1.0, "1": 2.0}, True)


@pytest.mark.parametrize("x", [[1, 2], "f", None])
@pytest.mark.parametrize("model", [PAClassifier(), TwoViewPAClassifier(), TwoViewPAClassifier(views=VIEWS)])
def test_features_that_are_no_mapping_are_refused(model, x):
    for call in (model.predict_one, model.score_one, lambda x: model.learn_one(x, True)):
        with pytest.raises(RecordError, match="must be a mapping"):
            call(x)


def test_views_by_names_and_as_they_come():
    nested, sorted_ = TwoViewPAClassifier(), TwoViewPAClassifier(views={"page": ["a", 1], "link": []})
    for y in (True, False, True):
        nested.learn_one({"page": {"a": 1.0, 1: 2.0}, "link": {"b": 1.0}}, y)
        sorted_.learn_one({"a": 1.0, "b": 1.0, 1: 2.0}, y)
    assert bits(nested.weights) == bits(sorted_.weights)
    assert list(sorted_.weights["page"]) == ["(bias)", "a", "1"]
    assert list(sorted_.weights["link"]) == ["(bias)", "b"]
    with pytest.raises(RecordError, match="views"):
        TwoViewPAClassifier().learn_one({"a": 1.0}, True)


# -- the module -------------------------------------------------------------------------------------------


def test_the_document_runs():
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs/river.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    scope: dict[str, Any] = {}
    exec(compile(code, "river.md", "exec"), scope)
    model = scope["model"]
    assert model.predict_one({"links": 1.9, "length": 0.2}) == "spam"
    assert list(model["AROWClassifier"].weights) == ["(bias)", "links", "length"]
    assert scope["accuracy"].get() > 0.9


def test_the_document_lists_every_classifier():
    table = re.findall(r"^\| `([A-Z]\w+)` \| (.*) \| (.*)\|", DOCUMENT, re.MULTILINE)
    assert sorted(name for name, _, _ in table) == sorted(adapters.__all__)
    for name, learners, many in table:
        cls = getattr(adapters, name)
        assert re.findall(r"`([a-z]\w+)`", learners.replace("`mode`", "")) == list(cls.modes.values())
        assert (many.strip() == "yes") == ("task" in inspect.signature(cls).parameters)


def test_without_river_the_error_says_what_to_install():
    code = "import sys; sys.modules['river'] = None\nimport palearn.river"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"ImportError: palearn.river needs River .*: pip install 'palearn\[river\]'", done.stderr)


def test_palearn_itself_does_not_import_river():
    code = "import sys, palearn; print('river' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
