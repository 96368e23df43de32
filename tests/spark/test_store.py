"""The output belongs to its checkpoint, and an error at any point leaves what no error would have left."""

import errno
import fcntl
import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from palearn.config import Config
from palearn.errors import ConfigError, PalearnError, StreamError
from palearn.spark.checkpoint import batches_of, claimed
from palearn.tables import schemas
from palearn.tables.folder import Folder
from palearn.tables.locks import locked
from palearn.tables.store import Store
from tests.spark.conftest import (
    LEARNERS,
    MOST,
    PEOPLE,
    assert_accounts_balance,
    assert_same_outputs,
    config,
    consume,
    make_topic,
    replay,
    send,
    stream,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
needs_spark = pytest.mark.usefixtures("spark")

#: Kafka's client gives up after seconds, not minutes.
IMPATIENT = (
    '{"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000", "fetchOffset.numRetries": "1"}'
)


class Crash(Exception):
    """What a test lets go wrong."""


def once(real: Callable[..., Any], when: Callable[..., bool], *, after: bool) -> Callable[..., Any]:
    """Return a function that crashes the first time ``when`` says so, before or after its work."""
    state = {"crashed": False}

    def crashing(*args: Any, **kwargs: Any) -> Any:
        now = not state["crashed"] and when(*args, **kwargs)
        state["crashed"] = state["crashed"] or now
        if now and not after:
            raise Crash("before")
        result = real(*args, **kwargs)
        if now:
            raise Crash("after")
        return result

    return crashing


def of_batch(number: int) -> Callable[..., bool]:
    return lambda self, batch_id, *rest: batch_id == number


#: Where a batch can crash: class, method, when, before or after its work.
CRASHES: dict[str, tuple[Any, str, Callable[..., bool], bool]] = {
    "first batch, before its tables are written": (Store, "begin", lambda self: True, True),
    "first batch, tables written": (Store, "commit", of_batch(0), False),
    "tables written, none in place": (Store, "commit", of_batch(2), False),
    "all tables in place, the batch not recorded": (
        Folder, "write", lambda self, content, *parts: parts[-1] == "2.json", False,
    ),
    "half of the driver's own tables written": (
        Folder, "write_table", lambda self, table, *parts: parts[1].startswith("2-") and parts[2] == "metrics", False,
    ),
}  # fmt: skip


@needs_spark
@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_anywhere_in_a_batch_leaves_no_trace(
    broker: str, adult: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    owner, method, when, after = CRASHES[crash]
    chosen = config(broker, adult, tmp_path, MOST, "output.predictions={}")
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, once(getattr(owner, method), when, after=after))
        with pytest.raises(StreamError, match="the stream stopped"):
            stream(chosen)
    assert assert_accounts_balance(stream(chosen), PEOPLE)["learned"].sum() == PEOPLE
    assert_same_outputs(tmp_path / "out", finished / "out")


@needs_spark
def test_a_crash_repeats_kafka_messages_with_the_same_ids(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker, topic, 1)
    make_topic(broker, f"{topic}-metrics", 1)
    send(broker, [(topic, 0, b"k%d" % (i % 2), b'{"label": 1, "features": {"x": 1}}') for i in range(6)])
    chosen = config(broker, topic, tmp_path, f"output.metrics.kafka={topic}-metrics")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", once(Store.commit, of_batch(0), after=False))
        with pytest.raises(StreamError):
            stream(chosen)
    stream(chosen)
    values = [message.value for message in consume(broker, f"{topic}-metrics")]
    assert len(values) == 2 * len(set(values))
    assert len({json.loads(value or b"")["id"] for value in values}) == len(set(values))


def test_a_batch_is_what_its_tasks_told_and_nothing_that_killed_ones_left(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for file in ("a/part-0", "a/.part-0.1234", "b/part-0"):  # b is of a task that did not live to tell
        store.folder.write_bytes(b"ten bytes.", *store.target(0).place(file.split("/")[0]), file.split("/")[1])
    with pytest.raises(StreamError, match=r"^1 of the 2 files of batch 0 \(the first: a/part-1\) were written, but"):
        store.commit(0, {}, {"a/part-0": 10, "a/part-1": 10})
    with pytest.raises(StreamError, match=r"the first: a/part-0"):
        store.commit(0, {}, {"a/part-0": 11})
    assert store.last_batch() is None
    store.commit(0, {}, {"a/part-0": 10})
    assert sorted(snapshot(tmp_path)) == [tmp_path / "_palearn/batches/0.json", tmp_path / "a/batch_id=0/part-0"]


def staged(store: Store, batch: int, table: str, names: list[str]) -> dict[str, int]:
    """Write files of a table for a batch, as tasks do; return what they tell."""
    for name in names:
        store.folder.write_bytes(b"ten bytes.", *store.target(batch).place(table), name)
    return {f"{table}/{name}": 10 for name in names}


@contextmanager
def watched(folder: Path) -> Iterator[list[frozenset[str]]]:
    """Yield what a reader finds in a folder, if it is there, between any two lines of code."""
    found: list[frozenset[str]] = []

    def look(*event: object) -> Callable[..., Any]:
        if folder.exists():
            found.append(frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*")))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield found
    finally:
        sys.settrace(before)


def test_a_reader_never_finds_an_empty_table(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with watched(tmp_path / "a") as found:
        for batch in range(2):
            store.commit(batch, {}, staged(store, batch, "a", ["one", "two"]))
    assert [*dict.fromkeys(found)] == [
        {f"batch_id={batch}{name}" for batch in range(last + 1) for name in ("", "/one", "/two")} for last in range(2)
    ]


def test_what_is_added_to_a_batch_is_seen_all_at_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.commit(0, {}, staged(store, 0, "a", ["one"]))
    files = staged(store, 0, "a", ["two", "three"]) | staged(store, 0, "b", ["two"])
    with watched(tmp_path / "a" / "batch_id=0") as found:
        store.add(0, files)
    assert {*found} == {frozenset({"one"}), frozenset({"one", "two", "three"})}
    assert [path.name for path in (tmp_path / "b" / "batch_id=0").iterdir()] == ["two"]
    assert not (tmp_path / "_staging").exists()


def test_a_checkpoint_in_its_output_is_refused(tmp_path: Path) -> None:
    for place in ("out", "out/checkpoint"):
        chosen = config("none", "none", tmp_path, f"checkpoint={tmp_path / place}")
        with pytest.raises(ConfigError, match="give it a folder of its own"), claimed(chosen):
            pass
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["checkpoint/palearn.json", "out/_palearn/owner.json"])
def test_a_file_that_lost_its_content_is_named(tmp_path: Path, name: str) -> None:
    with claimed(config("none", "none", tmp_path)):
        pass
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(StreamError, match=rf"^{tmp_path / name} is damaged \(Input data was truncated\): restore"):
        with claimed(config("none", "none", tmp_path)):
            pass


def test_a_job_that_was_killed_just_now_is_waited_for(tmp_path: Path) -> None:
    folder, dying, died = Folder(str(tmp_path)), ExitStack(), threading.Event()
    dying.enter_context(locked(folder))
    threading.Timer(0.5, lambda: (died.set(), dying.close())).start()
    with locked(folder):
        assert died.is_set()


def test_a_disk_that_knows_no_locks_is_none_that_another_job_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(Folder(str(tmp_path))), locked(Folder(str(tmp_path))):
        assert (tmp_path / "palearn.lock").exists()


# -- whose output it is -----------------------------------------------------------------------------------


def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(chosen: Config, *words: str) -> None:
    """Assert that the stream is refused with one sentence that has these words, and that nothing was touched."""
    folders = {Path(chosen.output.path), Path(chosen.checkpoint)}
    before = [snapshot(folder) for folder in folders]
    with pytest.raises(ConfigError) as refused:
        stream(chosen)
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [snapshot(folder) for folder in folders] == before


@needs_spark
@pytest.mark.parametrize("name", ["state/0/0/2.changelog", "state/0/0/_metadata/schema"])
def test_a_flipped_bit_in_the_state_is_one_sentence(broker: str, topic: str, tmp_path: Path, name: str) -> None:
    make_topic(broker, topic, 1)
    chosen = config(broker, topic, tmp_path)
    for _ in range(2):
        send(broker, [(topic, 0, b"k%d" % (i % 2), b'{"label": 1, "features": {"x": 1}}') for i in range(6)])
        stream(chosen)
    send(broker, [(topic, 0, b"k", b'{"label": 1, "features": {"x": 1}}')])
    file = tmp_path / "checkpoint" / name
    good = file.read_bytes()
    file.write_bytes(good[:40] + bytes([good[40] ^ 16]) + good[41:])
    with pytest.raises(StreamError) as told:
        stream(chosen)
    start = rf"the stream stopped: the checkpoint's state cannot be loaded \(Checksum error: file:{file} at "
    assert re.match(start, str(told.value))
    assert "damaged or missing. Restore an older copy" in str(told.value)
    assert "\n" not in str(told.value)
    file.write_bytes(good)
    assert_accounts_balance(stream(chosen), 13)


@needs_spark
def test_a_new_checkpoint_on_an_old_output_is_refused(broker: str, adult: str, finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    new = f"checkpoint={tmp_path / 'new'}"
    assert_refused(config(broker, adult, folder, new), str(folder / "out"), "choose a new output")


@needs_spark
def test_a_new_checkpoint_on_a_folder_of_other_files_is_refused(broker: str, adult: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert_refused(config(broker, adult, tmp_path), "is not empty", "choose a new output")


@needs_spark
def test_another_output_on_an_old_checkpoint_is_refused(
    broker: str, adult: str, finished: Path, tmp_path: Path
) -> None:
    folder = copied(finished, tmp_path)
    other = f"output.path={tmp_path / 'other'}"
    assert_refused(config(broker, adult, folder, other), str(tmp_path / "other"), "two new folders")


@needs_spark
def test_the_output_of_another_checkpoint_is_refused(
    broker: str, topic: str, adult: str, finished: Path, tmp_path: Path
) -> None:
    folder = copied(finished, tmp_path)
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"k", b'{"label": 1, "features": {"x": 1}}')])
    other = stream(config(broker, topic, tmp_path / "other"))
    assert_refused(config(broker, adult, folder, f"output.path={other}"), str(other), "the pair that belongs together")


@needs_spark
@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("learners.0.C=0.2", "learners"),
        ("learners.0.name=first", "learners"),
        ("learners.3.covariance=diagonal", "learners"),
        ("learners.4={algorithm: pa}", "learners"),
        ("state.buckets=5", "state"),
        ("state.partitions=3", "state"),
        ("records.bias=false", "records"),
        ("records.positive=1", "records"),
        ("records.task=multiclass", "records"),
        ("records.key={constant: all}", "records"),
        ("metrics.window=51", "metrics"),
    ],
)
def test_another_configuration_on_an_old_checkpoint_is_refused(
    broker: str, adult: str, finished: Path, tmp_path: Path, change: str, part: str
) -> None:
    folder = copied(finished, tmp_path)
    learners = [*LEARNERS, {"algorithm": "pa"}] if change.startswith("learners.4") else LEARNERS
    changes = [] if change.startswith("learners.4") else [change]
    chosen = config(broker, adult, folder, *changes, learners=[dict(item) for item in learners])
    assert_refused(chosen, str(folder / "checkpoint"), "differ", part, "choose a new checkpoint")


@needs_spark
def test_what_the_state_does_not_depend_on_may_change(broker: str, adult: str, finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    before = snapshot(folder / "out")
    stream(config(broker, adult, folder, "source.kafka.max_offsets_per_trigger=7", "output.batches=false"))
    assert snapshot(folder / "out") == before


@needs_spark
def test_the_checkpoint_of_another_query_is_refused(broker: str, adult: str, finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    (folder / "checkpoint" / "palearn.json").unlink()
    new = f"output.path={tmp_path / 'new'}"
    assert_refused(config(broker, adult, folder, new), "another Spark query", "choose a new folder")


@needs_spark
def test_an_output_that_lost_a_batch_is_not_continued(
    broker: str, adult: str, finished: Path, topic: str, tmp_path: Path
) -> None:
    make_topic(broker, topic, 1)
    value = b'{"label": 1, "features": {"x": 1}}'
    send(broker, [(topic, 0, b"k", value)])
    chosen = config(broker, topic, tmp_path)
    out = stream(chosen)
    shutil.rmtree(out / "_palearn" / "batches")
    send(broker, [(topic, 0, b"k", value)])
    with pytest.raises(StreamError, match=r"has no record of batch 0.*restore the folder"):
        stream(chosen)


def test_the_folder_writes_whole_files_or_none(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "a"))
    assert folder.names() == []
    assert folder.read("none.json") is None
    folder.write({"n": 1}, "b", "c.json")
    folder.write({"n": 2}, "b", "c.json")
    assert folder.read("b", "c.json") == {"n": 2}
    assert folder.names("b") == ["c.json"]
    folder.discard("none")
    folder.discard("b")
    assert folder.names() == []
    assert Folder(f"file://{tmp_path}/a").root == folder.root


def test_a_folder_has_one_name_for_spark_whatever_its_default_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a b", str(tmp_path / "a b"), f"file://{tmp_path}/a%20b"):
        assert Folder(path).uri == f"file://{tmp_path}/a b"
        assert Folder(path).is_local


# -- what is missing --------------------------------------------------------------------------------------


@needs_spark
@pytest.mark.parametrize("job", ["stream", "replay"])
def test_a_missing_topic_is_one_sentence(broker: str, topic: str, tmp_path: Path, job: str) -> None:
    _assert_one_sentence(config(broker, topic, tmp_path), job, topic)


@needs_spark
@pytest.mark.parametrize("job", ["stream", "replay"])
def test_a_missing_broker_is_one_sentence(tmp_path: Path, job: str) -> None:
    chosen = config("127.0.0.1:9", "adult", tmp_path, f"source.kafka.options={IMPATIENT}")
    _assert_one_sentence(chosen, job, "127.0.0.1:9")


def _assert_one_sentence(chosen: Config, job: str, word: str) -> None:
    with pytest.raises(PalearnError) as fault:
        (stream if job == "stream" else replay)(chosen)
    assert word in str(fault.value)
    assert len(str(fault.value)) < 400
    assert "\n" not in str(fault.value)


def test_batches_that_the_accounts_do_not_tell(tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    Folder(str(checkpoint)).write({"id": "1", "fingerprint": {}, "output": str(out)}, "palearn.json")
    row = {"topic": "t", "partition": 0, "start": 0, "end": 5}

    def write(batch: int, offsets: list[dict[str, Any]] | None) -> None:
        account = pa.Table.from_pylist([{"records": 5, "offsets": offsets}], schemas.BATCHES)
        Folder(str(out)).write_table(account, "batches", f"batch_id={batch}", "part.parquet")

    write(0, [row])
    write(1, [row | {"start": 5, "end": 9}])
    assert [[x["end"] for x in rows] for rows in batches_of(str(checkpoint))] == [[5], [9]]
    for batch, offsets in ((3, [row]), (2, None)):  # 2 is missing; 2 does not tell
        write(batch, offsets)
        with pytest.raises(ConfigError, match="does not tell what batch 2 took"):
            batches_of(str(checkpoint))
    write(2, [row])
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "4").touch()  # committed, but not in the accounts
    with pytest.raises(ConfigError, match="does not tell what batch 4 took"):
        batches_of(str(checkpoint))
