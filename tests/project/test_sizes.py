"""How long files and functions of the package may be; exceptions are named with their reason."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "palearn"
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 50
#: Kernels that take 1.2 and 2.3 times as long where their loop calls functions that are given its arrays.
LONG = {"class_means", "agreeing_views"}


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines a function's body has; a command's options and a docstring are no code."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LINES_OF_A_FILE
    functions = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {function.name: _lines(function) for function in functions if function.name not in LONG}
    assert {name: count for name, count in lines.items() if count > LINES_OF_A_FUNCTION} == {}
