"""Test-then-train in one process: figures, order, keys and options."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import palearn
from palearn.errors import ConfigError, LearnerError, PalearnError
from palearn.evaluate.prequential import Examples, compare, evaluate, held_out, settings_of
from palearn.files.options import ReadOptions
from palearn.learners import Learner
from palearn.records import Record


def examples(n: int = 60) -> list[Record]:
    out = []
    for i in range(n):
        y = 1 if (i * i) % 7 < 3 else -1
        features = {f"f{(i * 5) % 6}": float(y), f"g{i % 4}": 0.5, "user=ann" if i % 3 else "user=bob": 1.0}
        out.append(Record(label=y, features=features))
    return out


def by_hand(records: list[Record], name: str, **options: Any) -> tuple[palearn.Model, int]:
    m, mistakes = palearn.make(name, **options), 0
    for record in records:
        assert record.features is not None
        assert record.label is not None
        mistakes += m.predict_one(record.features) != record.label
        m.learn_one(record.features, record.label)
    return m, mistakes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tie", ["negative", "positive"])
@pytest.mark.parametrize(("name", "params"), [("pa1", {"C": 0.1}), ("arow", {"r": 0.5})])
def test_as_predicting_and_learning_one_by_one(name: str, params: dict[str, Any], bias: bool, tie: str) -> None:
    m, mistakes = by_hand(examples(), name, bias=bias, tie=tie, **params)
    report = evaluate(examples(), name, params, bias=bias, tie=tie)
    assert (report["n"], report["mistakes"], report["updates"]) == (60, mistakes, m.n_updates)
    assert report["error"] == mistakes / 60
    assert report["weight_l2"] == pytest.approx(math.sqrt(sum(w * w for w in m.weights().values())))
    assert report["learner"] == name
    assert report["params"].items() >= params.items()
    assert report["seconds"] >= 0
    assert "per_key" not in report


def test_tie_and_bias_matter() -> None:
    results = [
        evaluate(examples(), "pa1", bias=bias, tie=tie) for bias in (True, False) for tie in ("negative", "positive")
    ]
    assert len({(r["mistakes"], r["weight_l2"]) for r in results}) == 4


def test_epochs() -> None:
    twice = evaluate(examples(), "pa1", {"C": 0.1}, epochs=2)
    m, mistakes = by_hand(examples() * 2, "pa1", C=0.1)
    assert (twice["n"], twice["mistakes"], twice["updates"]) == (120, mistakes, m.n_updates)
    with pytest.raises(ConfigError, match="epochs"):
        evaluate(examples(), epochs=0)


def test_shuffle_is_reproducible() -> None:
    runs = [evaluate(examples(), "pa1", shuffle=seed, epochs=2) for seed in (1, 1, 2, 3, None)]
    figures = [(r["mistakes"], r["updates"], r["weight_l2"]) for r in runs]
    assert figures[0] == figures[1]
    assert len(set(figures)) >= 4
    assert {r["n"] for r in runs} == {120}


def test_a_model_for_each_key() -> None:
    report = evaluate(examples(), "pa1", key="user")
    norm = 0.0
    for user in ("ann", "bob"):
        mine = [r for r in examples() if r.features and f"user={user}" in r.features]
        m, mistakes = by_hand(mine, "pa1")
        assert report["per_key"][user] == {"n": len(mine), "mistakes": mistakes, "updates": m.n_updates}
        norm += sum(w * w for w in m.weights().values())
    for name in ("n", "mistakes", "updates"):
        assert report[name] == sum(counts[name] for counts in report["per_key"].values())
    assert report["weight_l2"] == pytest.approx(math.sqrt(norm))
    assert set(report["per_key"]) == {"ann", "bob"}


def test_bad_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    lines = [json.dumps({"label": r.label, "features": r.features}) for r in examples()]
    file.write_text("\n".join([lines[0], "{", *lines[1:], '{"label": 1, "features": {"f": NaN}}']) + "\n")
    found, clean = evaluate(file, "pa1"), evaluate(examples(), "pa1")
    assert found["rejected"] == 2
    assert sum(found["reasons"].values()) == 2
    assert (found["n"], found["mistakes"], found["weight_l2"]) == (60, clean["mistakes"], clean["weight_l2"])


def test_records_without_the_key_are_rejected() -> None:
    report = evaluate([*examples(6), Record(label=1, features={"f": 1.0})], "pa1", key="user")
    assert (report["n"], report["reasons"]) == (6, {"no_key": 1})
    assert evaluate([Record(label=1, features={"user": 2.0**53})], "pa1", key="user")["reasons"] == {"no_key": 1}


def test_multiclass_and_views() -> None:
    classes = [Record(label=f"c{i % 3}", features={f"f{i % 3}": 1.0}) for i in range(30)]
    report = evaluate(classes, "spa1", task="multiclass", bias=False)
    assert report["n"] == 30
    assert report["mistakes"] == 3  # each class once
    views = [Record(label=r.label, views={"a": r.features or {}, "b": {"c": 1.0}}) for r in examples()]
    assert evaluate(views, "two_view_pa", views=("a", "b"))["n"] == 60


def test_nothing_has_no_error() -> None:
    report = evaluate([], "pa1")
    assert (report["n"], report["error"], report["weight_l2"]) == (0, None, 0.0)


def test_more_features_than_a_full_covariance_holds() -> None:
    many = [Record(label=1, features={f"f{i}": 1.0}) for i in range(5)]
    with pytest.raises(PalearnError, match="diagonal"):
        evaluate(many, "arow", {"covariance": "full", "max_full_features": 3})


@pytest.mark.parametrize("options", [{"learner": "arrow"}, {"params": {"r": 0}}, {"tie": "both"}, {"task": "x"}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(LearnerError):
        evaluate(examples(), **options)


def test_learners_that_race_make_the_mistakes_that_each_makes_alone(tmp_path: Path) -> None:
    records = examples()
    learners = [Learner(name, name) for name in ("pa1", "arow", "perceptron")]
    found = compare(Examples(records, ReadOptions(key="user")), settings_of(), learners, piece=7)
    alone = [evaluate(records, learner.name, key="user") for learner in learners]
    for mine, other in zip(found.figures(per_key=True), alone, strict=True):
        assert mine.items() <= other.items()
    assert [point[0] for point in found.curve] == [7, 14, 21, 28, 35, 42, 49, 56, 60]
    assert found.curve[-1][1] == [other["mistakes"] for other in alone]

    path = tmp_path / "few.libsvm"
    path.write_text("".join(f"{r.label} {i % 5}:1 7:{i}\n" for i, r in enumerate(records)))
    whole = compare(Examples(path), settings_of(), learners)
    pieces = compare(Examples(path), settings_of(), learners, piece=9)
    assert pieces.figures(per_key=False) == whole.figures(per_key=False)
    assert [point[0] for point in pieces.curve] == [9, 18, 27, 36, 45, 54, 60]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_hold_out_is_scored_as_predict_one_does(task: str) -> None:
    colours = ["red", "green", "blue"]
    records = [
        Record(
            label=colours[i * i % 3] if task == "multiclass" else 2 * (i % 2) - 1,
            features={f"f{i % 4}": 1.0, "g": i / 9},
        )
        for i in range(40)
    ]
    unseen = Record(label="violet", features={"f1": 1.0})
    test = [*records[20:], Record(features={"f1": 1.0}), Record(label=float("nan"), features={"f1": 1.0})]
    test += [unseen] if task == "multiclass" else []
    names = ["pa1", "arow"]
    learners = [Learner(name, name, task=task) for name in names]
    models = compare(Examples(records[:20]), settings_of(task=task), learners).models
    found = held_out(models, Examples(test))
    assert found["n"] == 20 + (task == "multiclass")
    assert (found["unlabelled"], found["rejected"], found["no_model"]) == (1, 1, 0)
    for name, mistakes in zip(names, found["mistakes"], strict=True):
        model = palearn.make(name, task=task)
        for record in records[:20]:
            model.learn_one(record.features or {}, record.label)
        wrong = sum(model.predict_one(r.features or {}) != r.label for r in [*records[20:40]])
        assert mistakes == wrong + (task == "multiclass")


def test_a_hold_out_of_keys_that_have_no_model() -> None:
    records = examples()
    models = compare(Examples(records[:1], ReadOptions(key="user")), settings_of(), [Learner("pa1", "pa1")]).models
    (key,) = models.keys
    found = held_out(models, Examples(records, ReadOptions(key="user")))
    assert found["n"] == sum((record.features or {}).get(f"user={key}") == 1 for record in records)
    assert found["no_model"] == 60 - found["n"] > 0
