"""What holds for every learner on any stream: invariances, and the rules for corner cases."""

from __future__ import annotations

import copy
import itertools
import math
import re
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palearn
from tests.variants import (
    CLASSES,
    LEARNERS,
    PRINTED_SPA,
    SIXTEENTHS,
    TASKS,
    VARIANTS,
    Variant,
    every_variant,
    flat,
    learned,
    moved,
)

# The first example of a learner may compile its kernel. Where CI is set, hypothesis loads its profile "ci", which
# draws the same examples each time.
FEW = settings(deadline=None, max_examples=5)
MANY = settings(deadline=None, max_examples=30)

SECOND_ORDER = [v for v in VARIANTS if {"covariance", "projection"} & v.options.keys()]


def backwards(features: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(features.items()))


def hinge(model: Any, x: Any, y: Any) -> float:
    """Loss before the example is learned, over all wrong classes known."""
    score = model.score_one(x)
    if not isinstance(score, dict):
        return max(0.0, 1.0 - float(y * score))
    own = float(score.pop(y, 0.0))
    return max([0.0, *(1.0 - (own - float(rival)) for rival in score.values())])


def steps(variant: Variant, model: Any, x: Any, y: Any) -> bool | None:
    """Whether the learner takes a step; None: the model does not tell.

    CW and SCW with a full covariance: only its diagonal is known. SPA as printed: it may miss a loss.
    """
    scores = model.score_one(x)
    wrong = [label for label in scores if label != y] if variant.task == "multiclass" else [None]
    if not wrong or not any(any(v.values()) if isinstance(v, dict) else v for v in x.values()):
        return False
    if variant.name in ("perceptron", "sop"):
        return bool(model.predict_one(x) != y)
    if variant in PRINTED_SPA:
        return None
    if not variant.name.startswith(("cw", "scw")):
        return hinge(model, x, y) > 1e-10
    if "projection" not in variant.options:
        return None
    phi, margin, blocks, variances = NormalDist().inv_cdf(0.9), y, [model.variances()], model.variances()
    if variant.task == "multiclass":
        rival = max(wrong, key=scores.get)
        margin, blocks = scores.get(y, 0.0) - scores[rival], [variances.get(y, {}), variances[rival]]
    else:
        margin = y * scores
    v = sum(block.get(f, 1.0) * value * value for block in blocks for f, value in x.items())
    spread = v if variant.options.get("form") == "variance" else math.sqrt(v)
    return bool(phi * spread - margin > 1e-10)


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
        expected, before = steps(variant, model, x, y), moved(model)
        updates, given_x = model.n_updates, copy.deepcopy(x)
        assert model.learn_one(x, y) is model
        assert x == given_x
        updated = model.n_updates - updates
        assert expected is None or updated == expected
        if variant.name != "adagrad_rda":  # its weights also shrink as time goes by
            assert (moved(model) != before) == updated


@pytest.mark.parametrize("variant", SECOND_ORDER, ids=str)
@given(data=st.data())
@FEW
def test_variances_stay_positive_and_never_grow(variant: Variant, data: Any) -> None:
    model = variant.make(**({"a": 0.5} if variant.name == "sop" else {"initial_variance": 2.0}))
    for x, y in data.draw(variant.streams(SIXTEENTHS)):
        before = flat(model.variances())
        model.learn_one(x, y)
        for path, variance in flat(model.variances()).items():
            assert 0.0 < variance <= before.get(path, 2.0)


# Powers of the features' unit. The class means' pull and the misprinted step of two views mix units: there is no such
# power for them, and the means take no part (gamma = 0).
UNITS = {"initial_variance": -2, "a": 2, "C": -2, "gamma": -2, "eta": -1, "delta": 1, "l1": 1}
ONE_UNIT = [v for v in VARIANTS if not (v.views and v.options.get("as_printed"))]


@pytest.mark.parametrize("variant", ONE_UNIT, ids=str)
@given(seed=st.integers(0, 2**32), exponent=st.integers(-12, 12))
@FEW
def test_scaling_the_features_scales_the_weights_back(variant: Variant, seed: int, exponent: int) -> None:
    """With its parameters in the new unit a learner decides the same; by powers of 2 not a bit differs."""
    c, names = 2.0**exponent, UNITS.keys() & {p["name"] for p in LEARNERS[variant.name]}
    if "initial_variance" in names:
        names = {"initial_variance"}
    plain = {name: 0.0 if "pa_mean" in variant.name and name == "gamma" else 0.5 for name in names}
    one, other = variant.make(**plain), variant.make(**{name: v * c ** UNITS[name] for name, v in plain.items()})
    weight = c**-2 if variant.name == "perceptron" else 1.0
    for x, y in variant.normal(seed, 12):
        scaled_x = {f: {g: u * c for g, u in v.items()} if isinstance(v, dict) else v * c for f, v in x.items()}
        assert one.score_one(x) == other.score_one(scaled_x)
        assert one.predict_one(x) == other.predict_one(scaled_x)
        one.learn_one(x, y)
        other.learn_one(scaled_x, y, weight=weight)
    assert moved(one) == {path: w * c for path, w in moved(other).items()}


# What an example's weight multiplies, as powers of the weight; the other learners have no price.
PRICES = {"C": 1, "r": -1, "delta": -1, "l1": -1}


@every_variant
def test_a_weight_multiplies_the_price_of_an_example(variant: Variant) -> None:
    names = PRICES.keys() & {p["name"] for p in LEARNERS[variant.name]}
    for weight in (4.0, 0.125):
        plain = {name: variant.options.get(name, 0.5) for name in names}
        one, other = variant.make(**plain), variant.make(**{n: v * weight ** PRICES[n] for n, v in plain.items()})
        for x, y in variant.normal(11, 20):
            one.learn_one(x, y, weight=weight)
            other.learn_one(x, y)
        factor = weight if variant.name == "perceptron" else 1.0
        assert moved(one) == {path: w * factor for path, w in moved(other).items()}
        assert one.variances() == other.variances()


@every_variant
@given(seed=st.integers(0, 2**32))
@FEW
def test_the_order_of_features_does_not_matter(variant: Variant, seed: int) -> None:
    one, other = variant.make(bias=True), variant.make(bias=True)
    for x, y in variant.normal(seed, 12):
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
        more = {v: {"never": 5.0, **f} if f else f for v, f in x.items()} if variant.views else {"never": 5.0, **x}
        score = scored.score_one(x)
        if variant.name == "sop" and score != 0.0 and variant.options["covariance"] == "full":
            # w.x / (1 + x'A^-1 x): an unseen feature has weight 0, but a place in A.
            straight = sum(scored.weights().get(f, 0.0) * value for f, value in x.items())
            score = pytest.approx(score / (1.0 + 5.0**2 * score / straight))
        assert scored.score_one(more) == score
        assert scored.predict_one(more) == scored.predict_one(x)
        scored.learn_one(x, y)
        plain.learn_one(x, y)
    assert scored.to_bytes() == plain.to_bytes()


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in PRINTED_SPA], ids=str)
def test_features_and_classes_may_come_at_any_time(variant: Variant) -> None:
    """Before its example a new feature or class weighs nothing; the example gives it its weight."""
    model = learned(variant.make(), variant.normal(7, 30))
    assert "never" not in str(model.weights())
    label = "new" if variant.task == "multiclass" else 1
    x = variant.shape({"never": 1.0 if variant.name == "adagrad_rda" else 1e-3})
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


def test_every_learner_task_and_word_of_an_option_has_a_variant() -> None:
    assert {(v.name, v.task) for v in VARIANTS} == {(name, task) for name in LEARNERS for task in TASKS[name]}
    for name, parameters in LEARNERS.items():
        used = [{p["name"]: p["default"] for p in parameters} | v.options for v in VARIANTS if v.name == name]
        for p in parameters:
            words = {*re.findall(r"'(\w+)'", p["domain"]), *([True, False] if "True" in p["domain"] else [])}
            assert words <= {options[p["name"]] for options in used}, (name, p["name"])
