"""Labels that come late, beside River's delayed progressive validation of the same learners on the same people."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from river import evaluate, metrics

from palearn import datasets
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.join import Limits
from palearn.engine.result_rows import Texts, model_rows
from palearn.learners import Learner
from palearn.models.state import Settings
from palearn.records import record_key
from palearn.river import AROWClassifier, PAClassifier, PAMClassifier, SPAClassifier
from tests.engine.test_join import chunk

PEOPLE = 3000
Person = tuple[str, dict[str, float], bool | str]

#: Name of a learner in the stream: the stream's learner, and River's of it.
BINARY: dict[str, tuple[dict[str, Any], Any]] = {
    "arow": ({"r": 0.5}, AROWClassifier(r=0.5)),
    "pa1": ({"C": 0.1}, PAClassifier(C=0.1, mode=1)),
    "pam1": ({"C": 0.1}, PAMClassifier(C=0.1, mode=1)),
}
MULTICLASS: dict[str, tuple[dict[str, Any], Any]] = {
    "arow": ({"constraints": "all"}, AROWClassifier(task="multiclass", constraints="all")),
    "pa1": ({"C": 0.1}, PAClassifier(task="multiclass", C=0.1, mode=1)),
    "spa1": ({"C": 0.1}, SPAClassifier(task="multiclass", C=0.1, mode=1)),
}


@dataclass
class Waits:
    """When people come and when their labels do: River's ``moment`` and ``delay``, and the same as numbers."""

    moment: str | None
    delay: Any
    come: Callable[[int, Person], float]
    wait: Callable[[Person], float]


def rank(x: dict[str, float]) -> int:
    return len(x) + len("".join(x)) % 37


#: Moments and delays are features too, in quarters, so that their sums are exact and often equal.
WAITS = {
    "as many records later": Waits(None, 50, lambda i, _: i, lambda _: 50),
    "by features and label": Waits(
        None,
        lambda x, y: rank(x) + (90 if y in (True, "Sales") else 0),
        lambda i, _: i,
        lambda person: rank(person[1]) + (90 if person[2] in (True, "Sales") else 0),
    ),
    "by the record's own times": Waits("hours", "wait", lambda _, p: p[1]["hours"], lambda p: p[1]["wait"]),
}


@pytest.fixture(scope="module")
def people() -> list[Person]:
    """Return people with an occupation: occupation, features with moments and delays among them, label."""
    dice = np.random.default_rng(20)
    hours = np.cumsum(dice.integers(0, 3, PEOPLE)) / 4
    waits = dice.integers(1, 150, PEOPLE) / 4
    employed = (r for r in datasets.a9a() if record_key(r, "occupation"))
    return [
        (str(record_key(r, "occupation")), {**(r.features or {}), "hours": hour, "wait": wait}, bool(r.label > 0))
        for r, hour, wait in zip(itertools.islice(employed, PEOPLE), hours.tolist(), waits.tolist(), strict=True)
    ]


def occupations(people: list[Person]) -> list[Person]:
    """Return people whose label is their occupation, which is no feature of theirs then."""
    return [
        (key, {name: value for name, value in x.items() if not name.startswith("occupation=")}, key)
        for key, x, _ in people
    ]


@dataclass
class Validation:
    """What came out: mistakes, predictions in the order the labels came, final weights."""

    mistakes: int = 0
    predictions: list[Any] = field(default_factory=list)
    weights: dict[Any, Any] = field(default_factory=dict)


def by_river(model: Any, first: Person, rest: list[Person], waits: Waits) -> Validation:
    """Validate as River does; the first person is learned before, so that there is a class to predict."""
    model = model.clone()
    model.learn_one(first[1], first[2])
    confusion = metrics.ConfusionMatrix()
    steps = evaluate.iter_progressive_val_score(
        [(x, y) for _, x, y in rest], model, confusion, waits.moment, waits.delay, step=1, yield_predictions=True
    )
    predictions = [step["Prediction"] for step in steps]
    right = sum(confusion[label][label] for label in confusion.classes)
    assert confusion.n_samples == len(rest) == len(predictions)
    return Validation(int(len(rest) - right), predictions, model.weights)


def events(rest: list[Person], waits: Waits) -> Iterator[tuple[int, bool]]:
    """Yield (person, whether it is the label) by River's rule: a label that is due comes before who comes then."""
    come = [waits.come(i, person) for i, person in enumerate(rest)]
    due = [moment + waits.wait(person) for moment, person in zip(come, rest, strict=True)]
    asked = [(moment, 1, i) for i, moment in enumerate(come)]
    for _, question, i in sorted([*asked, *((moment, 0, i) for i, moment in enumerate(due))]):
        yield i, not question


def by_parts(
    people: list[Person], first: int, order: list[tuple[int, bool]], task: str, learners: dict[str, Any], batches: int
) -> tuple[list[Bucket], list[dict[str, Any]]]:
    """Learn the first people whole and the others in parts, over so many batches; return buckets and predictions."""
    chosen = tuple(Learner(name, name, task=task, options=params) for name, (params, _) in learners.items())
    tables = frozenset(("predictions",))
    plan = BucketConfig(
        Settings(task=task, max_features=None), chosen, tables=tables, limits=Limits(max_pending=PEOPLE)
    )
    messages: list[tuple[str, dict[str, Any]]] = [(key, {"label": y, "features": x}) for key, x, y in people[:first]]
    for i, labelled in order:
        key, x, y = people[first + i]
        messages.append((key, {"id": f"person {i}", **({"label": y} if labelled else {"features": x})}))
    cuts = sorted(np.random.default_rng(3).choice(np.arange(first + 1, len(messages)), batches - 1, replace=False))
    buckets, rows, blob = [], [], None
    for number, (start, stop) in enumerate(pairwise([0, first, *map(int, cuts), len(messages)])):
        bucket = Bucket(plan, blob, number)
        bucket.learn(chunk(messages[start:stop], start))
        assert bucket.summary.records == sum(bucket.summary.statuses.values())
        buckets.append(bucket)
        rows += bucket.results()["predictions"].to_pylist()
        blob = bucket.to_bytes()
    return buckets, sorted(rows, key=lambda row: row["offset"])


def weights_of(bucket: Bucket, key: str, learner: int) -> dict[str, Any]:
    """Return a key's weights: binary by feature, multiclass by label and feature."""
    at = np.array([bucket.models.index[key]])
    (row,) = model_rows(bucket.models, at, Texts(bucket.models, at))[learner].to_pylist()
    size = len(row["features"])
    blocks = [
        dict(zip(row["features"], row["weights"][i : i + size], strict=True))
        for i in range(0, len(row["weights"]), size)
    ]
    return blocks[0] if len(blocks) == 1 else dict(zip(row["labels"], blocks, strict=True))


def text(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


@pytest.mark.parametrize("waits", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize(("task", "learners"), [("binary", BINARY), ("multiclass", MULTICLASS)])
def test_late_labels_make_the_mistakes_that_river_counts(
    people: list[Person], task: str, learners: dict[str, Any], waits: Waits
) -> None:
    found = people if task == "binary" else occupations(people)[:1500]
    found = [("one", x, y) for _, x, y in found]
    order = list(events(found[1:], waits))
    assert any(labelled for _, labelled in order[: len(order) // 10])
    buckets, rows = by_parts(found, 1, order, task, learners, batches=12)
    assert sum(bucket.summary.statuses["learned"] for bucket in buckets) == 1 + 2 * len(found[1:])
    for number, (name, (_, model)) in enumerate(learners.items()):
        expected = by_river(model, found[0], found[1:], waits)
        assert sum(bucket.summary.mistakes[name] for bucket in buckets[1:]) == expected.mistakes
        later = [row for row in rows if row["learner"] == name and row["label"] is not None][1:]
        assert [row["predicted"] for row in later] == list(map(text, expected.predictions))
        assert weights_of(buckets[-1], "one", number) == expected.weights
        # That labels come late matters: learned at once there are other mistakes.
        assert (
            expected.mistakes
            != by_river(model, found[0], found[1:], Waits(None, None, waits.come, waits.wait)).mistakes
        )


def test_keys_have_their_own_delayed_validation(people: list[Person]) -> None:
    waits = WAITS["by the record's own times"]
    of_key: dict[str, list[Person]] = {}
    for person in people:
        of_key.setdefault(person[0], []).append(person)
    firsts = [found[0] for found in of_key.values()]
    rest = [person for person in people if person is not of_key[person[0]][0]]
    buckets, rows = by_parts([*firsts, *rest], len(firsts), list(events(rest, waits)), "binary", BINARY, batches=9)
    assert len(of_key) > 10
    for number, (name, (_, model)) in enumerate(BINARY.items()):
        mistakes = 0
        for key, found in of_key.items():
            expected = by_river(model, found[0], found[1:], waits) if found[1:] else Validation()
            mistakes += expected.mistakes
            own = [row for row in rows if (row["key"], row["learner"]) == (key, name) and row["label"] is not None]
            assert [row["predicted"] for row in own[1:]] == list(map(text, expected.predictions))
            if found[1:]:
                assert weights_of(buckets[-1], key, number) == expected.weights
        assert sum(bucket.summary.mistakes[name] for bucket in buckets[1:]) == mistakes
