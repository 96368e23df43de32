"""The broker: it starts, answers, keeps its topics, stops, and says plainly why it cannot start."""

import contextlib
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient

from palearn.errors import BrokerError
from palearn.kafka import jars, local_broker
from tests.conftest import free_port_pair

pytestmark = pytest.mark.kafka


def topics(port: int) -> list[str]:
    client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    try:
        return sorted(client.list_topics())
    finally:
        client.close()


def make_topic(port: int, name: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    try:
        client.create_topics({name: {"num_partitions": 3}}, wait_for_metadata=True)
    finally:
        client.close()


def fake_java(folder: Path, printed: str) -> None:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    java.chmod(0o755)


def test_a_broker_s_life(tmp_path: Path) -> None:
    port, data = free_port_pair(), tmp_path / "some, folder é"
    assert not local_broker.status(port, data).running
    local_broker.start(port, data)
    try:
        first = local_broker.status(port, data)
        assert (first.running, first.port, first.data, first.version) == (True, port, data, "4.3.1")
        assert local_broker.answers(f"127.0.0.1:{port}")
        make_topic(port, "kept")

        local_broker.start(port, data)  # a second start changes nothing
        assert local_broker.status(port, data) == first

        other = free_port_pair()
        with pytest.raises(BrokerError, match=f"runs already, on port {port}"):
            local_broker.start(other, data)

        local_broker.stop(port, data)
        assert not local_broker.status(port, data).running
        assert not local_broker.answers(f"127.0.0.1:{port}")
        local_broker.stop(port, data)  # a second stop changes nothing

        local_broker.start(other, data)  # the topics are the folder's, not the port's
        assert topics(other) == ["kept"]
    finally:
        local_broker.stop(port, data)


def test_it_survives_the_process_that_started_it_and_a_kill(tmp_path: Path) -> None:
    port, data = free_port_pair(), tmp_path / "data"
    code = "import sys; from palearn.kafka import local_broker; local_broker.start(int(sys.argv[1]), sys.argv[2])"
    try:
        subprocess.run([sys.executable, "-c", code, str(port), str(data)], check=True)
        pid = local_broker.status(port, data).pid
        assert pid is not None
        make_topic(port, "kept")
        os.kill(pid, 9)
        local_broker.start(port, data)
        assert topics(port) == ["kept"]
        assert local_broker.status(port, data).pid != pid
    finally:
        local_broker.stop(port, data)


def test_it_listens_on_this_machine_only_and_makes_no_topic_by_itself(broker_port: int) -> None:
    name = socket.gethostbyname(socket.gethostname())
    if not name.startswith("127."):
        assert not local_broker.answers(f"{name}:{broker_port}")
    client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{broker_port}")
    try:
        (answer,) = client.describe_topics(["never-made"])
    finally:
        client.close()
    assert answer["error_code"] == 3  # unknown topic
    assert "never-made" not in topics(broker_port)


def test_kafka_s_own_settings_win_and_it_still_listens_on_this_machine_only(tmp_path: Path) -> None:
    port, other, data = free_port_pair(), free_port_pair(), tmp_path / "data"
    clients = f"CLIENT://127.0.0.1:{port},EXTRA://127.0.0.1:{other}"
    settings = {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,EXTRA:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "num.partitions": "9",
        "broker.rack": "a\\b: é☃🗝",
    }
    local_broker.start(port, data, settings=settings)
    try:
        pid = local_broker.status(port, data).pid
        assert pid is not None
        assert {address for address, _ in listening(pid)} == {"127.0.0.1"}
        assert {port, port + 1, other} <= {number for _, number in listening(pid)}
        client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{other}")
        try:
            assert [node["rack"] for node in client.describe_cluster()["brokers"]] == [settings["broker.rack"]]
            client.create_topics({"default": {"num_partitions": -1}}, wait_for_metadata=True)
            (answer,) = client.describe_topics(["default"])
            assert len(answer["partitions"]) == 9
        finally:
            client.close()
        assert (data / "server.properties").stat().st_mode & 0o077 == 0  # passwords of key stores may be among them
    finally:
        local_broker.stop(port, data)


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the addresses and ports that a process listens on, from Linux's own tables."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(link))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address, _, number = local.partition(":")
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                ip = ipaddress.ip_address(b"".join(words))
                found.add((str(getattr(ip, "ipv4_mapped", None) or ip), int(number, 16)))
    return found


@pytest.fixture
def broker_port(broker: str) -> int:
    return int(broker.rpartition(":")[2])


def test_a_stale_process_file_is_no_broker(tmp_path: Path) -> None:
    for known in ({"pid": os.getpid(), "port": 1}, {"pid": 2**22 + 1, "port": 1}, {"pid": "x"}, [1]):
        (tmp_path / "broker.json").write_text(json.dumps(known))
        assert not local_broker.status(9092, tmp_path).running
    (tmp_path / "broker.json").write_text("{")
    assert not local_broker.status(9092, tmp_path).running
    (tmp_path / "broker.json").write_text(json.dumps({"pid": os.getpid(), "port": 1}))
    local_broker.stop(9092, tmp_path)  # and does not end this process
    assert not (tmp_path / "broker.json").exists()


def test_without_proc_the_process_is_known_by_ps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()", f"-Dpalearn.data={tmp_path}", "end"],
                               stdin=subprocess.PIPE)  # fmt: skip
    try:
        assert local_broker._is_ours(sleeper.pid, tmp_path)
        monkeypatch.setattr(local_broker, "_PROC", tmp_path / "no-proc")
        assert local_broker._is_ours(sleeper.pid, tmp_path)
        assert not local_broker._is_ours(sleeper.pid, tmp_path / "other")
        assert not local_broker._is_ours(os.getpid(), tmp_path)
    finally:
        sleeper.communicate(b"\n")


@pytest.mark.parametrize(("offset", "whose"), [(0, "the broker"), (1, "its controller")])
def test_a_taken_port_is_named(tmp_path: Path, offset: int, whose: str) -> None:
    port = free_port_pair()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + offset))
        taken.listen()
        with pytest.raises(BrokerError, match=f"port {port + offset}, for {whose}, .*--port"):
            local_broker.start(port, tmp_path)
    assert not local_broker.status(port, tmp_path).running


@pytest.mark.parametrize("port", [0, -1, 65535, 70000])
def test_a_port_must_leave_room_for_the_controller(tmp_path: Path, port: int) -> None:
    with pytest.raises(BrokerError, match="from 1 to 65534"):
        local_broker.start(port, tmp_path)


def test_java_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match=r"neither JAVA_HOME nor PATH has a java.*openjdk-17"):
        local_broker.start(free_port_pair(), tmp_path / "data")


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ('openjdk version "1.8.0_292"', "version 8"),
        ('openjdk version "11.0.2" 2019-01-15', "version 11"),
        ("no such thing", "no working Java"),
    ],
)
def test_java_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, found: str) -> None:
    fake_java(tmp_path / "jdk", printed)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(BrokerError, match=f"Java 17 or newer; .*jdk/bin/java is {found}.*JAVA_HOME"):
        local_broker.start(free_port_pair(), tmp_path / "data")


def test_java_of_the_path_is_taken_when_java_home_s_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", 'java version "1.8.0_292"')
    fake_java(tmp_path / "new", 'openjdk version "21-ea" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"))
    assert jars.find_java() == tmp_path / "new" / "bin" / "java"


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    port = free_port_pair()
    local_broker.start(port, tmp_path)
    local_broker.stop(port, tmp_path)
    (tmp_path / "log" / "meta.properties").write_text("version=1\nnode.id=77\n")
    with pytest.raises(BrokerError, match=r"Kafka ended while starting.*broker\.log.*meta\.properties"):
        local_broker.start(port, tmp_path)
    assert not local_broker.status(port, tmp_path).running


def test_a_broker_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    port = free_port_pair()
    with pytest.raises(BrokerError, match=rf"did not answer on port {port} within 0\.01 s"):
        local_broker.start(port, tmp_path, timeout_s=0.01)
    assert not local_broker.status(port, tmp_path).running
    assert not (tmp_path / "broker.json").exists()


def test_without_a_network_the_jars_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars.time, "sleep", lambda seconds: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port_pair()}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    left = tmp_path / "palearn" / "kafka-4.3.1.partial" / "jars"
    left.mkdir(parents=True)  # what an interrupted download leaves is not taken for the jars
    with pytest.raises(BrokerError, match=r"cannot fetch Kafka 4\.3\.1 from Maven Central.*HTTPS_PROXY"):
        jars.kafka_jars()
    assert not (tmp_path / "palearn" / "kafka-4.3.1").exists()


@pytest.fixture
def cached_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache's folder of links to the jars."""
    originals = jars.kafka_jars()
    folder = tmp_path / "palearn" / originals.name
    folder.mkdir(parents=True)
    for jar in originals.iterdir():
        (folder / jar.name).symlink_to(jar)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return folder


def test_a_flipped_byte_of_a_jar_is_found_before_it_runs(cached_jars: Path, tmp_path: Path) -> None:
    assert jars.kafka_jars() == cached_jars
    jar = cached_jars / "re2j-1.8.jar"
    content = bytearray(jar.read_bytes())
    content[len(content) // 2] ^= 1
    jar.unlink()
    jar.write_bytes(content)
    with pytest.raises(BrokerError) as caught:
        local_broker.start(free_port_pair(), tmp_path / "data")
    assert str(caught.value) == (
        f"re2j-1.8.jar is damaged, or not what Maven Central has under that name, in {cached_jars}; delete that "
        "folder, and the next start fetches Kafka again"
    )


def test_a_jar_too_few_or_too_many_is_found(cached_jars: Path) -> None:
    (cached_jars / "re2j-1.8.jar").rename(cached_jars / "zzz.jar")
    with pytest.raises(BrokerError, match=r"re2j-1\.8\.jar is missing, in .*delete that folder"):
        jars.kafka_jars()
    shutil.copy(cached_jars / "zzz.jar", cached_jars / "re2j-1.8.jar")
    with pytest.raises(BrokerError, match=r"zzz\.jar is damaged, or not what Maven Central has"):
        jars.kafka_jars()


def test_what_is_fetched_is_compared_before_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log4j-core-2.25.4.jar").write_bytes(b"not what was published")
    artifact = SimpleNamespace(artifactId="log4j-core", version="2.25.4", resolve=lambda: jar)
    jar, dependency = tmp_path / "log4j-core-2.25.4.jar", SimpleNamespace(artifact=artifact, scope="compile")
    resolver = SimpleNamespace(resolve=lambda wanted: ([dependency], []))
    maven = SimpleNamespace(create_dependency=lambda name: dependency, resolver=resolver)
    monkeypatch.setattr("jgo.maven.MavenContext", lambda **options: maven)
    monkeypatch.setattr(jars.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(jars, "read_checksums", lambda file: {jar.name: "0" * 64})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match=r"cannot fetch Kafka 4\.3\.1.*log4j-core-2\.25\.4\.jar is damaged, or not"):
        jars.kafka_jars()
    assert not (tmp_path / "palearn" / "kafka-4.3.1").exists()


@pytest.mark.slow
def test_the_jars_come_whole_from_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seen: list[tuple[int, int]] = []
    folder = jars.kafka_jars(lambda done, total: seen.append((done, total)))
    names = {jar.name for jar in folder.iterdir()}
    assert len(names) == 46
    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar"} <= names
    assert seen == [(done, 46) for done in range(1, 47)]
    assert jars.kafka_jars() == folder
    assert [path.name for path in folder.parent.iterdir() if "partial" in path.name] == []
