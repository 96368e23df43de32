"""Which Spark palearn runs on: asked before anything starts, of Python, of Java and of the Kafka connector."""

import logging
import tomllib
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from palearn import cli
from palearn.config import parse
from palearn.errors import PalearnError, StreamError
from palearn.spark import connectors, operator, release, session

ROOT = Path(__file__).parents[2]
GOOD = """\
source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [t]}}
learners: [{algorithm: pa1}]
output: {path: out}
checkpoint: checkpoint
"""


@pytest.mark.parametrize("command", ["stream", "replay"])
def test_a_spark_that_is_too_old_is_told_before_it_starts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "NUMBER", (3, 5, 9))
    monkeypatch.setattr(session.SparkSession, "builder", None)  # nothing is built
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "people.jsonl").write_text("")
    files = ["--input", "people.jsonl", "--set", "records.key.constant=all"] if command == "replay" else []
    told = r"^this is Spark .*; palearn needs Spark 4\.0 or newer, before 5: pip install "
    with pytest.raises(PalearnError, match=told):
        cli.app([command, "--config", "good.yaml", *files], standalone_mode=False)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["good.yaml", "people.jsonl"]


def test_java_s_spark_must_be_python_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    release.require_release()
    (tmp_path / f"jars/spark-core_2.13-{release.RELEASE}-amzn-1.jar").touch()
    release.require_release()
    (tmp_path / "jars/spark-core_2.12-3.5.1-amzn-0.jar").touch()
    with pytest.raises(StreamError, match=r"^Java runs Spark 3\.5\.1-amzn-0 \(SPARK_HOME is .*, let it name that one$"):
        release.require_release()
    with pytest.raises(StreamError, match=r"or pip install pyspark==4\.0\.99$"):
        release.require_same("4.0.99")


@pytest.mark.parametrize(
    ("spark", "connector", "told"),
    [
        ((4, 2, 1), "4.2.0", None),  # maintenance releases fit each other
        ((4, 3, 0), "4.2.0", "the Kafka connector is that of Spark 4.2.0, and this is Spark"),
        ((4, 2, 0), None, None),
    ],
)
def test_a_connector_of_the_same_release_is_taken(
    spark: tuple[int, ...], connector: str | None, told: str | None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(connectors, "NUMBER", spark)
    with caplog.at_level(logging.WARNING, "palearn.spark"):
        connectors._require_fitting(connector)
    assert [x.getMessage()[: len(told or "")] for x in caplog.records] == [told] * (told is not None)


@pytest.mark.parametrize(("spark", "theirs"), [((4, 1, 4), "4.2.0"), ((4, 2, 0), "4.0.1"), ((4, 3, 0), "4.1.1")])
def test_a_connector_of_another_release_is_refused(
    spark: tuple[int, ...], theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "NUMBER", spark)
    with pytest.raises(
        StreamError, match=rf"^the Kafka connector is that of Spark {theirs}, and this is Spark .*--pack"
    ):
        connectors._require_fitting(theirs)


def test_a_worker_of_another_version_says_so() -> None:
    config = parse({"source": {"files": {"path": "-"}}, "learners": [{"algorithm": "pa1"}], "output": {"path": "-"}, "checkpoint": "-"})  # fmt: skip # noqa: E501
    described = msgspec.json.decode(operator.bucket_config_in(config))
    assert operator.bucket_config_of(msgspec.json.encode(described).decode()).learners[0].name == "pa1"
    for name, other in (("palearn", "0.0.9"), ("pyspark", "4.0.1")):
        changed = msgspec.json.encode(described | {name: other}).decode()
        with pytest.raises(StreamError, match=r"^a worker has palearn .*, the driver .*: install the same on every"):
            operator.bucket_config_of(changed)


def test_the_extra_declares_the_same_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = map(Requirement, project["optional-dependencies"]["spark"])
    assert str(wanted.specifier) == f"<{release.BEFORE[0]},>={'.'.join(map(str, release.OLDEST))}"
    assert release.OLDEST <= release.NUMBER[:2] <= release.TESTED < release.BEFORE


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0-amzn-1", "4.2.0.dev3", "4.2.0.1.cdh"])
def test_numbers_are_read_of_what_distributions_call_theirs(version: str) -> None:
    assert release.number(version) == (4, 2, 0)
