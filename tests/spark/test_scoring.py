"""DataFrames scored with a job's models as the job itself scores, and the queries that ``palearn models`` prints."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import palearn.spark
from palearn import tables
from palearn.errors import ConfigError
from palearn.evaluate import predict
from tests.asked import KINDS, questions, same
from tests.evaluate.test_predict import scored
from tests.spark.conftest import Message
from tests.streams import bits, rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PLACE = ["topic", "partition", "offset"]


@pytest.mark.kafka
def test_the_same_bits_as_the_job_that_made_the_models(
    spark: SparkSession, finished: Path, adult_messages: list[Message]
) -> None:
    """The first record of each key in a batch was scored with the models of the batch before."""
    records = spark.createDataFrame(
        [(m.topic, m.partition, m.offset, m.key, m.value) for m in adult_messages],
        "topic string, partition int, offset long, key binary, value binary",
    )
    said = tables.read(finished / "out", "predictions")
    batches = sorted(set(said["batch_id"]))
    assert len(batches) >= 4
    columns = ["key", "learner", "score", "predicted", "label", "correct"]
    compared = 0
    for batch in batches[1:]:
        first = said[said["batch_id"] == batch].sort_values(PLACE).drop_duplicates(["key", "learner"])
        known = set(tables.latest_models(finished / "out", batch=batch - 1)["key"])
        found = palearn.spark.score(records, finished / "out", batch=batch - 1).toPandas()
        assert len(found) == 4 * len(adult_messages)
        assert set(found["fault"].dropna()) <= {"no_model"}
        mine = found.merge(first[[*PLACE, "learner"]], on=[*PLACE, "learner"])
        mine = mine[mine["key"].isin(known)]
        wanted = first[first["key"].isin(known)]
        assert said_of(mine, columns) == said_of(wanted, columns)
        compared += len(wanted)
        missing = found[~found["key"].isin(known)]
        assert missing["score"].isna().all()
        assert (missing["fault"] == "no_model").all()
    assert compared >= 3 * 4 * 10


def said_of(frame: pd.DataFrame, columns: list[str]) -> list[Any]:
    return [bits(list(row)) for row in frame.sort_values([*PLACE, "learner"])[columns].to_numpy().tolist()]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("asked")
    return {name: kind.write(top / f"{name} it's `{{a}}` [b*] ?%41 é") for name, kind in KINDS.items()}


def collected(frame: DataFrame) -> list[Any]:
    names = ["key", "id", "learner", "score", "predicted", "probability", "label", "correct"]
    return [bits({name: row[name] for name in names}) for row in frame.orderBy("place", "learner").collect()]


@pytest.mark.parametrize("kind", ["multiclass", "hostile", "views"])
def test_records_in_columns_as_records_in_json(spark: SparkSession, outputs: dict[str, Path], kind: str) -> None:
    made = KINDS[kind]
    field = "views" if made.views else "features"
    items = [(key, i, *made.example(key, i)) for i in range(20, 26) for key in made.keys]
    wire = rows([(key, {"id": i, "label": y, field: x}) for key, i, x, y in items])
    expected = scored(predict.load(outputs[kind]), wire)
    assert len(expected) == 12 * len(made.learners)

    text = [(place, bytes(row.key or b"").decode(), row.value.decode()) for place, row in enumerate(wire)]
    in_json = spark.createDataFrame(text, "place int, key string, value string")
    assert collected(palearn.spark.score(in_json, outputs[kind])) == expected

    features = "map<string,map<string,double>>" if made.views else "map<string,double>"
    label = "int" if made.views else "string"
    in_columns = spark.createDataFrame(
        [(place, key, i, y, x) for place, (key, i, x, y) in enumerate(items)],
        f"place int, key string, id long, label {label}, {field} {features}",
    )
    assert collected(palearn.spark.score(in_columns, outputs[kind])) == expected
    only = palearn.spark.score(in_columns, outputs[kind], learners=list(made.learners)[:1])
    assert [row["learner"] for row in collected(only)] == list(made.learners)[:1] * 12


def test_why_a_record_has_no_score(spark: SparkSession, outputs: dict[str, Path]) -> None:
    items = [
        (b"a", '{"id": 1, "features": {"f0": 1}}', None),
        (b"z", '{"id": 2, "features": {"f0": 1}}', "no_model"),
        (b"a", '{"id": 3, "label": "ham"}', "part"),
        (b"a", "{", "not_json"),
        (b"a", None, "not_json"),
        (None, '{"features": {"f0": 1}}', "no_key"),
        (b"\xff", '{"features": {"f0": 1}}', "not_utf8"),
        (b"b", '{"label": "eggs", "features": {"f0": 1}}', "not_binary"),
        (b"b", '{"features": {"f0": 1}, "weight": -1}', "bad_weight"),
    ]
    frame = spark.createDataFrame(
        [(*item, i) for i, item in enumerate(items)], "key binary, value string, why string, n int"
    )
    found = palearn.spark.score(frame, outputs["binary"]).orderBy("n", "learner").collect()
    assert [(row["n"], row["learner"]) for row in found] == [(i, x) for i in range(9) for x in ("arow", "careful")]
    assert [row["fault"] for row in found] == [row["why"] for row in found]
    assert [row["score"] is None for row in found] == [row["why"] is not None for row in found]

    nan = spark.createDataFrame(
        [("a", {"f0": float("nan")}), ("a", {"f0": 1.0})], "key string, features map<string,double>"
    )
    struct = nan.select("key", F.struct(F.lit(2).alias("f0"), F.lit("x").alias("word")).alias("features"))
    faults = [row["fault"] for row in palearn.spark.score(nan, outputs["binary"], learners=["arow"]).collect()]
    assert sorted(faults, key=str) == [None, "non_finite"]
    (score,) = {row["score"] for row in palearn.spark.score(struct, outputs["binary"], learners=["arow"]).collect()}
    weights = KINDS["binary"].expected("a")
    assert score == weights["arow", "spam", "f0"][0] * 2 + weights["arow", "spam", "(bias)"][0]


def test_a_frame_that_streams(spark: SparkSession, outputs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [{"key": key, "value": json.dumps({"features": {"f1": 2}})} for key in "ab"]
    (tmp_path / "in" / "x.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    frame = spark.readStream.schema("key string, value string").json(str(tmp_path / "in"))
    query = (
        palearn.spark.score(frame, outputs["binary"])
        .writeStream.format("memory").queryName("said").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    found = {(row["key"], row["learner"]): row["score"] for row in spark.table("said").collect()}
    weights = {key: KINDS["binary"].expected(key) for key in "ab"}
    assert found == {
        (key, name): own.get((name, "spam", "f1"), (0.0,))[0] * 2 + own[name, "spam", "(bias)"][0]
        for key, own in weights.items()
        for name in ("arow", "careful")
    }


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("value string", {}, r"needs the columns key and value .* it has value"),
        ("key string, x double", {}, r"needs the columns key and value .* it has key, x"),
        ("key string, value string, score int", {}, "column 'score', which the predictions have too"),
        ("key string, value string", {"learners": ["x"]}, "no learner 'x'; they have arow, careful"),
        ("key string, value string", {"batch": -7}, "has no models up to batch -7"),
    ],
)
def test_what_cannot_be_scored_is_told(
    spark: SparkSession, outputs: dict[str, Path], columns: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        palearn.spark.score(spark.createDataFrame([], columns), outputs["binary"], **options)
    with pytest.raises(ConfigError, match="is no models table"):
        palearn.spark.score(spark.createDataFrame([], "key string, value string"), outputs["binary"].parent)


@pytest.mark.parametrize("kind", KINDS)
def test_spark_sql_finds_what_the_command_shows(
    spark: SparkSession,
    run: Any,
    outputs: dict[str, Path],
    kind: str,
) -> None:
    for options in questions(KINDS[kind]):
        queries = json.loads(run("models", str(outputs[kind]), *options, "--sql", "--json")[1])
        expected = json.loads(run("models", str(outputs[kind]), *options, "--json")[1])
        assert expected
        assert same([tuple(row) for row in spark.sql(queries["spark"]).collect()], expected), options
