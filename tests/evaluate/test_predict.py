"""Predictions with the rows of a models table: what the stream would say with the same models, to the last bit."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palearn
from palearn import records
from palearn.engine import result_rows, scoring
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.errors import ConfigError
from palearn.evaluate import predict
from palearn.learners import Learner
from palearn.models import codec
from palearn.models.keyed import Models
from palearn.models.state import Settings
from tests.asked import KINDS, write_models
from tests.streams import Row, bits, chunk, learner, plan, rows
from tests.variants import VARIANTS, Variant

KEYS = ("a", "ключ", "c")
SAID = ("key", "id", "learner", "score", "predicted", "probability", "label", "correct")


def learned(made: BucketConfig, stream: list[Row]) -> tuple[bytes, pa.Table]:
    """Return the state after a stream, and its models table."""
    bucket = Bucket(made)
    bucket.learn(chunk(stream))
    return bucket.to_bytes(), result_rows.plain(bucket.results()["models"], "models")


def streamed(made: BucketConfig, blob: bytes, stream: list[Row]) -> list[Any]:
    """Return what the stream says of records that come next."""
    bucket = Bucket(made, blob, 1)
    bucket.learn(chunk(stream))
    found = bucket.results()["predictions"].to_pylist()
    found.sort(key=lambda row: (row["offset"], row["learner"]))
    return [bits({name: row[name] for name in SAID}) for row in found]


def scored(models: Models, stream: list[Row]) -> list[Any]:
    """Return what is said of the same records without learning."""
    found = scoring.rows(models, scoring.score(models, chunk(stream))).to_pylist()
    found.sort(key=lambda row: (row["row"], row["learner"]))
    return [bits({name: row[name] for name in SAID}) for row in found]


def value(x: Any, variant: Variant, **more: Any) -> dict[str, Any]:
    return {"views" if variant.views else "features": x, **more}


def following(variant: Variant) -> list[Row]:
    """Return unlabelled records, which leave the models as they are, and then a labelled one of each key."""
    items = [(key, value(x, variant)) for seed, key in enumerate(KEYS, 7) for x, _ in variant.normal(seed, 10)]
    new = variant.shape({"a": 1.5, "e": -2.0})
    for part in new.values() if variant.views else [new]:
        part["never seen"] = 2.0**60
    items += [(key, value(variant.shape({}), variant)) for key in KEYS]
    items += [(KEYS[0], value(new, variant)), (KEYS[1], value(variant.shape({"b": 1e300}), variant))]
    labels = [-1, 1, -1] if variant.task == "binary" else ["x", "z", "new"]
    items += [(key, value(new, variant, label=y)) for key, y in zip(KEYS, labels, strict=True)]
    return rows(items, first=1000)


def scores_by_its_matrix(variant: Variant) -> bool:
    return variant.name == "sop" and variant.options["covariance"] == "full"


@pytest.mark.parametrize("tie", ["negative", "positive"])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if not scores_by_its_matrix(v)], ids=str)
def test_every_learner_says_what_it_says_in_the_stream(variant: Variant, tie: str) -> None:
    made = plan(
        learner(variant.name, "mine", task=variant.task, tie=tie, **variant.options),
        task=variant.task, views=variant.views, bias=tie == "negative",
    )  # fmt: skip
    items = [(key, value(x, variant, label=y)) for seed, key in enumerate(KEYS) for x, y in variant.normal(seed, 25)]
    blob, table = learned(made, rows(items))
    expected = streamed(made, blob, following(variant))
    assert len(expected) == 38
    assert scored(scoring.models_from_rows(table), following(variant)) == expected
    # The models themselves say so too, and nothing of them is changed.
    models = codec.decode(blob)
    assert scored(models, following(variant)) == expected
    assert codec.encode(models) == blob


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        ([1, -1], None),
        ([0, 1], None),
        ([True, False], None),
        ([2], None),
        ([-3.5], None),
        ([False], None),
        (["spam", "ham"], "spam"),
        (["ham"], "spam"),
        (["spam"], "spam"),
        ([3, 4], 4),
        ([1, 0], 0),
        (["x", "true"], "true"),
    ],
    ids=str,
)
def test_labels_are_called_and_judged_as_in_the_stream(labels: list[Any], positive: Any) -> None:
    made = plan(learner("arow"), learner("pa1"), positive=positive)
    items = [(KEYS[i % 3], {"label": labels[i // 3 % len(labels)], "features": {f"f{i % 4}": 1}}) for i in range(12)]
    blob, table = learned(made, rows(items))
    models, rejected = scoring.models_from_rows(table), 0
    for new in (None, 1, 0, -2, False, "ham", "spam", "true", 4):
        then = rows([(key, {"id": i, "label": new, "features": {f"f{i}": 1}}) for i, key in enumerate(KEYS)], first=100)
        bucket = Bucket(made, blob, 1)
        bucket.learn(chunk(then))
        faults = scoring.score(models, chunk(then)).faults
        said = {fault.error.reason: len(faults) for fault in faults}
        if (
            positive is None
            and said != bucket.summary.reasons
            and {**said, **bucket.summary.reasons} == {"not_binary": 3}
        ):
            # Nor does it say which of two default names was seen, beside which another of that side is a third label.
            assert table.column("labels")[0].as_py()[new > 0] in ("-1", "1", "false", "true")
            continue
        assert said == bucket.summary.reasons
        rejected += len(faults)
        if faults:
            assert scored(models, then) == []
            continue
        expected = streamed(made, blob, then)
        if positive is None and new is not None:
            # A table does not say whether a label that has its default name was ever seen, and may be called otherwise.
            for row in expected:
                row["label"] = table.column("labels")[0].as_py()[new > 0]
        assert len(expected) == 6
        assert scored(models, then) == expected
    assert (rejected > 0) == (labels != ["spam"])  # whose other class any label may be


def test_learners_of_one_view_of_all_and_of_both() -> None:
    three = (learner("two_view_pa"), learner("arow"), learner("pa1", "left", view="left"))
    made = plan(*three, views=("right", "left"))
    items = [
        (KEYS[i % 3], {"label": 1 - i % 5 // 2, "views": {"left": {f"x{i % 4}": 1.5}, "right": {f"y{i % 3}": i / 8}}})
        for i in range(60)
    ]
    blob, table = learned(made, rows(items))
    then = rows([(key, {"views": {"left": {"x1": 0.1, "z": 1}, "right": {"y2": 3}}}) for key in KEYS], first=100)
    assert scored(scoring.models_from_rows(table), then) == streamed(made, blob, then)
    only = scoring.models_from_rows(table, ["left", "arow"])
    assert [x.name for x in only.learners] == ["left", "arow"]
    assert scored(only, then) == [row for row in streamed(made, blob, then) if row["learner"] != "two_view_pa"]


def test_a_record_is_judged_alone_and_leaves_no_trace() -> None:
    """In the stream the first label that is new names a class for those after it; here nothing comes after."""
    made = plan(learner("pa"), positive="spam")
    _, table = learned(made, rows([("k", {"label": "spam", "features": {"f": 1}})]))
    models = scoring.models_from_rows(table)
    names = list(models.vocabulary.names)
    labels = ["ham", "eggs", "spam", None]
    then = rows(
        [("k", {"label": y, "features": {"f": 1, f"new {y}": 2, "(bias)" if y is None else "g": 1}}) for y in labels]
    )
    found = scoring.score(models, chunk(then))
    assert found.label == ["ham", "eggs", "spam"]
    assert [fault.error.reason for fault in found.faults] == ["reserved_name"]
    assert (models.vocabulary.names, models.vocabulary.refused) == (names, {})
    assert list(models.vocabulary.tables[0]) == names[1:]
    assert models.labels == [(None, "spam")]


def test_records_that_have_no_score() -> None:
    made = plan(learner("pa"), views=("page", "link"))
    whole = {"page": {"f": 1}, "link": {}}
    models = scoring.models_from_rows(learned(made, rows([("k", {"label": 1, "views": whole})]))[1])
    items = [
        ("k", {"views": whole}), ("stranger", {"views": whole}), ("k", b"{"), (None, {"views": whole}),
        ("k", {"id": 1, "views": {"page": {"f": 1}}}), ("k", {"id": 2, "label": 1}), ("k", {"views": {"page": {}}}),
    ]  # fmt: skip
    found = scoring.score(models, chunk(rows(items)))
    assert found.row.tolist() == [0]
    assert found.no_model == [(1, "stranger", False)]
    assert found.parts == [4, 5]
    assert sorted((fault.row, fault.error.reason) for fault in found.faults) == [
        (2, "not_json"), (3, "no_key"), (6, "bad_view"),
    ]  # fmt: skip
    nothing = scoring.score(models, chunk([]))
    assert scoring.rows(models, nothing).num_rows == 0


# -- tables that cannot score ---------------------------------------------------------------------------------


def with_params(table: pa.Table, **changes: Any) -> pa.Table:
    """Return the table with the params of its first row changed; None: taken out."""
    found = table.to_pylist()
    params = json.loads(found[0]["params"]) | changes
    found[0]["params"] = json.dumps({name: item for name, item in params.items() if item is not ...})
    return pa.Table.from_pylist(found, table.schema)


def with_cell(table: pa.Table, name: str, cell: Any) -> pa.Table:
    found = table.to_pylist()
    found[0][name] = cell
    return pa.Table.from_pylist(found, table.schema)


def test_what_is_too_large_for_the_stream_is_too_large_here_and_nothing_else() -> None:
    """The job's own bounds hold, in bytes and in features, not those of a job that says nothing."""
    few, many = ({f"f{i}": 1 for i in range(n)} for n in (5, 40))
    asked = rows([(KEYS[0], {"features": x}) for x in (few, many)])
    for bounds, reasons in (
        ({"max_bytes": 200}, ["too_large"]),
        ({"max_features": 20}, ["too_many_features"]),
        ({"covariance": "full", "max_full_features": 20}, ["too_many_features"]),
        ({"max_bytes": 4_000_000}, []),
    ):
        own = {name: item for name, item in bounds.items() if "full" in str((name, item))}
        rest = {name: item for name, item in bounds.items() if name not in own}
        made = plan(learner("pa"), learner("arow", **own), **rest)
        blob, table = learned(made, rows([(KEYS[0], {"label": 1, "features": few})]))
        if not reasons:
            asked = rows([(KEYS[0], {"features": {"f1": 1}, "note": "x" * 2_000_000})])
        stream = Bucket(made, blob, 1)
        stream.learn(chunk(asked))
        assert list(stream.summary.reasons) == reasons
        for only in ([], ["pa"]):
            found = scoring.score(scoring.models_from_rows(table, only), chunk(asked))
            assert [fault.error.reason for fault in found.faults] == reasons
            assert len(found.row) == 1


def test_rows_from_before_an_upgrade_stand_beside_newer_ones() -> None:
    """Their params do not say how long a record may be; those of the newer ones do."""
    made = plan(learner("pa"), max_bytes=300)
    table = learned(made, rows([(key, {"label": 1, "features": {"f": 1}}) for key in KEYS]))[1]
    older = with_params(table, max_bytes=..., max_features=...)
    models = scoring.models_from_rows(older)
    assert models.settings.max_bytes == 300
    assert scoring.models_from_rows(with_params(older.slice(0, 1), x=...)).settings.max_bytes == 1_048_576


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: with_params(t, positive=...), "'arow' do not say positive: an older palearn .* state export"),
        (lambda t: with_params(t, r=2.0), "learner 'arow' have not all the same params"),
        (lambda t: with_cell(t, "format_version", 99), "newer palearn .format 99.: upgrade"),
        (lambda t: t.slice(1), "not every key has one row of every learner"),
        (lambda t: with_cell(t, "weights", [1.0]), "not one finite number for each label and feature"),
        (lambda t: with_cell(t, "algorithm", "new"), "unknown learner 'new'"),
    ],
)
def test_rows_that_cannot_score_are_told(change: Any, sentence: str) -> None:
    made = plan(learner("arow"), learner("pa"))
    stream = rows([(key, {"label": i, "features": {"f": 1}}) for key in KEYS for i in range(2)])
    table = learned(made, stream)[1]
    assert scoring.models_from_rows(table).keys == sorted(KEYS)
    with pytest.raises((ConfigError, ValueError), match=sentence):
        scoring.models_from_rows(change(table))


def test_models_of_two_jobs_are_told() -> None:
    stream = rows([("k", {"label": 1, "features": {"f": 1}})])
    parts = [learned(plan(learner("pa", name), bias=bias), stream)[1] for name, bias in (("x", True), ("y", False))]
    with pytest.raises(ConfigError, match="not of one job: their task, bias, positive, views differ"):
        scoring.models_from_rows(pa.concat_tables(parts))


def test_a_full_second_order_perceptron_scores_with_what_a_row_has_not() -> None:
    made = plan(learner("sop", "whole", covariance="full"), learner("sop", covariance="diagonal"))
    table = learned(made, rows([("k", {"label": 1, "features": {"f": 1}})]))[1]
    with pytest.raises(ConfigError, match=r"'whole' .sop. scores with a full covariance.*the diagonal only"):
        scoring.models_from_rows(table)
    assert [x.name for x in scoring.models_from_rows(table, ["sop"]).learners] == ["sop"]
    with pytest.raises(ConfigError, match="no learner 'none'; they have sop, whole"):
        scoring.models_from_rows(table, ["sop", "none"])


# -- files and the command ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of a job with spam and ham, two keys and three batches."""
    return KINDS["binary"].write(tmp_path_factory.mktemp("predict") / "out")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Records of both keys and of another, and lines that are none."""
    path = tmp_path / "mail.jsonl"
    lines = []
    for i in range(20):
        x, y = KINDS["binary"].example("ab"[i % 2], i)
        lines.append({"id": f"n{i}", "user": "ab"[i % 2], "label": y if i % 4 else None, "features": x})
    lines += [{"user": "z", "features": {}}, {"features": {}}, {"user": "a", "id": 3, "label": "ham"}]
    lines += [{"user": "a", "label": "eggs", "features": {}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{\n")
    return path


def by_hand(out: Path, file: Path, batch: int) -> list[dict[str, Any]]:
    """Return predictions by weights that know of no tables, summed in the order of the record."""
    found, models = [], palearn.load(out, batch)
    for number, line in enumerate(file.read_text().splitlines()[:20], 1):
        record, key = records.decode_value(line.encode()), json.loads(line)["user"]
        weights = KINDS["binary"].expected(key, batch)
        for name in KINDS["binary"].learners:
            score = 0.0
            for feature, x in [*(record.features or {}).items(), ("(bias)", 1.0)]:
                score += weights.get((name, "spam", feature), (0.0, None))[0] * x
            said = "spam" if score > 0 else "ham"
            probability = models.proba(key, record.features or {}, name)[said]
            correct = None if record.label is None else said == record.label
            found.append({"line": number, "key": key, "id": record.id, "learner": name, "score": score,
                          "predicted": said, "probability": probability, "label": record.label,
                          "correct": correct})  # fmt: skip
    return found


@pytest.mark.parametrize("batch", [0, 2])
def test_json_lines_on_standard_output(run: Any, out: Path, file: Path, batch: int) -> None:
    status, text, err = run("predict", str(out), str(file), "--key", "user", "--batch", str(batch))
    assert status == 0
    assert bits([json.loads(line) for line in text.splitlines()]) == bits(by_hand(out, file, batch))
    assert err.startswith("20 of 25 records scored; error arow 0.")


def test_files_of_each_kind_hold_the_same(run: Any, out: Path, file: Path, tmp_path: Path) -> None:
    expected = by_hand(out, file, 2)
    for suffix in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"said.{suffix}"
        status, text, err = run("predict", str(out), str(file), "--key", "user", "--out", str(path))
        assert (status, text) == (0, "")
        if suffix == "jsonl":
            found = [json.loads(line) for line in path.read_text().splitlines()]
        elif suffix == "parquet":
            found = pq.read_table(path).to_pylist()
        else:
            cast = {"line": int, "score": float, "probability": float, "correct": lambda text: text == "true"}
            with path.open(newline="") as stream:
                found = [
                    {name: None if text == "" else cast.get(name, str)(text) for name, text in row.items()}
                    for row in csv.DictReader(stream)
                ]
        assert bits(found) == bits(expected)
        assert [path.name for path in tmp_path.glob(".*")] == []
    wrong = {name: sum(x["correct"] is False for x in expected if x["learner"] == name) for name in ("arow", "careful")}
    assert err == (
        f"20 of 25 records scored; error arow {wrong['arow'] / 15:.4f}, careful {wrong['careful'] / 15:.4f} "
        "(15 with a label); 1 of keys without a model (1 key); 1 without all features of their example; "
        "3 rejected (1 no_key, 1 not_binary, 1 not_json)\n"
    )
    status, text, err = run("predict", str(out), str(file), "--key", "user", "--learner", "careful", "--json")
    assert (status, err) == (0, "")
    assert json.loads(text) == {
        "learned": None,
        "learners": [
            {"learner": "careful", "n": 15, "mistakes": wrong["careful"], "error": wrong["careful"] / 15},
        ],
        "records": 25, "scored": 20, "no_model": 1, "keys_without_a_model": 1, "parts": 1, "rejected": 3,
        "reasons": {"not_json": 1, "no_key": 1, "not_binary": 1},
    }  # fmt: skip


def test_models_of_one_key_need_no_key(run: Any, tmp_path: Path) -> None:
    stream = rows([("all", {"label": 1 - 2 * (i % 2), "features": {str(i % 3): 1 + i}}) for i in range(9)])
    folder = write_models(tmp_path / "out", plan(learner("pa1")), [stream])
    file = tmp_path / "x.libsvm"
    file.write_text("1 0:1 2:0.5\n-1 1:2\n")
    status, text, err = run("predict", str(folder), str(file))
    assert status == 0
    assert [(x["line"], x["key"]) for x in map(json.loads, text.splitlines())] == [(1, "all"), (2, "all")]
    assert err.startswith("2 of 2 records scored; error pa1 ")


def test_a_table_needs_no_labels_and_its_columns_may_be_said(run: Any, tmp_path: Path) -> None:
    stream = rows([("all", {"label": 1 - 2 * (i % 2), "features": {"a": i, f"zip={i % 3}": 1}}) for i in range(9)])
    folder = write_models(tmp_path / "out", plan(learner("pa1")), [stream])
    file, same = tmp_path / "x.csv", tmp_path / "x.jsonl"
    file.write_text("a,zip\n0.5,1\n2,2\n")
    same.write_text('{"features": {"a": 0.5, "zip": "1"}}\n{"features": {"a": 2, "zip": "2"}}\n')
    status, text, err = run("predict", str(folder), str(file), "--column", "zip=text")
    said = [json.loads(line) for line in text.splitlines()]
    assert (status, [x["line"] for x in said], [x["label"] for x in said]) == (0, [2, 3], [None, None])
    assert err.startswith("2 of 2 records scored")
    wanted = [json.loads(line)["score"] for line in run("predict", str(folder), str(same))[1].splitlines()]
    assert [x["score"] for x in said] == wanted
    unsaid = [json.loads(line)["score"] for line in run("predict", str(folder), str(file))[1].splitlines()]
    assert unsaid == wanted  # the models know that a zip is a text
    wrong = run("predict", str(folder), str(file), "--column", "zip=number")[1].splitlines()
    assert len({*wanted, *(json.loads(line)["score"] for line in wrong)}) == 4
    status, _, err = run("predict", str(folder), str(file), "--label", "y")
    assert (status, "no label column 'y'; the columns are: a, zip" in err) == (1, True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "the models are of 2 keys: name the field of the key (--key FIELD)"),
        (["--key", "user", "--learner", "x"], "the models have no learner 'x'; they have arow, careful"),
        (["--key", "user", "--batch", "-9"], "has no models up to batch -9"),
        (["--key", "user", "--out", "x.txt"], "the suffix must say what to write: .jsonl, .csv, .parquet"),
        (["--key", "user", "--out", "none/x.csv"], "none/x.csv cannot be written: No such file or directory"),
        (["--key", "user", "--format", "parquet", "--out", "x.csv"], "no Parquet file, or a damaged one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_one_line(
    run: Any,
    out: Path,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    status, text, err = run("predict", str(out), str(file), *options)
    assert (status, text, err.count("\n")) == (1, "", 1)
    assert sentence in err
    assert sorted(tmp_path.iterdir()) == before


def test_models_that_were_learned_in_this_process(file: Path) -> None:
    """They need not be anybody's output."""
    models = Models(Settings(positive="spam"), [Learner("pa", "pa")])
    models.add_keys(["all"])
    models.hold_keys()
    found = predict.Predictions(models, file)
    assert sum(batch.num_rows for batch in found.batches()) == found.account.scored == 23
