"""TLS and passwords at a real broker: the same results, one sentence if something is wrong, no secret anywhere."""

import http.client
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyspark
import pytest
import yaml
from pyspark import SparkConf
from pyspark.sql import SparkSession

from palearn import tables
from palearn.config import Config
from palearn.errors import PalearnError
from palearn.kafka import local_broker as kafka_broker
from palearn.kafka import produce as producing
from palearn.kafka.jars import read_checksums
from palearn.kafka.produce import produce
from palearn.spark import connectors
from palearn.spark.operator import bucket_config_in
from tests import secure as securing
from tests.conftest import free_port_pair
from tests.secure import MARK, PLAIN_PASSWORD, PLAIN_USER, Secure
from tests.spark.conftest import assert_same_outputs, config, consume, make_topic, people, stream, write_lines
from tests.spark.test_jobs import submit

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

COUNT = 600
TOPIC = "people"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """Return a broker with people in a topic, sent through the listener that asks for TLS and a password."""
    folder = tmp_path_factory.mktemp("secure")
    running = securing.start(folder)
    try:
        send(running.kafka("SASL_SSL"), TOPIC, write_lines(folder / "people.jsonl", people(COUNT)))
        yield running
    finally:
        kafka_broker.stop(running.port, folder / "data")


def job(kafka: dict[str, Any], folder: Path, *overrides: str, topic: str = TOPIC, **output: Any) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    source = {"kafka": {"topics": [topic], "max_offsets_per_trigger": 200, **kafka}}
    made = {"path": str(folder / "out"), **output}
    return config("", topic, folder, *overrides, source=source, learners=[{"algorithm": "pa1"}], output=made)


def send(kafka: dict[str, Any], topic: str, path: Path) -> None:
    """Produce as a configuration says."""
    read = job(kafka, path.parent / "unused").source.kafka
    assert read is not None
    report = produce([path], topic=topic, bootstrap=read.bootstrap_servers, access=read.access, key="occupation")
    assert report.bad_count == 0


@pytest.fixture(scope="module")
def plain(spark: object, secure: Secure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of a job that reads through the listener that asks for nothing."""
    folder = tmp_path_factory.mktemp("plain")
    make_topic(secure.servers["PLAINTEXT"], "metrics-plain", 1)
    return stream(job(secure.kafka("PLAINTEXT"), folder, metrics={"kafka": "metrics-plain"}))


# -- it lets in -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        ("SSL", {}),
        ("SASL_PLAINTEXT", {"mechanism": "SCRAM-SHA-256"}),
        ("SASL_SSL", {"mechanism": "PLAIN", "username": PLAIN_USER, "password": PLAIN_PASSWORD}),
    ],
)
def test_every_protocol_gives_what_the_plain_listener_gives(
    secure: Secure, plain: Path, tmp_path: Path, protocol: str, changes: dict[str, str]
) -> None:
    kafka = secure.kafka(protocol, **changes)
    send(kafka, f"copy-{protocol}", write_lines(tmp_path / "people.jsonl", people(COUNT)))
    sent, original = (consume(secure.servers["PLAINTEXT"], topic) for topic in (f"copy-{protocol}", TOPIC))
    assert [message[1:] for message in sent] == [message[1:] for message in original]
    assert_same_outputs(stream(job(kafka, tmp_path)), plain)


def test_the_command_line_takes_the_password_from_the_environment(secure: Secure, tmp_path: Path) -> None:
    command = produce_command(secure, tmp_path, "from-environment")
    done = run(command, tmp_path, KAFKA_PASSWORD=securing.PASSWORD)
    assert (done.returncode, done.stdout) == (0, done.stdout), done.stderr
    assert "1 records sent" in done.stdout

    began = time.monotonic()
    done = run(command, tmp_path, KAFKA_PASSWORD="wrong")
    assert done.returncode == 1
    assert time.monotonic() - began < 60  # it waits for ten seconds, on a machine that is not as busy
    told = [line for line in done.stderr.splitlines() if not line.startswith("producing to")]
    assert told == [
        f"palearn: Kafka at {secure.servers['SASL_SSL']} does not let jane=doe,jr in; correct source.kafka.access: "
        "username, password, or mechanism"
    ]


def produce_command(secure: Secure, folder: Path, topic: str) -> list[str]:
    """Return ``palearn produce`` of one record, with the password from the environment."""
    (folder / "one.libsvm").write_text("1 1:1\n")
    path = write_job(secure.kafka("SASL_SSL", password="${KAFKA_PASSWORD}"), folder)
    return [palearn(), "produce", str(folder / "one.libsvm"), "--topic", topic, "--config", str(path)]


def palearn() -> str:
    return str(Path(sys.executable).with_name("palearn"))


def write_job(kafka: dict[str, Any], folder: Path, **parts: Any) -> Path:
    """Write a configuration as users have it, with its variables."""
    tree = {
        "source": {"kafka": {"topics": [TOPIC], "max_offsets_per_trigger": 200, **kafka}},
        "learners": [{"algorithm": "pa1"}],
        "state": {"buckets": 4, "partitions": 2},
        "metrics": {"window": 50},
        "output": {"path": str(folder / "out"), "metrics": {"kafka": "metrics-secure"}},
        "checkpoint": str(folder / "checkpoint"),
        **parts,
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(tree))
    return folder / "job.yaml"


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


# -- it does not let in ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "at", "changes", "sentence"),
    [
        ("SASL_SSL", None, {"password": "wrong"}, r"does not let .* in.*correct source\.kafka\.access"),
        ("SASL_SSL", None, {"username": "nobody"}, r"does not let .* in.*correct source\.kafka\.access"),
        ("SASL_PLAINTEXT", None, {"mechanism": "PLAIN"}, r"does not take passwords by PLAIN.*access\.mechanism"),
        ("SASL_SSL", None, {"ca": "other"}, r"certificate .* is refused .*self-signed.*access\.ca must name"),
        ("SSL", None, {"ca": None}, r"certificate .* is refused .*access\.ca must name"),
        ("PLAINTEXT", "SSL", {}, r"does not answer in plain.*set source\.kafka\.access"),
        ("PLAINTEXT", "SASL_PLAINTEXT", {}, r"does not answer in plain.*set source\.kafka\.access"),
        ("SSL", "PLAINTEXT", {}, r"does not speak TLS; correct source\.kafka\.access\.protocol"),
        ("SASL_SSL", "PLAINTEXT", {}, r"does not speak TLS; correct source\.kafka\.access\.protocol"),
        ("SASL_PLAINTEXT", "PLAINTEXT", {}, r"asks for no password; correct source\.kafka\.access\.protocol"),
        ("SASL_SSL", "SSL", {}, r"asks for no password; correct source\.kafka\.access\.protocol"),
        ("SSL", "SASL_SSL", {}, r"asks for more than TLS; .* source\.kafka\.access\.protocol: SASL_SSL"),
        ("SASL_PLAINTEXT", "SASL_SSL", {}, r"does not answer to SASL_PLAINTEXT; correct .*SASL_SSL if it wants TLS"),
    ],
)
def test_whoever_is_not_let_in_is_told_in_one_sentence_what_to_change(
    spark: object,
    secure: Secure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    at: str | None,
    changes: dict[str, Any],
    sentence: str,
) -> None:
    monkeypatch.setattr(producing, "_CONNECT_MS", 2_000)
    if changes.get("ca"):
        changes = {"ca": secure.authority(changes["ca"])}
    kafka = secure.kafka(protocol, at=at, **changes)
    read = job(kafka, tmp_path)
    (tmp_path / "one.libsvm").write_text("1 1:1\n")
    for attempt in (lambda: send(kafka, TOPIC, tmp_path / "one.libsvm"), lambda: stream(read)):
        with pytest.raises(PalearnError, match=sentence) as caught:
            attempt()
        told = str(caught.value)
        assert len(told) < 400
        assert "\n" not in told
        assert kafka["bootstrap_servers"] in told
        assert MARK not in told


def test_a_certificate_for_another_host_is_refused(secure: Secure, tmp_path: Path) -> None:
    kafka = secure.kafka("SSL")
    kafka["bootstrap_servers"] = kafka["bootstrap_servers"].replace("127.0.0.1", "localhost")
    with pytest.raises(PalearnError, match=r"Hostname mismatch.*bootstrap_servers the host it is made out to"):
        send(kafka, TOPIC, write_lines(tmp_path / "none.jsonl", []))


def test_a_job_that_is_not_let_in_ends_without_a_traceback(secure: Secure, tmp_path: Path) -> None:
    path = write_job(secure.kafka("SASL_SSL", password="${KAFKA_PASSWORD}"), tmp_path)
    quiet = "--conf spark.ui.enabled=false pyspark-shell"
    command = [palearn(), "stream", "--config", str(path), "--master", "local[1]"]
    done = run(command, tmp_path, KAFKA_PASSWORD=MARK, PYSPARK_SUBMIT_ARGS=quiet)
    printed = done.stdout + done.stderr
    assert done.returncode == 1
    (told,) = [line for line in printed.splitlines() if line.startswith("palearn:")]
    assert re.search(r"does not let this job in .*invalid credentials.*correct source\.kafka\.access", told)
    assert "Traceback" not in printed
    assert not re.search(r"^\s+at \S+\(", printed, re.MULTILINE)
    assert MARK not in printed


# -- secrets stay where they were -----------------------------------------------------------------------


def test_a_password_is_nowhere_but_in_its_file(secure: Secure, plain: Path, tmp_path: Path) -> None:
    """Looked for in logs, tables, topics, checkpoint, event log, Spark's interface, commands and environments."""
    make_topic(secure.servers["PLAINTEXT"], "metrics-secure", 1)
    path = write_job(secure.kafka("SASL_SSL"), tmp_path, trigger={"processing_time": "1s"})
    port = free_port_pair()
    (tmp_path / "events").mkdir()
    conf = (
        "spark.ui.enabled=true",
        f"spark.ui.port={port}",
        "spark.log.level=INFO",
        "spark.executor.memory=512m",
        "spark.eventLog.enabled=true",
        "spark.eventLog.compress=false",
        f"spark.eventLog.dir={(tmp_path / 'events').as_uri()}",
    )
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(spark_home(tmp_path / "spark"))}
    command = submit("stream", "--config", str(path), "--master", "local-cluster[1,1,1024]", conf=conf)
    with (tmp_path / "job.log").open("w") as log:
        running = subprocess.Popen(command, cwd=tmp_path, env=os.environ | environment, stdout=log, stderr=log)
        try:
            wait_for_records(running, tmp_path / "job.log", COUNT)
            found = processes()
            pages = interface(f"http://127.0.0.1:{port}")
        finally:
            running.terminate()
            running.wait()

    assert_same_outputs(tmp_path / "out", plain)
    topics = [consume(secure.servers["PLAINTEXT"], f"metrics-{name}") for name in ("secure", "plain")]
    values = [sorted(message.value or b"" for message in messages) for messages in topics]
    assert values[0] == values[1]
    assert len(values[0]) > 0

    assert any("org.apache.spark" in text for text in found.values())  # the job's own were among them
    assert len([name for name in pages if "/SQL/execution" in name]) >= 3
    assert {"/environment/", "/StreamingQuery/", "/jobs/", "/stages/"} <= pages.keys()
    files = {str(file): contents(file) for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()}
    # Kafka's clients log all they were given.
    assert "AdminClientConfig values" in files[str(tmp_path / "job.log")]
    assert any("ConsumerConfig values" in text for name, text in files.items() if name.endswith("/stderr"))
    assert [name for name, text in {**found, **pages, **files}.items() if MARK in text] == []
    for table in ("models", "metrics", "batches"):
        assert MARK not in tables.read(tmp_path / "out", table).to_json()
    assert MARK not in str(topics)


def spark_home(folder: Path) -> Path:
    """Return a folder that is Spark's home, but for what Spark writes there: its executors' folders and logs."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


def wait_for_records(running: subprocess.Popen[bytes], log: Path, count: int) -> None:
    """Wait until a job's lines, one a batch, tell of so many records."""
    while sum(map(int, re.findall(r"batch \d+: (\d+) records", log.read_text()))) < count:
        assert running.poll() is None, log.read_text()[-5000:]
        time.sleep(0.2)


def processes() -> dict[str, str]:
    """Return the command and the environment of every process of this machine."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                found[f"{folder}/{name}"] = (folder / name).read_text(errors="replace")
            except OSError:
                pass  # it has ended, or is another user's
    return found


def interface(base: str) -> dict[str, str]:
    """Return all pages of Spark's interface that links lead to, and what its programs' interface tells."""
    (application,) = msgspec.json.decode(fetch(f"{base}/api/v1/applications"))
    rest = f"/api/v1/applications/{application['id']}"
    todo = ["/", "/environment/", "/SQL/", "/StreamingQuery/", "/jobs/", "/stages/", "/storage/", "/executors/"]
    todo += [f"{rest}{page}" for page in ("/environment", "/jobs", "/stages?details=true", "/allexecutors")]
    todo += [f"{rest}/sql?details=true&planDescription=true&length=100", "/metrics/json/"]
    pages: dict[str, str] = {}
    while todo and len(pages) < 150:
        path = todo.pop(0)
        if path in pages or path.startswith("/static") or "kill" in path or "sort" in path:
            continue
        pages[path] = fetch(base + path)
        links = (urllib.parse.urljoin(base + path, link) for link in re.findall(r'href="([^"#]+)', pages[path]))
        todo += [link.removeprefix(base).replace("&amp;", "&") for link in links if link.startswith(base)]
    return pages


def fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode(errors="replace")
            return text
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")
    except http.client.HTTPException as error:
        return str(error)


def contents(file: Path) -> str:
    """Return what a file holds, or what the files in it hold."""
    if not zipfile.is_zipfile(file):
        return file.read_text(errors="replace")
    with zipfile.ZipFile(file) as archive:
        return "".join(archive.read(name).decode(errors="replace") for name in archive.namelist())


def test_workers_get_nothing_of_the_source(secure: Secure, tmp_path: Path) -> None:
    read = job(secure.kafka("SASL_SSL"), tmp_path)
    assert MARK in read.source.kafka.access.password  # type: ignore[union-attr, operator]
    assert MARK not in bucket_config_in(read)
    assert "SASL" not in bucket_config_in(read)


def test_a_flipped_byte_of_a_jar_of_the_connector_is_told(spark: SparkSession, tmp_path: Path) -> None:
    uris = spark.sparkContext.getConf().get("spark.jars", "").split(",")
    assert len(uris) == 11
    connectors._require_sound(",".join(uris))
    (original,) = [Path(urllib.parse.urlsplit(uri).path) for uri in uris if "commons-pool2" in uri]
    content = bytearray(original.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "with space" / original.name
    damaged.parent.mkdir()
    damaged.write_bytes(content)
    with pytest.raises(PalearnError, match=rf"^{original.name} is damaged.*, in {damaged.parent}; delete it there"):
        connectors._require_sound(",".join([damaged.as_uri(), *uris]))


def test_a_connector_that_is_there_needs_no_resolver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors, "_FETCHED", tmp_path / "with space")
    (tmp_path / "with space").mkdir()
    given = SparkConf(loadDefaults=False)

    def found(conf: SparkConf) -> dict[str, str]:
        return connectors.settings(conf, kafka=True, s3a=False)

    names = sorted(read_checksums(connectors._CHECKSUMS))
    for name in names:
        assert found(given) == {"spark.jars.packages": connectors.CONNECTOR}
        (tmp_path / "with space" / name).touch()
    ((setting, jars),) = found(given).items()
    assert setting == "spark.jars"
    assert [urllib.parse.unquote(uri) for uri in jars.split(",")] == [
        f"file://{tmp_path}/with space/{name}" for name in names
    ]
    for other in ("spark.jars", "spark.jars.ivy"):
        elsewhere = SparkConf(loadDefaults=False).set(other, "/another")
        assert found(elsewhere) == {"spark.jars.packages": connectors.CONNECTOR}


def test_spark_hides_what_opens_something_of_kafka_s_own_options(spark: SparkSession) -> None:
    hidden = re.compile(spark.sparkContext.getConf().get("spark.redaction.regex", ""))
    for name in ("sasl.jaas.config", "ssl.keystore.key", "ssl.keystore.password", "ssl.key.password"):
        assert hidden.search(f"kafka.{name}")
    for name in ("bootstrap.servers", "security.protocol", "sasl.mechanism", "ssl.truststore.certificates"):
        assert not hidden.search(f"kafka.{name}")


def test_no_text_made_of_a_configuration_shows_a_secret(secure: Secure, tmp_path: Path) -> None:
    options = {"kafka.sasl.jaas.config": MARK}
    read = job(secure.kafka("SASL_SSL") | {"options": options}, tmp_path)
    for shown in (repr(read), str(read.source), f"{read.source.kafka}", str(read.fingerprint)):
        assert MARK not in shown
    assert "jane=doe,jr" in repr(read)
