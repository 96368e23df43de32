"""``reproduce``: the papers' tables and figures beside ours."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palearn.cli.shared import Json, app, console, print_json, print_rows, progress, save, usage
from palearn.errors import FileFormatError, MissingExtraError

if TYPE_CHECKING:
    from benchmarks.papers.results import Results

#: The papers by the names that :mod:`benchmarks.papers` gives them; the experiments are no part of the wheel.
PAPERS = ("pam", "spa", "pa-mean", "two-view", "arow")


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None, typer.Argument(metavar="PAPER", help=f"{', '.join(PAPERS)}; default: all.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets; default: those that ship.", exists=True, file_okay=False)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures to this folder.", file_okay=False)] = None,
    results: Annotated[
        Path | None, typer.Option(help="Show what --json has printed; run nothing.", exists=True, dir_okay=False)
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write a page, X.md, and its pictures to folder X.")] = None,
    json: Json = False,
) -> None:
    """Measure the tables and figures of the papers: ours beside theirs, and which claims hold.

    With the data that ship it takes about 20 seconds. With all data sets (docs/reproduction.md says where to get them)
    pam takes 30 seconds of one core, spa a minute, pa-mean and two-view 5 seconds, arow 3 minutes.
    """
    if find_spec("benchmarks") is None or find_spec("benchmarks.papers") is None:
        raise MissingExtraError(
            "the papers' experiments are in palearn's repository, not in the installed package: clone it, and give "
            "this command there after make setup"
        )
    if unknown := [paper for paper in papers or () if paper not in PAPERS]:
        usage(f"no paper is called {', '.join(map(repr, unknown))}; there are {', '.join(PAPERS)}")
    if results is not None and (papers or data is not None):
        usage("--results shows what an earlier run has found: leave out the papers and --data")
    if write is not None and write.suffix != ".md":
        usage(f"--write takes the name of a page, X.md, got {str(write)!r}")
    found = _earlier(results) if results is not None else _measured(list(dict.fromkeys(papers or PAPERS)), data)
    if plot is not None or write is not None:
        from benchmarks.papers import page, pictures

        if plot is not None:
            pictures.draw(found, plot)
        if write is not None:
            pictures.draw(found, write.with_suffix(""))
            save(write, page.render(found, write.stem))
    if json:
        from benchmarks.papers.results import plain

        print_json(plain(found))
    else:
        _show(found)


def _earlier(path: Path) -> "Results":
    from benchmarks.papers.results import parse

    try:
        return parse(path.read_bytes())
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from None


def _measured(papers: list[str], data: Path | None) -> "Results":
    from benchmarks.papers import run

    plan = run.plan(papers, data)
    with progress("parts") as bar:
        task = bar.add_task("reading", total=len(plan.ready))
        found = run.run(plan, lambda what, done: bar.update(task, description=what, completed=done))
        bar.update(task, description="measured", completed=len(plan.ready))
    return found


def _show(found: "Results") -> None:
    from benchmarks.papers.page import cell, verdict

    for parts in found.papers.values():
        for part in parts:
            for table in part.tables:
                console.print(f"\n{table.title}: {table.measure}\n{table.differs}", highlight=False)
                rows = []
                for row in table.rows:
                    ours, theirs = cell(row)
                    met = {None: "", True: "yes", False: "no"}[row.met]
                    rows.append(
                        {"": row.of, "learner": row.learner, "paper": theirs, "ours": ours, "within 2 sd": met}
                        | ({"options": row.options} if any(x.options for x in table.rows) else {})
                    )
                print_rows(rows, numbers=("paper", "ours"))
                for claim in table.claims:
                    console.print(verdict(claim), highlight=False)
            for figure in part.figures:
                console.print(f"\n{figure.title} (--plot draws it)\n{figure.shows}", highlight=False)
                for claim in figure.claims:
                    console.print(verdict(claim), highlight=False)
    for sentence in found.missing:
        console.print(f"\n{sentence}", highlight=False)
