"""What was learned already is not learned again without a word: other starts, topics that come back, replays."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palearn import tables
from palearn.config import Config, parse
from palearn.errors import ConfigError, StreamError
from palearn.spark import checkpoint as checkpoints
from palearn.spark import replay as replay_job
from palearn.spark import stream as stream_job
from palearn.spark.warm_start import require_new_records
from palearn.tables.folder import Folder
from tests.spark.conftest import MASTER, config, make_topic, send, stream


def examples(topic: str, n: int, labels: tuple[Any, ...] = (1, 0)) -> list[tuple[str, int, bytes, bytes]]:
    """Return records of four keys whose labels the sign of a feature says."""
    values = [{"label": labels[i % len(labels)], "features": {"f": 1 - 2 * (i % 2), "g": i % 5}} for i in range(n)]
    return [(topic, i % 2, b"k%d" % (i % 2), msgspec.json.encode(value)) for i, value in enumerate(values)]


def of(folder: Path, starting: str = "earliest", options: dict[str, Any] | None = None) -> Config:
    kafka = {"topics": ["a", "b"], "starting_offsets": starting, "options": options or {}, "bootstrap_servers": "x:1"}
    return parse(
        {
            "source": {"kafka": kafka},
            "learners": [{"algorithm": "pa1"}],
            "output": {"path": str(folder / "out")},
            "checkpoint": str(folder / "checkpoint"),
        }
    )


SEEN = {"a": {"0": 10, "1": 7}, "other": {"0": 3}}


@pytest.mark.parametrize("starting", ["earliest", "EARLIEST", '{"a": {"0": -2, "1": 7}}', '{"a": {"1": 7}}'])
def test_a_start_at_the_first_offset_is_refused(tmp_path: Path, starting: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_new_records(of(tmp_path, starting), "models", SEEN)
    assert """starting_offsets to '{"a":{"0":10,"1":7}}'""" in str(raised.value)


@pytest.mark.parametrize(
    ("starting", "options", "said"),
    [
        ("latest", {}, ""),
        ('{"a": {"0": 10, "1": 7}}', {}, ""),
        ('{"a": {"0": 12, "1": -1}}', {}, ""),
        ('{"a": {"0": 4, "1": 7}}', {}, "a, partition 0, offsets 4 to 9"),
        ("earliest", {"startingTimestamp": 5}, "begins by their time"),
    ],
)
def test_a_start_that_is_asked_for_is_said(
    tmp_path: Path, starting: str, options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    require_new_records(of(tmp_path, starting, options), "models", SEEN)
    assert (said in caplog.text, bool(caplog.text)) == (True, bool(said))


def test_batches_that_took_a_topic_twice_are_not_repeated() -> None:
    def row(topic: str, start: int, end: int) -> dict[str, Any]:
        return {"topic": topic, "partition": 0, "start": start, "end": end}

    good = [[row("a", 3, 5)], [row("a", 5, 9), row("b", 0, 4)], [row("b", 4, 6)]]
    assert replay_job._ends(good) == {("a", 0): [3, 5, 9, 9], ("b", 0): [0, 0, 4, 6]}
    with pytest.raises(ConfigError, match=r"batch 3 began again with offset 3 of a, partition 0.*up to 9"):
        replay_job._ends([*good, [row("a", 3, 9)]])


@pytest.mark.parametrize("table", ["rejected", "metrics", "models", "expired", "drifts", "batches", "predictions"])
def test_a_table_that_goes_to_a_topic_that_is_read_is_a_fault(table: str, tmp_path: Path) -> None:
    tree = msgspec.to_builtins(of(tmp_path))
    tree["output"][table] = {"kafka": "b"}
    with pytest.raises(ConfigError, match=rf"output.{table}.kafka: 'b' is a topic that the job reads.*for ever"):
        parse(tree)
    tree["output"][table] = {"kafka": "c"}
    parse(tree)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_models_of_a_table_go_on_behind_what_they_have_learned(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 2)
    send(broker, examples(topic, 40))
    out = stream(config(broker, topic, tmp_path / "first", learners=[{"algorithm": "arow"}]))
    one = [{"algorithm": "arow"}]
    again = config(broker, topic, tmp_path / "again", learners=one)
    with pytest.raises(ConfigError, match="has learned from") as raised:
        stream_job.run(again, warm_start=str(out), master=MASTER)
    offsets = json.dumps({topic: {"0": 20, "1": 20}}, separators=(",", ":"))
    assert offsets in str(raised.value)
    (out / "batches" / "batch_id=0").rename(tmp_path / "gone")  # the rows of models say it too
    with pytest.raises(ConfigError, match="has learned from") as raised:
        stream_job.run(again, warm_start=str(out), master=MASTER)
    assert offsets in str(raised.value)
    behind = config(
        broker, topic, tmp_path / "behind", f"source.kafka.starting_offsets={json.dumps(offsets)}", learners=one
    )
    send(broker, examples(topic, 10))
    stream_job.run(behind, warm_start=str(out), master=MASTER)
    assert tables.read(tmp_path / "behind" / "out", "batches")["records"].sum() == 10


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_a_replay_of_batches_says_what_it_cannot_repeat(
    broker: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, topic, 2)
    send(broker, examples(topic, 20))
    stream(config(broker, topic, tmp_path))
    other = config(broker, topic, tmp_path / "other", learners=[{"algorithm": "pa2"}])
    replay_job.run(other, batches_of=str(tmp_path / "checkpoint"), master=MASTER)
    assert "other learners than" in caplog.text
    known = Folder(str(tmp_path / "checkpoint"))
    content = known.read(checkpoints.KNOWN)
    known.write({**content, "topics": {topic: "another"}}, checkpoints.KNOWN)
    with pytest.raises(StreamError, match="deleted and made again"):
        replay_job.run(config(broker, topic, tmp_path / "x"), batches_of=str(tmp_path / "checkpoint"), master=MASTER)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("labels", "records", "parts", "learned"),
    [
        ((1, 2), {}, ["not_binary", "labels '1' and '2' are both > 0", "records.positive"], None),
        (("yes", "no"), {}, ["nothing was learned", "bad_label", "'yes' (20)", "records.positive"], 0),
        (("yes", "no"), {"positive": True}, ["nothing was learned", "truth value true", "in quotes"], 0),
        (("yes", "no"), {"positive": "Yes"}, ["'Yes' has not occurred in 40", "'no' (20)", "did you mean 'yes'"], None),
        ((0, 1, 2), {}, ["third label '2'", "of the labelled records were rejected"], None),
    ],
    ids=["names", "text", "truth value", "Yes", "third"],
)
def test_a_stream_says_what_is_wrong_with_its_labels(
    broker: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, labels: Any, records: dict[str, Any],
    parts: list[str], learned: int | None,
) -> None:  # fmt: skip
    make_topic(broker, topic, 2)
    values = [{"label": labels[i % len(labels)], "features": {"f": i % 3}} for i in range(40)]
    send(broker, [(topic, 0, b"k", msgspec.json.encode(value)) for value in values])
    made = config(broker, topic, tmp_path, records=records)
    out = stream(made)
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    missing = [part for part in parts[:-1] if not any(part in line for line in found)]
    rejected = tables.read(out, "rejected")
    assert not [part for part in missing if not rejected["detail"].str.contains(part, regex=False).any()]
    if learned is not None:
        assert tables.read(out, "batches")["learned"].sum() == learned
    summary, problems = replay_job.run(config(broker, topic, tmp_path / "again", records=records), master=MASTER)
    assert problems
    assert summary.reasons == rejected["reason"].value_counts().to_dict()
