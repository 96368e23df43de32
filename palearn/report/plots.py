"""Plots of errors; lines differ by dashes as well as by colour."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

from palearn.errors import FileFormatError

#: Colours that stay apart for the colour-blind (Okabe and Ito), with dashes for those who print in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", "-.", ":")
#: Names are text, whatever dollar signs are in them.
_LOOK: dict[Any, Any] = {
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def styles() -> Iterator[dict[str, Any]]:
    """Yield how to draw one line after the other: no two of the first two dozen are alike."""
    for shift in cycle(range(len(_DASHES))):
        for i, colour in enumerate(_COLOURS):
            yield {"color": colour, "ls": _DASHES[(i + shift) % len(_DASHES)], "lw": 1.6}


@contextmanager
def figure(path: str | Path, columns: int = 1, width: float = 7.0, *, shared: str = "y") -> Iterator[Any]:
    """Yield axes to draw on, ``columns`` side by side; then save them as PNG or SVG, by suffix.

    ``shared`` says which axes are the same in all: y, xy, or none (an empty text).

    Raises
    ------
    FileFormatError
        The suffix is none of a picture, or the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_LOOK), warnings.catch_warnings():
        whole = Figure(figsize=(width, 4.2), layout="constrained")
        if (suffix := Path(path).suffix[1:].lower()) and suffix not in whole.canvas.get_supported_filetypes():
            raise FileFormatError(f"{path}: the suffix must say what to draw: .png or .svg")
        yield whole.subplots(1, columns, sharex="x" in shared, sharey="y" in shared)
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)  # a box stands in its place
        names = [name for axes in whole.axes for name in axes.get_legend_handles_labels()[1]]
        if names:
            # In points: a letter of 10 points is 6 wide, a line with its gaps 48.
            fitting = max(1, min(6, int(72 * width / (6 * max(map(len, names)) + 48))))
            whole.legend(loc="outside lower center", ncols=fitting, frameon=False)
        try:
            whole.savefig(path, dpi=130)
        except OSError as error:
            raise FileFormatError(f"{path} cannot be written: {error.strerror}") from None


def thousands() -> Any:
    """Return a formatter of ticks with thousands separators."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda x, _: f"{x:,.0f}" if float(x).is_integer() else f"{x:,g}")


#: What stands for the ink and for fainter lines until a page's stylesheet says what they are, in light and in dark.
INK, FAINT = "#010203", "#040506"
_VARIABLES = {INK: "--ink", FAINT: "--faint"} | {colour: f"--line-{i}" for i, colour in enumerate(_COLOURS)}
#: Text stays text, and the same drawing is the same bytes.
_INLINE: dict[Any, Any] = _LOOK | {
    "svg.fonttype": "none",
    "svg.hashsalt": "palearn",
    "font.size": 11,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "grid.color": FAINT,
    "text.color": INK,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
}


#: Around the axes of a page's drawing: left, below, right, above. They are the same so that drawings align.
_MARGINS = (42, 40, 22, 8)


def inline(draw: Callable[[Any], None], label: str, width: int = 380, height: int = 240) -> str:
    """Return what ``draw`` draws on axes as an SVG element of a page; ``label`` says what it shows.

    Its colours are the page's variables ``--ink``, ``--faint`` and ``--line-0`` to ``--line-5`` (:func:`variable`).
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_INLINE):
        whole = Figure(figsize=(width / 72, height / 72))
        left, bottom, right, top = _MARGINS
        inner = (width - left - right) / width, (height - bottom - top) / height
        axes = whole.add_axes((left / width, bottom / height, *inner))
        for background in (whole.patch, axes.patch):
            background.set_visible(False)
        draw(axes)
        file = io.StringIO()
        whole.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        pointed = "".join(_pointed(axes, width, height))
    text = file.getvalue().replace("</svg>", f"{pointed}</svg>")
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)  # a page has many drawings, and an id once
    for colour in _VARIABLES:
        text = text.replace(colour.lower(), variable(colour))
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def say(axes: Any, x: float, y: float, text: str) -> None:
    """Let a page say ``text`` where somebody points at a place of :func:`inline`'s axes."""
    axes.figure.__dict__.setdefault("_said", []).append((x, y, text))


def _pointed(axes: Any, width: int, height: int) -> Iterator[str]:
    """Yield circles that are not seen, with their texts: browsers show them without a script."""
    for x, y, text in axes.figure.__dict__.get("_said", ()):
        px, py = axes.figure.transFigure.inverted().transform(axes.transData.transform((x, y)))
        place = f'cx="{px * width:.1f}" cy="{(1 - py) * height:.1f}"'
        yield f'<circle {place} r="6" fill="transparent"><title>{escape(text)}</title></circle>'


def variable(colour: str) -> str:
    """Return what a page's stylesheet calls a colour of :func:`styles`, :data:`INK` or :data:`FAINT`."""
    return f"var({_VARIABLES[colour]})"


def errors_so_far(curve: Sequence[tuple[int, Sequence[int]]], names: Sequence[str], path: str | Path) -> None:
    """Draw each learner's error over all examples; ``curve`` of :class:`~palearn.evaluate.prequential.Comparison`."""
    with figure(path) as axes:
        labelled = [n for n, _ in curve if n]
        for i, (name, style) in enumerate(zip(names, styles(), strict=False)):
            axes.plot(labelled, [mistakes[i] / n for n, mistakes in curve if n], label=name, **style)
        axes.set(xlabel="labelled examples", ylabel="error so far (share of mistakes)")
        axes.xaxis.set_major_formatter(thousands())
        axes.set_ylim(bottom=0)
