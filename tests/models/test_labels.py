"""The rule of labels, at every door without files: two labels a binary task, and a third is none of them."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import palearn
from palearn.errors import LabelError, RecordError
from palearn.models.labels import classify, pairs_of
from palearn.models.state import Settings
from palearn.records import label_text
from palearn.river import AROWClassifier as RiverAROW
from palearn.sklearn import AROWClassifier

X = {"f": 1.0}
#: Two numbers of which the signs say which one is positive; the last two are wrong for no door.
PAIRS: list[tuple[Any, Any]] = [(-1, 1), (0, 1), (False, True), (0.0, 2.5), (-7, 3), (0, True), (-0.0, 10**18)]
#: Two labels of one sign: before, each pair was one class, and the error of that class nearly 0.
NAMES: list[tuple[Any, Any]] = [
    (1, 2),
    (2, 1),
    (0, -1),
    (-2, -1),
    (1, 1.5),
    (True, 2),
    (2**60, 2**60 + 1),
    (3.5, 9),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_sign_tells_two_labels_apart(pair: tuple[Any, Any]) -> None:
    for labels in permutations((*pair, *pair)):
        model = palearn.make("pa1")
        for label in labels:
            model.learn_one(X, label)
        assert model.known_labels == list(pair)
        with pytest.raises(RecordError, match="not_binary: unexpected third label '77'"):
            model.learn_one(X, 77)


@pytest.mark.parametrize("pair", NAMES, ids=str)
def test_two_labels_of_a_sign_are_refused_by_name(pair: tuple[Any, Any]) -> None:
    first, second = (label_text(label) for label in pair)
    for model in (palearn.make("arow"), RiverAROW()):
        model.learn_one(X, pair[0])
        with pytest.raises(RecordError, match="not_binary") as raised:
            model.learn_one(X, pair[1])
        assert all(part in str(raised.value) for part in (repr(first), repr(second), "positive=LABEL", "--positive"))


@pytest.mark.parametrize("pair", NAMES, ids=str)
def test_the_positive_one_by_name_makes_any_two_a_task(pair: tuple[Any, Any]) -> None:
    for positive, negative in (pair, pair[::-1]):
        model = palearn.make("arow", positive=positive)
        for label, sign in ((negative, -1), (positive, 1)) * 3:
            model.learn_one({"f": sign}, label)
        assert [model.predict_one({"f": sign}) for sign in (-1, 1)] == [negative, positive]
        with pytest.raises(RecordError, match="third"):
            model.learn_one(X, 77)


@pytest.mark.parametrize("pair", NAMES, ids=str)
def test_scikit_learn_takes_any_two_labels_as_its_classes(pair: tuple[Any, Any]) -> None:
    x, y = np.array([[-1.0], [1.0]] * 4), np.array(pair * 4)
    if y.dtype == float:  # scikit-learn takes them for a regression's
        with pytest.raises(ValueError, match="continuous"):
            AROWClassifier().fit(x, y)
        return
    assert AROWClassifier(random_state=0).fit(x, y).predict(x).tolist() == y.tolist()


@pytest.mark.parametrize("positive", [True, False])
def test_a_truth_value_is_no_positive_label_of_texts(positive: bool) -> None:
    model = palearn.make("arow", positive=positive)
    with pytest.raises(RecordError, match=f"truth value {str(positive).lower()}.*in quotes"):
        model.learn_one(X, "yes")
    model.learn_one(X, "true").learn_one(X, False)  # the texts of truth values are their names
    assert {str(label).lower() for label in model.known_labels} == {"true", "false"}


def test_numbers_and_booleans_of_one_value_are_one_label() -> None:
    y, before, faults = classify(
        np.zeros(6, np.int64), [1, True, 0, 1.0, False, None], known := [(None, None)], Settings()
    )
    assert (y.tolist(), before.tolist(), faults, known) == ([1, 1, 0, 1, 0, -1], [0, 2, 2, 3, 3, 3], {}, [(0, 1)])


@pytest.mark.parametrize("known", [(0, 1), (1, 2)], ids=str)
def test_many_rows_at_once_are_judged_as_one_by_one(known: tuple[int, int]) -> None:
    draw = np.random.default_rng(5)
    labels = [[0, 1, 1.0, True, False, None, 2, "no", 2**53, 2**53 + 1][i] for i in draw.integers(0, 10, 300)]
    key = np.sort(draw.integers(0, 5, 300))
    together: list[Any] = [known, (None, None), (0, None), (None, 1), (2**53, None)]
    singly = list(together)
    y, before, faults = classify(key, labels, together, Settings())
    for i in range(300):
        own = [singly[key[i]]]
        one, then, fault = classify(np.zeros(1, np.int64), [labels[i]], own, Settings())
        singly[key[i]] = own[0]
        assert (one[0], str(fault.get(0))) == (y[i], str(faults.get(i)))
        assert then[0] == before[i]
    assert together == singly


@pytest.mark.parametrize(
    ("counts", "pair"),
    [
        ({1: 5, 2: 5}, (1, 2)),
        ({2: 1, 1: 9}, (1, 2)),
        ({-1: 3, -2: 4}, (-2, -1)),
        ({0: 50, 1: 40, 2: 10}, (0, 1)),  # a few records of a third label are theirs alone
        ({5: 2, 0: 60, 1: 38}, (0, 1)),  # wherever they stand
        ({1: 7}, (None, 1)),
        ({0: 7}, (0, None)),
        ({0: 50, 1: 50, "?": 3}, (0, 1)),
        ({}, (None, None)),
    ],
    ids=str,
)
def test_a_file_has_the_two_labels_that_most_records_have(counts: dict[Any, int], pair: tuple[Any, Any]) -> None:
    assert pairs_of({"k": counts}, Settings()) == {"k": pair}


@pytest.mark.parametrize(
    ("counts", "positive", "parts"),
    [
        ({0: 40, 1: 30, 2: 30}, None, ["3: '0' (40)", "--task multiclass", "--positive LABEL"]),
        ({i / 10: 1 for i in range(300, 400)}, None, ["100: '30' (1)", "and 95 more", "measured"]),
        ({"no": 3, "yes": 2}, None, ["labels are text", "'no' (3), 'yes' (2)", "--positive 'yes'"]),
        ({"a": 3, "b": 2, "c": 2}, None, ["3: 'a' (3)", "--task multiclass"]),
        ({"no": 3, "yes": 2}, "Yes", ["'Yes' has not occurred in 5", "'no' (3)", "did you mean 'yes'?"]),
        ({"no": 3, "yes": 2}, True, ["truth value true", "'yes' (2)", "in quotes"]),
        ({"0": 3, "1": 2}, "2", ["'2' has not occurred", "'0' (3), '1' (2)"]),
        ({"a": 3, "b": 3, "c": 3}, "a", ["3: 'a' (3)", "--task multiclass"]),
    ],
    ids=str,
)
def test_a_file_of_other_labels_is_refused(counts: dict[Any, int], positive: Any, parts: list[str]) -> None:
    with pytest.raises(LabelError) as raised:
        pairs_of({"k": counts}, Settings(positive=positive))
    assert [part for part in parts if part not in str(raised.value)] == []


def test_each_key_of_a_file_has_two_labels_of_its_own() -> None:
    assert pairs_of({"a": {0: 3, 1: 3}, "b": {-1: 3, 1: 3}, "c": {1: 1, 2: 1}}, Settings()) == {
        "a": (0, 1),
        "b": (-1, 1),
        "c": (1, 2),
    }
