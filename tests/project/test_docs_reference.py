"""The reference pages say all that the code has, and nothing that it has not: keys, columns, reasons, figures."""

import ast
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pyarrow as pa
import pytest
from msgspec import Meta

from palearn import records
from palearn.config.schema import Config
from palearn.learners import LEARNERS, Learner, drift_test
from palearn.learners.hyperparameters import Parameter
from palearn.tables.schemas import BATCHES, TABLES

ROOT = Path(__file__).parents[2]
#: What stands for the name of an entry of a mapping.
ENTRY = "TOPIC"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of tables whose first cell is one name in code."""
    cut = (re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `"))
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cut]


def section(text: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert found, f"no heading {heading!r}"
    return found[1]


def compare(told: dict[str, Any], true: dict[str, Any]) -> None:
    """Fail with the names that are missing, those that do not exist, and those that say something else."""
    differ = {name: (told[name], true[name]) for name in told.keys() & true.keys() if told[name] != true[name]}
    assert (sorted(true.keys() - told.keys()), sorted(told.keys() - true.keys()), differ) == ([], [], {})


# -- configuration -----------------------------------------------------------------------------------------


def structs(kind: Any) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield the structs that a field's type holds, and what stands between the field's path and theirs."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield "", kind
    elif get_origin(kind) is dict:
        yield from ((f".{ENTRY}", struct) for _, struct in structs(get_args(kind)[1]))
    elif get_origin(kind) is not Literal:
        for part in get_args(kind):
            yield from structs(part)


def shown_type(kind: Any) -> str:
    """Return a field's type in the page's words; of a section its name is the keys below it."""
    words = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null", Any: "value"}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "keys"
    if get_origin(kind) is typing.Annotated:
        base, *metas = get_args(kind)
        return " ".join([shown_type(base), *(bounds for meta in metas if (bounds := shown_bounds(meta)))])
    if get_origin(kind) is Literal:
        return ", ".join(f"`{str(word).lower() if isinstance(word, bool) else word}`" for word in get_args(kind))
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(shown_type, get_args(kind)))
    if get_origin(kind) is list:
        return f"list of {shown_type(get_args(kind)[0])}"
    return words[kind] if kind in words else "map"


def shown_bounds(meta: Meta) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    given = ((sign, getattr(meta, name)) for name, sign in signs.items())
    return ", ".join(f"{sign} {bound:,}" for sign, bound in given if bound is not None)


def shown_default(field: Any) -> str:
    """Return a field's default as YAML has it; a table that is on has its options' defaults."""
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    elif field.default is msgspec.NODEFAULT:
        return "needed"
    else:
        value = field.default
    return "`{}`" if isinstance(value, msgspec.Struct) or value == {} else f"`{json.dumps(value).strip(chr(34))}`"


def keys(struct: type[msgspec.Struct], path: str = "") -> dict[str, tuple[str, str]]:
    """Return every key's path with its type and default."""
    out: dict[str, tuple[str, str]] = {}
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        here, kind = f"{path}{field.encode_name}", hints[field.name]
        out[here] = (shown_type(kind), shown_default(field))
        for between, below in structs(kind):
            out |= keys(below, f"{here}{between}.")
    return out


def test_configuration_has_every_key_with_its_type_and_default():
    above, heading, below = page("configuration.md").partition("## Learners")
    found = rows(above + below.partition("Of each learner:")[0])
    assert heading
    assert all(len(row) == 4 and row[3] for row in found)
    compare({name.strip("`"): (kind, default) for name, kind, default, _ in found}, keys(Config))


def options(parameters: Iterable[Parameter]) -> set[tuple[str, str, str]]:
    return {(p.name, p.domain.replace("'", "`"), f"`{json.dumps(p.default).strip(chr(34))}`") for p in parameters}


def test_configuration_has_every_option_of_every_learner():
    found = rows(section(page("configuration.md"), "Learners").partition("Of each learner:")[2])
    told: dict[str, set[tuple[str, str, str]]] = {name: set() for name in LEARNERS}
    for name, domain, default, of, meaning in (row for row in found if len(row) == 5):
        assert meaning
        for learner in re.findall(r"`(\w+)`", of):
            told[learner].add((name.strip("`"), domain, default))
    compare(told, {name: options(row.parameters) for name, row in LEARNERS.items()})
    told_of_drift = {(row[0].strip("`").removeprefix("drift."), *row[1:3]) for row in found if len(row) == 4 and row[3]}
    assert told_of_drift == options(drift_test.PARAMETERS)
    shared = {row[0].strip("`") for row in found if len(row) == 3 and row[2]}
    assert shared == signature(Learner).parameters.keys() - {"task", "options"}


# -- tables and reasons ------------------------------------------------------------------------------------


def shown_column(kind: pa.DataType) -> str:
    return re.sub(r"\b(item|element): ", "", str(kind))


@pytest.mark.parametrize("table", [*TABLES, "batches"])
def test_tables_have_every_column_with_its_type(table):
    found = rows(section(page("tables.md"), f"{table}/"))
    assert all(len(row) == 3 and row[2] for row in found)
    true = {**TABLES, "batches": BATCHES}[table]
    told = {name.strip("`"): kind.strip("`") for name, kind, _ in found}
    compare(told, {column.name: shown_column(column.type) for column in true})
    assert list(told) == true.names


def literals(function: str, position: int) -> set[str]:
    """Return the texts that the package's code gives to calls of a function."""
    found = set()
    for file in (ROOT / "palearn").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == function:
                reason = node.args[position]
                if not isinstance(reason, ast.Starred):  # an error that was made elsewhere, and has travelled
                    assert isinstance(reason, ast.Constant), f"{file}:{node.lineno} has no reason that can be read here"
                    found.add(reason.value)
    return found


def test_every_reason_of_rejected_records_is_told():
    found = rows(section(page("reasons.md"), "rejected/"))
    assert all(len(row) == 3 and row[1] and row[2] for row in found)
    assert [name.strip("`") for name, _, _ in found] == list(records.REASONS)
    assert literals("RecordError", 0) == set(records.REASONS)


def test_every_reason_of_expired_parts_is_told():
    found = rows(section(page("reasons.md"), "expired/"))
    assert all(len(row) == 3 and row[1] and row[2] for row in found)
    assert {name.strip("`") for name, _, _ in found} == literals("_let_go", 3)


# -- choosing ----------------------------------------------------------------------------------------------

RESULTS = ROOT / "benchmarks" / "results"


def figures() -> dict[str, list[str]]:
    """Return each learner's row of the page: its error on each set in %, and what an example costs it."""
    found = json.loads((RESULTS / "choosing-2026-11-28.json").read_text(encoding="utf-8"))
    kernels = json.loads((RESULTS / "kernels-2026-11-28.json").read_text(encoding="utf-8"))["binary"]
    sets = [name for name in found if name not in ("environment", "grids")]
    out = {}
    for learner in found["grids"]:
        cells = []
        for measured in (found[name] for name in sets):
            one = measured["learners"].get(learner)
            text = "" if one is None else f"{100 * one['error']:.2f}"
            tied = one is not None and (one.get("tied") or learner == measured["best"])
            cells.append(f"**{text}**" if tied else text)
        cost = kernels.get(learner, kernels.get(f"{learner} diagonal"))
        out[learner] = [*cells, "" if cost is None else f"{cost['ns an example']:,.0f}"]
    return out


def test_choosing_has_the_figures_that_were_measured():
    told = rows(section(page("choosing.md"), "What was measured"))
    compare({name.strip("`"): cells for name, *cells in told}, figures())
