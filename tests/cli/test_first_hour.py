"""The errors of a first hour: each is one sentence on standard error that says what, where, and what to do."""

import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j import java_gateway

from palearn import cli
from palearn.cli import failures
from palearn.config import load
from palearn.spark.error_messages import reason

GOOD = """\
source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [mail]}}
learners: [{algorithm: arow, r: 1.0}]
output: {path: out}
checkpoint: checkpoint
"""
FILES: dict[str, bytes] = {
    "good.yaml": GOOD.encode(),
    "broken.yaml": b"source: {kafka: {topics: [a]}\nlearners: [\n",
    "tab.yaml": b"source:\n\tkafka: 1\n",
    "empty.yaml": b"",
    "binary.yaml": b"\xff\xfe\x00",
    "twice.yaml": GOOD.encode() + b"output: {path: other}\n",
    "typo.yaml": GOOD.replace("bootstrap_servers", "bootstrap_server").encode(),
    "learner.yaml": GOOD.replace("arow", "arrow").encode(),
    "parameter.yaml": GOOD.replace("r: 1.0", "C: 1.0").encode(),
    "range.yaml": GOOD.replace("r: 1.0", "r: -1").encode(),
    "text.yaml": GOOD.replace("[mail]", "mail").encode(),
    "missing.yaml": GOOD.replace("checkpoint: checkpoint\n", "").encode(),
    "text.csv": b"a,label\n1,spam\n2,ham\n",
    "class.csv": b"a,class\n1,1\n2,0\n",
    "empty.csv": b"",
    "notes.txt": b"1 a:1\n",
    "bad.jsonl": b'{"label": 1, "features": {"a": 1}\n',
    "folder/a.csv": b"a,label\n1,1\n",
}

#: A command, its status, and parts that its sentence must have.
ERRORS: list[tuple[str, int, list[str]]] = [
    ("evaluate none.csv", 1, ["no file none.csv", "a9a"]),
    ("evaluate folder", 1, ["folder is a folder", "files"]),
    ("evaluate notes.txt", 1, ["notes.txt", "suffix", "--format"]),
    ("evaluate empty.csv", 1, ["empty.csv", "first line must name the columns"]),
    ("evaluate class.csv", 1, ["class.csv", "no label column 'label'", "a, class", "--label"]),
    ("evaluate text.csv", 1, ["text.csv", "labels are text", "'spam' (1)", "'ham' (1)", "--positive"]),
    ("evaluate bad.jsonl --json", 1, ["bad.jsonl", "none of its 1 records", "not_json"]),
    ("evaluate text.csv --positive spam --key user", 1, ["none of its 2 records", "no_key", "--key"]),
    ("evaluate a9a --learner arrow", 1, ["unknown learner 'arrow'", "arow"]),
    ("evaluate a9a --learner pa1 -p c=1", 1, ["pa1: unknown option 'c'", "C"]),
    ("evaluate a9a -p r=abc", 1, ["arow: r must be a finite number > 0", "'abc'"]),
    ("evaluate a9a -p r", 2, ["NAME=VALUE", "'r'"]),
    ("evaluate a9a --lerner pa1", 2, ["--lerner", "--learner"]),
    ("evalute a9a", 2, ["'evalute'", "'evaluate'"]),
    ("produce text.csv", 2, ["--topic"]),
    ("produce none.csv --topic mail", 1, ["no file none.csv"]),
    ("produce text.csv --topic mail --bootstrap-servers 127.0.0.1:1", 1, ["127.0.0.1:1", "palearn broker start"]),
    ("stream", 2, ["--config"]),
    ("stream --config none.yaml", 2, ["none.yaml", "does not exist"]),
    ("stream --config broken.yaml", 1, ["broken.yaml is not YAML (line 2, column 1)"]),
    ("stream --config tab.yaml", 1, ["tab.yaml is not YAML (line 2, column 1)", r"'\t'"]),
    ("stream --config empty.yaml", 1, ["empty.yaml", "source, learners, output and checkpoint"]),
    ("stream --config binary.yaml", 1, ["binary.yaml is no UTF-8 text (byte 0)"]),
    ("stream --config twice.yaml", 1, ["(line 5, column 1)", "'output' stands twice"]),
    ("stream --config typo.yaml", 1, ["source.kafka.bootstrap_server", "did you mean 'bootstrap_servers'?"]),
    ("stream --config learner.yaml", 1, ["learners.0: unknown learner 'arrow'", "arow"]),
    ("stream --config parameter.yaml", 1, ["learners.0: arow: unknown option 'C'; it takes r,"]),
    ("stream --config range.yaml", 1, ["learners.0: arow: r must be a finite number > 0, got -1"]),
    ("stream --config text.yaml", 1, ["source.kafka.topics: expected a list, got text"]),
    ("stream --config missing.yaml", 1, ["missing.yaml: checkpoint is missing"]),
    ("stream --config good.yaml --set source.kafka={}", 1, ["source.kafka.bootstrap_servers is missing"]),
    ("stream --config good.yaml --set trigger=soon", 1, ["trigger.processing_time: expected an interval such as 10s"]),
    ("stream --config good.yaml --set trigger={processing_time: 1w}", 1, ["trigger.processing_time", "such as 10s"]),
    ("stream --config good.yaml --set state.buckets=many", 1, ["state.buckets: expected a whole number, got text"]),
    ("stream --config good.yaml --set records.task=multi", 1, ["records.task: expected binary or multiclass"]),
    ("stream --config good.yaml --set output.models=true", 1, ["output.models: expected false or {} or {"]),
    ("stream --config good.yaml --set learners.5.r=1", 1, ["learners.5.r", "the list ends at 0"]),
    ("stream --config good.yaml --set learners", 1, ["PATH=VALUE"]),
    ("stream --config good.yaml --set source.kafka.starting_offsets=begin", 1, ["starting_offsets: give earliest"]),
    ("stream --config good.yaml", 1, ["no Kafka broker answers at 127.0.0.1:1", "palearn broker start"]),
    ("replay --config good.yaml", 1, ["no Kafka broker answers at 127.0.0.1:1", "palearn broker start"]),
    ("capacity --config good.yaml", 1, ["no Kafka broker answers at 127.0.0.1:1", "palearn broker start"]),
    ("replay --config good.yaml --topic 2024-01-01", 1, ["no Kafka broker answers at 127.0.0.1:1"]),
    ("replay --config good.yaml --from 5", 1, ["start (--from): give earliest, latest", "'5'"]),
    ("replay --config good.yaml --set output.path=folder", 1, ["folder is not empty", "new folder"]),
    ("stream --config good.yaml --set output.path=folder", 1, ["folder is not empty", "choose a new output"]),
    ("models folder", 1, ["folder holds no table 'models'", "output of a palearn job"]),
    ("report folder", 1, ["folder holds no table 'metrics'", "output of a palearn job"]),
    ("report none", 2, ["there is no folder 'none'"]),
    ("state export folder new", 1, ["folder is not the checkpoint", "configuration calls checkpoint"]),
    ("search a9a --grid r", 1, ["--grid takes NAME=VALUES", "'r'"]),
    ("broker start --port 70000", 2, ["--port", "65534"]),
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command in a folder of :data:`FILES`; it returns status, output and error."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["palearn", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        told = capsys.readouterr()
        return end.value.code, told.out, told.err

    return call


@pytest.mark.parametrize(("command", "status", "parts"), ERRORS, ids=[command for command, *_ in ERRORS])
def test_an_error_says_what_and_where_and_what_to_do(run: Any, command: str, status: int, parts: list[str]) -> None:
    found, out, error = run(*re.split(r" (?![^{]*})", command))
    assert (found, out) == (status, "")
    assert "Traceback" not in error
    for part in parts:
        assert part in error
    if status == 1:
        lines = error.splitlines()
        (first,) = [i for i, line in enumerate(lines) if line.startswith("palearn: ")]
        assert all(line.startswith("  ") for line in lines[first + 1 :])  # further faults of the same configuration


def test_a_port_in_use(run: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, error = run("broker", "start", "--port", str(port), "--data", "broker")
    assert status == 1
    assert f"port {port}, for the broker, cannot be had" in error
    assert "--port" in error


@pytest.mark.parametrize(
    ("home", "found"),
    [(None, "there is no java on the PATH"), ("/nowhere", "JAVA_HOME is /nowhere, which has no bin/java")],
    ids=["no Java", "another JAVA_HOME"],
)
def test_a_machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, found: str) -> None:
    """In a process of its own: this one may have a session. Who wants a topic would ask for the broker before."""
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "text.csv").write_bytes(FILES["text.csv"])
    tools = ("bash", "dirname", "env", "ps")
    paths = [next(p for d in os.environ["PATH"].split(os.pathsep) if (p := Path(d) / tool).exists()) for tool in tools]
    for path in paths:
        (tmp_path / path.name).symlink_to(path)
    plain = {name: text for name, text in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment = plain | {"PATH": str(tmp_path)} | ({} if home is None else {"JAVA_HOME": home})
    done = subprocess.run(
        [sys.executable, "-m", "palearn", "replay", "--config", "good.yaml", "--input", "text.csv"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last.startswith(f"palearn: Spark needs Java 17 or 21, and {found}. Install")) == (1, True)


@pytest.mark.parametrize("name", ["root", "py4j.java_gateway"])
def test_tracebacks_of_py4j_are_not_printed_at_ctrl_c(name: str) -> None:
    failures.log_to_stderr()
    entry = logging.LogRecord(name, logging.ERROR, java_gateway.__file__, 1, "while sending command", None, None)
    assert not any(handler.filter(entry) for handler in logging.getLogger().handlers)


#: What Spark writes, in the middle of a page, where the workers' Python is not the driver's.
OTHER_PYTHONS = [
    (
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
        "(Python in worker has different version: 3.12 than that in driver: 3.11)",
    ),
    (
        'Caused by: java.io.IOException: Cannot run program "/none/bin/python": error=2, No such file or directory',
        '(Cannot run program "/none/bin/python")',
    ),
    (
        "Caused by: org.apache.spark.SparkException: \nError from python worker:\n  Traceback",
        "(Error from python worker)",
    ),
    ("ModuleNotFoundError: No module named 'palearn'", "(ModuleNotFoundError: No module named 'palearn')"),
]


@pytest.mark.parametrize(("text", "told"), OTHER_PYTHONS, ids=["version", "no Python", "too old", "no palearn"])
def test_workers_with_another_python(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    sentence = reason(f"[STREAM_FAILED] Query terminated\n\tat a.b.C\n{text}\n\tat d.E", load(tmp_path / "good.yaml"))
    assert told in sentence
    assert "PYSPARK_PYTHON must name" in sentence
    assert "\n" not in sentence
