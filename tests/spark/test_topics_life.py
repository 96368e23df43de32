"""Topics through their life: left out and put back, appearing later by a pattern; nothing is learned twice."""

import shutil
from pathlib import Path

import pytest

from palearn import tables
from palearn.errors import ConfigError, PalearnError
from palearn.spark import replay as replay_job
from palearn.spark.export import export
from tests.spark.conftest import MASTER, assert_accounts_balance, config, make_topic, send, stream

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]
FEW = [{"algorithm": "pa1"}]
GO_ON = "source.kafka.options.failOnDataLoss=false"


def examples(topic: str, count: int) -> list[tuple[str, int, bytes, bytes]]:
    return [(topic, 0, b"k%d" % (i % 3), b'{"label": 1, "features": {"f": %d}}' % i) for i in range(count)]


def test_a_topic_that_was_left_out_is_not_learned_twice(broker: str, topic: str, tmp_path: Path) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        make_topic(broker, name, 1)
        send(broker, examples(name, 10))
    both, one = (f"source.kafka.topics=[{', '.join(chosen)}]" for chosen in (names, names[:1]))
    out = stream(config(broker, topic, tmp_path, both, learners=FEW))
    with pytest.raises(PalearnError, match=rf"lacks a topic, {names[1]}, .*Name it again; or leave it out"):
        stream(config(broker, topic, tmp_path, one, learners=FEW))
    send(broker, examples(names[0], 5))
    stream(config(broker, topic, tmp_path, one, GO_ON, learners=FEW))
    assert_accounts_balance(out, 25)
    for option in ([], [GO_ON]):
        with pytest.raises(PalearnError, match=rf"{names[1]} was left out.*has learned partition 0 up to 10 of it"):
            stream(config(broker, topic, tmp_path, both, *option, learners=FEW))
    assert_accounts_balance(out, 25)


def test_topics_that_appear_later_by_a_pattern(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, f"{topic}-1", 1)
    send(broker, examples(f"{topic}-1", 6))
    pattern = [f"source.kafka.topics_pattern={topic}-[0-9]+", "source.kafka.topics=[]"]
    out = stream(config(broker, topic, tmp_path, *pattern, learners=FEW))
    for name in (f"{topic}-22", f"{topic}-x"):
        make_topic(broker, name, 2)
        send(broker, examples(name, 4))
    stream(config(broker, topic, tmp_path, *pattern, learners=FEW))
    rows = tables.read(out, "batches")["offsets"].explode()
    assert {row["topic"] for row in rows} == {f"{topic}-1", f"{topic}-22"}
    assert_accounts_balance(out, 10)
    again = config(broker, topic, tmp_path, *pattern, f"output.path={tmp_path}/again", learners=FEW)
    replay_job.run(again, batches_of=str(tmp_path / "checkpoint"), master=MASTER)
    found = [tables.latest_models(path) for path in (out, tmp_path / "again")]
    first, second = (models.drop(columns=["batch_id", "updated_batch"]) for models in found)
    assert first.equals(second)
    nothing = ["source.kafka.topics_pattern=nothing-.*", "source.kafka.topics=[]"]
    with pytest.raises(PalearnError, match="has no topic like nothing-"):
        stream(config(broker, topic, tmp_path / "other", *nothing))


def test_topics_or_a_pattern(broker: str, topic: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give topics, or topics_pattern"):
        config(broker, topic, tmp_path, "source.kafka.topics_pattern=x")
    with pytest.raises(ConfigError, match="is no regular expression"):
        config(broker, topic, tmp_path, "source.kafka.topics_pattern='x['", "source.kafka.topics=[]")


@pytest.mark.parametrize("name", ["a b%20[c]#d", "q\"'\\é?{x}*", "n" * 200])
def test_any_name_for_a_checkpoint_and_an_output(name: str, broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    send(broker, examples(topic, 6))
    folder = tmp_path / name
    chosen = config(broker, topic, folder, "output.models.every_batches=2", learners=FEW)
    out = stream(chosen)
    assert len(tables.latest_models(out)) == 3  # the snapshot at the end, read from the state
    assert export(chosen.checkpoint, str(folder / "exported")) == 3
    shutil.rmtree(folder / "exported")
