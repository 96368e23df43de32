"""The page's charts. A line's number stands at its end: the page says whose it is, and no name is in a drawing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from palearn.report import plots
from palearn.types import FloatArray

#: Quantiles of a distribution that are shown: of its whiskers, its box, and its middle.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Between the numbers at the lines' ends, as a share of the chart's height.
_GAP = 0.075
#: Between the ticks of a scale.
_STEPS = (1, 2, 5, 10)
#: Lines of so few points show them.
_FEW = 12

#: Of a line: its number, where its points stand, and how high.
Line = tuple[int, FloatArray, FloatArray]


def lines(label: str, drawn: Sequence[Line], x: str, kind: str = "share", *, small: bool = False) -> str:
    """Return a chart of lines; number 0 is the baseline's. Points that are NaN are left out.

    Heights are of a ``kind``: ``share`` (in %), ``count`` or ``number``.
    """

    def draw(axes: Any) -> None:
        ends = []
        for number, at, height in drawn:
            style = _style(number)
            kept = np.isfinite(height)
            px, py = at[kept], height[kept]
            axes.plot(px, py, marker="o" if px.size <= _FEW else None, ms=3, clip_on=False, **style)
            for place, value in zip(px.tolist(), py.tolist(), strict=True):
                plots.say(axes, place, value, _said(number, place, value, kind))
            if py.size:
                ends.append((float(py[-1]), str(number), style["color"]))
        axes.set_xlim(0, max([1.0, *(float(np.max(at, initial=0.0)) for _, at, _ in drawn)]) * 1.02)
        axes.set_ylim(0, max(float(np.nanmax(height, initial=0.0)) for _, _, height in drawn) * 1.05 or 1.0)
        axes.set_xlabel(x)
        _scales(axes, kind)
        if len(ends) > 1:
            _number(axes, ends)

    return plots.inline(draw, label, *((300, 180) if small else (380, 240)))


def _said(number: int, place: float, value: float, kind: str) -> str:
    """Return a point's figures: of which line, how high, and where."""
    height = {"share": f"{100 * value:.2f} %", "count": f"{value:,.0f}", "number": f"{value:,.3f}"}[kind]
    return f"{number}: {height} at {place:,.0f}"


def boxes(label: str, quantiles: Sequence[FloatArray], x: str) -> str:
    """Return a chart of distributions, a row each, numbered from 0: :data:`QUANTILES` of shares."""

    def draw(axes: Any) -> None:
        for number, (low, left, middle, right, high) in enumerate(quantiles):
            style = _style(number)
            colour = style["color"]
            axes.hlines(number, low, high, color=colour, lw=1.4)
            axes.vlines([low, high], number - 0.15, number + 0.15, color=colour, lw=1.4)
            axes.barh(number, right - left, 0.5, left, facecolor="none", edgecolor=colour, lw=1.4)
            axes.vlines(middle, number - 0.25, number + 0.25, color=colour, lw=3)
        axes.set_yticks(range(len(quantiles)), [str(number) for number in range(len(quantiles))])
        axes.set_ylim(len(quantiles) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel(x)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_formatter(_percent())

    return plots.inline(draw, label, height=90 + 26 * len(quantiles))


def styles(count: int) -> list[dict[str, Any]]:
    """Return the styles of the baseline and of ``count`` learners, as they are numbered."""
    return [_style(number) for number in range(count + 1)]


def _style(number: int) -> dict[str, Any]:
    if number == 0:
        return {"color": plots.INK, "ls": "-", "lw": 1.0}
    return next(style for i, style in enumerate(plots.styles(), start=1) if i == number)


def _scales(axes: Any, kind: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, ScalarFormatter

    axes.xaxis.set_major_locator(MaxNLocator(4, steps=_STEPS, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS, integer=kind == "count"))
    formatters: dict[str, Any] = {"share": _percent(), "count": EngFormatter(sep=""), "number": ScalarFormatter()}
    axes.yaxis.set_major_formatter(formatters[kind])


def _percent() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda share, _: f"{100 * share:.3g}%")


def _number(axes: Any, ends: list[tuple[float, str, str]]) -> None:
    """Write the lines' numbers right of their ends, apart from each other."""
    top = axes.get_ylim()[1]
    ends = sorted(ends)
    places = spread([y / top for y, _, _ in ends], _GAP)
    for place, (_, text, colour) in zip(places, ends, strict=True):
        axes.annotate(text, (1.015, place), xycoords="axes fraction", va="center", color=colour, weight="bold")


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return ascending places, moved so that they are ``gap`` apart, and below 1 if there is room."""
    out: list[float] = []
    for place in places:
        out.append(max(place, out[-1] + gap) if out else place)
    above = 1.0 + gap
    for i in reversed(range(len(out))):
        above = out[i] = min(out[i], above - gap)
    return out
