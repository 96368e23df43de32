"""Models from a models table, and models of keys taken apart and put together: nothing is lost, no bit is changed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import palearn
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.errors import ConfigError
from palearn.models import codec, from_table
from palearn.models.keyed import Models
from palearn.tables.schemas import MODELS
from tests.golden import rebuild
from tests.models.test_codec import GOLDEN
from tests.streams import Row, bits, chunk, learner, plan, rows, run
from tests.variants import VARIANTS, Variant, flat

KEYS = ("a", "ключ", "c")
#: Learners of which the weights and the variances are all that there is.
READABLE = ("perceptron", "pa", "pa1", "pa2", "spa", "spa1", "spa2", "pam", "pam1", "pam2", "arow", "cw",
            "scw1", "scw2", "nherd", "sop", "two_view_pa")  # fmt: skip


def is_readable(variant: Variant) -> bool:
    return variant.name in READABLE and variant.options.get("covariance") not in ("full", "joint")


def learned(made: BucketConfig, stream: list[Row]) -> list[dict[str, Any]]:
    """Return the models table's newest rows of a stream."""
    found = {(row["key"], row["learner"]): row for row in run(made, stream).tables.get("models", [])}
    return list(found.values())


def table(found: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(found, MODELS)


def begun(made: BucketConfig, found: list[dict[str, Any]]) -> Models:
    return from_table.from_table(table(found), made.settings, made.learners)


def go_on(made: BucketConfig, models: Models, stream: list[Row]) -> list[dict[str, Any]]:
    """Return the newest rows of all keys that began with models, after a stream."""
    bucket = Bucket(made, codec.encode(models))
    bucket.learn(chunk(stream))
    models = codec.decode(bucket.to_bytes())
    return rows_of(models)


def rows_of(models: Models) -> list[dict[str, Any]]:
    bucket = Bucket(BucketConfig(models.settings, models.learners), codec.encode(models))
    bucket.models.counts[:] = np.where(np.arange(models.counts.shape[1]) == 8, 1, models.counts)  # all have changed
    return [row for row in bucket.results()["models"].to_pylist()]


def numbers(row: dict[str, Any]) -> dict[str, dict[tuple[str, ...], str]]:
    """Return a row's weights and variances by label and feature, as their bits."""
    labels = [(label,) for label in row["labels"]] if len(row["weights"]) > len(row["features"]) else [()]
    names = [(*label, feature) for label in labels for feature in row["features"]]
    return {
        column: dict(zip(names, bits(row[column]), strict=True))
        for column in ("weights", "variances")
        if row[column] is not None
    }


def by_place(found: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(row["key"], row["learner"]): numbers(row) for row in found}


# -- a models table ---------------------------------------------------------------------------------------


def value(x: Any, y: Any, variant: Variant) -> dict[str, Any]:
    return {"label": y, "views" if variant.views else "features": x}


@pytest.mark.parametrize("variant", [v for v in VARIANTS if is_readable(v)], ids=str)
def test_a_learner_goes_on_from_its_row_as_if_it_had_never_stopped(variant: Variant) -> None:
    """The expectation is :func:`palearn.make`'s, which learns all examples and knows no tables."""
    one = learner(variant.name, task=variant.task, **variant.options)
    made = plan(one, task=variant.task, views=variant.views, bias=True)
    streams = {key: variant.normal(seed, 40) for seed, key in enumerate(KEYS)}
    halves = [
        rows([(key, value(x, y, variant)) for key in KEYS for x, y in streams[key][part]], first=first)
        for first, part in ((0, slice(20)), (100, slice(20, 40)))
    ]
    before = learned(made, halves[0])
    models = begun(made, before)
    assert by_place(rows_of(models)) == by_place(before)

    after = by_place(go_on(made, models, halves[1]))
    for key, examples in streams.items():
        model = variant.make(bias=True)
        for x, y in examples:
            model.learn_one(x, y)
        wanted = {"weights": model.weights(), "variances": model.variances()}
        assert after[key, variant.name] == {
            column: {
                path if not variant.views else _joined(path, variant.views): bits(number)
                for path, number in flat(found).items()
            }
            for column, found in wanted.items()
            if found
        }


def _joined(path: tuple[str, ...], views: tuple[str, ...]) -> tuple[str, ...]:
    """Name a feature of a view as the table does."""
    *label, view, feature = path if path[-2] in views else (*path[:-1], "", path[-1])
    return (*label, f"{view}:{feature}" if view else feature)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not is_readable(v)], ids=str)
def test_a_learner_that_keeps_more_is_refused_by_name(variant: Variant) -> None:
    one = learner(variant.name, "mine", task=variant.task, **variant.options)
    with pytest.raises(ConfigError, match=r"^learner 'mine' cannot .* has no (factors|class_sums|gradients)"):
        from_table.require_readable([learner("pa"), one])


TWO = (learner("pa1", C=0.1), learner("arow"))


def stream(labels: list[Any], n: int = 30, first: int = 0) -> list[Row]:
    items = [
        (KEYS[i % 3], {"label": labels[(i // 3 + first) % len(labels)], "features": {f"f{i * i % 7}": 1 + i % 4}})
        for i in range(n)
    ]
    return rows(items, first=first)


def test_counts_begin_anew_and_batches_before_all_others() -> None:
    made = plan(*TWO)
    for row in rows_of(begun(made, learned(made, stream([1, -1])))):
        assert (row["n_seen"], row["n_learned"], row["n_updates"], row["updated_batch"]) == (0, 0, 0, -1)


def test_learners_come_and_go() -> None:
    before = learned(plan(*TWO, learner("pam1")), stream([1, -1]))
    made = plan(learner("arow"), learner("pa2"))
    after = {(row["key"], row["learner"]): row for row in rows_of(begun(made, before))}
    assert {name for _, name in after} == {"arow", "pa2"}
    for row in before:
        if row["learner"] == "arow":
            assert numbers(after[row["key"], "arow"]) == numbers(row)
            assert set(after[row["key"], "pa2"]["weights"]) == {0.0}


def test_a_learner_of_another_algorithm_takes_the_weights_and_begins_sure_of_nothing() -> None:
    before = learned(plan(learner("pa1", "mine")), stream([1, -1]))
    made = plan(learner("arow", "mine", initial_variance=2.0))
    for row, old in zip(rows_of(begun(made, before)), sorted(before, key=lambda row: row["key"]), strict=True):
        assert (row["algorithm"], row["weights"]) == ("arow", old["weights"])
        assert set(row["variances"]) == {2.0}


def test_learners_of_one_view_of_all_and_of_both() -> None:
    three = (learner("two_view_pa"), learner("arow"), learner("pa1", "left", view="left"))
    made = plan(*three, views=("left", "right"))
    items = [
        (KEYS[i % 3], {"label": 1 - i % 5 // 2, "views": {"left": {f"x{i % 4}": 1.5}, "right": {f"y{i % 3}": i / 8}}})
        for i in range(60)
    ]
    first, second = rows(items[:30]), rows(items[30:], first=30)
    before = learned(made, first)
    models = begun(made, before)
    assert by_place(rows_of(models)) == by_place(before)
    assert by_place(go_on(made, models, second)) == by_place(learned(made, first + second))


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        ([1, -1], None),
        ([0, 1], None),
        ([0, 2.5], None),
        ([False, True], None),
        ([-(2**63), 2**63 - 1], None),
        ([1e300, -1e300], None),
        (["ham", "spam"], "spam"),
        (["nan", "true"], "true"),
        ([3, 4], 4),
        ([1], None),
        ([True], None),
        ([0], None),
        (["spam"], "spam"),
        (["ham"], "spam"),
    ],
    ids=str,
)
@pytest.mark.parametrize("later", [0, 1])
def test_labels_are_called_what_they_were_called(labels: list[Any], positive: Any, later: int) -> None:
    made = plan(learner("pa1"), positive=positive)
    first, second = stream(labels), stream(labels[later:] or labels, first=30)
    before = learned(made, first)
    models = begun(made, before)
    assert [row["labels"] for row in rows_of(models)] == [before[0]["labels"]] * 3
    after = go_on(made, models, second)
    whole = sorted(learned(made, first + second), key=lambda row: row["key"])
    assert [row["labels"] for row in after] == [row["labels"] for row in whole]
    assert by_place(after) == by_place(whole)


def test_a_side_that_no_record_has_named_may_still_get_its_name() -> None:
    made = plan(learner("pa1"))
    models = begun(made, learned(made, stream([1])))
    assert {tuple(row["labels"]) for row in rows_of(models)} == {("-1", "1")}
    assert {tuple(row["labels"]) for row in go_on(made, models, stream([0], first=30))} == {("0", "1")}


def test_many_classes_keep_their_order() -> None:
    made = plan(learner("pa1", task="multiclass"), learner("arow", task="multiclass"), task="multiclass")
    first, second = stream(["x", 2, True]), stream(["new", "x", 0.5, 2], first=30)
    models = begun(made, learned(made, first))
    after, whole = go_on(made, models, second), learned(made, first + second)
    assert by_place(after) == by_place(whole)
    assert {row["key"]: row["labels"] for row in after} == {row["key"]: row["labels"] for row in whole}


def test_fewer_features_than_the_table_has_are_kept_once_there_are_new_ones() -> None:
    before = learned(plan(learner("pa1")), stream([1, -1], 60))
    made = plan(learner("pa1"), max_features=2)
    after = go_on(made, begun(made, before), rows([("a", {"label": 1, "features": {"new": 1}})], first=60))
    assert {row["key"]: len(row["features"]) for row in after}["a"] == 3  # with the bias


@pytest.mark.parametrize(
    ("labels", "theirs", "mine", "sentence"),
    [
        ([1, -1], {}, {"bias": False}, "records.bias True, the configuration has False"),
        ([1, -1], {"task": "multiclass"}, {}, "records.task multiclass, the configuration has binary"),
        (["spam", "ham"], {"positive": "spam"}, {"positive": "ham"}, "'spam', records.positive is 'ham'"),
        (["spam", "ham"], {"positive": "spam"}, {}, "labels are text .* set records.positive"),
        (["spam"], {"positive": "spam"}, {}, "labels are text .* set records.positive"),
        (["ham", 1], {"positive": 1}, {}, "labels are text .* set records.positive"),
        (["nan", 1], {"positive": 1}, {}, "labels are text .* set records.positive"),
        (["1_0", 1], {"positive": 1}, {}, "labels are text .* set records.positive"),
        ([1, -1], {}, {"positive": "spam"}, "positive class is '1', records.positive is 'spam'"),
        ([1, -1], {}, {"views": ("f", "g")}, r"feature 'f0', which is of none of records.views \(f, g\)"),
    ],
)
def test_models_of_other_settings_are_refused(
    labels: list[Any], theirs: dict[str, Any], mine: dict[str, Any], sentence: str
) -> None:
    task = theirs.get("task", "binary")
    before = learned(plan(learner("pa1", task=task), **theirs), stream(labels))
    made = plan(learner("pa1"), **mine)
    with pytest.raises(ConfigError, match=sentence):
        begun(made, before)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [1.0]},
        {"weights": None},
        {"weights": [float("nan")] * 2, "variances": [1.0] * 2, "features": ["(bias)", "f"]},
        {"variances": [float("inf")] * 2, "weights": [1.0] * 2, "features": ["(bias)", "f"]},
        {"features": ["f", "f"], "weights": [1.0] * 2, "variances": None},
    ],
)
def test_rows_that_contradict_themselves_are_refused(change: dict[str, Any]) -> None:
    made = plan(learner("arow"))
    before = learned(made, stream([1, -1]))
    with pytest.raises(ConfigError, match="key 'a' and learner 'arow' are not one finite number"):
        begun(made, [before[0] | change, *before[1:]])


# -- keys taken apart and put together --------------------------------------------------------------------


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_keys_that_are_parted_and_joined_again_are_the_same_bytes(path: Path) -> None:
    models = codec.decode(path.read_bytes())
    whole = codec.encode(models)
    if not models.keys:
        assert codec.encode(Models.merged([models, models])) == whole
        return
    alone = [codec.decode(codec.encode(models.of_keys(np.array([k])))) for k in range(len(models.keys))]
    assert codec.encode(Models.merged(alone)) == whole
    assert codec.encode(Models.merged([Models.merged(alone[:1]), Models.merged(alone[1:])])) == whole
    assert codec.encode(models) == whole  # taking apart leaves it as it was
    nobody = models.of_keys(np.zeros(0, np.int64))
    assert codec.encode(Models.merged([nobody, *alone])) == whole


@pytest.mark.parametrize("name", ["parts", "multiclass", "full", "joint", "means", "views", "bounded"])
@pytest.mark.parametrize("first", [1, 7])
@pytest.mark.parametrize("second", [1, 5])
def test_buckets_that_are_dealt_anew_half_way_change_nothing(name: str, first: int, second: int) -> None:
    made, stream = rebuild.cases()[name]
    cut = len(stream) // 2
    whole = run(made, stream)
    before = run(made, stream[:cut], buckets=first)
    parts: dict[int, list[Models]] = {}
    for number in sorted(before.blobs, key=lambda _: random.Random(7).random()):
        models = codec.decode(before.blobs[number])
        for k, key in enumerate(models.keys):
            parts.setdefault(sum(key.encode()) % second, []).append(models.of_keys(np.array([k])))
    found: dict[tuple[str, str], Any] = {}
    described = {}
    for number, of in parts.items():
        bucket = Bucket(made, codec.encode(Models.merged(of)), 0)
        bucket.learn(chunk([row for row in stream[cut:] if sum(row.key or b"") % second == number]))
        for table_, rows_ in bucket.results().items():
            for row in rows_.to_pylist():
                found[table_, row["key"], row.get("learner", "")] = {
                    k: bits(v) for k, v in row.items() if k != "updated_batch"
                }
        models = codec.decode(bucket.to_bytes())
        described |= dict(zip(models.keys, models.join_buffers, strict=True))
    for table_ in ("models", "metrics"):
        wanted = whole.newest(table_, "updated_batch")
        assert {place: found[table_, *place] for place in wanted} == wanted
    end = codec.decode(whole.blobs[0])
    assert described == dict(zip(end.keys, end.join_buffers, strict=True))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_learner_goes_on_in_another_bucket(variant: Variant) -> None:
    one = learner(variant.name, task=variant.task, **variant.options)
    made = plan(one, task=variant.task, views=variant.views)
    items = [(key, value(x, y, variant)) for seed, key in enumerate(KEYS) for x, y in variant.normal(seed, 24)]
    random.Random(1).shuffle(items)
    stream = rows(items)
    before = codec.decode(run(made, stream[:36]).blobs[0])
    bucket = Bucket(made, codec.encode(Models.merged([before.of_keys(np.array([k])) for k in (2, 0, 1)])))
    bucket.learn(chunk(stream[36:]))
    assert by_place(bucket.results()["models"].to_pylist()) == by_place(learned(made, stream))


def test_buckets_of_other_names_share_none() -> None:
    """Keys of different buckets have features of the same name under different numbers."""
    made = plan(learner("pa1"))
    one, other = (
        run(made, rows([(key, {"label": 1, "features": {name: 2.0 for name in names}})])).blobs[0]
        for key, names in (("a", "xyz"), ("b", "zwx"))
    )
    both = Models.merged([codec.decode(one), codec.decode(other)])
    assert both.vocabulary.names == ["(bias)", "x", "y", "z", "w"]
    assert [row["features"] for row in rows_of(both)] == [["(bias)", *"xyz"], ["(bias)", *"zwx"]]


def test_from_bytes_reads_a_key_of_a_bucket() -> None:
    """The parts that move between buckets are what ``palearn.from_bytes`` reads."""
    models = codec.decode(run(plan(learner("arow")), stream([1, -1])).blobs[0])
    for k, row in enumerate(rows_of(models)):
        alone = palearn.from_bytes(codec.encode(models.of_keys(np.array([k]))))
        assert alone.weights() == dict(zip(row["features"], row["weights"], strict=True))
