"""``palearn watch``: what it reads of an output that grows, and what it shows."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from palearn import tables
from palearn.report import overview
from palearn.report.live import Watch, follow, view
from palearn.tables import reading
from tests.outputs import Job
from tests.report.test_report import HOSTILE, batches, two
from tests.streams import learner, plan, rows


def shown(watch: Watch, width: int = 100) -> str:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(view(watch))
    return str(screen.file.getvalue())  # type: ignore[attr-defined]


def test_a_reading_is_what_the_report_says(tmp_path: Path) -> None:
    Job(tmp_path, two()).run(batches())
    watch = Watch(tmp_path, keys=2)
    assert watch.read()
    found, wanted = watch.reading(), overview.summary(tmp_path)
    assert found is not None
    assert (found["batches"], found["batch"], found["keys"]) == (4, 3, 3)
    assert found["records"]["all"] == wanted["records"]
    assert found["records"]["newest"]["records"] == 16
    last = tables.metrics(tmp_path).query("key.isna() and batch_id == 3").set_index("learner")
    for name, x in found["learners"].items():
        assert {figure: x[figure] for figure in ("n", "mistakes", "error")} == wanted["learners"][name]
        assert x["batch_error"] == last.loc[name, "batch_error"]
    assert found["no_change"] == pytest.approx(wanted["no_change"])
    assert found["best"] == min(wanted["learners"], key=lambda name: wanted["learners"][name]["error"])
    assert len(found["worst_keys"]) == 2
    for row in found["worst_keys"]:
        entry = wanted["keys"][row["key"]]
        assert (row["n"], row["no_change"], row["errors"]) == (entry["n"], entry["baseline_error"], entry["errors"])
        newest = tables.metrics(tmp_path, latest=True).query("key == @row['key']").set_index("learner")
        assert row["window_errors"] == newest["window_error"].to_dict()


def test_only_new_batches_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int]] = []
    read = reading.Tables.columns

    def counting(self: reading.Tables, table: str, schema: Any, **options: Any) -> Any:
        opened.append((table, options["batch"]))
        return read(self, table, schema, **options)

    monkeypatch.setattr(reading.Tables, "columns", counting)
    job, stream = Job(tmp_path, two()), batches()
    watch = Watch(tmp_path)
    for number, batch in enumerate(stream):
        job.run([batch])
        assert watch.read()
        assert not watch.read()
        assert sorted(opened) == [("batches", number), ("metrics", number)]
        opened.clear()
    at_once = Watch(tmp_path)
    at_once.read()
    assert watch.reading() == at_once.reading()


@pytest.mark.parametrize("whole", [0, 1])
def test_a_batch_that_is_not_whole_is_not_read_yet(tmp_path: Path, whole: int) -> None:
    job, stream = Job(tmp_path, two()), batches()
    job.run(stream[: whole + 1])
    note = tmp_path / "_palearn" / "batches" / f"{whole}.json"
    content = note.read_bytes()
    note.unlink()
    watch = Watch(tmp_path)
    watch.read()
    assert (watch.reading() or {"batches": 0})["batches"] == whole
    note.write_bytes(content)
    watch.read()
    assert (watch.reading() or {})["batches"] == whole + 1


def test_an_output_that_began_anew_is_read_anew(tmp_path: Path) -> None:
    out = tmp_path / "out"
    watch = Watch(out)
    assert not watch.read()
    assert "waiting" in shown(watch)
    Job(out, two()).run(batches())
    watch.read()
    shutil.rmtree(out)
    Job(out, two()).run(batches(count=1))
    watch.read()
    found = watch.reading()
    assert found is not None
    assert (found["batches"], found["records"]["all"]["records"]) == (1, 16)


def test_the_rate_is_by_the_time_that_a_batch_took(tmp_path: Path) -> None:
    Job(tmp_path, two(), seconds=(4.0, 2.0)).run(batches(count=3))
    watch = Watch(tmp_path)
    watch.read()
    found = (watch.reading() or {})["newest_batches"]
    assert [(x["batch"], x["records"], x["seconds"], x["rate"]) for x in found] == [
        (0, 16, 4.0, 4.0), (1, 16, 2.0, 8.0), (2, 16, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_following_shows_each_batch_until_ctrl_c(tmp_path: Path, terminal: bool) -> None:
    out, screen = tmp_path / "out", io.StringIO()
    job, left = Job(out, two()), batches(count=3)

    def sleep(seconds: float) -> None:
        assert seconds == 0.5
        if not left:
            raise KeyboardInterrupt
        job.run([left.pop(0)])

    follow(Watch(out), Console(file=screen, force_terminal=terminal, width=100, height=60), 0.5, sleep)
    told = screen.getvalue()
    order = [told.index(text) for text in ("waiting for the job's first one", "batch 0, ", "batch 1, ", "batch 2, ")]
    assert order == sorted(order)
    assert ("\x1b" in told) == terminal


@pytest.mark.parametrize("without", ["batches", "metrics"])
def test_what_is_not_written_is_not_shown(tmp_path: Path, without: str) -> None:
    Job(tmp_path, two(), without=[without]).run(batches(count=1))
    watch = Watch(tmp_path)
    watch.read()
    told = shown(watch)
    assert ("all batches" in told) == (without != "batches")
    assert ("error in %" in told) == (without != "metrics")
    assert "batch 0, the newest of 1" in told


def test_names_are_text_and_eight_learners_fit(tmp_path: Path) -> None:
    names = [*HOSTILE[:2], "[bold red]x[/]", "\x1b[31mred", *"efgh"]
    Job(tmp_path, plan(*(learner("pa1", name) for name in names), window=5)).run(batches(HOSTILE, 1))
    watch = Watch(tmp_path)
    watch.read()
    told = shown(watch, 80)
    assert "\x1b" not in told
    assert "\u202e" not in told
    for name in (HOSTILE[0], "[bold red]x[/]", r"\x1b[31mred"):
        assert name in told
    for row in (watch.reading() or {})["worst_keys"]:
        for error in row["window_errors"].values():
            assert f"{100 * error:.1f}" in told


def test_on_the_command_line(run: Any, tmp_path: Path) -> None:
    status, text, error = run("watch", str(tmp_path / "out"), "--once")
    assert (status, text, error.count("\n")) == (1, "", 1)
    assert "no whole batch yet" in error
    Job(tmp_path / "out", two()).run([rows([("k", {"label": 1, "features": {"f": 1}})])])
    status, text, _ = run("watch", str(tmp_path / "out"), "--json")
    assert (status, json.loads(text)["batch"]) == (0, 0)
    status, text, _ = run("watch", str(tmp_path / "out"), "--once", "--keys", "1")
    assert status == 0
    assert "batch 0, the newest of 1" in text
