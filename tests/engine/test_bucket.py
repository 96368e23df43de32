"""The bucket's promise: the same bits whatever the buckets, batches, arrival order and restarts."""

from functools import cache
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palearn import datasets, make
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.evaluate.prequential import evaluate
from palearn.learners import resize
from palearn.models import ragged
from palearn.records import Record
from tests.streams import (
    Ran,
    Row,
    assert_accounts,
    assert_same,
    bits,
    chunk,
    even_cuts,
    learner,
    plan,
    rows,
    run,
    seconds,
)

BINARY = (
    learner("pa1", C=0.1),
    learner("pam1", C=0.1),
    learner("arow", r=1.0),
    learner("arow", "precise", projection="precision", loss="hinge"),
    learner("arow", "full", covariance="full"),
    learner("sop", covariance="full"),
    learner("pa_mean1", C=0.1, queue=2),
    learner("adagrad_rda", l1=0.001),
    learner("cw", form="stdev"),
)
MULTICLASS = (
    learner("spa1", task="multiclass", C=0.1),
    learner("arow", task="multiclass"),
    learner("arow", "arow-all", task="multiclass", constraints="all"),
    learner("pam2", "pam-full", task="multiclass", covariance="full"),
    learner("adagrad_rda", task="multiclass", eta=0.3),
)
SMALL_CLASSES = (*MULTICLASS, learner("arow", "arow-joint", task="multiclass", covariance="joint"))
VIEWS = (
    learner("two_view_pa", C=0.1, gamma=0.5),
    learner("arow"),
    learner("pa1", "person", view="person"),
)


@cache
def adult(n: int) -> list[Record]:
    return list(islice(datasets.a9a(), n))


def occupation(record: Record) -> str | None:
    return next((name[11:] for name in record.features or () if name.startswith("occupation=")), None)


def with_relationship(record: Record) -> Record:
    """The same person, six classes: to be told from the other features."""
    assert record.features is not None
    label = next((name for name in record.features if name.startswith("relationship=")), None)
    return Record(label=label, features={k: v for k, v in record.features.items() if k != label})


def with_views(record: Record) -> Record:
    assert record.features is not None
    views: dict[str, dict[str, float]] = {"person": {}, "job": {}}
    for name, value in record.features.items():
        job = name.startswith(("occupation", "workclass", "hours", "capital"))
        views["job" if job else "person"][name] = value
    return Record(label=record.label, views=views)


def adult_case(task: str) -> tuple[BucketConfig, list[Row]]:
    people = adult(1000)
    keys = [occupation(person) for person in people]
    if task == "binary":
        return plan(*BINARY, window=50), rows(zip(keys, people, strict=True))
    if task == "multiclass":
        kinds = map(with_relationship, people)
        return plan(*MULTICLASS, task="multiclass", window=50), rows(zip(keys, kinds, strict=True))
    split = map(with_views, people)
    return plan(*VIEWS, views=("person", "job"), window=50), rows(zip(keys, split, strict=True))


@cache
def reference(task: str) -> Ran:
    return run(*adult_case(task))


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_three_views_agree_in_the_stream_as_in_one_model(task: str) -> None:
    """Three views of the adults: the stream's weights are those of one model that is shown the same records."""
    views = ("person", "job", "more")
    made = plan(learner("two_view_pa", task=task, C=0.1, gamma=0.05), task=task, views=views)
    one = make("two_view_pa", task=task, C=0.1, gamma=0.05)
    people = []
    for record in map(with_views, adult(300)):
        person = dict(record.views["person"])
        more = {name: person.pop(name) for name in list(person) if name.startswith(("age", "sex"))}
        people.append(Record(label=record.label, views={**record.views, "person": person, "more": more}))
        one.learn_one({view: people[-1].views[view] for view in views}, record.label)
    (row,) = run(made, rows([("k", person) for person in people]), cuts=even_cuts(300, 7)).models.values()
    assert row["n_updates"] == one.n_updates > 100
    weights = one.weights() if task == "multiclass" else {"": one.weights()}
    flat = [weights[label][view] for label in weights for view in views]
    found = dict(zip(row["features"], row["weights"], strict=False))  # those of the first label come first
    first = {f"{view}:{name}": w for view, part in zip(views, flat, strict=False) for name, w in part.items()}
    assert found == bits(first)


# -- the same bits on real data ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["binary", "multiclass", "views"])
def test_reference_learned_something(task: str) -> None:
    made, stream = adult_case(task)
    ran = reference(task)
    assert_accounts(ran)
    keys = {row.key for row in stream} - {None}
    assert len(keys) >= 14
    assert len(ran.models) == len(keys) * len(made.learners)
    no_key = sum(row.key is None for row in stream)
    assert ran.total.reasons == {"no_key": no_key}
    assert no_key > 0
    for name, mistakes in ran.total.mistakes.items():
        assert 0 < mistakes < 0.5 * ran.total.n, name
    if task == "multiclass":
        assert max(len(row["labels"]) for row in ran.tables["models"]) >= 5


@pytest.mark.parametrize("task", ["binary", "multiclass", "views"])
@pytest.mark.parametrize(
    ("buckets", "batches"), [(1, 1), (7, 1), (64, 1), (1, 2), (7, 20), (64, 20)], ids=lambda n: str(n)
)
def test_same_bits_for_any_buckets_batches_and_arrival_order(task: str, buckets: int, batches: int) -> None:
    made, stream = adult_case(task)
    ran = run(made, stream, buckets=buckets, cuts=even_cuts(len(stream), batches), shuffle=batches)
    assert len(ran.batches) == batches
    assert_same(ran, reference(task))
    assert_accounts(ran)


@pytest.mark.parametrize("task", ["binary", "multiclass", "views"])
def test_stopping_half_way_and_starting_from_bytes_changes_nothing(task: str) -> None:
    made, stream = adult_case(task)
    cuts = even_cuts(len(stream), 2)
    kept, restarted = run(made, stream, cuts=cuts, in_memory=True), run(made, stream, cuts=cuts)
    assert_same(restarted, kept)
    assert_same(restarted, reference(task))


@pytest.mark.parametrize("one", BINARY, ids=lambda one: one.name)
def test_evaluate_gives_the_same_mistakes_and_weights(one: Any) -> None:
    report = evaluate(adult(1000), one.algorithm, one.params, key="occupation")
    ran = reference("binary")
    mine = {key: row for (key, name), row in ran.metrics.items() if name == one.name}
    assert report["per_key"] == {
        key: {"n": row["n"], "mistakes": row["mistakes"], "updates": row["updates"]} for key, row in mine.items()
    }
    assert report["mistakes"] == ran.total.mistakes[one.name]
    assert report["rejected"] == ran.total.statuses["rejected"]
    weights = [w for row in ran.tables["models"] if row["learner"] == one.name for w in row["weights"]]
    assert report["weight_l2"] == pytest.approx(sum(w * w for w in weights) ** 0.5, rel=1e-12)


def test_a_race_is_the_same_as_running_alone() -> None:
    _, stream = adult_case("binary")
    for one in BINARY:
        alone = run(plan(one, window=50), stream)
        assert alone.models == {key: row for key, row in reference("binary").models.items() if key[1] == one.name}


def test_bytes_of_the_same_batches_are_the_same() -> None:
    made, stream = adult_case("binary")
    cuts = even_cuts(len(stream), 3)
    assert run(made, stream, cuts=cuts).blobs == run(made, stream, cuts=cuts, shuffle=1).blobs


# -- the same bits on random streams ----------------------------------------------------------------------

NAMES = [f"f{i}" for i in range(7)]
FEATURES = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(st.integers(-3, 3), st.floats(-3, 3), st.booleans(), st.sampled_from(["red", "blue"]), st.none()),
    max_size=5,
)
BAD: list[tuple[Any, Any]] = [
    ("a", b"{"),
    ("b", b'{"label": 1, "features": {"f1": NaN}}'),
    ("a", {"label": 1}),
    (None, {"label": 1, "features": {"f1": 1}}),
    ("c", {"label": [1], "features": {"new": 1}}),
    ("a", {"label": 1, "features": {"x" * 600: 1, "f2": 1}}),
    ("b", {"label": 1, "features": {"(bias)": 1, "f0": 2}}),
    ("c", {"label": 1, "features": {"f0": 1}, "weight": 0}),
    ("a", {"label": 1, "views": {"left": {"f0": 1}}}),
    (b"\xff", {"label": 1, "features": {"f0": 1}}),
]


def good_items(labels: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    weights = st.none() | st.sampled_from([0.5, 1, 3])

    def build(key: str, label: Any, features: dict[str, Any], weight: float | None) -> tuple[str, Any]:
        value = {"label": label, "features": features, "weight": weight}
        return key, {name: item for name, item in value.items() if item is not None}

    return st.builds(build, st.sampled_from("abcd"), st.none() | labels, FEATURES, weights)


@st.composite
def streams(draw: Any, labels: st.SearchStrategy[Any]) -> tuple[list[Row], list[int], int, int]:
    """A stream with bad records in it, where to cut it, how many buckets, and a seed of arrival."""
    items = draw(st.lists(st.one_of(good_items(labels), good_items(labels), st.sampled_from(BAD)), max_size=40))
    cuts = sorted(draw(st.lists(st.integers(0, len(items)), max_size=6)))
    return rows(items), cuts, draw(st.integers(1, 5)), draw(st.integers(0, 9))


SMALL = settings(max_examples=40, deadline=None, derandomize=True)


@SMALL
@given(streams(st.sampled_from([-1, 1, 0, 2.5, True, False])))
def test_random_binary_streams(case: tuple[list[Row], list[int], int, int]) -> None:
    stream, cuts, buckets, seed = case
    made = plan(learner("pa1", C=0.5), learner("arow", "full", covariance="full"), learner("pam2"), window=3)
    whole, cut = run(made, stream), run(made, stream, buckets=buckets, cuts=cuts, shuffle=seed)
    # A side without a label is called by its default until a record has named it: predictions' texts may differ.
    assert_same(cut, whole, predictions=False)
    assert_accounts(cut)


@SMALL
@given(streams(st.sampled_from(["x", "y", "z", 1, 1.0, True])))
def test_random_multiclass_streams(case: tuple[list[Row], list[int], int, int]) -> None:
    stream, cuts, buckets, seed = case
    made = plan(*SMALL_CLASSES, task="multiclass", window=3)
    whole, cut = run(made, stream), run(made, stream, buckets=buckets, cuts=cuts, shuffle=seed)
    assert_same(cut, whole)
    assert_accounts(cut)


@pytest.mark.parametrize("bias", [True, False])
def test_making_room_while_keys_are_new_writes_nothing_where_it_does_not_belong(
    bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compiled code does not check its bounds; the same functions in plain Python do.
    for module, names in (
        (ragged, ("spread", "append", "take")),
        (resize, ("_grow_weights", "_grow_packed", "_grow_joint")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name).py_func)
    items = [("a", {"label": "x", "features": {f"f{i}": 1}}) for i in range(4)]
    items += [("b", {"label": "only", "features": {"z": 1}}), ("c", {"features": {"z": 1}})]
    ran = run(plan(*SMALL_CLASSES, task="multiclass", max_features=2, bias=bias), rows(items))
    assert ran.total.features_evicted == 2
    assert {row["key"]: row["labels"] for row in ran.tables["models"]} == {"a": ["x"], "b": ["only"], "c": []}


@SMALL
@given(streams(st.sampled_from(["x", "y", "z"])))
def test_random_streams_with_few_features_kept(case: tuple[list[Row], list[int], int, int]) -> None:
    stream, cuts, buckets, seed = case
    made = plan(*SMALL_CLASSES, task="multiclass", max_features=5)
    whole, cut = run(made, stream), run(made, stream, buckets=buckets, cuts=cuts, shuffle=seed)
    assert_same(cut, whole)
    for row in whole.tables.get("models", []):
        assert len(row["features"]) <= 5 + 1
        assert len(row["weights"]) == len(row["labels"]) * len(row["features"])


@SMALL
@given(streams(st.sampled_from(["ham", "spam", "eggs"])))
def test_random_streams_with_few_keys_kept(case: tuple[list[Row], list[int], int, int]) -> None:
    stream, cuts, _, seed = case
    made = plan(learner("arow"), positive="spam", max_keys=2)
    whole, cut = run(made, stream), run(made, stream, cuts=cuts, shuffle=seed)
    assert_same(cut, whole, predictions=False)
    assert cut.total.keys_evicted == whole.total.keys_evicted
    assert_accounts(cut)


@SMALL
@given(streams(st.sampled_from([-1, 1])))
def test_bad_records_change_no_model(case: tuple[list[Row], list[int], int, int]) -> None:
    stream, _, _, _ = case
    made = plan(learner("pa1"), learner("arow"))
    with_bad = run(made, stream)
    refused = {row["offset"] for row in with_bad.tables.get("rejected", [])}
    without = run(made, [row for row in stream if row.offset not in refused])
    assert without.models == with_bad.models
    assert without.metrics == with_bad.metrics
    assert "rejected" not in without.tables


# -- bounds -----------------------------------------------------------------------------------------------


def one_feature(i: int) -> tuple[str, Any]:
    """Gives feature f<i> the weight +-i/100 and touches no other."""
    return "k", {"label": 1 if i % 2 else -1, "features": {f"f{i}": 1}, "weight": i}


@pytest.mark.parametrize("batches", [1, 5, 20])
def test_the_least_useful_features_leave(batches: int) -> None:
    # C * weight caps each step, so that the weights grow with the number; signs alternate.
    made = plan(learner("pa1", C=0.01), bias=False, max_features=8)
    stream = rows(map(one_feature, [*range(20, 12, -1), 30, 40, 13, 50]))
    ran = run(made, stream, cuts=even_cuts(len(stream), batches))
    # 30 and 40 push out 13 and 14; 13 comes back in place of 15, and leaves for 50.
    row = ran.tables["models"][-1]
    assert sorted(row["features"]) == sorted(f"f{i}" for i in (16, 17, 18, 19, 20, 30, 40, 50))
    by_name = dict(zip(row["features"], row["weights"], strict=True))
    assert by_name["f40"] == pytest.approx(-0.4)
    assert by_name["f17"] == pytest.approx(0.17)
    assert ran.total.features_evicted == 4


def test_the_bias_and_the_record_s_own_features_stay() -> None:
    made = plan(learner("pa1", C=0.01), max_features=3)
    big = [("k", {"label": 1, "features": {name: 1}, "weight": 50}) for name in ("a", "b", "c")]
    stream = rows([*big, ("k", {"label": -1, "features": {"d": 1, "e": 1, "f": 1}})])
    ran = run(made, stream)
    assert ran.tables["models"][-1]["features"] == ["(bias)", "d", "e", "f"]
    assert ran.total.features_evicted == 3


def test_unlabelled_records_push_no_feature_out() -> None:
    made = plan(learner("pa1"), max_features=2)
    known = [("k", {"label": 1, "features": {"a": 1, "b": 1}})]
    new = [("k", {"features": {"c": 1, "d": 1}})]
    ran = run(made, rows(known + new))
    assert ran.tables["models"][-1]["features"] == ["(bias)", "a", "b"]
    assert ran.total.features_evicted == 0


@pytest.mark.parametrize("batches", [1, 2, 6])
def test_the_least_recently_used_key_leaves(batches: int) -> None:
    made = plan(learner("pa1"), max_keys=3)
    order = ["k1", "k2", "k3", "k1", "k4", "k2"]
    stream = rows((key, {"label": 1, "features": {"x": 1}}) for key in order)
    ran = run(made, stream, cuts=even_cuts(len(stream), batches))
    held = Bucket(made, ran.blobs[0]).models.keys
    assert sorted(held) == ["k1", "k2", "k4"]
    assert ran.total.keys_evicted == 2  # k2 left for k4; k3 left when k2 came back
    newest = {key: row["n"] for (key, _), row in ran.metrics.items()}
    assert newest == {"k1": 2, "k2": 1, "k3": 1, "k4": 1}  # k2 began anew
    assert_accounts(ran)


def test_a_key_that_leaves_is_written_out_first() -> None:
    made = plan(learner("pa1"), max_keys=1)
    stream = rows([("k1", {"label": 1, "features": {"x": 1}}), ("k2", {"label": -1, "features": {"y": 1}})])
    bucket = Bucket(made)
    bucket.learn(chunk(stream))
    tables = bucket.results(models=False)
    assert [(row["key"], row["features"]) for row in tables["models"].to_pylist()] == [("k1", ["(bias)", "x"])]
    assert [row["key"] for row in tables["metrics"].to_pylist()] == ["k1", "k2"]


def test_a_key_that_leaves_and_comes_back_has_one_row_a_batch() -> None:
    bucket = Bucket(plan(learner("pa1"), max_keys=1))
    bucket.learn(chunk(rows((key, {"label": 1, "features": {"x": 1}}) for key in ["k1", "k2", "k1", "k1"])))
    tables = bucket.results()
    assert [(row["key"], row["n_seen"]) for row in tables["models"].to_pylist()] == [("k2", 1), ("k1", 2)]
    assert [(row["key"], row["n"]) for row in tables["metrics"].to_pylist()] == [("k2", 1), ("k1", 2)]


@pytest.mark.parametrize("value", [{"label": 1, "views": {"v": {}}}, {"label": 1, "features": {"(bias)": 1}}])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_bad_record_of_a_new_key_pushes_no_key_out(value: Any, batches: int) -> None:
    made = plan(learner("pa1"), max_keys=2)
    good = {"label": 1, "features": {"x": 1}}
    stream = rows([("k1", good), ("bad", value), ("k2", good)])
    ran = run(made, stream, cuts=even_cuts(3, batches))
    assert Bucket(made, ran.blobs[0]).models.keys == ["k1", "k2"]
    assert ran.total.keys_evicted == 0


def test_a_record_with_more_features_than_a_full_covariance_holds_is_rejected() -> None:
    made = plan(learner("arow", covariance="full", max_full_features=3))
    good = {"label": 1, "features": {"x": 1}}
    many = {"label": 1, "features": {f"f{i}": 1 for i in range(4)}}
    with seconds(5):
        ran = run(made, rows([("k", good), ("k", many), ("k", good)]))
    assert ran.total.reasons == {"too_many_features": 1}
    assert ran.tables["models"][-1]["features"] == ["(bias)", "x"]
