"""The papers' figures, drawn of what :mod:`benchmarks.papers.run` found."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.papers.results import Figure, Panel, Results
from palearn.report import plots

#: Of points, so that they are told apart without colour.
_MARKERS = "o^sDv"
#: A picture of lines needs no more colours, and is half of the size.
_COLOURS = 256


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw every figure to the folder, which is made if it is not there; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = [figure for parts in results.papers.values() for part in parts for figure in part.figures]
    return [_draw(figure, folder / f"{figure.name}.png") for figure in figures]


def _draw(figure: Figure, path: Path) -> Path:
    count = len(figure.panels)
    names = dict.fromkeys(line.name for panel in figure.panels for line in panel.lines)
    looks = dict(zip(names, plots.styles(), strict=False))
    alike = len({panel.y_label for panel in figure.panels}) == 1
    with plots.figure(path, columns=count, width=min(4.0 + 3.2 * count, 14.0), shared="xy" if alike else "") as axes:
        told: set[str] = set()
        for place, (panel, own) in enumerate(zip(figure.panels, [axes] if count == 1 else axes, strict=True)):
            _DRAWN[panel.kind](own, panel, looks, told)
            own.set(title=panel.title, xlabel=panel.x_label)
            if place == 0 or not alike:
                own.set_ylabel(panel.y_label)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(_COLOURS)
    small.save(path, optimize=True)
    return path


def _lines(axes: Any, panel: Panel, looks: dict[str, Any], told: set[str]) -> None:
    for line in panel.lines:
        axes.plot(line.x, line.y, label=_once(line.name, told), **looks[line.name])
    axes.set_xlim(left=0)
    axes.xaxis.get_major_locator().set_params(integer=all(x.is_integer() for line in panel.lines for x in line.x))
    if panel.kind == "log":
        axes.set_yscale("log")
        axes.grid(which="both")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")


def _points(axes: Any, panel: Panel, looks: dict[str, Any], told: set[str]) -> None:
    for line, marker in zip(panel.lines, cycle(_MARKERS), strict=False):
        colour = looks[line.name]["color"]
        axes.plot(line.x, line.y, marker, ms=5, mfc="none", color=colour, label=_once(line.name, told))
    axes.axline((100, 100), slope=1, color="#666666", lw=1)


def _boxes(axes: Any, panel: Panel, looks: dict[str, Any], told: set[str]) -> None:
    names = [line.name for line in panel.lines]
    axes.boxplot([line.y for line in panel.lines], whis=(0, 100), tick_labels=names, medianprops={"color": "#D55E00"})
    axes.tick_params(axis="x", rotation=60)


_DRAWN: dict[str, Callable[[Any, Panel, dict[str, Any], set[str]], None]] = {
    "lines": _lines,
    "log": _lines,
    "points": _points,
    "boxes": _boxes,
}


def _once(name: str, told: set[str]) -> str | None:
    """Return a name for the legend the first time, then None."""
    if name in told:
        return None
    told.add(name)
    return name
