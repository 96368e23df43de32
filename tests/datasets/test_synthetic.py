"""Synthetic streams: the same bytes for a seed, the model that is promised, drift that a learner meets."""

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from palearn.datasets.synthetic import Stream
from palearn.errors import ConfigError
from palearn.evaluate.prequential import Examples, compare, settings_of
from palearn.learners import Learner
from palearn.records import decode_value


def values(stream: Stream, first: int, stop: int) -> list[Any]:
    return [json.loads(value) for value in stream.values(first, stop)]


def test_a_seed_gives_the_same_bytes_however_many_are_asked_for() -> None:
    stream = Stream(keys=7, features=3, drift="gradual", every=500, noise=0.1, seed=4)
    whole = list(stream.values(0, 2500))
    again = Stream(keys=7, features=3, drift="gradual", every=500, noise=0.1, seed=4)
    assert [*again.values(0, 1), *again.values(1, 999), *again.values(999, 2100), *again.values(2100, 2500)] == whole
    assert list(Stream(keys=7, features=3, drift="gradual", every=500, noise=0.1, seed=5).values(0, 2500)) != whole


@pytest.mark.parametrize("drift", ["none", "abrupt", "gradual", "rotating"])
@pytest.mark.parametrize("classes", [2, 3])
def test_labels_follow_the_weights_of_their_key(drift: str, classes: int) -> None:
    stream = Stream(keys=5, features=4, drift=drift, every=400, classes=classes, seed=1)
    wrong = 0
    for i, value in enumerate(values(stream, 0, 1200)):
        u, v = stream.weights(int(value["key"][1:]))
        x = [value["features"][f"f{j}"] for j in range(4)]
        angle = 2 * math.pi * i / 400 if drift == "rotating" else 0.0
        w = u * math.cos(angle) + v * math.sin(angle)
        best = max(range(classes), key=lambda c: sum(a * b for a, b in zip(w[c], x, strict=True)))
        turns = i // 400 if drift in ("abrupt", "gradual") else 0
        labels = [(best + turns + more) % classes for more in ((0, 1) if drift == "gradual" else (0,))]
        shown = [2 * label - 1 if classes == 2 else label for label in labels]
        assert value["label"] in shown
        wrong += value["label"] != shown[0]
    assert (wrong > 0) is (drift == "gradual")


def test_gradual_drift_mixes_two_concepts_ever_more() -> None:
    still, mixed = (values(Stream(drift=drift, every=4000, seed=2), 0, 4000) for drift in ("none", "gradual"))
    moved = np.array([a["label"] != b["label"] for a, b in zip(still, mixed, strict=True)])
    # Expected shares: the mean of i / every over each quarter, 1/8, 3/8, 5/8, 7/8; four deviations of 1000 draws.
    for quarter, share in enumerate(moved.reshape(4, -1).mean(axis=1)):
        expected = (2 * quarter + 1) / 8
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 1000)


def test_noise_and_keys_come_as_often_as_they_are_said_to() -> None:
    clean, noisy = (values(Stream(keys=4, zipf=1.5, noise=noise, classes=3, seed=3), 0, 5000) for noise in (0.0, 0.2))
    wrong = sum(a["label"] != b["label"] for a, b in zip(clean, noisy, strict=True))
    assert abs(wrong - 1000) < 4 * math.sqrt(5000 * 0.2 * 0.8)
    weights = [rank**-1.5 for rank in range(1, 5)]
    counted = Counter(value["key"] for value in clean)
    for rank, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(counted[f"k{rank}"] - 5000 * share) < 4 * math.sqrt(5000 * share * (1 - share))


def test_a_learner_meets_the_flip_of_an_abrupt_concept() -> None:
    stream = Stream(keys=1, features=5, drift="abrupt", every=2000, seed=6)
    examples = Examples([decode_value(value) for value in stream.values(0, 2200)])
    curve = compare(examples, settings_of(), [Learner("arow", "arow")], piece=200).curve
    errors = np.diff([0, *(mistakes for _, (mistakes,) in curve)]) / 200
    assert [n for n, _ in curve] == list(range(200, 2201, 200))
    assert errors[5:10].max() < 0.1
    assert errors[10] > 0.5


def test_views_share_the_features() -> None:
    whole, parts = (values(Stream(features=5, views=views, seed=8), 0, 20) for views in ((), ("a", "b")))
    for one, other in zip(whole, parts, strict=True):
        joined = {**other["views"]["a"], **other["views"]["b"]}
        assert (joined, other["label"]) == (one["features"], one["label"])
        assert list(other["views"]["b"]) == ["f1", "f3"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": 0},
        {"classes": 1},
        {"every": 0},
        {"noise": 0.6},
        {"zipf": -1.0},
        {"drift": "x"},
        {"seed": -1},
        {"views": ("a", "a")},
        {"features": 1, "views": ("a", "b")},
    ],
    ids=str,
)
def test_what_no_stream_can_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{[*wrong][-1]} must be"):
        Stream(**wrong)


def test_generate_writes_what_evaluate_reads(run: Any, tmp_path: Any) -> None:
    path = tmp_path / "made.jsonl"
    assert run("generate", "--records", "1500", "--keys", "3", "--seed", "9", "--out", str(path)) == (0, "", "")
    assert path.read_bytes().splitlines() == list(Stream(keys=3, seed=9).values(0, 1500))
    status, out, _ = run("evaluate", str(path), "--key", "key", "--json")
    found = json.loads(out)
    assert (status, found["n"], sorted(found["per_key"])) == (0, 1500, ["k0", "k1", "k2"])
    assert run("generate", "--out", str(tmp_path / "no" / "x"))[0] == 1
