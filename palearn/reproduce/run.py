"""Which paper has which parts, and the running of them."""

import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from palearn.errors import FileFormatError
from palearn.reproduce import arow_curves, arow_noise, arow_synthetic, arow_text, data, pa_mean, pam, spa, two_view
from palearn.reproduce.protocol import SEED, Part
from palearn.reproduce.results import Done, Figure, Results, Table

PAPERS: dict[str, list[Part]] = {
    "pam": pam.PARTS,
    "spa": spa.PARTS,
    "pa-mean": pa_mean.PARTS,
    "two-view": two_view.PARTS,
    "arow": [*arow_synthetic.PARTS, *arow_curves.PARTS, *arow_noise.PARTS, *arow_text.PARTS],
}


def run(
    papers: Sequence[str], folder: Path | None, progress: Callable[[str, int, int], None] = lambda what, done, of: None
) -> Results:
    """Run the parts of papers whose data are there.

    Parameters
    ----------
    papers
        Names of :data:`PAPERS`.
    folder
        The reader's data sets (:data:`palearn.reproduce.data.SOURCES`); None: those that ship with palearn only.
    progress
        Called before each part and after the last one: what is run, how many are done, how many there are.

    Raises
    ------
    FileFormatError
        No part can be run, or a file is damaged.
    """
    wanted = [(paper, part, data.missing(folder, part.sets)) for paper in papers for part in PAPERS[paper]]
    ready = [(paper, part) for paper, part, absent in wanted if not absent]
    missing = [f"{paper}, {part.name} needs {'; '.join(absent)}" for paper, part, absent in wanted if absent]
    if not ready:
        raise FileFormatError("\n".join(missing))
    found: dict[str, list[Done]] = {}
    for number, (paper, part) in enumerate(ready):
        progress(f"{paper}, {part.name}", number, len(ready))
        found.setdefault(paper, []).append(_done(part, folder or Path()))
    progress("done", len(ready), len(ready))
    return Results(_environment(), found, missing)


def _done(part: Part, folder: Path) -> Done:
    began = time.process_time()
    made = list(part.run(folder))
    seconds = round(time.process_time() - began, 1)
    tables, figures = ([x for x in made if isinstance(x, kind)] for kind in (Table, Figure))
    return Done(part.name, seconds, tables, figures)  # type: ignore[arg-type]


def _environment() -> dict[str, Any]:
    packages = ("palearn", "numpy", "scipy", "numba")
    return {"python": platform.python_version(), "seed": SEED, **{name: version(name) for name in packages}}
