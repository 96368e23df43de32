"""The page of what :mod:`benchmarks.papers.run` found, Markdown; nothing but the results goes in."""

from collections.abc import Iterator
from urllib.parse import quote

from benchmarks.papers import PAPERS
from benchmarks.papers.data import SOURCES
from benchmarks.papers.results import Claim, Done, Figure, Results, Row, Table

_HEAD = """# The papers' tables and figures, and ours

Written by `palearn reproduce`: do not edit it, run it.

```
.venv/bin/palearn reproduce --data FOLDER --json > results.json        # measure, with the data sets below
.venv/bin/palearn reproduce --results results.json --write PAGE.md     # this page and its pictures
.venv/bin/palearn reproduce arow --plot pictures                       # one paper, with the data that ship with palearn
```

In a table the upper figure of a cell is ours, the lower the paper's, each with its standard deviation over the
repetitions; "-" is a figure that the paper does not print. Ours is **bold** where it is within two standard
deviations of theirs (the paper's, or ours where it prints none). Nothing was tuned towards the paper's figures; each
table says how hyper-parameters were chosen, the results hold them. A claim that does not hold of our figures is said.
"""


def render(results: Results, folder: str) -> str:
    """Return the page; its pictures (:func:`benchmarks.papers.pictures.draw`) lie in ``folder`` beside it."""
    return "\n".join(_lines(results, quote(folder)))


def cell(row: Row | None) -> tuple[str, str]:
    """Return our figure and the paper's as text."""
    if row is None:
        return "", ""
    theirs = "-" if row.published is None else _figure(row.published, row.published_spread)
    return _figure(row.ours, row.spread), theirs


def verdict(claim: Claim) -> str:
    """Return a claim and whether it holds, as text."""
    return f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.figures})"


def _figure(mean: float, spread: float | None) -> str:
    return f"{mean:.5g}" if spread is None else f"{mean:.5g} ± {spread:.3g}"


def _lines(results: Results, folder: str) -> Iterator[str]:
    yield _HEAD
    yield "| paper | claims that hold | that do not | seconds of one core |"
    yield "|---|---|---|---|"
    for paper, parts in results.papers.items():
        held = [claim.holds for claim in _claims(parts)]
        seconds = sum(part.seconds for part in parts)
        yield f"| [{PAPERS[paper].title}](#{paper}) | {sum(held)} | {len(held) - sum(held)} | {seconds:.0f} |"
    yield "\nRun with " + ", ".join(f"{name} {value}" for name, value in results.environment.items()) + "."
    yield "\n## Data\n"
    yield "a9a's training part and Internet Advertisements ship with palearn. The rest is yours to get:\n"
    yield "| data set | files in the folder | from | as |"
    yield "|---|---|---|---|"
    for source in SOURCES.values():
        files = "<br>".join(f"`{file}`" for file in source.files)
        yield f"| {source.title} | {files} | <{source.url}> | {source.form} |"
    for sentence in results.missing:
        yield f"\n{sentence}."
    for paper, parts in results.papers.items():
        yield f"\n## {paper}\n\n{PAPERS[paper].title}. Not here: {_lower(PAPERS[paper].left_out)}"
        for part in parts:
            for table in part.tables:
                yield from _table(table)
            for figure in part.figures:
                yield from _picture(figure, folder)
            yield f"\n({part.part}: {part.seconds:.1f} s)"
    yield ""


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _claims(parts: list[Done]) -> Iterator[Claim]:
    for part in parts:
        for table in part.tables:
            yield from table.claims
        for figure in part.figures:
            yield from figure.claims


def _table(table: Table) -> Iterator[str]:
    yield f"\n### {table.title}\n\n{table.measure[0].upper()}{table.measure[1:]}.\n"
    learners = list(dict.fromkeys(row.learner for row in table.rows))
    yield f"| | {' | '.join(learners)} |"
    yield "|---" * (len(learners) + 1) + "|"
    beside = any(row.published is not None for row in table.rows)
    cells = {(row.of, row.learner): row for row in table.rows}
    for of in dict.fromkeys(row.of for row in table.rows):
        yield f"| {of} | {' | '.join(_cell(cells.get((of, learner)), beside=beside) for learner in learners)} |"
    met = [row.met for row in table.rows if row.met is not None]
    if met:
        yield f"\n{sum(met)} of {len(met)} figures are within two standard deviations. {table.differs}\n"
    else:
        yield f"\n{table.differs}\n"
    yield from _verdicts(table.claims)


def _cell(row: Row | None, *, beside: bool) -> str:
    ours, theirs = cell(row)
    strong = f"**{ours}**" if row is not None and row.met else ours
    return f"{strong}<br>{theirs}" if beside and row is not None else strong


def _picture(figure: Figure, folder: str) -> Iterator[str]:
    yield f"\n### {figure.title}\n\n![{figure.title}]({folder}/{figure.name}.png)\n\n{figure.shows}\n"
    yield from _verdicts(figure.claims)


def _verdicts(claims: list[Claim]) -> Iterator[str]:
    for claim in claims:
        yield f"- {verdict(claim).replace('DOES NOT HOLD', '**does not hold**')}"
