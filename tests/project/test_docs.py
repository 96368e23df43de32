"""What the documents say is so: commands exist, configurations load, the learners' table is the code's."""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from palearn import files
from palearn.cli import app
from palearn.config import load, parse
from palearn.evaluate.prequential import Examples, compare, settings_of
from palearn.learners import LEARNERS, Learner
from palearn.learners.registry import SECOND_ORDER
from palearn.records import decode_value, encode

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
README = PAGES["README.md"]
COMMANDS = list(dict.fromkeys(x for text in PAGES.values() for x in re.findall(r"\.venv/bin/palearn ([^`\n]+)", text)))


def blocks(language: str, text: str = README) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    return list(map(textwrap.dedent, found))


def test_the_pages_have_commands():
    assert len(COMMANDS) >= 18


def command_of(words: list[str]) -> Any:
    """Return the command that words begin with, and take its name from them."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands, f"palearn has no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    return command


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line, tmp_path, monkeypatch):
    """Each names a command and options that exist; files it names are made, and nothing is run."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(re.split(r" [#>|]", line)[0])
    for word in words:
        if word.endswith((".csv", ".json", ".yaml")):
            Path(word).touch()
    for folder in ("out", "exported", "checkpoint", "replayed", "FOLDER"):
        Path(folder).mkdir()
    Path("FILE").touch()
    command = command_of(words)
    command.make_context(command.name, words)


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_are_mentioned_exist_with_their_options(name):
    for mention in re.findall(r"`palearn ([^`]+)`", PAGES[name]):
        words = shlex.split(mention)
        command = typer.main.get_command(app) if words[0].startswith("--") else command_of(words)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, mention


@pytest.mark.parametrize("name", [name for name in PAGES if name != "README.md"])
def test_configurations_of_the_pages_load(name):
    for text in blocks("yaml", PAGES[name]):
        tree = yaml.safe_load(text)
        if "source" in tree:  # the others show a part
            assert parse(tree).make_learners()


def test_first_steps_have_the_figures_that_they_lead_to(tmp_path, monkeypatch):
    """The file, the errors of ``evaluate`` on it, and the form of its records."""
    page = PAGES["docs/first-steps.md"]
    (code, producer), (record,) = blocks("python", page), blocks("json", page)
    compile(producer, "producer.py", "exec")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "deliveries.py", "exec"), {})
    told = re.search(r"([0-9.]+) % for `arow`,\s+([0-9.]+) % for `pa1`", page)
    assert told
    examples = Examples("deliveries.csv", files.ReadOptions(label="outcome", key="depot"))
    found = compare(examples, settings_of(positive="late"), [Learner(name, name) for name in ("arow", "pa1")])
    assert tuple(f"{100 * x['error']:.1f}" for x in found.figures(per_key=False)) == told.groups()
    first = next(line.value for line in files.lines("deliveries.csv", label="outcome", key="depot"))
    assert decode_value(encode(first)).features == decode_value(record.encode()).features


def test_readme_jobs_and_targets_exist():
    for job in re.findall(r"jobs/\w+\.py", README):
        assert (ROOT / job).is_file()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?<=[`\n])make (\w+)", README)
    assert {"demo", "test", "lint"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"no target {target}"


def test_readme_records_and_configuration_are_valid():
    (record,) = blocks("json")
    assert decode_value(record.encode()).label == "spam"
    (text,) = blocks("yaml")
    config = parse(yaml.safe_load(text))
    assert [learner.name for learner in config.make_learners()] == ["arow", "careful"]


def test_join_records_and_configuration_are_valid():
    text = (ROOT / "docs/join.md").read_text(encoding="utf-8")
    (lines,) = blocks("json", text)
    features, label = [decode_value(line.encode()) for line in lines.splitlines()]
    assert features.id == label.id
    whole, assembly = blocks("yaml", text)
    config = parse(yaml.safe_load(whole))
    plain = parse({**yaml.safe_load(whole), **yaml.safe_load(assembly)})
    assert plain == config  # the bounds that the page shows are the defaults
    for topic, example in re.findall(r"^ +(\w+): \{.*# (\{.*\})$", whole, flags=re.MULTILINE):
        assert decode_value(example.encode(), config.forms[topic]).id == 7


def test_readme_python_runs():
    (code,) = blocks("python")
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["m"].predict_one({"free": 1}) == "spam"


def test_learners_are_listed_with_their_options():
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|", PAGES["docs/learners.md"], flags=re.MULTILINE))
    assert list(rows) == list(LEARNERS)
    second_order = {parameter.name for parameter in SECOND_ORDER}
    for name, options in rows.items():
        named = set(re.findall(r"`(\w+)`", options)) | (second_order if "second order" in options else set())
        assert named == {parameter.name for parameter in LEARNERS[name].parameters}, name


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.yaml")), ids=lambda path: path.name)
def test_configurations_load(path):
    assert load(path).make_learners()


def test_every_command_has_help():
    groups = [typer.main.get_command(app)]
    for group in groups:
        for command in group.commands.values():
            assert command.help, f"palearn {command.name} has no help"
            if hasattr(command, "commands"):
                groups.append(command)
