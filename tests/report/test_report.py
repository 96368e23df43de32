"""The report: sums against the predictions they stand for, and a page that shows them, whatever names there are."""

import random
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import binomtest, norm

from palearn import tables
from palearn.engine.bucket import BucketConfig
from palearn.errors import FileFormatError
from palearn.models.counters import CERTAIN, certain_error
from palearn.report import overview
from palearn.report.charts import spread
from palearn.report.history import FIGURES, Batch, History, Sums, pooled, worst
from palearn.report.page import page as write_page
from tests.outputs import Job
from tests.streams import Row, learner, plan, rows

VOID = {"meta", "br"}
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}\u202e\n&amp;")


def batches(keys: tuple[str, ...] = ("a", "b", "c"), count: int = 4, size: int = 15) -> list[list[Row]]:
    """Return batches of labelled and unlabelled records, and one that is none."""
    chance = random.Random(7)
    out = []
    for batch in range(count):
        items: list[tuple[str, Any]] = []
        for _ in range(size):
            features = {f"f{chance.randrange(4)}": 1.0, "g": chance.random()}
            label = {} if chance.random() < 0.2 else {"label": chance.choice([-1, 1, 1])}
            items.append((chance.choice(keys), {**label, "features": features}))
        out.append(rows([*items, (keys[0], b"{")], first=(size + 1) * batch))
    return out


def two(**settings: Any) -> BucketConfig:
    return plan(learner("pa1", C=0.5), learner("arow"), window=5, **settings)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    Job(tmp_path / "out", two()).run(batches())
    return tmp_path / "out"


def read(path: Path) -> History:
    found = History(path)
    found.read()
    return found


def wrong_without_change(predictions: pd.DataFrame) -> pd.Series:
    """Return which labelled rows differ from the label before of their key; the first one does."""
    ordered = predictions[predictions["label"].notna()].sort_values("offset")
    return ordered["label"] != ordered.groupby("key")["label"].shift()


def test_each_batch_is_summed(out: Path) -> None:
    found = read(out)
    assert [batch.number for batch in found.batches] == [0, 1, 2, 3]
    for name in ("pa1", "arow"):
        mine = tables.read(out, "predictions").query("learner == @name")
        wrong = wrong_without_change(mine)
        for batch in found.batches:
            labelled = mine[(mine["batch_id"] == batch.number) & mine["label"].notna()]
            sums = batch.learners[name]
            assert (sums.n, sums.seen) == (len(labelled), len(labelled))
            assert sums.mistakes == int((labelled["correct"] == False).sum())  # noqa: E712 - an object column
            assert sums.wrong == int(wrong[wrong.index.isin(labelled.index)].sum())
        models = tables.latest_models(out).query("learner == @name")
        assert found.total.learners[name].updates == models["n_updates"].sum()
    assert (found.total.account["records"], found.total.account["rejected"], found.total.reasons) == (
        64, 4, Counter(not_json=4),
    )  # fmt: skip


def test_the_newest_figures_are_the_tables(out: Path) -> None:
    found = read(out)
    latest = tables.metrics(out, latest=True).query("key.notna()")
    assert len(latest) == 6
    for row in latest.itertuples():
        figures = dict(zip(FIGURES, found.newest[row.learner][found.keys[row.key]], strict=True))
        assert (figures["n"], figures["mistakes"], figures["updates"]) == (row.n, row.mistakes, row.updates)
        assert figures["kappa"] == row.kappa
        assert figures["wrong"] / row.n == row.baseline_error
        assert figures["window_mistakes"] / row.window_n == row.window_error


def test_bins_lose_nothing(out: Path) -> None:
    found = read(out)
    bins = found.binned(2)
    assert [x.number for x in bins] == [1, 3]
    for name, total in found.total.learners.items():
        assert sum(x.learners[name].mistakes for x in bins) == total.mistakes
    assert sum((x.account for x in bins), Counter()) == +found.total.account


def test_a_key_that_left_and_came_again_begins_at_0(tmp_path: Path) -> None:
    value = {"label": 1, "features": {"f": 1}}
    turns = [[("a", value)] * 3, [("b", value)] * 2, [("a", value)] * 2]
    Job(tmp_path, plan(learner("pa1"), max_keys=1)).run([rows(items, first=10 * i) for i, items in enumerate(turns)])
    sums = [batch.learners["pa1"] for batch in read(tmp_path).batches]
    assert [x.seen for x in sums] == [3, 2, 2]
    assert [x.wrong for x in sums] == [1, 1, 1]


def test_a_key_that_left_and_came_again_in_one_batch_takes_nothing_back(tmp_path: Path) -> None:
    def turn(key: str, *labels: int) -> list[tuple[str, Any]]:
        return [(key, {"label": label, "features": {"f": 1}}) for label in labels]

    turns = [turn("a", 1, -1, 1), [*turn("b", 1), *turn("a", 1, 1, 1, 1)]]
    Job(tmp_path, plan(learner("pa1"), max_keys=1)).run([rows(items, first=10 * i) for i, items in enumerate(turns)])
    found = read(tmp_path)
    assert [(x.seen, x.wrong) for x in (batch.learners["pa1"] for batch in found.batches)] == [(3, 3), (5, 2)]
    assert overview.summed(found)["no_change"] == 5 / 8
    assert "62.50 %</b> error of predicting no change" in page(tmp_path)


def test_while_no_metrics_were_written_learners_went_on(tmp_path: Path) -> None:
    Job(tmp_path / "out", two()).run(batches())
    for number in (0, 2):
        shutil.rmtree(tmp_path / "out" / "metrics" / f"batch_id={number}")
    found = read(tmp_path / "out")
    (newest,) = tables.metrics(tmp_path / "out").query("key.isna() and batch_id == 3 and learner == 'pa1'").itertuples()
    told = overview.summed(found)
    assert (told["learners"]["pa1"]["n"], told["learners"]["pa1"]["mistakes"]) == (newest.n, newest.mistakes)
    assert sum(key["n"] for key in told["keys"].values()) == found.total.learners["pa1"].seen == newest.n
    overview.plot(found, tmp_path / "plot.png")


@pytest.mark.parametrize("now", [False, True], ids=["all", "now"])
def test_worst_keys_are_ordered_by_wilsons_interval(now: bool) -> None:
    figures = np.full((8, len(FIGURES)), np.nan)
    counts = [(3, 3), (500, 1000), (40, 50), (0, 10), (0, 0), (1, 1), (0, 7), (900, 1000)]
    names = ("window_mistakes", "window_n") if now else ("mistakes", "n")
    for name, column in zip(names, zip(*counts, strict=True), strict=True):
        figures[:, FIGURES.index(name)] = column
    sure = 1 - 2 * norm.sf(CERTAIN)  # so near to 1 that scipy can have ten digits of the interval
    least = [binomtest(k, n).proportion_ci(sure, "wilson").low if k else 0.0 for k, n in counts]
    assert certain_error(*np.array(counts).T) == pytest.approx(least, abs=1e-10)
    wanted = sorted((i for i, (_, n) in enumerate(counts) if n), key=lambda i: -least[i])
    assert worst(figures, 10, now=now).tolist() == wanted
    assert wanted[:2] == [7, 2]
    assert worst(figures, 2, now=now).tolist() == wanted[:2]


def test_numbers_at_the_ends_of_lines_are_apart() -> None:
    chance = random.Random(2)
    for count in (1, 2, 9):
        for _ in range(50):
            places = sorted(chance.random() ** 3 for _ in range(count))
            found = spread(places, 0.075)
            assert all(b - a > 0.075 - 1e-9 for a, b in pairwise(found))
            assert found[-1] <= 1
    assert spread([0.1, 0.5], 0.075) == [0.1, 0.5]


# -- the page -----------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """A page taken apart; every element must be closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.ids: set[str] = set()
        self.references: set[str] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        for name, value in attrs:
            if name == "id":
                self.ids.add(str(value))
            elif name in ("href", "src", "xlink:href"):
                self.references.add(str(value))
            self.references.update(re.findall(r"url\((.*?)\)", str(value)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "text"):
            self.texts.append(data.strip())


def page(path: Path, name: str = "page.html") -> str:
    file = path.parent / name
    write_page(overview.history(path), file)
    return file.read_text(encoding="utf-8")


def test_the_page_shows_the_figures_of_the_tables(out: Path) -> None:
    text = page(out)
    found = Page(text)
    assert {"1 pa1", "2 arow", "0 no change"} <= {x.replace("\xa0", "") for x in found.texts}
    for row in tables.metrics(out, latest=True).itertuples():
        assert f"{100 * row.error:.2f}" in found.texts, row
    assert "not_json" in found.texts
    assert any(x.startswith("t-0-15: the value is not JSON") for x in found.texts)
    sections = re.findall(r'<h2 id="(\w+)"', text)
    assert sections == ["learners", "time", "keys", "records"]
    assert {f"#{name}" for name in sections} <= found.references


def test_the_page_needs_nothing_else(out: Path) -> None:
    found = Page(page(out))
    assert all(x.startswith("#") for x in found.references), found.references
    assert {x[1:] for x in found.references} <= found.ids
    assert not {tag for tag, *_ in found.tags} & {"script", "link", "img", "iframe", "object", "form"}


def test_the_same_tables_are_the_same_bytes(out: Path) -> None:
    first = page(out)
    elsewhere = out.parent / "elsewhere" / "out"
    shutil.copytree(out, elsewhere)
    shutil.rmtree(elsewhere / "_palearn")
    assert page(elsewhere, "other.html").replace(str(elsewhere), str(out)) == first


def test_names_never_become_html(tmp_path: Path) -> None:
    """The page of hostile names has the elements of one with tame names."""
    pages = []
    for folder, names in (("tame", ("k1", "k2", "k3")), ("hostile", HOSTILE)):
        made = plan(learner("pa1", names[0]), learner("arow", names[1]), window=5)

        def seen(table: pa.Table, batch: int) -> pa.Table:
            return table.append_column("drift", pa.array([batch == 1] * table.num_rows))

        Job(tmp_path / folder, made, change=seen).run(batches(names, 2))
        pages.append(Page(page(tmp_path / folder)))
    tame, hostile = pages
    assert hostile.tags == tame.tags
    told = " ".join(hostile.texts)
    for name in (*HOSTILE[:2], r"{{ 7 * 7 }}\u202e\n&amp;"):
        assert name in told


@pytest.mark.parametrize("count", [1, 8])
def test_any_number_of_learners(tmp_path: Path, count: int) -> None:
    learners = [learner("pa1", f"learner-{i}", C=0.1 * i) for i in range(1, count + 1)]
    Job(tmp_path / "out", plan(*learners, window=5)).run(batches(("only",), 1))
    text = page(tmp_path / "out")
    assert Page(text).texts.count("1 of 1") + Page(text).texts.count("0 of 1") == count
    assert "The key</h3>" in text
    assert f"{count} learner-{count}" in text.replace("&nbsp;", "")


@pytest.mark.parametrize("without", ["batches", "rejected", "models", "predictions"])
def test_tables_that_are_not_written_are_left_out(tmp_path: Path, without: str) -> None:
    Job(tmp_path / "out", two(), without=[without]).run(batches(("only",), 1))
    text = page(tmp_path / "out")
    Page(text)
    assert ("Every record has one status" in text) == (without != "batches")
    assert (">algorithm</th>" in text) == (without != "models")
    assert ("the value is not JSON" in text) == (without != "rejected")
    assert ">not_json<" in text  # counted in the accounts or, without them, in the table itself


def test_how_long_batches_took_is_shown_where_it_is_known(tmp_path: Path) -> None:
    Job(tmp_path / "out", two(), seconds=(4.0, 0.5)).run(batches(count=3))
    found = Page(page(tmp_path / "out")).texts
    rows = [
        found[i : i + 3] for i in range(len(found)) if found[i : i + 3] in (["0", "4.000", "4"], ["1", "0.500", "32"])
    ]
    assert rows == [["0", "4.000", "4"], ["1", "0.500", "32"]]
    Job(tmp_path / "other", two()).run(batches(count=3))
    assert "Seconds that each batch took" not in page(tmp_path / "other")
    Job(tmp_path / "unaccounted", two(), without=["batches"], seconds=(4.0, 0.5)).run(batches(count=3))
    text = page(tmp_path / "unaccounted")
    assert "Seconds that each batch took" in text
    assert "Records a second" not in text


def test_drift_is_shown_where_jobs_look_for_it(tmp_path: Path) -> None:
    def seen(table: pa.Table, batch: int) -> pa.Table:
        """The first batch is of a job that did not look yet; over all keys there is no drift."""
        if batch == 0:
            return table.drop_columns("drift")
        flags = [None if key is None else key == "b" and name == "arow" for key, name in _names(table)]
        return table.set_column(table.schema.get_field_index("drift"), "drift", pa.array(flags, pa.bool_()))

    Job(tmp_path / "out", two(), change=seen).run(batches())
    found = read(tmp_path / "out")
    touched = tables.metrics(tmp_path / "out").query("key == 'b' and learner == 'arow' and batch_id > 0")
    assert [(x.batch, x.key, x.learner, x.n) for x in found.drifts] == [
        (row.batch_id, "b", "arow", row.n) for row in touched.sort_values("batch_id").itertuples()
    ]
    assert found.total.learners["arow"].drifts == len(touched) > 0
    assert found.total.learners["pa1"].drifts == 0
    assert '<h2 id="drift">' in page(tmp_path / "out")


def test_each_drift_of_a_batch_counts(tmp_path: Path) -> None:
    looking = learner("pa1", C=1.0, drift={"threshold": 2, "min_records": 1})
    made = plan(looking, tables=frozenset(("metrics", "drifts")))
    items = [("k", {"label": 1 if i // 20 % 2 else -1, "features": {"f": (-1) ** i}}) for i in range(200)]
    Job(tmp_path / "out", made).run([rows(items)])
    drifts = tables.read(tmp_path / "out", "drifts")
    assert read(tmp_path / "out").total.learners["pa1"].drifts == len(drifts) > 1


def _names(table: pa.Table) -> list[tuple[Any, Any]]:
    return list(zip(table["key"].to_pylist(), table["learner"].to_pylist(), strict=True))


def test_the_difference_between_views_is_shown(tmp_path: Path) -> None:
    made = plan(learner("two_view_pa", "both"), learner("pa1", "one"), views=("p", "q"))
    values = [{"label": 1 if i % 3 else -1, "views": {"p": {f"f{i % 2}": 1.0}, "q": {"g": float(i)}}} for i in range(9)]
    Job(tmp_path / "out", made).run([rows([("k", value) for value in values])])
    text = page(tmp_path / "out")
    (row,) = tables.metrics(tmp_path / "out").query("key == 'k' and learner == 'both'").itertuples()
    views = Page(text[text.index('<h2 id="views">') : text.index('<h2 id="records">')])
    assert f"{row.faded_view_difference:.3f}" in views.texts
    assert "2 one" not in " ".join(views.texts)


def test_without_labels_there_are_no_errors_to_show(tmp_path: Path) -> None:
    Job(tmp_path / "out", two()).run([rows([("k", {"features": {"f": 1}})] * 3)])
    text = page(tmp_path / "out")
    Page(text)
    assert "No record had a label yet" in text
    with pytest.raises(FileFormatError, match="cannot be written: "):
        write_page(overview.history(tmp_path / "out"), tmp_path / "nowhere" / "page.html")


def test_a_plot_without_keys_is_told(tmp_path: Path) -> None:
    Job(tmp_path / "out", two()).run([rows([("k", b"{")])])
    with pytest.raises(FileFormatError, match="no record was scored yet"):
        overview.plot(overview.history(tmp_path / "out"), tmp_path / "plot.png")


def test_report_html_on_the_command_line(run: Any, out: Path) -> None:
    file = out.parent / "report.html"
    status, text, _ = run("report", str(out), "--html", str(file))
    assert (status, "all keys" in text) == (0, True)
    assert file.read_text(encoding="utf-8") == page(out)


def test_a_small_batch_is_no_point_of_its_own() -> None:
    """Nothing is lost by pooling, and no step but a lone one has less than a twentieth of the largest's records."""
    chance = random.Random(5)
    for _ in range(200):
        sizes = [chance.choice((0, 1, 4, 50, 900, 1000)) for _ in range(chance.randrange(1, 9))]
        steps = [Batch(i, learners={"a": Sums(n, n // 3)} if n else {}) for i, n in enumerate(sizes)]
        found = pooled(steps, "a")
        counts = [step.learners.get("a", Sums()).n for step in found]
        assert (sum(counts), found[-1].number) == (sum(sizes), len(sizes) - 1)
        assert len(found) == 1 or min(counts) >= 0.05 * max(sizes)
        assert [step.learners["a"].n if "a" in step.learners else 0 for step in steps] == sizes  # are not changed


def test_points_of_the_charts_say_their_figures(out: Path) -> None:
    """Each point of the first chart has its error in a title, which is that of the figures below it."""
    text = page(out)
    found = re.findall(r"<title>(\d): ([\d.]+) % at ([\d,]+)</title>", text)
    learners = tables.metrics(out)
    of_all = learners[learners["key"].isna()]
    for number, name in ((1, "pa1"), (2, "arow")):
        rows = of_all[of_all["learner"] == name]
        for batch_error, n in zip(rows["batch_error"], rows["n"], strict=True):
            assert (str(number), f"{100 * batch_error:.2f}", f"{n:,}") in found


def test_the_header_says_what_it_is_of(out: Path) -> None:
    text = page(out)
    assert "<h1>out</h1>" in text
    assert str(out) in text
