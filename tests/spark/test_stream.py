"""The stream learns what a bucket without Spark learns, to the last bit, however it is cut into pieces."""

import math
from pathlib import Path

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from palearn import tables
from palearn.evaluate.prequential import evaluate
from tests.spark.conftest import (
    LEARNERS,
    PEOPLE,
    Message,
    assert_accounts_balance,
    assert_same_learning,
    batches,
    by_key,
    config,
    consume,
    in_order,
    learn_without_spark,
    make_topic,
    people,
    produce_people,
    send,
    stream,
    write_lines,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]

#: Buckets, shuffle partitions, records a batch.
SHAPES = [
    (1, 1, PEOPLE),
    (7, 4, PEOPLE),
    (64, 1, PEOPLE),
    (64, 4, PEOPLE),
    (1, 4, PEOPLE // 20),
    (7, 1, PEOPLE // 20),
    (64, 4, PEOPLE // 20),
]


def shape(buckets: int, partitions: int, most: int = 100_000) -> list[str]:
    return [
        f"state.buckets={buckets}",
        f"state.partitions={partitions}",
        f"source.kafka.max_offsets_per_trigger={most}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("buckets", "partitions", "most"), SHAPES)
def test_models_and_mistakes_do_not_depend_on_how_the_work_is_cut(
    broker: str, adult: str, adult_messages: list[Message], tmp_path: Path, buckets: int, partitions: int, most: int
) -> None:
    learners = [*LEARNERS, {"name": "relaxed", "algorithm": "arow", "drift": {"action": "relax", "threshold": 5}}]
    chosen = config(broker, adult, tmp_path, *shape(buckets, partitions, most), learners=learners)
    out = stream(chosen)
    expected = learn_without_spark(chosen, adult_messages)
    assert_same_learning(out, expected)
    assert len(expected["drifts"]) > 2
    drifts = (in_order(tables.read(out, "drifts").drop(columns="batch_id")), in_order(expected["drifts"]))
    assert_frame_equal(*drifts, check_exact=True)
    accounts = assert_accounts_balance(out, PEOPLE)
    assert accounts["learned"].sum() == PEOPLE
    assert len(accounts) == 1 if most == PEOPLE else len(accounts) >= 20
    # The session took the configured number of shuffle partitions, and the operator ran with it.
    stores = {path.name for path in (tmp_path / "checkpoint/state/0").iterdir() if path.name.isdigit()}
    assert stores == {str(number) for number in range(partitions)}


@pytest.mark.parametrize(("buckets", "partitions"), [(7, 4), (64, 1)])
def test_a_stop_and_a_restart_half_way_change_nothing(
    broker: str, topic: str, tmp_path: Path, buckets: int, partitions: int
) -> None:
    found = people()
    chosen = config(broker, topic, tmp_path, *shape(buckets, partitions, 700))
    produce_people(broker, topic, tmp_path / "first.jsonl", found[: PEOPLE // 2])
    stream(chosen)
    assert_accounts_balance(tmp_path / "out", PEOPLE // 2)
    before = batches(tmp_path / "out", "batches")

    produce_people(broker, topic, tmp_path / "second.jsonl", found[PEOPLE // 2 :])
    out = stream(chosen)
    assert_accounts_balance(out, PEOPLE)
    assert len(batches(out, "batches")) > len(before)
    assert_same_learning(out, learn_without_spark(chosen, consume(broker, topic)))


def test_a_restart_with_nothing_new_writes_nothing(broker: str, adult: str, tmp_path: Path) -> None:
    chosen = config(broker, adult, tmp_path)
    files = {path: path.stat().st_mtime_ns for path in stream(chosen).rglob("*.parquet")}
    assert {path: path.stat().st_mtime_ns for path in stream(chosen).rglob("*.parquet")} == files


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner["name"])
def test_evaluate_makes_the_same_mistakes_and_updates(
    broker: str, adult: str, adult_out: Path, tmp_path: Path, learner: dict[str, object]
) -> None:
    params = {name: value for name, value in learner.items() if name not in ("name", "algorithm")}
    path = write_lines(tmp_path / "people.jsonl", people())
    report = evaluate(path, str(learner["algorithm"]), params, key="occupation")

    rows = by_key(tables.metrics(adult_out, latest=True))
    mine = rows[rows["learner"] == learner["name"]].set_index("key")
    assert mine[["n", "mistakes", "updates"]].to_dict("index") == report["per_key"]
    assert (report["n"], report["mistakes"]) == (PEOPLE, mine["mistakes"].sum())
    models = tables.latest_models(adult_out)
    weights = np.concatenate(models.loc[models["learner"] == learner["name"], "weights"].tolist())
    # The same weights, summed in another order of keys.
    assert report["weight_l2"] == pytest.approx(math.sqrt(math.fsum(weights**2)), rel=1e-13)


@pytest.fixture(scope="module")
def adult_out(broker: str, adult: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stream(config(broker, adult, tmp_path_factory.mktemp("adult_out"), *shape(7, 2, 900)))


def test_two_topics_are_learned_in_the_order_of_their_names(broker: str, topic: str, tmp_path: Path) -> None:
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        make_topic(broker, name, 2)
    values = [b'{"label": %d, "features": {"x": %d, "f%d": 1}}' % (i % 3 - 1, i, i % 7) for i in range(60)]
    # One key in both topics and all partitions: nothing but the sort decides the order.
    sent = send(broker, [((second, first)[i % 2], i // 2 % 2, b"key", value) for i, value in enumerate(values)])
    chosen = config(broker, topic, tmp_path, f"source.kafka.topics=[{second}, {first}]", *shape(7, 2))
    out = stream(chosen)
    assert_same_learning(out, learn_without_spark(chosen, sent))
    newest = tables.latest_models(out).iloc[0]
    assert (newest["last_topic"], newest["last_partition"], newest["last_offset"]) == (second, 1, 14)


def test_the_configured_starting_offset_is_where_a_new_checkpoint_begins(
    broker: str, adult: str, adult_messages: list[Message], tmp_path: Path
) -> None:
    starts = {str(part): 40 for part in range(4)}
    text = f'{{"{adult}": {starts}}}'.replace("'", '"')
    chosen = config(broker, adult, tmp_path, f"source.kafka.starting_offsets='{text}'")
    kept = [message for message in adult_messages if message.offset >= 40]
    assert_same_learning(stream(chosen), learn_without_spark(chosen, kept))


def test_source_options_reach_kafka_as_they_are(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 3)
    sent = send(broker, [(topic, part, b"key", b'{"label": 1, "features": {"x": 1}}') for part in range(3)])
    options = '{"minPartitions": "3", "kafka.max.poll.records": "1"}'
    chosen = config(broker, topic, tmp_path, f"source.kafka.options={options}")
    assert_accounts_balance(stream(chosen), len(sent))


def test_no_secret_of_the_source_is_logged(
    broker: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"key", b'{"label": 1, "features": {"x": 1}}')])
    monkeypatch.setenv("BROKER_PASSWORD", "hunter2-hunter2")
    options = '{"kafka.ssl.truststore.password": "${BROKER_PASSWORD}"}'
    chosen = config(broker, topic, tmp_path, f"source.kafka.options={options}")
    with caplog.at_level("INFO"):
        out = stream(chosen)
    assert "learning " in caplog.text
    assert "hunter2" not in caplog.text
    written = [path for path in (*out.rglob("*"), *(tmp_path / "checkpoint").rglob("*")) if path.is_file()]
    assert [path for path in written if b"hunter2" in path.read_bytes()] == []
