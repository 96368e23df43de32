"""The examples run, and show what they say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import notebooks
from tests.asked import KINDS
from tests.tables.test_reading import out  # noqa: F401 - a fixture

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_notebook_prints_what_stands_in_it(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "batch.ipynb").read_text(encoding="utf-8"))
    expected = [notebooks.shown(cell) for cell in notebooks.code_cells(notebook)]
    assert len(expected) == 5
    assert all(expected)
    assert notebooks.run(notebook, tmp_path) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["people.jsonl"]


def cells(text: str) -> set[tuple[str, ...]]:
    """Return the rows of the tables that DuckDB draws."""
    return {tuple(cell.strip() for cell in line.strip("│").split("│")) for line in text.splitlines() if "│" in line}


@pytest.mark.parametrize("arguments", [[], ["c"]])
def test_reading_models_with_duckdb(out: Path, arguments: list[str]) -> None:  # noqa: F811
    command = [sys.executable, EXAMPLES / "read_models_with_duckdb.py", out, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = cells(done.stdout)
    assert {row[:2] for row in found} >= {("arow", "9"), ("pa1", "9")}  # labelled records over all keys
    assert {row[:3] for row in found} >= {("a", "arow", "5"), ("b", "pa1", "3"), ("c", "pa1", "1")}
    assert f"The strongest weights of {arguments[0] if arguments else 'a'!r}." in done.stdout


def test_reading_weights_of_classes_with_duckdb(tmp_path: Path) -> None:
    made = KINDS["multiclass"]
    folder = made.write(tmp_path / "out")
    command = [sys.executable, EXAMPLES / "read_models_with_duckdb.py", folder, "b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = [row for row in cells(done.stdout.partition("strongest")[2]) if re.fullmatch(r"-?\d\.\d+", row[-1])]
    weights = {at: weight for at, (weight, _) in made.expected("b").items()}
    assert len(shown) == 10
    for *at, weight in shown:
        assert float(weight) == round(weights[tuple(at)], 4)
    least = min(abs(float(row[-1])) for row in shown)
    assert sum(abs(weight) > least + 1e-4 for weight in weights.values()) < 10
