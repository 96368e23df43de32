"""Tables for a terminal: at any width numbers are whole, lines fit, names stay apart, and what is left out is named."""

import io
import random
import re
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from palearn.cli.evaluate import _table
from palearn.report import overview
from palearn.report.live import Watch, view
from palearn.report.overview import errors
from palearn.report.terminal_table import Column, Sheet, names, width
from tests.outputs import Job
from tests.report.test_report import HOSTILE, batches
from tests.streams import learner, plan

ALGORITHMS = ("pa", "pa1", "pa2", "perceptron", "arow", "cw", "scw1", "nherd")
LONG = (
    "x" * 200, "x" * 199 + "y", "x" * 99 + "y" + "x" * 100, "arow with a long name, the first", "pa ", "pa",
    "一二三四五六七八九十" * 4, "\x1b[31mred",
)  # fmt: skip
NUMBER = re.compile(r"(?<![\w.,…-])\d[\d,]*\.\d+(?![\w.,…])")


def printed(content: object, room: int) -> list[str]:
    """Return the lines that a terminal of this width has; none is longer."""
    screen = Console(file=io.StringIO(), width=room, markup=False)
    screen.print(content)
    lines = str(screen.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= room for line in lines)
    return lines


def test_numbers_are_whole_or_their_column_is_named() -> None:
    chance = random.Random(4)
    for room in (*range(30, 100, 3), 500):
        sizes = [chance.randrange(1, 9) for _ in range(8)]
        cells = [
            [f"{chance.randrange(10**size):,}.{place}{row}" for row in range(3)] for place, size in enumerate(sizes)
        ]
        columns = [Column(f"t{place}", x, rank=place) for place, x in enumerate(cells)]
        lines = printed(Sheet((Column("who", ["a" * 60, "b" * 60, "c"], "name"), *columns)), room)
        rows, told = lines[2:5], " ".join(lines[5:])
        left = [place for place in range(8) if re.search(rf"\bt{place}\b", told)]
        assert left == list(range(8 - len(left), 8))
        for row, line in enumerate(rows):
            assert line.split()[1:] == [x[row] for x in cells[: 8 - len(left)]]
        assert (room == 500) <= (not told)


def test_texts_are_continued_and_keep_their_words() -> None:
    lines = printed(Sheet((Column("options", ["C=0.125, covariance=full, r=10.5"], "text"), Column("n", ["7"]))), 30)
    assert {"C=0.125,", "covariance=full,", "r=10.5"} <= set(" ".join(lines).split())


@pytest.mark.parametrize("room", [8, 12, 20, 79, 80, 1000])
def test_shortened_names_stay_different(room: int) -> None:
    """Also from whole ones that look like them, and from what only looks alike when it is written out."""
    given = [
        *LONG,
        *HOSTILE,
        "xxxxxxx…",
        r"\x1b[31mred",
        "",
        " ",
        "''",
        *(f"customer-{i:05}-of-the-north" for i in range(99)),
    ]
    found = names(given, room)
    assert len(set(found)) == len(given)
    assert all(cell_len(name) <= room and name.isprintable() for name in found)


def test_a_pipe_has_room_for_all_and_columns_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    wide = width()
    assert wide is not None
    assert wide > 10_000
    monkeypatch.setenv("COLUMNS", "70")
    assert Console(width=width()).width == 70


@pytest.mark.parametrize("room", [60, 80])
def test_eight_learners_of_long_names_can_be_read(tmp_path: Path, room: int) -> None:
    learners = [learner(algorithm, name) for algorithm, name in zip(ALGORITHMS, LONG, strict=True)]
    Job(tmp_path, plan(*learners, window=5)).run(batches(HOSTILE, 2))
    found = overview.summary(tmp_path)
    shown = printed(errors(found), room)
    best = min(found["learners"].values(), key=lambda x: x["error"])
    assert f"{100 * best['error']:.2f}" in " ".join(shown[:2])
    known = {f"{100 * x['error']:.2f}" for x in found["learners"].values()} | {f"{100 * found['no_change']:.2f}"}
    assert known <= set(NUMBER.findall("\n".join(shown)))
    shares = {f"{100 * e:.2f}" for x in found["keys"].values() for e in (x["baseline_error"], *x["errors"].values())}
    assert set(NUMBER.findall("\n".join(shown))) <= known | shares
    watch = Watch(tmp_path)
    watch.read()
    reading = watch.reading() or {}
    told = "\n".join(printed(view(watch), room))
    for x in reading["learners"].values():
        assert {f"{100 * x[name]:.2f}" for name in ("error", "window_error", "batch_error")} <= set(
            NUMBER.findall(told)
        )
    for row in reading["worst_keys"]:
        assert f"{100 * row['window_errors'][reading['best']]:.1f}" in told


def test_learners_without_an_error_yet_are_last() -> None:
    learners = {"new": {"n": 0, "mistakes": 0, "error": None}, "old": {"n": 4, "mistakes": 1, "error": 0.25}}
    entry = {"n": 4, "baseline_error": 0.5, "errors": {"new": None, "old": 0.25}}
    lines = printed(errors({"learners": learners, "no_change": 0.5, "keys": {"k": entry}}), 80)
    assert "best: 2 old, error 25.00 %" in lines[0]
    assert [line.split()[:3] for line in lines[4:7]] == [
        ["2", "old", "25.00"],
        ["0", "no", "change"],
        ["1", "new", "-"],
    ]
    none = {"new": learners["new"]}
    assert "no record had a label yet" in " ".join(
        printed(errors({"learners": none, "no_change": None, "keys": {}}), 80)
    )


@pytest.mark.parametrize("room", [60, 80])
def test_an_evaluation_of_eight_learners_can_be_read(room: int) -> None:
    chance = random.Random(1)
    rows = [
        {
            "learner": name, "params": {"C": 0.0625}, "n": 10**6, "mistakes": int(10**6 * share), "error": share,
            "updates": 123_456, "drifts": 12, "error_mean": share, "error_sd": 0.0123,
        }
        for name, share in zip(ALGORITHMS, (chance.random() for _ in ALGORITHMS), strict=True)
    ]  # fmt: skip
    out = {"n": 100, "mistakes": [chance.randrange(100) for _ in rows]}
    order = sorted(range(8), key=lambda i: rows[i]["error"])
    lines = printed(_table({"learners": rows, "holdout": out}, order), room)
    table = [line for line in lines if line.split()[:1] and line.split()[0] in ALGORITHMS]
    assert [line.split()[0] for line in table] == [ALGORITHMS[i] for i in order]
    for line, i in zip(table, order, strict=True):
        assert f"{rows[i]['error']:.4f} ± 0.0123" in line
        assert f"{out['mistakes'][i] / 100:.4f}" in line
