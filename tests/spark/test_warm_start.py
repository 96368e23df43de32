"""The state of a stopped job as a table, and jobs that begin with what others learned: to the last bit."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
from pandas.testing import assert_frame_equal
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from palearn import cli, tables
from palearn.config import Config
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, Chunk
from palearn.errors import ConfigError, StreamError
from palearn.models import codec, from_table
from palearn.spark import export as export_job
from palearn.spark import stream as stream_job
from palearn.spark import warm_start as warm_job
from palearn.spark.checkpoint import claimed, last_commit
from palearn.spark.export import learned_up_to
from palearn.spark.models_table import newest, table_of
from palearn.spark.sink import Sink
from palearn.tables import schemas
from palearn.tables.folder import Folder
from palearn.tables.locks import locked
from palearn.tables.store import Store
from tests.spark.conftest import (
    MASTER,
    Message,
    assert_same_learning,
    by_key,
    config,
    learn_without_spark,
    make_topic,
    replay,
    send,
    stream,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]

#: A learner of each set of arrays: weights; variances; a full covariance; sums and past weights; gradients.
ALL: list[dict[str, Any]] = [
    {"algorithm": "pa1"},
    {"algorithm": "arow"},
    {"algorithm": "sop", "covariance": "full"},
    {"algorithm": "pa_mean", "queue": 2},
    {"algorithm": "adagrad_rda"},
    {"name": "pa", "algorithm": "pa"},
]


class History(NamedTuple):
    """A topic, the job that learned its first half and was stopped, and where it stood then."""

    topic: str
    messages: list[Message]
    job: Config
    exported: Path
    offsets: dict[str, dict[str, int]]

    @property
    def later(self) -> list[Message]:
        """What the job has not learned."""
        return [m for m in self.messages if m.offset >= self.offsets[m.topic][str(m.partition)]]

    @property
    def out(self) -> Path:
        return Path(self.job.output.path)


def items(seed: int, n: int) -> list[tuple[str, dict[str, Any]]]:
    """Examples of thirty keys, some whole, some of which the label comes much later, is missing or comes twice."""
    random = np.random.default_rng(seed)
    out: list[tuple[float, str, dict[str, Any]]] = []
    for i in range(n):
        key = f"key {random.integers(30)}"
        value: dict[str, Any] = {
            "features": {f"f{j}": float(random.integers(-4, 5)) for j in random.integers(0, 12, 4)}
        }
        label = int(random.choice([-1, 1]))
        kind = random.random()
        if kind < 0.4:
            out.append((i, key, value | {"label": label}))
            continue
        out.append((i, key, value | ({"id": i} if kind < 0.9 else {})))
        if kind < 0.8:
            out.append((i + random.integers(1, n), key, {"id": i, "label": label}))
        if kind < 0.45:
            out.append((i + random.integers(1, n), key, {"id": i, "label": label}))
    return [(key, value) for _, key, value in sorted(out, key=lambda item: item[0])]


@pytest.fixture(scope="module")
def history(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    topic, folder = "history", tmp_path_factory.mktemp("history")
    make_topic(broker, topic, 4)
    wire = [(topic, int(key.split()[1]) % 4, key.encode(), json.dumps(value).encode()) for key, value in items(1, 500)]
    half = len(wire) // 2
    keyless = [(topic, part, None, b"{}") for part in range(4)]
    first = send(broker, [*keyless, *wire[:half]])
    job = config(broker, topic, folder, "source.kafka.max_offsets_per_trigger=150", learners=ALL)
    stream(job)
    assert export(spark, Folder(job.checkpoint), Folder(str(folder / "exported"))) == 30
    messages = [*first, *send(broker, wire[half:])]
    return History(topic, messages, job, folder / "exported", learned_up_to(Folder(job.checkpoint)))


def export(spark: SparkSession, checkpoint: Folder, out: Folder) -> int:
    return export_job.export(checkpoint.path, out.path, spark=spark)


def begin(spark: SparkSession, chosen: Config, models: str | Path | None) -> None:
    """Begin as the job does, without a broker."""
    with claimed(chosen):
        warm_job.begin_warm(spark, chosen, None if models is None else str(models))


def starting(offsets: dict[str, dict[str, int]]) -> str:
    return f"source.kafka.starting_offsets='{json.dumps(offsets)}'"


def anew(broker: str, history: History, folder: Path, *overrides: str, **parts: Any) -> Config:
    """Return the configuration of a new job that goes on where the stopped one is."""
    learners = [dict(learner) for learner in parts.pop("learners", ALL)]
    return config(broker, history.topic, folder, starting(history.offsets), *overrides, learners=learners, **parts)


def models_of(out: Path) -> pd.DataFrame:
    return tables.latest_models(out).drop(columns="batch_id")


# -- the state as a table -----------------------------------------------------------------------------------


def test_an_export_is_the_newest_row_of_every_key(history: History) -> None:
    assert_frame_equal(models_of(history.exported), models_of(history.out), check_exact=True)
    last = last_commit(Folder(history.job.checkpoint))
    assert [path.name for path in history.exported.iterdir()] == ["models"]
    assert [path.name for path in (history.exported / "models").iterdir()] == [f"batch_id={last}"]
    assert last == 2
    assert 0 < len(history.later) < len(history.messages)


def test_an_export_has_what_the_table_lacks_and_nothing_of_a_batch_that_was_not_committed(
    broker: str, history: History, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = config(
        broker, history.topic, tmp_path, "output.models.every_batches=3", "source.kafka.max_offsets_per_trigger=120",
        learners=ALL,
    )  # fmt: skip
    commit = Store.commit

    def break_down(store: Store, batch_id: int, *rest: Any) -> None:
        if batch_id == 4:
            raise OSError("the fourth batch is learned, and written, and never committed")
        commit(store, batch_id, *rest)

    monkeypatch.setattr(Store, "commit", break_down)
    monkeypatch.setattr(Sink, "finish", lambda *_: None)
    with pytest.raises(StreamError):
        stream(chosen)
    checkpoint = Folder(chosen.checkpoint)
    assert (last_commit(checkpoint), "5.changelog" in str(checkpoint.sizes("state"))) == (3, True)
    seen = learned_up_to(checkpoint)[history.topic]
    expected = learn_without_spark(chosen, [m for m in history.messages if m.offset < seen[str(m.partition)]])
    export(spark, checkpoint, Folder(str(tmp_path / "exported")))
    found = by_key(models_of(tmp_path / "exported"))
    assert_frame_equal(found, by_key(expected["models"]), check_exact=True)
    assert not by_key(models_of(Path(chosen.output.path))).equals(found)


def test_the_command_says_what_it_wrote_and_up_to_where(history: History, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["state", "export", history.job.checkpoint, str(tmp_path / "out")])
    assert done.exit_code == 0
    first, second = done.output.splitlines()
    assert first == f"the models of 30 keys are in {tmp_path / 'out'}/models"
    assert json.loads(second.partition("before ")[2]) == history.offsets
    assert_frame_equal(models_of(tmp_path / "out"), models_of(history.out), check_exact=True)


def test_an_export_that_cannot_be_is_one_sentence(
    broker: str, history: History, spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint, out = Folder(history.job.checkpoint), Folder(str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="is not the checkpoint of a streaming job"):
        export(spark, Folder(str(tmp_path / "nothing")), out)
    with pytest.raises(ConfigError, match="exported is not empty"):
        export(spark, checkpoint, Folder(str(history.exported)))
    new = config(broker, history.topic, tmp_path / "new")
    with claimed(new):
        pass
    with pytest.raises(ConfigError, match="has no state yet: no batch is committed"):
        export(spark, Folder(new.checkpoint), out)
    with locked(checkpoint), pytest.raises(ConfigError, match="another job runs on"):
        export(spark, checkpoint, out)
    assert not Path(out.path).exists()
    assert not (tmp_path / "nothing").exists()


# -- a new job that goes on ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("buckets", "partitions"), [(1, 1), (7, 3), (64, 2)])
def test_a_job_that_begins_with_a_checkpoint_is_the_job_that_was_never_stopped(
    broker: str, history: History, tmp_path: Path, buckets: int, partitions: int
) -> None:
    shape = (f"state.buckets={buckets}", f"state.partitions={partitions}", "source.kafka.max_offsets_per_trigger=300")
    chosen = anew(broker, history, tmp_path, *shape)
    stream_job.run(chosen, warm_start=history.job.checkpoint, master=MASTER)
    expected = learn_without_spark(chosen, history.messages)
    assert_same_learning(tmp_path / "out", expected)
    stopped = learn_without_spark(chosen, [m for m in history.messages if m not in history.later])
    assert len(stopped["models"]) == len(expected["models"]) > 0
    accounts = tables.read(tmp_path / "out", "batches")
    assert accounts["records"].sum() == len(history.later)
    assert accounts["pending"].sum() < 0  # more parts were learned than came to wait


def test_idle_keys_are_in_the_new_table_and_in_an_export_of_the_new_job(
    broker: str, history: History, spark: SparkSession, tmp_path: Path
) -> None:
    chosen = anew(broker, history, tmp_path, "state.buckets=64", "source.kafka.max_offsets_per_trigger=8")
    begin(spark, chosen, history.job.checkpoint)
    assert_frame_equal(by_key(models_of(tmp_path / "out")), by_key(models_of(history.out)), check_exact=True)
    assert set(tables.latest_models(tmp_path / "out")["updated_batch"]) == {-1}
    export(spark, Folder(chosen.checkpoint), Folder(str(tmp_path / "before")))
    assert_frame_equal(models_of(tmp_path / "before"), models_of(tmp_path / "out"), check_exact=True)

    write = Sink.write

    def stop(sink: Sink, frame: Any, batch_id: int) -> None:
        if batch_id == 1:
            raise OSError("enough")
        write(sink, frame, batch_id)

    with pytest.MonkeyPatch.context() as patch:  # a few buckets get a state of Spark's
        patch.setattr(Sink, "write", stop)
        with pytest.raises(StreamError):
            stream(chosen)
    assert export(spark, Folder(chosen.checkpoint), Folder(str(tmp_path / "after"))) == 30
    assert_frame_equal(models_of(tmp_path / "after"), models_of(tmp_path / "out"), check_exact=True)
    assert set(tables.latest_models(tmp_path / "after")["updated_batch"]) == {-1, 0}


#: Of a race with other learners: two stay, one gets another algorithm, one is new.
RACE = [
    {"algorithm": "arow"},
    {"algorithm": "pa1"},
    {"name": "pa", "algorithm": "pam", "initial_variance": 0.5},
    {"name": "new", "algorithm": "arow", "covariance": "full"},
]


def chunk(messages: list[Message]) -> Chunk:
    keys, values = [m.key for m in messages], [m.value for m in messages]
    places = (np.array([m.partition for m in messages], np.int64), np.array([m.offset for m in messages], np.int64))
    return Chunk(keys, values, [m.topic for m in messages], *places)


def test_a_race_of_other_learners_begins_with_a_models_table(broker: str, history: History, tmp_path: Path) -> None:
    chosen = anew(
        broker, history, tmp_path, "state.buckets=9", "state.partitions=3", "metrics.window=20", learners=RACE
    )
    stream_job.run(chosen, warm_start=str(history.out), master=MASTER)

    rows = pa.Table.from_pandas(tables.latest_models(history.out), preserve_index=False)
    plan = chosen.bucket_config
    of_race = rows.filter(pa.compute.is_in(rows["learner"], pa.array(["arow", "pa1", "pa"])))
    bucket = Bucket(plan, codec.encode(from_table.from_table(of_race, plan.settings, plan.learners)))
    bucket.learn(chunk(history.later))
    wanted = {name: result_rows.plain(table, name).to_pandas() for name, table in bucket.results().items()}
    assert_same_learning(tmp_path / "out", wanted)
    first = tables.read(tmp_path / "out", "models").query("batch_id == -1").set_index(["key", "learner"])
    for row in tables.latest_models(history.out).itertuples():
        if row.learner in ("arow", "pa1"):
            mine = first.loc[(row.key, row.learner)]
            assert mine["weights"].tobytes() == row.weights.tobytes()
            assert mine["features"].tolist() == row.features.tolist()
            assert row.variances is None or mine["variances"].tobytes() == row.variances.tobytes()


def test_tables_of_any_make_are_the_same_beginning(
    broker: str, history: History, spark: SparkSession, tmp_path: Path
) -> None:
    begin(spark, anew(broker, history, tmp_path / "0", learners=RACE), history.out)
    wanted = models_of(tmp_path / "0" / "out")
    replayed = replay(config(broker, history.topic, tmp_path / "r", learners=ALL), end=json.dumps(history.offsets))
    for number, models in enumerate((history.out / "models", history.exported, replayed), 1):
        chosen = anew(broker, history, tmp_path / str(number), "state.buckets=5", learners=RACE)
        begin(spark, chosen, models)
        assert_frame_equal(models_of(tmp_path / str(number) / "out"), wanted, check_exact=True)


def test_the_newest_row_is_of_the_highest_batch_whatever_spark_makes_of_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    for batch in (9, 10):
        rows = pa.table({"key": ["a"], "learner": ["pa"], "n_seen": [batch]})
        Folder(str(tmp_path)).write_table(rows, "models", f"batch_id={batch}", "part-0.parquet")
    inferring = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(inferring, "false")
    try:
        found = newest(table_of(spark, Folder(str(tmp_path)), ["key"]), ["n_seen"]).collect()
    finally:
        spark.conf.unset(inferring)
    assert [row["n_seen"] for row in found] == [10]


def test_a_learner_that_the_table_does_not_have_whole_is_refused_and_can_be_left_out(
    broker: str, history: History, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="learner 'sop' cannot begin with a models table, which has no factors: "):
        begin(spark, anew(broker, history, tmp_path, learners=[*RACE, ALL[2]]), history.out)
    with pytest.raises(ConfigError, match="has no learner of the configuration; it has adagrad_rda, arow, pa, pa1, "):
        begin(spark, anew(broker, history, tmp_path, learners=RACE[-1:]), history.out)
    with pytest.raises(StreamError, match=r"^the models were learned with records.bias True, the configuration has F"):
        begin(spark, anew(broker, history, tmp_path, "records.bias=false", learners=RACE), history.out)
    # Nothing was learned: the same folders begin with other learners, and without models.
    begin(spark, anew(broker, history, tmp_path, learners=RACE), history.out)
    begin(spark, anew(broker, history, tmp_path / "cold", learners=RACE), None)


def test_what_does_not_fit_is_one_sentence(broker: str, history: History, spark: SparkSession, tmp_path: Path) -> None:
    stopped = history.job.checkpoint
    earliest = config(broker, history.topic, tmp_path, learners=ALL)
    where = json.dumps(history.offsets, separators=(",", ":"))
    with pytest.raises(ConfigError) as caught:
        begin(spark, earliest, stopped)
    assert (
        f"has learned from history: to go on where it stopped, set source.kafka.starting_offsets to '{where}'"
        in str(caught.value)
    )
    for override, name in (
        ("learners.3.tie=positive", "learners"),
        ("records.max_bytes=9", "records"),
        ("metrics.window=51", "metrics"),
        ("state.max_features=9", "state.max_features"),
    ):
        with pytest.raises(ConfigError, match=f"has other {name} than the configuration; .* state export .* OUT"):
            begin(spark, anew(broker, history, tmp_path, override), stopped)
    with locked(Folder(stopped)), pytest.raises(ConfigError, match="another job runs on"):
        begin(spark, anew(broker, history, tmp_path), stopped)
    with pytest.raises(ConfigError, match="is no models table: give an output folder, its models/, or a checkpoint"):
        begin(spark, anew(broker, history, tmp_path), tmp_path)
    newer = tmp_path / "newer/models/batch_id=0"
    newer.mkdir(parents=True)
    rows = schemas.MODELS.empty_table().append_column("x", pa.array([], pa.int8()))
    pa.parquet.write_table(rows.drop_columns("labels"), newer / "part.parquet")
    with pytest.raises(ConfigError, match="is no models table: it has no column labels"):
        begin(spark, anew(broker, history, tmp_path), tmp_path / "newer")
    pa.parquet.write_table(rows, newer / "part.parquet")
    with pytest.raises(ConfigError, match="has no learner of the configuration; it has none"):
        begin(spark, anew(broker, history, tmp_path), tmp_path / "newer")
    row = pa.Table.from_pandas(models_of(history.out).head(1), schemas.MODELS, preserve_index=False)
    at = row.schema.get_field_index("format_version")
    row = row.set_column(at, "format_version", pa.array([codec.VERSION + 1], pa.int32()))
    pa.parquet.write_table(row, newer / "part.parquet")
    with pytest.raises(ConfigError, match=rf"by a newer palearn \(format {codec.VERSION + 1}\): upgrade palearn"):
        begin(spark, anew(broker, history, tmp_path), tmp_path / "newer")


# -- beginning only once ------------------------------------------------------------------------------------


def test_a_start_that_was_cut_off_begins_again(
    broker: str, history: History, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """No exception handler of the job's sees it, as none sees ``kill -9``."""

    def kill(*_: Any) -> None:
        raise Killed

    chosen = anew(broker, history, tmp_path, "state.buckets=7")
    with monkeypatch.context() as patch:
        patch.setattr(warm_job, "publish", kill)
        with pytest.raises(Killed):
            begin(spark, chosen, history.job.checkpoint)
    start = Path(chosen.checkpoint) / "start"
    assert start.is_dir()
    with pytest.raises(ConfigError, match=r"are not whole in it: give --warm-start again$"):
        begin(spark, chosen, None)
    with pytest.raises(ConfigError, match="has no state yet"):
        export(spark, Folder(chosen.checkpoint), Folder(str(tmp_path / "exported")))
    # Another beginning, and other buckets: nothing of the first one is left.
    (start / "6.paln").write_bytes(b"of the first one")
    (start / "99.paln").write_bytes(b"of the first one")
    other = anew(broker, history, tmp_path, "state.buckets=3", learners=RACE)
    begin(spark, other, history.out)
    assert {path.name for path in start.iterdir()} <= {"done.json", "0.paln", "1.paln", "2.paln"}
    again = {path: path.stat().st_mtime_ns for path in start.iterdir()}

    # A restart with the same option, and one without, go on; with another one it is refused.
    begin(spark, other, f"{history.out}/")
    begin(spark, other, None)
    with pytest.raises(ConfigError, match=rf"has begun with the models of {history.out}; --warm-start is for a new"):
        begin(spark, other, history.exported)
    with pytest.raises(ConfigError, match=r"the sections learners and state differ from the checkpoint's"):
        begin(spark, chosen, history.job.checkpoint)
    assert {path: path.stat().st_mtime_ns for path in start.iterdir()} == again
    with pytest.raises(ConfigError, match="its batches alone do not give its models again"):
        replay(config(broker, history.topic, tmp_path / "r", learners=ALL), batches_of=other.checkpoint)


def test_a_job_that_has_learned_does_not_begin_again(
    broker: str, history: History, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint has begun; --warm-start is for a new checkpoint and a new out"):
        begin(spark, history.job, history.exported)
    with pytest.raises(ConfigError, match=r"checkpoint has begun; --warm-start is for a new checkpoint and a new out"):
        begin(spark, history.job, history.job.checkpoint)
    new = anew(broker, history, tmp_path)
    with pytest.raises(ConfigError, match=r"checkpoint has begun; --warm-start is for a new checkpoint and a new out"):
        begin(spark, new, new.checkpoint)


# -- damage -------------------------------------------------------------------------------------------------


def test_damaged_beginnings_are_named_by_bucket_and_batch(
    broker: str, history: History, spark: SparkSession, tmp_path: Path
) -> None:
    chosen = anew(broker, history, tmp_path, "state.buckets=2")
    begin(spark, chosen, history.job.checkpoint)
    file = Path(chosen.checkpoint) / "start/1.paln"
    good = file.read_bytes()
    file.write_bytes(good[:5000] + bytes([good[5000] ^ 1]) + good[5001:])
    with pytest.raises(StreamError) as caught:
        stream(chosen)
    sentence = rf"the stream stopped: the state of bucket 1 before batch 0: the checksum of {len(good)} bytes of models"
    assert str(caught.value).startswith(sentence)
    assert "restore an older copy" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(StreamError, match=r"^the state of bucket 1: the checksum of .* damaged"):
        export(spark, Folder(chosen.checkpoint), Folder(str(tmp_path / "exported")))
    assert not (tmp_path / "exported/models").exists()
    file.unlink()
    for call in (lambda: stream(chosen), lambda: export(spark, Folder(chosen.checkpoint), Folder(str(tmp_path / "e")))):
        with pytest.raises(ConfigError, match=r"are not whole in it: restore an older copy"):
            call()
    file.write_bytes(good)
    assert_same_learning(stream(chosen), learn_without_spark(chosen, history.messages))


def test_damaged_state_is_one_sentence(history: History, spark: SparkSession, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(history.job.checkpoint, copy)
    file = copy / f"state/0/0/{(last_commit(Folder(str(copy))) or 0) + 1}.changelog"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(
        StreamError, match=rf"^the checkpoint's state cannot be loaded \(.*{file}.*\): files of it are "
    ):
        export(spark, Folder(str(copy)), Folder(str(tmp_path / "exported")))
