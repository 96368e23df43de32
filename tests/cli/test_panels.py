"""Help: groups of commands and options, an example for each command, lines that fit a terminal."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.cells import cell_len
from typer.testing import CliRunner

from palearn.cli import app
from palearn.cli.panels import COMMANDS, EXAMPLES

GROUP = typer.main.get_command(app)


def commands(group: Any = GROUP, path: str = "") -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        whole = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, whole)
        else:
            yield whole, command


def test_without_a_command_there_are_groups_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = CliRunner().invoke(app, [])
    assert found.exit_code == 0
    places = [found.output.index(f"─ {panel} ─") for panel in COMMANDS]
    assert places == sorted(places)
    assert "─ Commands ─" not in found.output  # where a command is shown that no group has


def test_every_command_has_an_example_and_its_options_groups() -> None:
    there = dict(commands())
    assert there.keys() <= EXAMPLES.keys()
    for name, command in there.items():
        assert all(line in command.epilog for line in EXAMPLES[name]), name
    panels = {x.opts[-1]: x.rich_help_panel for x in there["evaluate"].params}
    first = {"--param", "--learner", "--label", "--positive", "--key", "--task"}
    assert {name for name, panel in panels.items() if panel is None and name.startswith("-")} == first


@pytest.mark.parametrize("line", [line for name in dict(commands()) for line in EXAMPLES[name]])
def test_examples_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line.partition(" <")[0])
    assert program == "palearn"
    for word in words:
        if word.endswith((".csv", ".jsonl", ".yaml")):
            Path(word).touch()
    for folder in ("out", "checkpoint"):
        Path(folder).mkdir()
    command = GROUP
    while hasattr(command, "commands"):
        command = command.get_command(None, words.pop(0))
    command.make_context(line, words)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", dict(commands()))
def test_help_fits(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    found = CliRunner().invoke(app, [*name.split(), "--help"])
    assert found.exit_code == 0
    assert max(map(cell_len, found.output.splitlines())) <= width
