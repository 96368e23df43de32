"""What a learner refuses: features that are no finite numbers, options and labels against the rules; by name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palearn
from palearn.errors import LearnerError, RecordError
from tests.variants import CLASSES, LEARNERS, VARIANTS, Variant, learned

BAD_VALUES = [math.nan, math.inf, -math.inf, np.float64("nan"), 10**400, 1 + 2j, object(), [1.0], b"1"]


@pytest.mark.parametrize("variant", VARIANTS[::6] + VARIANTS[-1:], ids=str)
@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda v: str(v)[:12])
def test_a_feature_that_is_no_finite_number_is_refused_by_name(variant: Variant, value: Any) -> None:
    for history in ([], variant.normal(8, 10)):
        model = learned(variant.make(), history)
        blob, seen = model.to_bytes(), model.n_seen
        x = variant.shape({"a": 1.0, "c": 2.0})
        (x["link"] if variant.views else x)["c\N{SNOWMAN}"] = value
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
        ("sop", "task", "multiclass"),
        ("pa_mean1", "task", "multiclass"),
        ("arow", "covariance", "joint"),
        ("cw", "eta", None),
    ]:
        yield {"name": name, option: value}, [name, option] if name in LEARNERS else [name]
    for name, parameters in LEARNERS.items():
        for parameter in parameters:
            domain = parameter["domain"]
            bad: list[Any] = ["nonsense", [1], math.nan, math.inf, -math.inf]
            bad += [None] * ("None" not in domain) + [True] * ("True" not in domain)
            number = re.search(r"(number|integer) (>=|>) (\S+)( and < (\S+))?", domain)
            if number is None:
                bad += [1, 0.5]
            else:
                bad += [float(number[3]) - 1.0, float(number[3]) if number[2] == ">" else -1e-9]
                bad += [1.5] if number[1] == "integer" else []
                bad += [float(number[5]), float(number[5]) + 1.0] if number[5] else []
            for value in bad:
                yield {"name": name, parameter["name"]: value}, [name, parameter["name"], repr(value), domain]


@pytest.mark.parametrize(("arguments", "parts"), list(bad_arguments()))
def test_a_bad_option_or_hyper_parameter_is_refused(arguments: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(LearnerError) as caught:
        palearn.make(**arguments)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize("value", [2**31, 10**30, 10**400, -(10**400)])
def test_an_integer_beyond_the_kernels_is_refused(value: int) -> None:
    options = [
        ("arow", "constraints"),
        ("pa_mean", "queue"),
        ("pa_mean", "freeze_mean_after"),
        ("cw", "max_full_features"),
    ]
    for name, option in [*options, *[("pa1", "C")] * (abs(value) > 2**1024)]:
        with pytest.raises(LearnerError, match=f"{name}: {option} must be .* and at most"):
            palearn.make(name, **{option: value})


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
