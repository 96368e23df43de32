"""The tables: where they are, what they hold, who can read them, and what goes to Kafka."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from palearn import records, tables
from palearn.errors import PalearnError, StreamError
from palearn.records import Record
from palearn.spark import stream as stream_job
from palearn.tables import schemas
from palearn.tables.store import Store
from tests.spark.conftest import (
    LEARNERS,
    PEOPLE,
    assert_accounts_balance,
    batches,
    by_key,
    config,
    consume,
    make_topic,
    people,
    produce_people,
    replay,
    send,
    stream,
    visible,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]

SCHEMAS = {**schemas.TABLES, "batches": schemas.BATCHES}
GOOD = b'{"label": 1, "features": {"x": 1}}'


@pytest.fixture(scope="module")
def out(broker: str, adult: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of several batches, all tables on but rejected, which has no rows."""
    folder = tmp_path_factory.mktemp("sinks")
    chosen = config(broker, adult, folder, "source.kafka.max_offsets_per_trigger=500", "output.predictions={}")
    return stream(chosen)


def test_a_table_has_one_folder_a_batch_and_nothing_else(out: Path) -> None:
    assert [folder.name for folder in visible(out)] == ["batches", "metrics", "models", "predictions"]
    numbers = batches(out, "batches")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 4
    for table in ("batches", "metrics", "models", "predictions"):
        assert batches(out, table) == numbers
        for folder in visible(out / table):
            assert {file.suffix for file in folder.iterdir()} == {".parquet"}
    assert not (out / "_staging").exists()


def test_columns_are_those_of_the_contract(out: Path) -> None:
    for folder in visible(out):
        for file in folder.rglob("*.parquet"):
            assert pq.read_schema(file).remove_metadata().equals(SCHEMAS[folder.name]), file


def test_spark_pyarrow_and_pandas_see_each_batch_once(out: Path, spark: SparkSession) -> None:
    for table in ("batches", "metrics", "models", "predictions"):
        path = str(out / table)
        arrow = ds.dataset(path, partitioning="hive").to_table().to_pandas()
        assert len(arrow) > 0
        mine = pd.read_parquet(path)
        frame = spark.read.parquet(path)
        assert set(frame.columns) == {*SCHEMAS[table].names, "batch_id"}
        per_batch = {row["batch_id"]: row["count"] for row in frame.groupBy("batch_id").count().collect()}
        assert per_batch == arrow["batch_id"].value_counts().to_dict()
        assert per_batch == mine["batch_id"].astype(int).value_counts().to_dict()
    # One row a key, learner and batch.
    for table in ("metrics", "models"):
        assert not tables.read(out, table).duplicated(["key", "learner", "batch_id"]).any()
    # Spark reads values as pyarrow does.
    rows = spark.read.parquet(str(out / "models")).where("learner = 'arow'").select("batch_id", "key", "weights")
    seen = {(row["batch_id"], row["key"]): row["weights"] for row in rows.collect()}
    models = tables.read(out, "models").query("learner == 'arow'")
    assert seen == {
        (b, k): list(w) for b, k, w in zip(models["batch_id"], models["key"], models["weights"], strict=True)
    }


def test_the_whole_output_is_no_trap_for_a_reader_of_one_table(out: Path) -> None:
    hidden = {path.name for path in out.iterdir()} - {path.name for path in visible(out)}
    assert hidden == {"_palearn"}
    owner = json.loads((out / "_palearn" / "owner.json").read_bytes())
    assert sorted(owner) == ["checkpoint_id", "format", "tables"]


def test_rows_over_all_keys_are_the_sums(out: Path) -> None:
    rows = tables.metrics(out)
    keys, totals = rows[rows["key"].notna()], rows[rows["key"].isna()].sort_values("batch_id")
    accounts = tables.read(out, "batches").set_index("batch_id")
    assert len(totals) == len(LEARNERS) * len(accounts)
    for learner, mine in totals.groupby("learner"):
        own = keys[keys["learner"] == learner]
        mistakes_before = 0
        for row in mine.itertuples():
            upto = own[own["batch_id"] <= row.batch_id].sort_values("batch_id")
            newest = upto.drop_duplicates("key", keep="last")
            assert (row.n, row.mistakes) == (newest["n"].sum(), newest["mistakes"].sum())
            assert row.error == row.mistakes / row.n
            assert row.batch_n == accounts.loc[row.batch_id, "learned"]
            assert row.batch_error == (row.mistakes - mistakes_before) / row.batch_n
            mistakes_before = row.mistakes
        assert mine["n"].iloc[-1] == PEOPLE
    assert keys["batch_n"].isna().all()


def test_metrics_follow_from_the_predictions(out: Path) -> None:
    predictions = tables.read(out, "predictions").sort_values(["topic", "partition", "offset"])
    metrics = by_key(tables.metrics(out, latest=True)).set_index(["key", "learner"])
    assert len(predictions) == PEOPLE * len(LEARNERS)
    assert (predictions["correct"].astype(bool) == (predictions["predicted"] == predictions["label"])).all()
    groups = predictions.groupby(["key", "learner"])
    assert groups.ngroups == len(metrics)
    for place, rows in groups:
        row, wrong = metrics.loc[place], ~rows["correct"].astype(bool)
        assert (row["n"], row["mistakes"]) == (len(rows), wrong.sum())
        assert (row["window_n"], row["window_error"]) == (min(50, len(rows)), wrong.tail(50).mean())
        faded = sum(0.999 ** (len(rows) - 1 - i) * x for i, x in enumerate(wrong))
        assert row["faded_error"] == pytest.approx(faded / sum(0.999**i for i in range(len(rows))), rel=1e-12)
        baseline = (rows["label"] != rows["label"].shift()).mean()
        assert row["baseline_error"] == pytest.approx(baseline, rel=1e-15)
        assert row["last_offset"] == rows["offset"].max()
        f1 = dict(row["f1"])
        for label in ("1", "-1"):
            hits = ((rows["label"] == label) & ~wrong).sum()
            both = (rows["label"] == label).sum() + (rows["predicted"] == label).sum()
            assert f1[label] == (2 * hits / both if both else None)
    assert set(predictions["label"]) == {"1", "-1"}


def test_a_model_is_a_snapshot_of_its_key_after_the_batch(out: Path) -> None:
    models = tables.read(out, "models")
    metrics = tables.metrics(out).dropna(subset="key").set_index(["key", "learner", "batch_id"])
    assert len(models) == len(metrics)
    for row in models.itertuples():
        figures = metrics.loc[(row.key, row.learner, row.batch_id)]
        assert (row.n_learned, row.n_updates) == (figures["n"], figures["updates"])
        assert (row.last_partition, row.last_offset) == (figures["last_partition"], figures["last_offset"])
        assert row.updated_batch == row.batch_id
        assert len(row.weights) == len(row.features) == len(set(row.features))
        assert (row.variances is None) == (row.learner == "pa1")
    params = json.loads(models[models["learner"] == "full"]["params"].iloc[0])
    assert (params["r"], params["covariance"], params["bias"]) == (1.0, "full", True)


def test_models_every_third_batch_and_at_the_end(broker: str, adult: str, out: Path, tmp_path: Path) -> None:
    chosen = config(
        broker, adult, tmp_path, "source.kafka.max_offsets_per_trigger=500", "output.models.every_batches=3"
    )
    rare = stream(chosen)
    numbers = batches(rare, "batches")
    assert {number for number in numbers if number % 3 == 2} <= set(batches(rare, "models"))
    assert not {0, 1} & set(batches(rare, "models"))
    # A third batch holds the models as they were then, with the batch that changed them.
    mine, all_of_them = tables.read(rare, "models"), tables.read(out, "models")
    third = mine[mine["batch_id"] == 2].set_index(["key", "learner"])
    then = all_of_them[all_of_them["batch_id"] <= 2].drop_duplicates(["key", "learner"], keep="last")
    expected = then.set_index(["key", "learner"])
    assert third["updated_batch"].to_dict() == expected["updated_batch"].to_dict()
    assert {k: list(w) for k, w in third["weights"].items()} == {k: list(w) for k, w in expected["weights"].items()}
    # When the job stops, what is in the table is the state.
    newest, wanted = by_key(tables.latest_models(rare)), by_key(tables.latest_models(out))
    assert newest[["key", "learner", "n_seen"]].equals(wanted[["key", "learner", "n_seen"]])


def test_a_key_that_falls_silent_is_in_the_next_snapshot(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    # One record a batch; key "early" is in another bucket than the others and never comes again.
    keys = [b"early", b"a", b"a", b"a", b"a", b"a"]
    send(broker, [(topic, 0, key, GOOD) for key in keys])
    chosen = config(
        broker,
        topic,
        tmp_path,
        "source.kafka.max_offsets_per_trigger=1",
        "output.models.every_batches=3",
        "state.buckets=64",
    )
    out = stream(chosen)
    assert len(batches(out, "batches")) == 6
    assert set(tables.latest_models(out)["key"]) == {"a", "early"}


def test_a_stop_before_a_batch_is_done_again_does_not_write_older_models_into_it(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"k", GOOD)] * 2)
    one = "source.kafka.max_offsets_per_trigger=1"
    chosen = config(broker, topic, tmp_path, one, "output.models.every_batches=2", "output.metrics=false")
    real = Store.commit

    def commit(self: Store, batch_id: int, *rest: Any) -> None:
        real(self, batch_id, *rest)
        if batch_id == 1:
            raise OSError("killed before Spark has committed the batch")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        with pytest.raises(StreamError):
            stream(chosen)
    with monkeypatch.context() as patch:
        patch.setattr(stream_job, "_watch", interrupted)
        stream(chosen)
    rows = tables.read(tmp_path / "out", "models").query("learner == 'pa1' and batch_id == 1")
    assert rows["n_seen"].tolist() == [2]


def test_tables_that_are_off_are_not_there(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"k", GOOD), (topic, 0, None, GOOD)])
    off = [f"output.{name}=false" for name in ("models", "metrics", "rejected", "batches")]
    chosen = config(broker, topic, tmp_path, *off, "output.predictions={}")
    out = stream(chosen)
    assert [folder.name for folder in visible(out)] == ["predictions"]
    # The batch is recorded all the same, and the stream goes on.
    send(broker, [(topic, 0, b"k", GOOD)])
    stream(chosen)
    assert batches(out, "predictions") == [0, 1]


def test_predictions_carry_ids_and_unlabelled_records(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    values = [
        records.encode(Record(id="a", label=1, features={"x": 1.0})),
        records.encode(Record(id=7, features={"x": 1.0})),
        records.encode(Record(label=-1, features={"x": 1.0})),
    ]
    send(broker, [(topic, 0, b"k", value) for value in values])
    out = stream(config(broker, topic, tmp_path, "output.predictions={}"))
    rows = tables.read(out, "predictions").query("learner == 'pa1'").sort_values("offset")
    rows = rows.astype(object).where(rows.notna(), None)
    assert rows["id"].tolist() == ["a", "7", None]
    assert rows["label"].tolist() == ["1", None, "-1"]
    assert rows["predicted"].tolist() == ["-1", "1", "1"]
    assert rows["correct"].tolist() == [False, None, False]
    assert rows["score"].iloc[0] == 0.0


def test_metrics_reach_their_kafka_topic(broker: str, topic: str, tmp_path: Path) -> None:
    for name, parts in ((topic, 4), (f"{topic}-metrics", 3)):
        make_topic(broker, name, parts)
    found = people(300)
    produce_people(broker, topic, tmp_path / "a.jsonl", found)
    chosen = config(
        broker, topic, tmp_path, f"output.metrics.kafka={topic}-metrics", "source.kafka.max_offsets_per_trigger=150"
    )
    out = stream(chosen)
    messages = consume(broker, f"{topic}-metrics")
    sent = [json.loads(message.value or b"") for message in messages]
    written = tables.metrics(out)
    assert len(sent) == len(written)
    assert {(row["key"], row["learner"], row["n"], row["mistakes"], row["error"]) for row in sent} == {
        (None if pd.isna(row.key) else row.key, row.learner, row.n, row.mistakes, row.error)
        for row in written.itertuples()
    }
    for message, row in zip(messages, sent, strict=True):
        assert (None if message.key is None else message.key.decode()) == row["key"]
        if row["key"] is not None:
            place = (row["last_topic"], row["last_partition"], row["last_offset"], row["learner"])
            assert row["id"] == "-".join(map(str, place))
            assert row["f1"].keys() <= {"1", "-1"}
    # An id is a row's own, whatever batch it is of.
    assert len({row["id"] for row in sent}) == len(sent)


def test_every_table_can_go_to_kafka(broker: str, topic: str, tmp_path: Path) -> None:
    names = ("models", "metrics", "predictions", "rejected", "batches")
    make_topic(broker, topic, 1)
    make_topic(broker, f"{topic}-models", 1)  # the job makes the others
    value = records.encode(Record(id="example 42", label=1, features={"x": 1.0}))
    send(broker, [(topic, 0, b"k", value), (topic, 0, b"k", b"oops"), (topic, 0, b"k", value)])
    options = [f"output.{name}={{kafka: {topic}-{name}}}" for name in names]
    out = stream(config(broker, topic, tmp_path, *options, "source.kafka.max_offsets_per_trigger=2"))
    assert len(batches(out, "batches")) == 2
    for name in names:
        sent = [json.loads(message.value or b"") for message in consume(broker, f"{topic}-{name}")]
        assert len(sent) == len(tables.read(out, name)), name
        assert len({row["id"] for row in sent}) == len(sent), f"{name}: ids are not unique"
        if name == "predictions":
            # The example's own id is not lost for the message's.
            assert all("example 42" in row.values() for row in sent)
        if name == "batches":
            assert [row["records"] for row in sent] == [2, 1]


def test_a_replay_of_files_with_a_table_in_kafka_and_no_broker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"\n")

    def run() -> None:
        options = ("records.key={constant: a}", "output.metrics.kafka=metrics")
        replay(config("none", "none", tmp_path, *options, source={"files": {"path": str(path)}}))

    with pytest.raises(PalearnError, match="kafka"):
        run()


def test_a_batch_without_examples_has_totals_and_no_key(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"k", b"oops")])
    out = stream(config(broker, topic, tmp_path))
    rows = tables.metrics(out)
    assert rows["key"].isna().all()
    assert rows["n"].tolist() == [0] * len(LEARNERS)
    assert rows["error"].isna().all()
    assert assert_accounts_balance(out, 1).loc[0, "reasons"] == [("not_json", 1)]
    assert not (out / "models").exists()
