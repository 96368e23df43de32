"""``palearn init``: what it writes loads, says what the sample holds, and learns the sample's records."""

import csv
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from palearn.cli import app
from palearn.config import load, parse
from palearn.config.short_forms import BOOTSTRAP
from palearn.errors import ConfigError, PalearnError
from tests.outputs import Job
from tests.report.test_report import batches
from tests.streams import learner, plan


def init(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["init", *arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(BOOTSTRAP, raising=False)
    chance = random.Random(1)
    with Path("my orders.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["shop", "outcome", "price", "device"])
        for _ in range(200):
            price = chance.randrange(100)
            outcome = "bought" if price < 30 else "left"
            out.writerow([f"s{chance.randrange(5)}", outcome, price, chance.choice(["phone", "desk"])])
    return Path("my orders.csv")


def test_a_file_becomes_a_configuration_that_loads(orders: Path) -> None:
    init(str(orders), "--key", "shop", "--label", "outcome", "--write", "job.yaml")
    config, text = load("job.yaml"), Path("job.yaml").read_text(encoding="utf-8")
    assert config.source.kafka is not None
    assert (config.source.kafka.bootstrap_servers, config.source.kafka.topics) == ("127.0.0.1:9092", ["my-orders"])
    assert (config.records.positive, config.records.task, config.records.key) == ("bought", "binary", "record")
    assert [x.name for x in config.make_learners()] == ["arow", "pa1"]
    assert "palearn produce 'my orders.csv' --topic my-orders --key shop --label outcome" in text
    again = CliRunner().invoke(app, ["init", str(orders), "--label", "outcome", "--write", "job.yaml"])
    assert again.exit_code == 2  # it does not write over a file


def test_each_suggestion_that_is_a_comment_loads_too(orders: Path) -> None:
    lines = init(str(orders), "--label", "outcome").splitlines()
    suggested = [i for i, line in enumerate(lines) if line.lstrip().startswith("# ") and ": " in line and i > 8]
    assert len(suggested) == 5
    for i in suggested:
        parse(yaml.safe_load("\n".join([*lines[:i], lines[i].replace("# ", "", 1), *lines[i + 1 :]])))


@pytest.mark.parametrize(
    ("labels", "task", "positive"),
    [([1, -1], "binary", None), ([True, False], "binary", None), (["a", "b", "c"], "multiclass", None),
     ([1, 2], "binary", 1), (["no", "no", "yes"], "binary", "yes")],
)  # fmt: skip
def test_the_task_is_that_of_the_labels(orders: Path, labels: list[object], task: str, positive: object) -> None:
    records = [{"label": label, "features": {"x": i}} for i, label in enumerate(labels)] * 3
    Path("r.jsonl").write_text("\n".join(map(json.dumps, records)))
    config = parse(yaml.safe_load(init("r.jsonl")))
    assert (config.records.task, config.records.positive) == (task, positive)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["nothing.csv"], "there is no file"), (["my orders.csv"], "no label column"),
     (["empty.jsonl"], "no record of empty.jsonl has a label")],
)  # fmt: skip
def test_faults_are_sentences(orders: Path, arguments: list[str], told: str) -> None:
    Path("empty.jsonl").write_text('{"features": {"x": 1}}\n')
    with pytest.raises(PalearnError, match=told):
        CliRunner().invoke(app, ["init", *arguments], catch_exceptions=False)


def test_brokers_of_the_environment_and_a_trigger_in_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {
        "source": {"kafka": {"topics": ["t"]}}, "learners": [{"algorithm": "arow"}], "output": {"path": "o"},
        "checkpoint": "c", "trigger": "10s",
    }  # fmt: skip
    monkeypatch.delenv(BOOTSTRAP, raising=False)
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        parse(json.loads(json.dumps(tree)))
    monkeypatch.setenv(BOOTSTRAP, "kafka:9093")
    config = parse(json.loads(json.dumps(tree)))
    assert config.source.kafka is not None
    assert config.source.kafka.bootstrap_servers == "kafka:9093"
    assert config.trigger.interval == "10 seconds"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="trigger"):
        parse({**tree, "trigger": "often"})


def test_predict_reads_standard_input(tmp_path: Path) -> None:
    Job(tmp_path, plan(learner("arow"), window=5)).run(batches(("a",), 1))
    line = b'{"features": {"x": 1}}\n'
    command = [sys.executable, "-m", "palearn", "predict", str(tmp_path), "-"]
    done = subprocess.run(command, input=line, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["line"] == 1
