"""A batch's rows as Kafka messages."""

import pytest

from palearn.engine import result_rows
from palearn.engine.bucket import Bucket
from palearn.spark.sink import messages
from tests.streams import chunk, learner, plan, rows


@pytest.mark.parametrize(
    ("key", "labels"),
    [("k", ["x" * 1_048_000]), ("k", [f"{i} {'y' * 300_000}" for i in range(5)]), ("k" * 2_000_000, ["x"])],
    ids=["label", "labels", "key"],
)
def test_no_message_is_longer_than_kafka_takes(key: str, labels: list[str]) -> None:
    bucket = Bucket(plan(learner("pa1", task="multiclass"), task="multiclass"))
    values = [{"label": label, "features": {"f": 1}} for label in labels]
    bucket.learn(chunk(rows([*((key, value) for value in values), (key, b"{")])))
    found = {name: messages(result_rows.plain(table, name), 0, "t") for name, table in bucket.results().items()}
    assert found.keys() == {"models", "metrics", "predictions", "rejected"}
    sizes = [len(raw or b"") + len(value) for sent in found.values() for _, raw, value in sent]
    assert max(sizes) < 1_000_000
