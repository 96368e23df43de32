"""What holds for every learner on any stream: invariances, refusals and the rules for corner cases."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palearn
from palearn.errors import LearnerError, RecordError

Example = tuple[Any, Any]

# The first example of a learner may compile its kernel. Where CI is set, hypothesis loads its profile "ci", which
# draws the same examples each time.
FEW = settings(deadline=None, max_examples=5)
SOME = settings(deadline=None, max_examples=8)
MANY = settings(deadline=None, max_examples=30)

FEATURES = "abcde"
CLASSES: dict[str, list[Any]] = {"binary": [-1, 1], "multiclass": ["x", "y", "z"]}
VIEWS = ["page", "link"]
LEARNERS = {row["name"]: row["parameters"] for row in palearn.learners()}


@dataclass(frozen=True)
class Variant:
    """A learner, its task and options."""

    name: str
    task: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, self.task, *map(str, self.options.values())])

    def make(self, **more: Any) -> Any:
        return palearn.make(self.name, task=self.task, **{"bias": False, **self.options, **more})

    def shape(self, features: dict[str, float]) -> Any:
        """Features as the learner takes them: views share them by the letter."""
        if self.name != "two_view_pa":
            return features
        return {v: {f: x for f, x in features.items() if (f in "ab") == (v == "page")} for v in VIEWS}

    def normal(self, seed: int, n: int) -> list[Example]:
        """Return `n` examples of normal values: no two scores tie, but at 0."""
        rng, classes = np.random.default_rng(seed), CLASSES[self.task]
        rows = rng.normal(size=(n, len(FEATURES))) * (rng.random((n, len(FEATURES))) < 0.7)
        labels = rng.integers(len(classes), size=n)
        return [
            (self.shape({f: float(v) for f, v in zip(FEATURES, row, strict=True) if v}), classes[y])
            for row, y in zip(rows, labels, strict=True)
        ]

    def streams(self, values: st.SearchStrategy[float]) -> st.SearchStrategy[list[Example]]:
        """Draw short streams of any such values."""
        x = st.dictionaries(st.sampled_from(FEATURES), values, max_size=len(FEATURES)).map(self.shape)
        return st.lists(st.tuples(x, st.sampled_from(CLASSES[self.task])), min_size=1, max_size=12)


def variants() -> Iterator[Variant]:
    for task in CLASSES:
        for name in ("pa", "pa1", "pa2", "spa", "spa1", "spa2"):
            yield Variant(name, task)
        some: dict[str, Any] = {} if task == "binary" else {"constraints": "all"}
        for name in ("pam", "pam1", "pam2", "arow"):
            yield Variant(name, task, {"covariance": "full", **some})
            yield Variant(name, task, {"projection": "precision"})
            yield Variant(name, task, {"projection": "covariance", **some})
    yield Variant("arow", "binary", {"loss": "hinge"})
    yield Variant("arow", "multiclass", {"loss": "hinge", "covariance": "full", "constraints": 2})
    yield Variant("two_view_pa", "binary")


VARIANTS = list(variants())
SECOND_ORDER = [v for v in VARIANTS if v.name.startswith(("pam", "arow"))]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
SIXTEENTHS = st.integers(-64, 64).map(lambda i: i / 16)
EXTREMES = st.builds(lambda m, e: m * 10.0**e, st.floats(-9.9, 9.9), st.integers(-307, 307))


def learned(model: Any, examples: list[Example]) -> Any:
    for x, y in examples:
        model.learn_one(x, y)
    return model


def flat(values: dict[Any, Any], path: tuple[Any, ...] = ()) -> dict[Any, float]:
    """Weights or variances by path: (feature), (class, feature) or (view, feature)."""
    out: dict[Any, float] = {}
    for name, value in values.items():
        out |= flat(value, (*path, name)) if isinstance(value, dict) else {(*path, name): value}
    return out


def backwards(features: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(features.items()))


def moved(model: Any) -> dict[Any, float]:
    """Weights that are not 0."""
    return {path: w for path, w in flat(model.weights()).items() if w != 0.0}


def hinge(model: Any, x: Any, y: Any) -> float:
    """Loss before the example is learned, over all wrong classes known."""
    score = model.score_one(x)
    if not isinstance(score, dict):
        return max(0.0, 1.0 - float(y * score))
    own = float(score.pop(y, 0.0))
    return max([0.0, *(1.0 - (own - float(rival)) for rival in score.values())])


@pytest.mark.parametrize("name", ["pa", "pa1", "spa", "spa1"])
@pytest.mark.parametrize("task", CLASSES)
@given(data=st.data(), C=st.sampled_from([0.01, 0.3, 5.0]))
@MANY
def test_a_step_reaches_its_margin_or_its_cap(name: str, task: str, C: float, data: Any) -> None:
    variant = Variant(name, task, {"C": C} if name.endswith("1") else {})
    *history, (x, y) = data.draw(variant.streams(SIXTEENTHS))
    model = learned(variant.make(), history)
    before, scores, loss = model.weights(), model.score_one(x), hinge(model, x, y)
    model.learn_one(x, y)
    norm = math.sqrt(sum(v * v for v in x.values()))
    if loss <= 1e-10 or norm == 0.0:
        assert moved(model) == {path: w for path, w in flat(before).items() if w != 0.0}
        return
    after = model.score_one(x)
    if task == "binary":
        margin = y * after
        own, own_before = model.weights(), before
    else:
        wrong = [label for label in scores if label != y]
        rivals = wrong if name.startswith("spa") else [max(wrong, key=scores.get)]
        margin = min(after[y] - after[u] for u in rivals)
        own, own_before = model.weights()[y], before.get(y, {})
    tau = math.sqrt(sum((w - own_before.get(f, 0.0)) ** 2 for f, w in own.items())) / norm
    assert margin <= 1.0 + 1e-9
    assert margin >= 1.0 - 1e-9 or (name.endswith("1") and tau == pytest.approx(C))
    assert not name.endswith("1") or tau <= C * (1.0 + 1e-9)


NOTHING = [{}, {"a": 0.0}, {"a": 0, "b": -0.0, "never": False}, {"a": 1e-200, "b": -1e-180}, {"a": 1e200}]


@every_variant
@pytest.mark.parametrize("bias", [False, True])
def test_an_example_without_a_norm_is_counted_and_not_learned(variant: Variant, bias: bool) -> None:
    rows = [NOTHING[0], NOTHING[-1]] if bias else NOTHING  # a bias gives the others a norm
    for history in ([], variant.normal(3, 20)):
        model = learned(variant.make(bias=bias), history)
        for features, label in itertools.product(rows, CLASSES[variant.task]):
            weights, variances, counts = moved(model), flat(model.variances()), (model.n_seen + 1, model.n_updates)
            model.learn_one(variant.shape(features), label)
            assert moved(model) == weights
            assert variances.items() <= flat(model.variances()).items()
            assert (model.n_seen, model.n_updates) == counts


@every_variant
@given(data=st.data())
@FEW
def test_weights_move_where_there_is_a_loss_before_learning_and_nowhere_else(variant: Variant, data: Any) -> None:
    model = variant.make()
    for x, y in data.draw(variant.streams(SIXTEENTHS)):
        loss, before = hinge(model, x, y), moved(model)
        norm = any(any(v.values()) if isinstance(v, dict) else v for v in x.values())
        updates, given_x = model.n_updates, copy.deepcopy(x)
        assert model.learn_one(x, y) is model
        assert x == given_x
        assert (moved(model) != before) == (loss > 1e-10 and norm)
        assert model.n_updates - updates == (loss > 1e-10 and norm)


@pytest.mark.parametrize("variant", SECOND_ORDER, ids=str)
@given(data=st.data())
@FEW
def test_variances_stay_positive_and_never_grow(variant: Variant, data: Any) -> None:
    model = variant.make(initial_variance=2.0)
    for x, y in data.draw(variant.streams(SIXTEENTHS)):
        before = flat(model.variances())
        model.learn_one(x, y)
        for path, variance in flat(model.variances()).items():
            assert 0.0 < variance <= before.get(path, 2.0)


@every_variant
@given(seed=st.integers(0, 2**32), exponent=st.integers(-12, 12))
@FEW
def test_scaling_the_features_scales_the_weights_back(variant: Variant, seed: int, exponent: int) -> None:
    """With its parameters in the new unit a learner decides the same; by powers of 2 not a bit differs."""
    c = 2.0**exponent
    parameters = {p["name"] for p in LEARNERS[variant.name]}
    plain = dict.fromkeys({"initial_variance"} & parameters or {"C", "gamma"} & parameters, 0.5)
    scaled = {name: value / c**2 for name, value in plain.items()}
    one, other = variant.make(**plain), variant.make(**scaled)
    for x, y in variant.normal(seed, 16):
        scaled_x = {f: {g: u * c for g, u in v.items()} if isinstance(v, dict) else v * c for f, v in x.items()}
        assert one.score_one(x) == other.score_one(scaled_x)
        assert one.predict_one(x) == other.predict_one(scaled_x)
        one.learn_one(x, y)
        other.learn_one(scaled_x, y)
    assert moved(one) == {path: w * c for path, w in moved(other).items()}


@every_variant
@given(seed=st.integers(0, 2**32))
@FEW
def test_the_order_of_features_does_not_matter(variant: Variant, seed: int) -> None:
    one, other = variant.make(bias=True), variant.make(bias=True)
    for x, y in variant.normal(seed, 16):
        turned = {f: backwards(v) if isinstance(v, dict) else v for f, v in backwards(x).items()}
        assert one.score_one(x) == pytest.approx(other.score_one(turned), rel=1e-9, abs=1e-9)
        one.learn_one(x, y)
        other.learn_one(turned, y)
    assert moved(one) == pytest.approx(moved(other), rel=1e-9, abs=1e-9)


@every_variant
def test_scoring_leaves_no_trace_and_an_unseen_feature_is_absent(variant: Variant) -> None:
    scored, plain = variant.make(), variant.make()
    for x, y in [(variant.shape({"c": 1.0}), CLASSES[variant.task][0]), *variant.normal(9, 12)]:
        scored.predict_one(variant.shape({"never": 3.0, "e": 1.0, "d": 1.0, "b": 2.0}))
        # A view whose only features are unseen is a view of score 0: those without features stay so.
        more = {v: {"never": 5.0, **f} if f else f for v, f in x.items()} if "page" in x else {"never": 5.0, **x}
        assert scored.score_one(more) == scored.score_one(x)
        assert scored.predict_one(more) == scored.predict_one(x)
        scored.learn_one(x, y)
        plain.learn_one(x, y)
    assert scored.to_bytes() == plain.to_bytes()


@every_variant
def test_features_and_classes_may_come_at_any_time(variant: Variant) -> None:
    """Before its example a new feature or class weighs nothing; the example gives it its weight."""
    model = learned(variant.make(), variant.normal(7, 30))
    assert "never" not in str(model.weights())
    label = "new" if variant.task == "multiclass" else 1
    x = {"page": {"never": 1e-3}, "link": {}} if variant.name == "two_view_pa" else {"never": 1e-3}
    known = list(model.score_one(x)) if variant.task == "multiclass" else []
    assert hinge(model, x, label) == 1.0
    model.learn_one(x, label)
    assert [w > 0.0 for path, w in moved(model).items() if path[-1] == "never" and label in (1, path[0])] == [True]
    if variant.task == "multiclass":
        assert list(model.score_one(x)) == [*known, "new"]
        assert model.predict_one(x) == "new"


@every_variant
@given(data=st.data(), bias=st.booleans())
@FEW
def test_bytes_in_mid_stream_equal_no_stop(variant: Variant, bias: bool, data: Any) -> None:
    examples = data.draw(variant.streams(SIXTEENTHS))
    stop = data.draw(st.integers(0, len(examples)))
    whole = learned(variant.make(bias=bias), examples)
    half = learned(variant.make(bias=bias), examples[:stop])
    restored = palearn.from_bytes(half.to_bytes())
    assert restored.to_bytes() == half.to_bytes()
    learned(restored, examples[stop:])
    assert restored.weights() == whole.weights()
    assert restored.variances() == whole.variances()
    assert restored.to_bytes() == whole.to_bytes()
    assert [restored.predict_one(x) for x, _ in examples] == [whole.predict_one(x) for x, _ in examples]


BAD_VALUES = [math.nan, math.inf, -math.inf, np.float64("nan"), 10**400, 1 + 2j, object(), [1.0], b"1"]


@pytest.mark.parametrize("variant", VARIANTS[::6] + VARIANTS[-1:], ids=str)
@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda v: str(v)[:12])
def test_a_feature_that_is_no_finite_number_is_refused_by_name(variant: Variant, value: Any) -> None:
    for history in ([], variant.normal(8, 10)):
        model = learned(variant.make(), history)
        blob, seen = model.to_bytes(), model.n_seen
        x = variant.shape({"a": 1.0, "c": 2.0})
        (x["link"] if variant.name == "two_view_pa" else x)["c\N{SNOWMAN}"] = value
        for call in (model.score_one, model.predict_one, lambda x, m=model: m.learn_one(x, CLASSES[variant.task][0])):
            with pytest.raises(RecordError, match="c\N{SNOWMAN}"):
                call(x)
        assert (model.to_bytes(), model.n_seen) == (blob, seen)


def bad_arguments() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Bad options; every parameter of every learner outside its stated domain; and what the message must name."""
    for name, option, value in [
        ("perceptorn", "task", "binary"),
        ("pa1", "D", 1.0),
        ("pa", "C", 1.0),
        ("pa", "task", "regression"),
        ("pa", "tie", "both"),
        ("pa", "bias", "no"),
        ("two_view_pa", "task", "multiclass"),
    ]:
        yield {"name": name, option: value}, [name, option] if name in LEARNERS else [name]
    for name, parameters in LEARNERS.items():
        for parameter in parameters:
            domain = parameter["domain"]
            bad: list[Any] = [None, True, "nonsense", [1], math.nan, math.inf, -math.inf]
            number = re.search(r"(number|integer) (>=|>) (\S+)", domain)
            if number is None:
                bad += [1, 0.5]
            else:
                bad += [float(number[3]) - 1.0, float(number[3]) if number[2] == ">" else -1e-9]
                bad += [1.5] if number[1] == "integer" else []
            for value in bad:
                yield {"name": name, parameter["name"]: value}, [name, parameter["name"], repr(value), domain]


@pytest.mark.parametrize(("arguments", "parts"), list(bad_arguments()))
def test_a_bad_option_or_hyper_parameter_is_refused(arguments: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(LearnerError) as caught:
        palearn.make(**arguments)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize("name", LEARNERS)
def test_every_default_is_inside_its_domain(name: str) -> None:
    palearn.make(name, **{p["name"]: p["default"] for p in LEARNERS[name]})


X = {"a": 1.0}


@pytest.mark.parametrize(
    ("options", "negative", "positive"),
    [
        ({}, -1, 1),
        ({}, 0, 1),
        ({}, False, True),
        ({}, -2.5, 0.1),
        ({"positive": "spam"}, "ham", "spam"),
        ({"positive": 3}, 7, 3),
    ],
)
def test_binary_labels_come_back_as_they_went_in(options: dict[str, Any], negative: Any, positive: Any) -> None:
    for order in ([negative, positive], [positive, negative]):
        model: Any = palearn.make("pa", bias=False, **options)
        for label in order:
            model.learn_one(X, label)
            assert model.predict_one(X) == label
            assert type(model.predict_one(X)) is type(label)
        assert (model.score_one(X) > 0.0) == (order[-1] == positive)


@pytest.mark.parametrize(
    ("options", "known", "label", "words"),
    [
        ({}, [], "spam", "positive"),
        ({"positive": "spam"}, ["ham", "spam"], "egg", "'egg'"),
        ({"positive": "spam"}, ["ham"], "egg", "'ham'"),
        ({}, [], None, "label"),
        ({}, [], math.nan, "nan"),
        ({"task": "multiclass"}, ["a"], math.inf, "inf"),
        ({"task": "multiclass"}, ["a"], None, "label"),
        ({"task": "multiclass"}, ["a"], ["b"], "label"),
    ],
)
def test_a_label_against_the_task_is_refused(options: dict[str, Any], known: list[Any], label: Any, words: str) -> None:
    model = learned(palearn.make("pa", **options), [(X, y) for y in known])
    blob = model.to_bytes()
    with pytest.raises(RecordError, match=words):
        model.learn_one(X, label)
    assert model.to_bytes() == blob


@every_variant
@given(data=st.data())
@SOME
def test_extreme_values_never_give_nan(variant: Variant, data: Any) -> None:
    values = st.one_of(EXTREMES, SIXTEENTHS, st.sampled_from([1e300, -1e300, 1e-300, 1e154, 1e-154, 5e-324]))
    model = variant.make(bias=data.draw(st.booleans()))
    for x, y in data.draw(variant.streams(values)):
        model.learn_one(x, y)
        assert np.isfinite([*flat(model.weights()).values(), *flat(model.variances()).values()]).all()
        scores = model.score_one(x)
        assert not np.isnan(list(scores.values()) if isinstance(scores, dict) else scores).any()
        assert model.predict_one(x) in CLASSES[variant.task]


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
