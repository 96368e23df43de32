"""What keeps a job from starting is said before Spark starts, all at once, in seconds."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient, TopicPartition

from palearn.errors import ConfigError, PalearnError
from palearn.spark import readiness, release
from palearn.spark import replay as replay_job
from palearn.spark.readiness import faults
from tests.spark.conftest import config, make_topic, send

pytestmark = [pytest.mark.kafka]
#: Whoever is told no sooner has given up.
SOON_S = 15


def told(chosen, count: int = 1) -> str:
    began = time.monotonic()
    found = faults(chosen)
    assert time.monotonic() - began < SOON_S
    assert len(found) == count, found
    for fault in found:
        assert len(str(fault).splitlines()) == 1
        assert len(str(fault)) < 600
    return "\n".join(map(str, found))


@pytest.fixture
def mail(broker: str, topic: str) -> str:
    """A topic of two partitions, of which one has lost its first records: offsets 3 to 10, and 0 to 10."""
    make_topic(broker, topic, 2)
    send(broker, [(topic, i % 2, b"k", b'{"label": 1, "features": {"f": 1}}') for i in range(20)])
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        admin.delete_records({TopicPartition(topic, 0): 3})
    finally:
        admin.close()
    return topic


def test_a_job_that_can_start(broker: str, mail: str, tmp_path: Path) -> None:
    assert faults(config(broker, mail, tmp_path)) == []
    assert list(tmp_path.iterdir()) == []  # nothing is made


def test_a_topic_that_is_not_there(broker: str, mail: str, tmp_path: Path) -> None:
    found = told(config(broker, mail[:-1], tmp_path))
    assert f"has no topic {mail[:-1]}; did you mean {mail}?" in found


OFFSETS = [
    ({"0": 5}, "partition 1 of {topic} is lacking"),
    ({"0": 5, "1": 0, "7": 0}, "{topic} has no partition 7; topic {topic} has the partitions 0, 1"),
    ({"0": 5, "1": 11}, "offset 11 of {topic}, partition 1, is beyond its end, 10"),
    ({"0": 2, "1": 0}, "offset 2 of {topic}, partition 0, is gone: the first one that Kafka still has is 3"),
    ({"0": -3, "1": 0}, "offset -3 of {topic}, partition 0, does not exist; -1 is the end, -2 for the first one"),
]


@pytest.mark.parametrize(("offsets", "sentence"), OFFSETS)
def test_starting_offsets_are_compared_with_the_topic(
    offsets: dict[str, int], sentence: str, broker: str, mail: str, tmp_path: Path
) -> None:
    text = str({mail: offsets}).replace("'", '"')
    assert sentence.format(topic=mail) in told(
        config(broker, mail, tmp_path, f"source.kafka.starting_offsets='{text}'")
    )


def test_first_offset_and_end_have_numbers_and_other_topics_are_named(broker: str, mail: str, tmp_path: Path) -> None:
    for fine in ({"0": -2, "1": -1}, {"0": 3, "1": 10}):
        text = str({mail: fine}).replace("'", '"')
        assert faults(config(broker, mail, tmp_path, f"source.kafka.starting_offsets='{text}'")) == []
    text = '{"other": {"0": 0}}'
    found = told(config(broker, mail, tmp_path, f"source.kafka.starting_offsets='{text}'"), 2)
    assert f"other is not among the topics of the source ({mail})" in found
    assert f"topic {mail} is lacking" in found


@pytest.mark.parametrize(
    ("start", "end", "sentence"),
    [
        ({"0": 0, "1": 0}, None, "--from: offset 0 of {topic}, partition 0, is gone"),
        (None, {"0": 10, "1": 99}, "--to: offset 99 of {topic}, partition 1, is beyond its end, 10"),
        (None, {"0": 10, "5": 1}, "--to: {topic} has no partition 5"),
        ({"0": 8, "1": 8}, {"0": 5, "1": 9}, "--to: offset 5 of {topic}, partition 0, is before --from, 8"),
    ],
)
def test_a_range_of_a_replay_is_compared_with_the_topic(start, end, sentence, broker, mail, tmp_path) -> None:
    texts = {
        name: str({mail: offsets}).replace("'", '"')
        for name, offsets in (("start", start), ("end", end))
        if offsets is not None
    }
    with pytest.raises(PalearnError) as found:
        replay_job.run(config(broker, mail, tmp_path), **texts)
    assert sentence.format(topic=mail) in str(found.value)


# -- addresses ---------------------------------------------------------------------------------------------


@contextmanager
def broker_that_advertises(host: str, port: int) -> Iterator[str]:
    """Something that answers every request for metadata with one broker, at that address."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(1000)
                name = host.encode()
                body = struct.pack(">iiiih", 7, 0, 1, 1, len(name)) + name + struct.pack(">ihhii", port, -1, -1, 0, 0)
                connection.sendall(struct.pack(">i", len(body)) + body)
                connection.recv(1)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("host", "port", "fault"),
    [
        ("kafka.invalid", 9092, "kafka.invalid:9092, whose name cannot be resolved here"),
        ("127.0.0.1", 1, "127.0.0.1:1, which accepts no connections"),
    ],
)
def test_an_advertised_address_that_does_not_work(host: str, port: int, fault: str, tmp_path: Path) -> None:
    with broker_that_advertises(host, port) as address:
        found = told(config(address, "t", tmp_path))
    assert f"the broker at {address} says that clients reach it at {fault}" in found
    assert "advertised.listeners" in found


# -- this machine --------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_written(broker: str, mail: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    chosen = config(broker, mail, tmp_path, f"checkpoint={tmp_path}/file/c", f"output.path={tmp_path}/link/out")
    found = told(chosen, 2)
    assert f"checkpoint: {tmp_path}/file is a file, not a folder" in found
    assert f"output.path: {tmp_path}/link is a link to {tmp_path}/nowhere, which is not there" in found
    assert "255 bytes" in told(config(broker, mail, tmp_path, f"output.path={tmp_path}/{'n' * 256}"))


def test_a_file_system_that_is_not_known(broker: str, mail: str, tmp_path: Path) -> None:
    found = told(config(broker, mail, tmp_path, "output.path=gs2://bucket/out"))
    assert "output.path: gs2://bucket/out is on a file system that cannot be reached here" in found


#: Runs the checks as a user who is not root, or has no name.
AS_USER = """\
import encodings.idna, os, sys  # now: another user may not read this Python's folder
from palearn.config import load
from palearn.spark.readiness import faults
os.setgid({id}); os.setuid({id})
print(*faults(load(sys.argv[1])), sep="\\n")
"""


def as_user(number: int, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", AS_USER.format(id=number), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_permissions_and_users_without_a_name(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    path = tmp_path / "job.yaml"
    tree = {
        "source": {"kafka": {"bootstrap_servers": "127.0.0.1:1", "topics": ["t"]}}, "learners": [{"algorithm": "pa1"}],
        "output": {"path": str(locked / "out")}, "checkpoint": str(locked / "checkpoint"),
    }  # fmt: skip
    path.write_text(yaml.safe_dump(tree))
    found = as_user(65534, path).splitlines()
    assert [line.partition(":")[0] for line in found][:2] == ["checkpoint", "output.path"]
    assert f"may not write in {locked} (its owner is root)" in found[0]
    assert "user id, 54321, has no name on this machine" in as_user(54321, path)


def test_a_java_that_is_too_old(broker: str, mail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="1.8.0_412"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert f"{home}/bin/java is Java 8" in told(config(broker, mail, tmp_path / "job"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "which has no bin/java" in told(config(broker, mail, tmp_path / "job"))


def test_another_spark(broker: str, mail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "NUMBER", (3, 5, 9))
    assert "palearn needs Spark 4.0 or newer" in told(config(broker, mail, tmp_path))


def test_all_at_once(broker: str, mail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(release, "NUMBER", (3, 5, 9))
    chosen = config(broker, "nowhere", tmp_path, f"checkpoint={tmp_path}/file")
    found = told(chosen, 3)
    for part in ("needs Spark 4.0", "is a file, not a folder", "has no topic nowhere"):
        assert part in found
    with pytest.raises(ConfigError, match=r"(?s)needs Spark.*\n  .*\n  "):
        readiness.require_ready(chosen)


# -- the command -----------------------------------------------------------------------------------------------


Run = Callable[..., tuple[int, str, str]]


def test_check_says_all_faults_of_a_configuration(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "source": {
                    "kafka": {
                        "bootstrap_servers": "127.0.0.1:1", "topics": ["a, b", "c d"],
                        "options": {
                            "failOnDatLoss": False, "kafka.auto.offset.reset": "earliest", "minPartitions": "ten",
                            "kafka.fetch.max.wait.ms": "soon",
                        },
                    }
                },
                "learners": [{"algorithm": "arrow"}, {"algorithm": "arow", "r": -1, "covarianc": "full"}],
                "records": {"key": {"form": "long", "field": "x"}},
                "output": {"path": "out"}, "checkpoint": "checkpoint",
            }
        )
    )  # fmt: skip
    status, out, err = run("check", "--config", str(path))
    assert (status, out) == (1, "")
    for part in (
        "'a, b' is no topic's name; a list is written [a, b]",
        "'c d' is no topic's name",
        "failOnDatLoss: unknown option; did you mean failOnDataLoss?",
        "kafka.auto.offset.reset: set source.kafka.starting_offsets",
        "minPartitions: expected a whole number",
        "kafka.fetch.max.wait.ms: expected a whole number",
        "unknown learner 'arrow'; did you mean arow?",
        "r must be",
        "unknown option 'covarianc'; did you mean covariance?",
        "a key of form long has no fields",
    ):
        assert part in err, part
    assert len(err.splitlines()) <= 12
    assert "Traceback" not in err


def test_check_is_silent_about_nothing(run: Run, broker: str, mail: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    tree = {
        "source": {"kafka": {"bootstrap_servers": broker, "topics": [mail]}}, "learners": [{"algorithm": "pa1"}],
        "output": {"path": str(tmp_path / "out")}, "checkpoint": str(tmp_path / "checkpoint"),
    }  # fmt: skip
    path.write_text(yaml.safe_dump(tree))
    assert run("check", "--config", str(path)) == (0, "nothing keeps the stream from starting\n", "")
    status, out, _ = run("check", "--config", str(path), "--json", "--set", "source.kafka.topics=[x]")
    assert status == 1
    assert '"ready": false' in out
    assert "has no topic x" in out
