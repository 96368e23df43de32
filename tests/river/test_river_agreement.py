"""PAClassifier beside River's own: the same weights where theirs is exact, and each difference shown."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from river import linear_model

from palearn.river import PAClassifier

#: The price of mode 0 is none.
MODES: list[dict[str, Any]] = [{"mode": 0}, {"mode": 1, "C": 0.3}, {"mode": 2, "C": 0.3}]


def stream() -> Iterator[tuple[dict[str, float], bool]]:
    """Noisy examples; features come and go."""
    dice = np.random.default_rng(1)
    w = dice.normal(size=5)
    for i in range(1000):
        x = dice.normal(size=5)
        yield {f"f{j}": float(x[j]) for j in range(min(3 + i // 20, 5)) if dice.random() < 0.9}, bool(w @ x > 0)


@pytest.mark.parametrize("options", MODES)
def test_agrees_with_river_s_without_an_intercept(options):
    ours = PAClassifier(bias=False, **options)
    theirs = linear_model.PAClassifier(learn_intercept=False, **options)
    for x, y in stream():
        if theirs.weights:
            assert ours.predict_one(x) == theirs.predict_one(x)
        ours.learn_one(x, y)
        theirs.learn_one(x, y)
    assert ours.model.n_updates > 100
    assert ours.weights == pytest.approx(dict(theirs.weights), rel=1e-9)


@pytest.mark.parametrize("options", MODES)
def test_agrees_with_river_s_on_a_constant_feature(options):
    ours = PAClassifier(**options)
    theirs = linear_model.PAClassifier(learn_intercept=False, **options)
    for x, y in stream():
        ours.learn_one(x, y)
        theirs.learn_one({**x, "(bias)": 1.0}, y)
    assert ours.weights == pytest.approx(dict(theirs.weights), rel=1e-9)


def test_river_s_intercept_overshoots_the_margin():
    x = {"f": 1.0, "g": 2.0}
    ours, theirs = PAClassifier(mode=0), linear_model.PAClassifier(mode=0)
    ours.learn_one(x, True)
    theirs.learn_one(x, True)
    assert ours.score_one(x) == pytest.approx(1.0)
    # tau = 1/|x|^2 = 1/5 moves w.x by 1, and the intercept by 1/5 more.
    assert sum(theirs.weights[name] * value for name, value in x.items()) + theirs.intercept == pytest.approx(1.2)


def test_an_example_of_zeros_moves_river_s_intercept_in_one_mode_only():
    for mode, moved in ((0, 0.0), (1, 0.0), (2, 2.0)):  # loss / (1/(2C)) = 2C
        theirs = linear_model.PAClassifier(mode=mode)
        theirs.learn_one({"f": 0.0}, True)
        assert theirs.intercept == moved
    for mode, moved in ((0, 1.0), (1, 1.0), (2, 1 / 1.5)):  # |x|^2 = 1, the bias's
        ours = PAClassifier(mode=mode)
        ours.learn_one({"f": 0.0}, True)
        assert ours.weights["(bias)"] == pytest.approx(moved)


def test_river_s_has_no_text_labels():
    theirs = linear_model.PAClassifier()
    with pytest.raises(TypeError):
        theirs.learn_one({"f": 1.0}, "spam")
