"""How stores are reached: one description for three libraries, and a sentence for each way that it fails."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from palearn.config import parse
from palearn.config.schema import Storage
from palearn.errors import ConfigError, StoreError, StreamError
from palearn.tables import local_store, object_stores
from palearn.tables.folder import Folder
from palearn.tables.store import Store
from tests.conftest import free_ports
from tests.proxy import proxied
from tests.tables.test_crashes import rows

JOB: dict[str, Any] = {
    "source": {"files": {"path": "-"}}, "learners": [{"algorithm": "pa1"}], "output": {"path": "-"}, "checkpoint": "-",
}  # fmt: skip


def test_a_configuration_becomes_what_three_libraries_want(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*local_store.environment(1), "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    given = Storage(endpoint="https://s3.example.org:9000", region="r", access_key_id="me", secret_access_key="no one")
    for name, value in given.variables().items():
        monkeypatch.setenv(name, value)
    assert object_stores.delta_options("s3://b/x") == {
        "AWS_ENDPOINT_URL": "https://s3.example.org:9000", "AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "no one",
    }  # fmt: skip
    hadoop = object_stores.hadoop_options()
    prefix = "spark.hadoop.fs.s3a."
    assert {hadoop[prefix + name] for name in ("endpoint", "endpoint.region", "access.key", "secret.key")} == {
        "https://s3.example.org:9000", "r", "me", "no one",
    }  # fmt: skip
    assert object_stores.delta_options("/a/disk") is None
    assert "no one" not in repr(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"access_key_id": "x"}, "storage.secret_access_key: a pair of keys is wanted"),
        ({"session_token": "x"}, "storage.session_token: it goes with a pair of keys"),
        ({"endpont": "x"}, "storage.endpont: unknown key 'endpont'; did you mean 'endpoint'?"),
    ],
)
def test_a_section_that_is_wrong_is_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        parse({**JOB, "storage": given})


def test_a_secret_does_not_stand_on_a_command_line() -> None:
    for name in ("secret_access_key", "session_token"):
        with pytest.raises(ConfigError, match=f"--set storage.{name}: every user of this machine"):
            parse(JOB, [f"storage.{name}=x"])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("gs://bucket/x", "Google Cloud Storage is not supported"),
        ("abfss://bucket/x", "Azure is not supported"),
        ("s3://bucket", "is a whole bucket: give a folder in it"),
    ],
)
def test_what_nobody_tested_is_refused(path: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Folder(path)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "does not know the keys for s3://palearn/"),
        ("AWS_ACCESS_KEY_ID", "nobody", "does not know the keys for s3://palearn/"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "does not answer for s3://palearn/"),
        ("AWS_ENDPOINT_URL", "http://s3.example.org", "is without TLS: records and keys could be read"),
        ("AWS_ENDPOINT_URL", "s3.example.org", "a URL is wanted"),
    ],
)
def test_a_store_that_cannot_be_had_is_told_in_a_sentence_soon(
    name: str, value: str, told: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises((StreamError, ConfigError), match=told) as raised:
        object_stores.require_reachable(f"{bucket}/out")
    assert "\n" not in str(raised.value)


def test_a_bucket_that_is_not_there_is_told(bucket: str) -> None:
    object_stores.require_reachable(f"{bucket}/out")
    with pytest.raises(StreamError, match="has no such bucket; make it first"):
        object_stores.require_reachable("s3://nobody/out")


def test_http_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3.example.org")
    for name, value in Storage(allow_http=True).variables().items():
        monkeypatch.setenv(name, value)
    object_stores.require_tls()


def requests(
    format: Any, batches: int, store_port: int, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """Return what a store is asked for by each batch of three tables."""
    found = []
    with proxied(store_port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        store = Store(f"{bucket}/out", format, "owner")
        for batch in range(batches):
            proxy.reset()
            store.begin()
            assert not store.is_whole(batch)
            target = store.target(batch)
            files = {}
            for name, table in rows(batch, 0).items():
                file = target.name("part-0")
                files[f"{name}/{file}"] = store.folder.write_table(table, *target.place(name), file)
            store.commit(batch, {}, files)
            store.totals(batch + 1)
            found.append(list(proxy.log))
    return found


def test_a_batch_of_delta_tables_asks_a_store_as_often_when_the_log_is_long(
    store_port: int, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tables: at most 25 requests to the logs, and one for each file, at batch 45 as at batch 5."""
    asked = requests("delta", 46, store_port, bucket, monkeypatch)
    logs = [sum("_delta_log" in line for line in lines) for lines in asked]
    usual = [number for batch, number in enumerate(logs) if batch > 1 and (batch + 1) % 10]  # the others sum the log up
    assert max(usual) <= 25
    assert set(usual[-5:]) == set(usual[1:6])
    assert sum(logs[10:40]) / 30 <= 40, "with what summing it up takes"
    others = [len(lines) - logged for lines, logged in zip(asked, logs, strict=True)]
    assert max(others[2:]) <= 7, "three files, and the record of the batch"


def test_a_batch_of_plain_tables_asks_a_store_little(
    store_port: int, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests("parquet", 6, store_port, bucket, monkeypatch)
    assert max(len(lines) for lines in asked[2:]) <= 7


def test_the_local_store_outlives_its_starter_and_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(len(local_store.PORTS))
    command = [sys.executable, "-m", "palearn", "store", "start", "--port", str(port), "--data", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name, value in local_store.environment(port).items():
        assert f"export {name}={value}" in told
        monkeypatch.setenv(name, value)
    try:
        assert local_store.status(port, tmp_path).running
        local_store.start(port, tmp_path)  # it runs already
        folder = Folder("s3://palearn/x")
        folder.write_bytes(b"kept", "y")
        with pytest.raises(StoreError, match="cannot be had"):
            local_store.start(port, tmp_path / "other")
    finally:
        assert local_store.stop(port, tmp_path)
    assert not local_store.stop(port, tmp_path)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.05)
    local_store.start(port, tmp_path)
    try:
        assert folder.read_bytes("y") == b"kept"
    finally:
        local_store.stop(port, tmp_path)
