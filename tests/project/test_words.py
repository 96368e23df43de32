"""What a user reads has the field's words: pages, help texts, messages, dashboards.

Each entry is an expression that was house slang once, and what is written instead.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from palearn.cli import app

ROOT = Path(__file__).parents[2]
INSTEAD = {
    r"\bfates?\b|\bbec(a|o)mes? of\b": "record status, outcome",
    r"\brac(e|es|ed|ing)\b(?! condition)": "compared side by side",
    r"\banew\b": "is reset; again",
    r"\b(told|tells?) of\b|\bnobody is told\b|\bis told\b|\bare told\b|\bboth told\b": "detected; is reported",
    r"(%|%%)\s*wrong\b": "error 11.93 %",
    r"\baccounts\b|\baccounted\b|\bthe account\b": "batches, counts",
    r"\b(in|of the|all|its|other) parts\b|\bparts? that\b|\ba part of an example\b": "fragments",
    r"\b(what|that|parts?) waits?\b|\bwaits for its\b|\bwaiting (parts?|examples?)\b": "pending fragments",
    r"\brooms?\b": "join buffer; packages",
    r"\bassembl(y|e|es|ed|ing)\b": "join",
    r"\bto the (last )?bit\b": "bit-identical",
    r"\bon paper\b": "capacity estimate",
    r"\bwithout a price\b|\bprice of (a |dis)|'s price\b|\bthe price of\b": "unregularised; penalty",
    r"\b(that (is|are)|is|are) none\b(?! of\b)": "a subject and a plain negation",
    r"noise's reach|\btold (apart|from)\b": "statistically different",
    r"\bwhere [\w' ]+ stands?\b|\brecords? stands?\b": "position",
    r"(?<!standard )\bdeviations\b": "z-score",
    r"\bchose_n\b|\bchose nothing\b|\bdid not choose\b": "hold-out; tune_n, test_n",
    r"\berror that is certain\b": "lower confidence bound",
    r"\bonce and whole\b": "atomic, exactly once",
    r"\blets? (one|anyone|somebody) in\b|\bnobody listens\b|\bno one listens\b": "security settings; no broker accepts",
    r"\bintake\b|\bshortcuts?\b": "validation; fast path",
    r"\bthird one\b": "unexpected third label",
    r"\bbegan with other\b|\brestore them\b": "differs from the checkpoint's",
    r"\bfiles of old batches\b": "compacted",
    r"\bpalearn tune\b|--done\b": "palearn capacity, --resume",
    r"\bgrows? sure\b|\bsure of (its|the|their|each)\b": "confident; low variance",
}
#: The papers' page is made of measured results, and of claims in the papers' words.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "docker/README.md")),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "reproduction.md"),
    *sorted((ROOT / "conf").glob("*.yaml")),
    ROOT / "palearn/report/page.html",
    *sorted((ROOT / "docker").rglob("*.y*ml")),
]


def found_in(text: str) -> Iterator[str]:
    for pattern, instead in INSTEAD.items():
        for match in re.finditer(pattern, text, flags=re.IGNORECASE):
            near = " ".join(text[max(0, match.start() - 30) : match.end() + 30].split())
            yield f"{text.count(chr(10), 0, match.start()) + 1}: …{near}… ({instead})"


def helps() -> Iterator[tuple[str, str]]:
    """Yield every command's name, and its help with that of its options."""
    stack = [("palearn", typer.main.get_command(app))]
    while stack:
        name, command = stack.pop()
        yield name, "\n".join([command.help or "", *(getattr(x, "help", None) or "" for x in command.params)])
        stack += [(f"{name} {child}", value) for child, value in getattr(command, "commands", {}).items()]


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the sentences in a module's strings that are no docstrings: messages, headings, labels of plots."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages(page: Path) -> None:
    assert list(found_in(page.read_text(encoding="utf-8"))) == []


def test_help_texts() -> None:
    assert [f"{name} {found}" for name, text in helps() for found in found_in(text)] == []


def test_messages() -> None:
    files = [file for file in (ROOT / "palearn").rglob("*.py") if "papers" not in file.parts]
    assert [
        f"{file.relative_to(ROOT)}:{line} {found}"
        for file in sorted(files)
        for line, text in texts(file)
        if " " in text
        for found in found_in(text)
    ] == []


def test_the_dashboard() -> None:
    def strings(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for child in value.values() if isinstance(value, dict) else value:
                yield from strings(child)

    dashboard = json.loads((ROOT / "docker/grafana/palearn.json").read_text(encoding="utf-8"))
    assert [found for text in strings(dashboard) for found in found_in(text)] == []


@pytest.mark.parametrize("text", ["learners race", "11.93 % wrong", "it begins anew", "equal to the last bit"])
def test_the_search_finds(text: str) -> None:
    assert list(found_in(text))
