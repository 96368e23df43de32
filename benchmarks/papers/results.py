"""What comes of a paper: tables of its figures beside ours, its claims, its pictures' curves; all of it JSON."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from benchmarks.papers import PAPERS
from palearn.errors import FileFormatError

#: A curve keeps at most so many points, of so many digits; a picture shows no more.
_POINTS, _DIGITS = 120, 5


@dataclass(frozen=True)
class Row:
    """A figure of a paper beside ours.

    Parameters
    ----------
    of
        What is measured: the data, the measure or the noise.
    learner
        The paper's name of the learner.
    published, ours
        Their figure (None: not printed) and ours.
    published_spread, spread
        Standard deviations over the repetitions; None: not printed, or one repetition.
    options
        Ours: the hyper-parameters used.
    """

    of: str
    learner: str
    published: float | None
    ours: float
    published_spread: float | None = None
    spread: float | None = None
    options: str = ""

    @property
    def met(self) -> bool | None:
        """Whether ours is within two standard deviations of theirs; ours where theirs is not printed."""
        spread = self.spread if self.published_spread is None else self.published_spread
        if self.published is None or spread is None:
            return None
        return abs(self.ours - self.published) <= 2 * spread


@dataclass(frozen=True)
class Claim:
    """What a paper says of its figures, whether it holds of ours, and by which figures."""

    text: str
    holds: bool
    figures: str


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Parameters
    ----------
    title, measure
        Which one, on which data, and what its figures are.
    differs
        What differs in the data or had to be chosen.
    rows, claims
        The figures, and what the paper says of them.
    """

    title: str
    measure: str
    differs: str
    rows: list[Row]
    claims: list[Claim] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    """A learner's points in a panel; of boxes ``x`` is empty and ``y`` is the values that a box sums up."""

    name: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Parameters
    ----------
    title, x_label, y_label
        Texts.
    lines
        What is drawn, in the order of the legend.
    kind
        ``lines``; ``log``, lines over a logarithmic y; ``points`` and the diagonal, where x and y are equal;
        ``boxes``, one a line, of its quartiles.
    """

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    kind: Literal["lines", "log", "points", "boxes"] = "lines"


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, drawn of our own numbers.

    Parameters
    ----------
    name
        The picture's name without its suffix.
    title
        Which figure of the paper it is like, and on which data.
    shows
        What it shows, and what differs from the paper's.
    panels
        Side by side; the same learner looks the same in each.
    claims
        What the paper says of its figure.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+$")]
    title: str
    shows: str
    panels: list[Panel]
    claims: list[Claim] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    """What one part of a paper gave, and its seconds of processor time."""

    part: str
    seconds: float
    tables: list[Table]
    figures: list[Figure]


@dataclass(frozen=True)
class Results:
    """What was run.

    Parameters
    ----------
    environment
        Versions and the seed.
    papers
        Each paper's parts.
    missing
        A sentence for each data set that was missing: which parts were not run, and how to get it.
    """

    environment: dict[str, Any]
    papers: dict[str, list[Done]]
    missing: list[str] = field(default_factory=list)


def curve(name: str, y: Any, x: Any = None) -> Line:
    """Return a line of at most 120 points, evenly chosen, with the last one; ``x`` counts from 1 unless given."""
    y = np.asarray(y, np.float64)
    x = np.arange(1, y.size + 1) if x is None else np.asarray(x, np.float64)
    kept = np.unique(np.linspace(0, y.size - 1, min(_POINTS, y.size)).round().astype(np.int64))
    return Line(name, _rounded(x[kept]), _rounded(y[kept]))


def box(name: str, values: Any) -> Line:
    """Return the values that a box sums up."""
    return Line(name, [], _rounded(np.asarray(values, np.float64)))


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values.tolist()]


def plain(results: Results) -> dict[str, Any]:
    """Return results as JSON has them: with ``met`` in each row."""
    out = asdict(results)
    for paper, parts in results.papers.items():
        for i, part in enumerate(parts):
            for j, table in enumerate(part.tables):
                for row, written in zip(table.rows, out["papers"][paper][i]["tables"][j]["rows"], strict=True):
                    written["met"] = row.met
    return out


def parse(text: bytes) -> Results:
    """Return the results that a run has written with ``--json``.

    Raises
    ------
    FileFormatError
        The text is something else.
    """
    try:
        results = msgspec.json.decode(text, type=Results)
    except msgspec.MsgspecError as error:
        raise FileFormatError(f"these are no results of palearn reproduce --json: {error}") from None
    if unknown := results.papers.keys() - PAPERS.keys():
        raise FileFormatError(f"these results are of papers that palearn does not know: {sorted(unknown)}")
    return results
