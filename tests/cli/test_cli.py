"""The command line: options, JSON, exit statuses and one-line errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from palearn import cli
from tests.tables.test_reading import out  # noqa: F401 - a fixture

FIELDS = {"learner", "params", "n", "mistakes", "error", "updates", "weight_l2", "seconds"}


def commands() -> list[list[str]]:
    found: list[list[str]] = []

    def walk(group: Any, path: list[str]) -> None:
        found.append(path)
        for name, command in getattr(group, "commands", {}).items():
            walk(command, [*path, name])

    walk(typer.main.get_command(cli.app), [])
    return found


@pytest.fixture
def file(tmp_path: Path) -> str:
    lines = []
    for i in range(40):
        y = 1 if (i * i) % 7 < 3 else -1
        lines.append(
            json.dumps({"label": y, "features": {f"f{(i * 5) % 6}": y, f"g{i % 4}": 0.5, "user": "ab"[i % 2]}})
        )
    path = tmp_path / "examples.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def evaluate(run: Any, file: str) -> Any:
    def call(*options: str) -> dict[str, Any]:
        status, text, error = run("evaluate", file, "--json", *options)
        assert (status, error) == (0, "")
        found: dict[str, Any] = json.loads(text)
        return found

    return call


@pytest.mark.parametrize(
    ("arguments", "reason", "told"),
    [
        (["evaluate", "--plot", "no/x.png"], "cannot be written", True),
        (["evaluate", "--plot", "x.text"], "the suffix must say", True),
        (["search", "--learner", "pa1", "--grid", "C=1", "--write", "no/x.yaml"], "cannot be written", True),
        (["search", "--learner", "pa1", "--grid", "C=1", "--resume", "no/x.jsonl"], "cannot be written", False),
    ],
    ids=["plot", "suffix", "write", "done"],
)
def test_what_cannot_be_written_is_told_in_a_line_beside_the_figures(
    run: Any, file: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str, told: bool
) -> None:
    monkeypatch.chdir(Path(file).parent)
    status, printed, error = run(*arguments, "--json", file)
    assert (status, reason in error, bool(printed)) == (1, True, told)
    assert error.startswith("palearn: ")


@pytest.mark.parametrize(
    "content", ["", '{"label": 1}\n', '{"features": {"f": 1}}\n'], ids=["empty", "bad", "unlabelled"]
)
def test_a_search_of_nothing_chooses_nothing(run: Any, tmp_path: Path, content: str) -> None:
    path, block = tmp_path / "x.jsonl", tmp_path / "x.yaml"
    path.write_text(content)
    status, printed, error = run("search", "--learner", "pa1", "--grid", "C=1", "--write", str(block), str(path))
    assert (status, printed, block.exists()) == (1, "", False)
    assert "no record with a label can be used" in error


def test_a_search_of_one_record_has_none_left(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"label": 1, "features": {"f": 1}}\n')
    status, printed, _ = run("search", "--learner", "pa1", "--grid", "C=1", str(path))
    assert (status, "nan" in printed, "no example is held out" in " ".join(printed.split())) == (0, False, True)


def test_a_broker_is_named_by_its_own_port_and_folder(run: Any, tmp_path: Path) -> None:
    stop, started = ("broker", "stop", "--data", str(tmp_path)), f"-Dpalearn.data={tmp_path}"
    with subprocess.Popen([sys.executable, "-c", "input()", started, "end"], stdin=subprocess.PIPE) as process:
        (tmp_path / "broker.json").write_text(json.dumps({"pid": process.pid, "port": 19470}))
        assert run(*stop)[:2] == (0, "the broker on port 19470 is stopped\n")
    assert run(*stop)[:2] == (0, f"no broker of the folder {tmp_path} runs\n")
    (tmp_path / "file").touch()
    status, _, error = run("broker", "start", "--data", str(tmp_path / "file"))
    assert (status, "cannot be made: File exists" in error) == (1, True)


@pytest.mark.parametrize("path", commands(), ids=lambda path: " ".join(path) or "palearn")
def test_every_command_has_help(path: list[str]) -> None:
    result = CliRunner().invoke(cli.app, [*path, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_the_commands_of_the_contract() -> None:
    names = {" ".join(path) for path in commands()}
    wanted = {
        "broker start",
        "broker stop",
        "broker status",
        "produce",
        "stream",
        "replay",
        "state export",
        "evaluate",
        "models",
        "report",
        "learners",
    }
    assert names >= wanted


def test_evaluate_json(evaluate: Any) -> None:
    found = evaluate("--learner", "pa1", "-p", "C=0.5")
    assert found.keys() >= FIELDS
    assert (found["learner"], found["params"]["C"], found["n"]) == ("pa1", 0.5, 40)
    assert found["error"] == found["mistakes"] / 40
    assert found["updates"] > 0
    assert found["weight_l2"] > 0


def test_evaluate_in_words(run: Any, file: str) -> None:
    status, text, _ = run("evaluate", file, "--learner", "pa1", "--key", "user")
    assert status == 0
    assert "40 examples" in text


def test_options_change_the_figures(evaluate: Any) -> None:
    base = evaluate("--learner", "pa1")
    for options in (["--no-bias"], ["--tie", "positive"], ["--epochs", "2"], ["--shuffle", "1"], ["-p", "C=0.1"]):
        other = evaluate("--learner", "pa1", *options)
        assert (other["mistakes"], other["weight_l2"]) != (base["mistakes"], base["weight_l2"]), options
    assert evaluate("--learner", "pa1", "--epochs", "3")["n"] == 120


def test_shuffle_is_reproducible(evaluate: Any) -> None:
    runs = [evaluate("--shuffle", "5") for _ in range(2)]
    for found in runs:
        del found["seconds"]
    assert runs[0] == runs[1]


def test_key(evaluate: Any) -> None:
    found = evaluate("--key", "user")
    assert set(found["per_key"]) == {"a", "b"}
    for name in ("n", "mistakes", "updates"):
        assert found[name] == sum(counts[name] for counts in found["per_key"].values())


@pytest.mark.parametrize(
    ("given", "value"),
    [("C=2", 2.0), ("C=0.5", 0.5), ("C=1e-3", 0.001), ("C=.25", 0.25), ("C=1E2", 100.0)],
)
def test_p_takes_numbers(evaluate: Any, given: str, value: float) -> None:
    assert evaluate("--learner", "pa1", "-p", given)["params"]["C"] == value


def test_p_takes_words(evaluate: Any) -> None:
    options = ["--learner", "arow", "--task", "multiclass"]
    assert evaluate(*options, "-p", "constraints=all")["params"]["constraints"] == "all"
    found = evaluate(*options, "-p", "constraints=3", "-p", "covariance=full")["params"]
    assert (found["constraints"], found["covariance"]) == (3, "full")


@pytest.mark.parametrize(
    "options",
    [["--learner", "arrow"], ["-p", "r=0"], ["-p", "q=1"], ["--tie", "both"], ["--task", "x"], ["--format", "xml"]],
    ids=lambda options: options[-1],
)
def test_an_error_is_one_line_and_status_1(run: Any, file: str, options: list[str]) -> None:
    status, text, error = run("evaluate", file, *options)
    assert (status, text) == (1, "")
    assert error.startswith("palearn: ")
    assert error.count("\n") == 1


def test_a_missing_file_is_status_1(run: Any, tmp_path: Path) -> None:
    status, _, error = run("evaluate", str(tmp_path / "none.jsonl"))
    assert status == 1
    assert "none.jsonl" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["evalute"],
        ["evaluate"],
        ["evaluate", "x.jsonl", "--no-such-option"],
        ["evaluate", "x.jsonl", "-p", "C"],
        ["evaluate", "x.jsonl", "-p", "C={"],
        ["evaluate", "x.jsonl", "--epochs", "0"],
        ["stream"],
        ["stream", "--config", "none.yaml"],
        ["state", "export", "checkpoint"],
        ["models", "nowhere"],
        ["broker", "start", "--port", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2(run: Any, arguments: list[str]) -> None:
    status, _, error = run(*arguments)
    assert status == 2
    assert "Traceback" not in error


def test_learners(run: Any) -> None:
    status, text, _ = run("learners", "--json")
    assert status == 0
    assert {"pa1", "arow", "two_view_pa"} <= {row["name"] for row in json.loads(text)}
    assert "pa1" in run("learners")[1]


def test_models(run: Any, out: Path) -> None:  # noqa: F811
    status, text, _ = run("models", str(out), "--json")
    assert status == 0
    assert {row["key"]: (row["learners"], row["n_learned"]) for row in json.loads(text)} == {
        "a": (2, 5),
        "b": (2, 3),
        "c": (2, 1),
    }
    found = json.loads(run("models", str(out), "--key", "a", "--learner", "arow", "--top", "2", "--json")[1])
    assert len(found) == 2
    assert {row["learner"] for row in found} == {"arow"}
    assert abs(found[0]["weight"]) >= abs(found[1]["weight"])
    assert found[0]["feature"] in run("models", str(out), "--key", "a")[1]


def test_models_of_a_key_that_is_not_there(run: Any, out: Path) -> None:  # noqa: F811
    status, _, error = run("models", str(out), "--key", "nobody")
    assert status == 1
    assert "nobody" in error


def test_an_export_that_cannot_be_is_told_without_starting_spark(run: Any, tmp_path: Path) -> None:
    status, text, error = run("state", "export", str(tmp_path / "nothing"), str(tmp_path / "out"))
    assert (status, text) == (1, "")
    assert error == (
        f"palearn: {tmp_path / 'nothing'} is not the checkpoint of a streaming job; give the folder that its "
        "configuration calls checkpoint\n"
    )
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/palearn.json").write_text("{}")
    status, text, error = run("state", "export", str(tmp_path / "checkpoint"), str(tmp_path))
    assert (status, text) == (1, "")
    assert error == f"palearn: {tmp_path} is not empty; give the export a new folder\n"


def test_report(run: Any, out: Path, tmp_path: Path) -> None:  # noqa: F811
    status, text, _ = run("report", str(out), "--json", "--plot", str(tmp_path / "p.png"))
    assert status == 0
    found = json.loads(text)
    assert set(found["learners"]) == {"pa1", "arow"}
    for entry in found["learners"].values():
        assert entry.keys() >= {"n", "mistakes", "error"}
        assert entry["error"] == entry["mistakes"] / entry["n"]
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert "all keys" in run("report", str(out))[1]


def test_report_of_another_folder(run: Any, tmp_path: Path) -> None:
    status, _, error = run("report", str(tmp_path))
    assert (status, error.count("\n")) == (1, 1)


def test_in_a_process_of_its_own(file: str) -> None:
    """Status, streams and no traceback, as a shell sees them."""
    command = [sys.executable, "-c", "from palearn.cli import main; main()", "evaluate", file]
    good = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert good.returncode == 0
    assert json.loads(good.stdout)["n"] == 40
    bad = subprocess.run([*command, "-p", "r=-1"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "palearn: arow: r must be a finite number > 0, got -1\n"


def test_produce_refuses_access_that_only_java_understands(run: Any, file: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "source: {kafka: {bootstrap_servers: '127.0.0.1:1', topics: [t], "
        "options: {kafka.security.protocol: SSL, fetchOffset.numRetries: 1}}}\n"
        "learners: [{algorithm: pa1}]\noutput: {path: out}\ncheckpoint: checkpoint\n"
    )
    status, _, told = run("produce", file, "--topic", "t", "--config", str(job))
    assert status == 1
    assert "kafka.security.protocol of source.kafka.options are for Java's client" in told
    assert "source.kafka.access" in told
