"""Which paper has which parts, and the running of them."""

import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.papers import arow_curves, arow_noise, arow_synthetic, arow_text, data, pa_mean, pam, spa, two_view
from benchmarks.papers.protocol import SEED, Part
from benchmarks.papers.results import Done, Figure, Results, Table
from palearn.errors import FileFormatError

PARTS: dict[str, list[Part]] = {
    "pam": pam.PARTS,
    "spa": spa.PARTS,
    "pa-mean": pa_mean.PARTS,
    "two-view": two_view.PARTS,
    "arow": [*arow_synthetic.PARTS, *arow_curves.PARTS, *arow_noise.PARTS, *arow_text.PARTS],
}


class Plan(NamedTuple):
    """What is to be run on which folder, and a sentence for each data set that is missing."""

    folder: Path
    ready: list[tuple[str, Part]]
    missing: list[str]


def plan(papers: Sequence[str], folder: Path | None) -> Plan:
    """Return the parts of papers whose data are there.

    Parameters
    ----------
    papers
        Names of :data:`PARTS`.
    folder
        The reader's data sets (:data:`benchmarks.papers.data.SOURCES`); None: those that ship with palearn only.

    Raises
    ------
    FileFormatError
        No part has its data.
    """
    ready: list[tuple[str, Part]] = []
    waiting: dict[str, list[str]] = {}
    for paper in papers:
        for part in PARTS[paper]:
            absent = [name for name in part.sets if data.missing(folder, name)]
            for name in absent:
                waiting.setdefault(name, []).append(f"{paper}, {part.name}")
            if not absent:
                ready.append((paper, part))
    missing = [
        f"{data.SOURCES[name].title} is missing for {'; '.join(parts)}: {data.missing(folder, name)}"
        for name, parts in waiting.items()
    ]
    if not ready:
        raise FileFormatError("\n".join(missing))
    return Plan(folder or Path(), ready, missing)


def run(plan: Plan, progress: Callable[[str, int], None] = lambda what, done: None) -> Results:
    """Run the parts of a plan.

    Parameters
    ----------
    plan
        Of :func:`plan`.
    progress
        Called before each part: what is run, and how many are done.

    Raises
    ------
    FileFormatError
        A file is not what it should be.
    """
    found: dict[str, list[Done]] = {}
    for number, (paper, part) in enumerate(plan.ready):
        progress(f"{paper}, {part.name}", number)
        found.setdefault(paper, []).append(_done(part, plan.folder))
    return Results(_environment(), found, plan.missing)


def _done(part: Part, folder: Path) -> Done:
    began = time.process_time()
    made = list(part.run(folder))
    seconds = round(time.process_time() - began, 1)
    tables, figures = ([x for x in made if isinstance(x, kind)] for kind in (Table, Figure))
    return Done(part.name, seconds, tables, figures)  # type: ignore[arg-type]


def _environment() -> dict[str, Any]:
    packages = ("palearn", "numpy", "scipy", "numba")
    return {"python": platform.python_version(), "seed": SEED, **{name: version(name) for name in packages}}
