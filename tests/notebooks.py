"""Notebooks as tests: run the code of one in a process, and compare what it prints with what stands in it.

``python -m tests.notebooks examples/batch.ipynb`` writes what its code prints into it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Runs cells in one scope, as a kernel does; what each prints is told apart.
_RUN = """
import contextlib, io, json, sys
scope = {"__name__": "__main__"}
told = []
for number, code in enumerate(json.load(sys.stdin), 1):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, f"cell {number}", "exec"), scope)
    told.append(out.getvalue())
print(json.dumps(told))
"""


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    """Return what a cell is shown to print."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def run(notebook: dict[str, Any], folder: Path) -> list[str]:
    """Return what each cell of code prints, run one after the other in a process of its own in ``folder``."""
    cells = ["".join(cell["source"]) for cell in code_cells(notebook)]
    done = subprocess.run(
        [sys.executable, "-c", _RUN], input=json.dumps(cells), capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell, told in zip(code_cells(notebook), run(notebook, path.parent), strict=True):
        stream = {"output_type": "stream", "name": "stdout", "text": told.splitlines(keepends=True)}
        cell["outputs"] = [stream] if told else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
