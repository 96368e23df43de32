"""Memory of workers under hostile streams stays below what the configuration says, and what is cut is counted."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from benchmarks.bounds import MB, STREAMS, Watch, measure, send
from palearn import records, tables
from palearn.records import Record
from palearn.spark import operator
from tests.spark.conftest import STATUSES, config, stream

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

Property = Callable[[str, Any], None]


@pytest.mark.parametrize("name", STREAMS)
def test_a_hostile_stream_is_bounded_and_counted(
    name: str, broker: str, topic: str, tmp_path: Path, spark: SparkSession, record_property: Property
) -> None:
    """What `python -m benchmarks.bounds` does with streams twenty times as long."""
    found = measure(broker, topic, tmp_path, STREAMS[name], times=1)
    told = {what: round(found[what]) for what in ("worker_MB", "bound_MB", "jvm_MB")}
    record_property("peaks", told)
    print(f"{name}: {told}")
    accounts = found["batches"]
    assert accounts["records"] == sum(accounts[status] for status in STATUSES)
    assert sum(accounts["reasons"].values()) == accounts["rejected"]
    assert found["counted"], accounts
    assert 0 < found["worker_MB"] < found["bound_MB"]


def test_results_do_not_pile_up_in_a_worker(
    broker: str,
    topic: str,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Property,
) -> None:
    """One task learns 32 buckets, whose new states are 80 MB. PySpark alone would hold them all."""
    random = np.random.default_rng(7)
    messages = [(b"key %d" % i, wide_record(random)) for i in range(200)]
    send(broker, topic, iter(messages), len(messages), MB)
    race = [{"name": f"arow {i}", "algorithm": "arow"} for i in range(8)]
    only_state = {"models": False, "metrics": False}
    peaks = {}
    for name, held in {"sent": 8 * MB, "never sent": math.inf}.items():
        monkeypatch.setattr(operator, "HELD_BYTES", held)
        # Spark uses a worker again, which does not give all of its memory back, unless the environment is another one.
        monkeypatch.setitem(spark.sparkContext.environment, "PALEARN_TEST", name)
        folder = tmp_path / name
        state = {"buckets": 32, "partitions": 1}
        job = config(
            broker, topic, folder, learners=race, state=state, output={"path": str(folder / "out"), **only_state}
        )
        with Watch(spark) as watch:
            out = stream(job)
        peaks[name] = watch.worker_bytes / MB
        assert tables.read(out, "batches")["learned"].sum() == len(messages)
    told = {name: round(peak) for name, peak in peaks.items()}
    record_property("worker_MB", told)
    print(f"peak of a worker, its results sent after 8 MB or never: {told}")
    assert peaks["sent"] < peaks["never sent"] - 100


def wide_record(random: np.random.Generator) -> bytes:
    """Return a record of 3,000 features, whose values nothing can shrink."""
    values = random.standard_normal(3000).tolist()
    return records.encode(Record(label=1, features={f"f{j}": value for j, value in enumerate(values)}))
