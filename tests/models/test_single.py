"""One model, one key: River's conventions over the arrays and bytes of the stream."""

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import palearn
from palearn.errors import LearnerError, RecordError
from palearn.learners import LEARNERS
from tests import naive
from tests.streams import bits, seconds

X = {"free": 1, "len": 0.3}
EVERY = [(name, task) for name, row in LEARNERS.items() for task in row.tasks]


def example(name: str) -> dict[str, Any]:
    return {"page": X, "link": {"cs": 1}} if LEARNERS[name].views else X


# -- make, learn, predict ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "task"), EVERY)
def test_every_learner_learns(name: str, task: str) -> None:
    labels = [1, -1] if task == "binary" else ["x", "y"]
    x, other = example(name), {"other": 1} if not LEARNERS[name].views else {"page": {"other": 1}, "link": {"o": 1}}
    m = palearn.make(name, task=task)
    for _ in range(5):
        assert m.learn_one(x, labels[0]) is m
        m.learn_one(other, labels[1])
    assert m.predict_one(x) == labels[0]
    assert m.predict_one(other) == labels[1]
    assert (m.n_seen, m.n_learned) == (10, 10)
    assert 0 < m.n_updates <= 10
    assert m.labels == (labels if task == "multiclass" else labels[::-1])
    assert name in repr(m)


def test_binary_by_hand() -> None:
    m = palearn.make("pa", bias=False)
    assert m.predict_one({"f": 1}) == -1
    assert m.score_one({"f": 1}) == 0.0
    assert m.weights() == {}
    m.learn_one({"f": 2}, 1)
    assert m.weights() == {"f": 0.5}
    assert m.score_one({"f": 3, "unseen": 9}) == 1.5
    assert m.predict_one({"f": 3}) == 1
    assert m.variances() == {}


def test_the_bias_is_a_feature() -> None:
    assert palearn.make("pa").learn_one({"f": 2}, 1).weights() == pytest.approx({"(bias)": 0.2, "f": 0.4})


def test_arow_by_hand() -> None:
    for covariance in ("diagonal", "full"):
        m = palearn.make("arow", r=2.0, bias=False, covariance=covariance).learn_one({"a": 1, "b": 2}, 1)
        assert m.weights() == pytest.approx({"a": 1 / 7, "b": 2 / 7}, rel=1e-14)
        assert m.variances() == pytest.approx({"a": 6 / 7, "b": 3 / 7}, rel=1e-14)


def test_classes_by_hand() -> None:
    m = palearn.make("pa", task="multiclass", bias=False)
    assert m.predict_one({"a": 1}) is None
    assert m.score_one({"a": 1}) == {}
    m.learn_one({"a": 1}, "x").learn_one({"a": 1, "b": 2}, 7)
    weights = m.weights()
    assert list(weights) == ["x", 7]
    assert weights["x"] == pytest.approx({"a": -0.1, "b": -0.2})
    assert weights[7] == pytest.approx({"a": 0.1, "b": 0.2})
    assert m.score_one({"b": 10}) == pytest.approx({"x": -2.0, 7: 2.0})
    assert m.predict_one({"b": 10}) == 7
    assert m.predict_one({"b": -10}) == "x"
    assert m.predict_one({}) == "x"  # ties: the earliest class


def test_variances_of_classes() -> None:
    m = palearn.make("arow", task="multiclass", bias=False, initial_variance=2.0)
    m.learn_one({"a": 1}, "x").learn_one({"a": 1}, "y").learn_one({"b": 1}, "x")
    # The second record: v = 2 and 2, beta = 1/(1 + 4); 2 - 4/5. The third has a loss of 1 too: the same on b.
    assert m.variances()["x"] == pytest.approx({"a": 1.2, "b": 1.2})
    assert m.variances()["y"] == pytest.approx({"a": 1.2, "b": 1.2})


def test_views_by_hand() -> None:
    m = palearn.make("two_view_pa", C=0.1, gamma=0.5)
    m.learn_one({"page": {"f": 1}, "link": {"g": 1}}, 1)
    # Both views alike, so no disagreement: tau = C, half of it to each.
    expected = {"page": {"(bias)": 0.05, "f": 0.05}, "link": {"(bias)": 0.05, "g": 0.05}}
    assert {view: pytest.approx(w) for view, w in expected.items()} == m.weights()
    assert m.score_one({"page": {"f": 1}, "link": {"g": 1}}) == pytest.approx(0.1)
    assert m.score_one({"page": {"f": 1}, "link": {}}) == pytest.approx(0.5 * (0.1 + 0.05))


def test_another_learner_takes_views_as_all_features() -> None:
    m = palearn.make("pa", bias=False).learn_one({"page": {"f": 1}, "link": {"f": 1}}, 1)
    assert m.weights() == {"page:f": 0.5, "link:f": 0.5}


@pytest.mark.parametrize("tie", ["negative", "positive"])
def test_tie(tie: str) -> None:
    assert palearn.make("pa", tie=tie).predict_one(X) == (1 if tie == "positive" else -1)


TWINS = [("pa1", {"C": 0.3}), ("pa2", {"C": 0.3}), ("pam1", {"C": 0.5}), ("arow", {"r": 0.7, "covariance": "full"})]


@pytest.mark.parametrize(("name", "params"), TWINS, ids=[name for name, _ in TWINS])
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_as_the_literal_twin_of_the_paper(name: str, params: dict[str, Any], task: str) -> None:
    dice = np.random.default_rng(4)
    m, twin = palearn.make(name, task=task, bias=False, **params), naive.make(name, task=task, **params)
    labels: list[Any] = [1, -1] if task == "binary" else ["x", "y", "z"]
    for i in range(40):
        x = {f"f{j}": float(dice.normal()) for j in range(dice.integers(1, 2 + min(i, 4)))}
        y = labels[dice.integers(len(labels))]
        assert m.score_one(x) == pytest.approx(twin.score(x), abs=1e-9)
        m.learn_one(x, y)
        twin.learn(x, y)
    assert max(map(abs, np.concatenate(list(twin.w.values())))) > 0.1


# -- labels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        ([True, False], None, [False, True]),
        ([1, 0], None, [0, 1]),
        ([1, -1], None, [-1, 1]),
        ([2.5, -0.5], None, [-0.5, 2.5]),
        ([np.int64(1), np.int64(0)], None, [0, 1]),
        ([np.bool_(True), np.bool_(False)], None, [False, True]),
        ([np.float64(1.0), np.float64(-1.0)], None, [-1.0, 1.0]),
        (["spam", "ham"], "spam", ["ham", "spam"]),
        ([np.str_("spam"), np.str_("ham")], "spam", ["ham", "spam"]),
        ([7, 8], 7, [8, 7]),
        ([0, 1], 0, [1, 0]),
        ([False, True], False, [True, False]),
    ],
)
def test_binary_labels_of_all_kinds(labels: list[Any], positive: Any, expected: list[Any]) -> None:
    m = palearn.make("pa", positive=positive)
    m.learn_one({"a": 1}, labels[0]).learn_one({"b": 1}, labels[1])
    assert m.labels == expected
    assert m.predict_one({"a": 1}) == labels[0]
    assert m.predict_one({"b": 3}) == labels[1]
    assert isinstance(m.score_one({"a": 1}), float)
    assert m.score_one({"a": 1}) > 0.0 > m.score_one({"b": 3})
    assert type(m.predict_one({"a": 1})) in (bool, int, float, str)


def test_the_label_that_has_not_come_yet() -> None:
    assert palearn.make("pa").learn_one(X, True).predict_one({"len": -9}) is False
    assert palearn.make("pa").learn_one(X, 1).predict_one({"len": -9}) == -1
    m = palearn.make("pa", positive="spam").learn_one(X, "spam")
    assert m.predict_one(X) == "spam"
    assert m.predict_one({"len": -9}) is None


@pytest.mark.parametrize("label", [1, 1.0, "1", np.int32(1)])
def test_the_same_class_however_it_is_written(label: Any) -> None:
    m = palearn.make("pa", task="multiclass").learn_one({"a": 1}, 1).learn_one({"b": 1}, "two")
    assert m.learn_one({"a": 1}, label).labels == [1, "two"]


def test_classes_of_all_kinds() -> None:
    labels: list[Any] = ["x", 3, -1, 2.5, True]
    m = palearn.make("spa1", task="multiclass", bias=False)
    for _ in range(3):
        for i, label in enumerate(labels):
            m.learn_one({f"f{i}": 1}, label)
    assert m.labels == labels
    assert [m.predict_one({f"f{i}": 1}) for i in range(5)] == labels


@pytest.mark.parametrize(
    "label", ["spam", float("nan"), float("inf"), None, [1], (1,), {}, b"spam", 2**70, 1j, object()]
)
def test_a_label_that_does_not_fit_is_refused_and_changes_nothing(label: Any) -> None:
    m = palearn.make("pa")
    with pytest.raises(RecordError, match="bad_label"):
        m.learn_one(X, label)
    assert_unused(m)


def test_a_text_that_no_bytes_can_hold_is_no_label_and_no_view() -> None:
    with pytest.raises(RecordError, match="not_utf8"):
        palearn.make("pa", task="multiclass").learn_one(X, "\ud800")
    with pytest.raises(LearnerError, match="positive must be a label"):
        palearn.make("pa", positive="\ud800")
    with pytest.raises(LearnerError, match="a view's name"):
        palearn.make("two_view_pa").learn_one({"a": X, "\ud800": X}, 1)


def test_a_third_label_is_refused() -> None:
    m = palearn.make("pa", positive="spam").learn_one(X, "spam").learn_one(X, "ham")
    before = m.to_bytes()
    with pytest.raises(RecordError, match="not_binary"):
        m.learn_one(X, "eggs")
    assert m.to_bytes() == before


def assert_unused(m: palearn.Model) -> None:
    """A model that has refused its first example is as good as new."""
    assert (m.n_seen, m.n_learned, m.n_updates, m.weights()) == (0, 0, 0, {})
    assert m.predict_one(X) in (-1, None)
    assert palearn.from_bytes(m.to_bytes()).n_seen == 0
    assert m.learn_one(X, 1).n_seen == 1
    assert m.weights()


# -- features ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ({"f": np.float64(2)}, {"f": 2.0}),
        ({"f": np.float32(0.5)}, {"f": 0.5}),
        ({"f": np.int8(-3)}, {"f": -3.0}),
        ({"f": np.bool_(True)}, {"f": 1.0}),
        ({"f": True, "g": False}, {"f": 1.0, "g": 0.0}),
        ({"lang": "en"}, {"lang=en": 1.0}),
        ({"word": ["a", "b", "a"]}, {"word=a": 2.0, "word=b": 1.0}),
        ({"f": 1, "gone": None}, {"f": 1.0}),
    ],
)
def test_feature_values_of_all_kinds(x: dict[str, Any], expected: dict[str, float]) -> None:
    norm = sum(value * value for value in expected.values())
    m = palearn.make("pa", bias=False).learn_one(x, 1)
    assert m.weights() == pytest.approx({name: value / norm for name, value in expected.items()})
    assert m.score_one(x) == pytest.approx(1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("nan"), 10**400])
def test_features_that_are_not_finite_are_refused(value: Any) -> None:
    m = palearn.make("pa")
    for call in (m.predict_one, m.score_one, lambda x: m.learn_one(x, 1)):
        with pytest.raises(RecordError, match="non_finite"):
            call({"f": value})
    assert_unused(m)


@pytest.mark.parametrize("x", [[1, 2], "text", None, 3, np.ones(2), {1, 2}])
@pytest.mark.parametrize("name", ["pa", "two_view_pa"])
def test_features_that_are_no_mapping_are_refused(name: str, x: Any) -> None:
    m = palearn.make(name)
    for _ in range(2):
        before = m.to_bytes()
        for call in (m.predict_one, m.score_one, lambda x: m.learn_one(x, 1)):
            with pytest.raises(RecordError, match="bad_features: features must be a mapping of names to values, got"):
                call(x)
        assert m.to_bytes() == before
        m.learn_one(example(name), 1)


@pytest.mark.parametrize(
    "x", [{"f": {"g": 1}, "h": 1}, {"f": [1]}, {"f": object()}, {"(bias)": 1}, {"\ud800": 1}, {"f": "\ud800"}]
)
def test_features_that_cannot_be_used_are_refused(x: Any) -> None:
    m = palearn.make("pa")
    with pytest.raises(RecordError):
        m.learn_one(x, 1)
    assert_unused(m)


def test_views_and_features_are_not_mixed() -> None:
    m = palearn.make("pa").learn_one(X, 1)
    with pytest.raises(RecordError, match="views"):
        m.learn_one({"page": X, "link": X}, 1)
    m = palearn.make("two_view_pa").learn_one({"page": X, "link": X}, 1)
    for x in ({"page": X}, {"page": X, "link": X, "more": X}, {"page": X, "lnk": X}, X):
        with pytest.raises(RecordError):
            m.learn_one(x, 1)
    assert m.n_seen == 1
    with pytest.raises(RecordError, match="two views"):
        palearn.make("two_view_pa").learn_one({"page": X}, 1)


def test_an_empty_example_is_counted_but_not_learned() -> None:
    m = palearn.make("pa").learn_one({}, 1)
    assert (m.n_seen, m.n_learned, m.n_updates) == (1, 0, 0)
    assert set(m.weights().values()) <= {0.0}


@pytest.mark.parametrize(("name", "task"), EVERY)
def test_weights_of_a_model_without_features(name: str, task: str) -> None:
    label = 1 if task == "binary" else "x"
    m = palearn.make(name, task=task, bias=False)
    m.learn_one({"page": {}, "link": {}} if LEARNERS[name].views else {}, label)
    nothing: dict[str, Any] = {"page": {}, "link": {}} if LEARNERS[name].views else {}
    assert m.weights() == (nothing if task == "binary" else {"x": nothing})


def test_weight_multiplies_c() -> None:
    m = palearn.make("pa1", C=0.1, bias=False).learn_one({"f": 1}, 1, weight=3)
    assert m.weights() == pytest.approx({"f": 0.3})
    m = palearn.make("arow", r=4.0, bias=False).learn_one({"f": 1}, 1, weight=4)
    assert m.weights() == pytest.approx({"f": 0.5})
    assert (
        palearn.make("pa1", C=0.1).learn_one(X, 1).weights()
        == palearn.make("pa1", C=0.1).learn_one(X, 1, weight=1).weights()
    )


@pytest.mark.parametrize(
    "weight",
    [
        0,
        -1,
        float("nan"),
        float("inf"),
        10**400,
        "x",
        "1",
        True,
        False,
        np.bool_(True),
        [1],
        1j,
        Decimal("1"),
        ...,
    ],
    ids=str,
)
def test_weights_outside_their_domain_are_refused(weight: Any) -> None:
    m = palearn.make("pa")
    with pytest.raises(RecordError, match="bad_weight: weight must be a finite number > 0, got"):
        m.learn_one(X, 1, weight=weight)
    assert_unused(m)


@pytest.mark.parametrize("weight", [2, 2.0, np.float32(2), np.int64(2), Fraction(2)])
def test_weights_of_all_kinds(weight: Any) -> None:
    m = palearn.make("pa1", C=0.1, bias=False).learn_one({"f": 1}, 1, weight=weight)
    assert m.weights() == pytest.approx({"f": 0.2})


def test_more_features_than_a_full_covariance_holds() -> None:
    m = palearn.make("arow", task="multiclass", covariance="full", max_full_features=3).learn_one({"a": 1}, "x")
    before = m.to_bytes()
    with pytest.raises(LearnerError, match="diagonal"):
        m.learn_one({"b": 1, "c": 1, "d": 1}, "y")
    assert m.to_bytes() == before
    assert m.labels == ["x"]
    assert m.score_one({"a": 1}) == {"x": 0.0}
    m.learn_one({"b": 1, "c": 1}, "y")
    assert m.n_learned == 2


def test_many_features_in_one_example() -> None:
    x = {f"f{i}": 1 for i in range(10_050)}
    with seconds(20):
        assert len(palearn.make("pa", bias=False).learn_one(x, 1).weights()) == 10_050


# -- copies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize(("name", "task"), EVERY)
def test_a_copy_is_equal_and_learns_on_alike(name: str, task: str, copied: Callable[[Any], Any]) -> None:
    labels: list[Any] = [1, -1] if task == "binary" else ["x", "y"]
    m = palearn.make(name, task=task)
    for label in [None, *labels, *labels]:
        if label is not None:
            m.learn_one(example(name), label)
        m.predict_one({"page": {"new": 1}, "link": {}} if LEARNERS[name].views else {"new": 1})
        other = copied(m)
        assert other.to_bytes() == m.to_bytes()
        assert repr(other) == repr(m)
    other.learn_one(example(name), labels[0])
    assert other.to_bytes() != m.to_bytes()
    assert m.learn_one(example(name), labels[0]).to_bytes() == other.to_bytes()


# -- predicting changes nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "task"), EVERY)
def test_predicting_does_not_change_the_model(name: str, task: str) -> None:
    label = 1 if task == "binary" else "x"
    m = palearn.make(name, task=task)
    new = {"page": {"new": 1}, "link": {}} if LEARNERS[name].views else {"new": 1}
    for _ in range(2):
        before = m.to_bytes()
        m.predict_one(new)
        m.score_one(example(name))
        m.weights()
        assert m.to_bytes() == before
        m.learn_one(example(name), label)
    plain = palearn.make(name, task=task).learn_one(example(name), label).learn_one(example(name), label)
    assert bits(m.weights()) == bits(plain.weights())


def test_predicting_on_views_does_not_fix_them() -> None:
    m = palearn.make("pa")
    m.predict_one({"page": {"f": 1}, "link": {}})
    assert set(m.learn_one({"f": 1}, 1).weights()) == {"(bias)", "f"}
