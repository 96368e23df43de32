"""``python -m benchmarks.papers DATA_FOLDER``: each paper's table beside ours.

The data are the reader's (:mod:`benchmarks.papers.data` says which files). One process, fixed seeds, some minutes;
``--only PAPER`` for one paper. A figure that is missed and a claim that does not hold are said, with what differs.
"""

import argparse
import dataclasses
import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from benchmarks.papers import arow, pa_mean, pam, spa, two_view
from benchmarks.papers.protocol import Table

PAPERS: dict[str, Callable[[Path], Iterator[Table]]] = {
    "pam": pam.tables,
    "spa": spa.tables,
    "pa-mean": pa_mean.tables,
    "two-view": two_view.tables,
    "arow": arow.tables,
}


def report(table: Table) -> None:
    """Print a table."""
    print(f"\n{table.title}: {table.measure}\n{textwrap.fill(table.differs, 120)}\n")
    width = max(len(row.name) for row in table.rows)
    print(f"{'':{width}}  {'published':>18}  {'ours':>18}  within 2 deviations")
    for row in table.rows:
        theirs = "-" if row.published is None else _figure(row.published, row.published_spread)
        met = {None: "", True: "yes", False: "no"}[row.met]
        print(f"{row.name:{width}}  {theirs:>18}  {_figure(row.ours, row.spread):>18}  {met:3}  {row.options}")
    for claim in table.claims:
        print(f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.figures})")


def _figure(mean: float, spread: float | None) -> str:
    return f"{mean:.5g}" if spread is None else f"{mean:.5g} ± {spread:.2g}"


def _plain(table: Table) -> dict[str, Any]:
    rows = [dataclasses.asdict(row) | {"met": row.met} for row in table.rows]
    return dataclasses.asdict(table) | {"rows": rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the data sets")
    parser.add_argument("--only", choices=PAPERS, help="one paper")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result: dict[str, Any] = {"environment": environment()}
    for paper in [given.only] if given.only else PAPERS:
        began = time.perf_counter()
        found = []
        try:
            for table in PAPERS[paper](given.folder):
                found.append(_plain(table))
                if not given.json:
                    report(table)
        except FileNotFoundError as missing:
            sys.exit(f"{paper}: {missing}")
        result[paper] = {"seconds": time.perf_counter() - began, "tables": found}
        print(f"{paper}: {result[paper]['seconds']:.0f} s", file=sys.stderr)
    if given.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
