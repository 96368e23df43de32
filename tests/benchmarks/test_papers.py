"""``palearn reproduce``: data, experiments, pictures and the page, on small data and beside other programs."""

import gzip
import importlib
import json
import lzma
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import f1_score

from benchmarks.papers import PAPERS, arow_noise, arow_synthetic, arow_text, data, page, pam, pictures, spa, two_view
from benchmarks.papers import run as runs
from benchmarks.papers.data import Examples
from benchmarks.papers.protocol import f1, folds, without
from benchmarks.papers.results import Claim, Done, Figure, Line, Panel, Results, Row, Table, box, curve, parse, plain
from palearn import datasets
from palearn.errors import FileFormatError
from tests import naive

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reproduction.md"
COMMITTED = sorted((ROOT / "benchmarks/results").glob("papers-*.json"))[-1]
SEED = 20261128


def write(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content))


def named(row: np.ndarray) -> dict[str, float]:
    return {f"f{i}": float(value) for i, value in enumerate(row) if value}


@pytest.fixture
def bupa(tmp_path: Path) -> tuple[Path, np.ndarray]:
    draw = np.random.default_rng(3)
    table = draw.integers(0, 5, (40, 7))
    table[:, 6] = 1 + (table[:, 0] + draw.integers(0, 3, 40) > 3)
    write(tmp_path, "bupa/bupa.data", "\n".join(",".join(map(str, row)) for row in table.tolist()).encode())
    return tmp_path, table


# Data.


#: The module: of that name, the package has the command.
reproduce = importlib.import_module("palearn.cli.reproduce")


def test_the_command_knows_the_papers() -> None:
    assert tuple(PAPERS) == reproduce.PAPERS


def test_without_the_repository_the_command_says_where_the_experiments_are(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)
    status, out, error = run("reproduce")
    assert (status, out) == (1, "")
    assert "experiments are in palearn's repository" in error


def test_shipped_data_are_what_another_reader_reads() -> None:
    """The paper's views have 929 and 602 features, the duplicate-free version's 929 and 606."""
    x, y = load_svmlight_file(str(datasets.path("internet_ads")), n_features=1_555)
    place = [name.partition("*")[0] for name in datasets.names("internet_ads")]
    for view, places, width in zip(
        data.internet_ads(), (("url", "ancurl"), ("origurl", "alt")), (929, 606), strict=True
    ):
        expected = x[:, [i for i, name in enumerate(place) if name in places]]
        assert view.x.shape == expected.shape == (1_966, width)
        assert abs(view.x - expected).sum() == 0
        assert (view.y == (y > 0)).all()


def test_text_of_several_files_has_one_width(tmp_path: Path) -> None:
    texts = [b"1 1:2 3:1\n20 7:1\n", b"2 9:4 2:1\n"]
    for name, text in zip(data.SOURCES["20news"].files, texts, strict=True):
        write(tmp_path, name, text)
    found = data.news(tmp_path)
    expected = np.zeros((3, 9))
    expected[[0, 0, 1, 2, 2], [0, 2, 6, 8, 1]] = 1
    assert (found.x.toarray() == expected).all()
    assert found.y.tolist() == [0, 19, 1]


def test_features_from_zero(tmp_path: Path) -> None:
    for i, name in enumerate(data.SOURCES["sentiment"].files):
        write(tmp_path, name, f"1 0:3 {i + 1}:1\n-1 2:1\n".encode())
    found = data.sentiment(tmp_path)
    assert [part.y.tolist() for part in found] == [[1, 0]] * 4
    assert [np.flatnonzero(part.x.toarray()[0]).tolist() for part in found] == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert {part.x.max() for part in found} == {1.0}


@pytest.mark.parametrize("head", ["", "mcv,alkphos,sgpt,sgot,gammagt,drinks,selector\n"], ids=["plain", "header"])
def test_bupa(tmp_path: Path, head: str) -> None:
    write(tmp_path, "bupa/bupa.data", f"{head}85,92,45,27,31,0.5,1\n85,64,59,32,23,0.0,2\n".encode())
    found = data.bupa(tmp_path)
    assert found.x.toarray().tolist() == [[85, 92, 45, 27, 31, 0.5], [85, 64, 59, 32, 23, 0]]
    assert found.y.tolist() == [1, 0]


def test_crx_has_a_column_a_value_and_nothing_for_what_is_missing(tmp_path: Path) -> None:
    head = "@relation crx\n@attribute A1 {b,a}\n@attribute A2 REAL\n@attribute class {+,-}\n@data\n"
    write(tmp_path, "crx/credit.a.arff", f"{head}b,30.5,+\n?,?,-\na,2,+\n".encode())
    found = data.crx(tmp_path)
    assert found.x.toarray().tolist() == [[0, 1, 30.5], [0, 0, 0], [1, 0, 2]]
    assert found.y.tolist() == [1, 0, 1]


def test_mnist(tmp_path: Path) -> None:
    pixels = np.zeros((2, 784), np.uint8)
    pixels[1, 5] = 51
    images, labels = data.SOURCES["mnist"].files
    write(tmp_path, images, struct.pack(">4i", 2051, 2, 28, 28) + pixels.tobytes())
    write(tmp_path, labels, struct.pack(">2i", 2049, 2) + bytes([7, 3]))
    found = data.mnist(tmp_path)
    assert found.x.toarray()[1, 5] == 0.2
    assert (found.x.sum(), found.y.tolist()) == (0.2, [7, 3])


def test_a_column_is_brought_to_the_unit_interval_by_the_first_part() -> None:
    x = np.array([[2.0, 5.0], [4.0, 5.0]])
    train, test = (Examples(sparse.csr_array(part), np.zeros(len(part))) for part in (x, np.array([[3.0, 6.0]])))
    scaled, other = data.to_unit(train, test)
    assert scaled.x.toarray().tolist() == [[0, 0], [1, 0]]
    assert other.x.toarray()[0, 0] == 0.5


# What experiments share.


def test_f1_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    y, predicted = draw.integers(0, 2, (2, 200))
    for positive in (0, 1):
        assert f1(predicted, y, positive) == pytest.approx(100 * f1_score(y, predicted, pos_label=positive))
    assert f1(np.zeros(3, np.int64), np.zeros(3, np.int64)) == 0


def test_folds_are_parts_without_overlap() -> None:
    parts = folds(23, 5)
    assert sorted(np.concatenate(parts)) == list(range(23))
    assert sorted([*without(parts, 1, 3), *parts[1], *parts[3]]) == list(range(23))


def test_a_curve_keeps_its_ends_and_few_points() -> None:
    line = curve("name", np.arange(1000.0) / 3)
    assert (line.x[0], line.x[-1], line.y[-1]) == (1, 1000, 333)
    assert len(line.x) == 120
    assert curve("name", [1.0, 2.0], [5, 9]) == Line("name", [5, 9], [1, 2])


# Experiments, beside the slow twins of the tests.


def test_pam_figures_are_those_of_the_twins(bupa: tuple[Path, np.ndarray]) -> None:
    """F1 and the cumulative error of PA-II and PAM-II, each with the options that the table names."""
    folder, table = bupa
    (found, figure) = next(part for part in pam.PARTS if "BUPA" in part.name).run(folder)
    assert isinstance(found, Table)
    assert isinstance(figure, Figure)
    rows = {(row.of, row.learner): row for row in found.rows}
    for title, learner in (("PA-II", "pa2"), ("PAM-II", "pam2")):
        options: dict[str, Any] = dict(part.split("=") for part in rows["BUPA+", title].options.split(", "))
        options["C"] = 4.0 ** round(np.log(float(options["C"])) / np.log(4.0))
        scores, curves = [], []
        for number in range(10):
            order = np.random.default_rng((SEED, number)).permutation(40)
            y = np.where(table[order, 6] == 1, 1, -1)
            twin, predicted = naive.make(learner, **options), []
            for row, label in zip(table[order, :6], y.tolist(), strict=True):
                predicted.append(twin.predict(named(row)))
                twin.learn(named(row), label)
            scores.append([f1_score(y, predicted, pos_label=label) for label in (1, -1)])
            curves.append(np.cumsum(predicted != y) / np.arange(1, 41))
        for of, column in (("BUPA+", 0), ("BUPA-", 1)):
            assert rows[of, title].ours == pytest.approx(100 * np.mean(scores, axis=0)[column])
            assert rows[of, title].spread == pytest.approx(100 * np.std(scores, axis=0)[column])
        (drawn,) = [line for line in figure.panels[0].lines if line.name == title]
        assert drawn.y == pytest.approx(np.mean(curves, axis=0), rel=1e-4)


def test_spa_counts_are_those_of_the_twins(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    digits = np.arange(120) % 10
    x = draw.normal(size=(120, 12)).round(2) / 4
    x[np.arange(120), digits] += 0.5
    rows = "\n".join(" ".join(map(str, [digit, *row])) for digit, row in zip(digits, x.tolist(), strict=True))
    for name in data.SOURCES["usps"].files:
        write(tmp_path, name, rows.encode())
    table, *_ = spa.PARTS[0].run(tmp_path)
    assert isinstance(table, Table)
    found = {(row.of, row.learner): row.ours for row in table.rows}
    order = np.random.default_rng((SEED, 0)).permutation(120)
    for title, learner in (("Perc", "perceptron"), ("PA", "pa")):
        twin, mistakes, updates = naive.make(learner, task="multiclass"), 0, 0
        for digit in range(10):
            twin.meet({}, digit)
        for i in order.tolist():
            features, before = named(x[i]), {label: w.copy() for label, w in twin.w.items()}
            mistakes += twin.predict(features) != digits[i]
            twin.learn(features, int(digits[i]))
            updates += any(w.size != before[label].size or (w != before[label]).any() for label, w in twin.w.items())
            if i == order[0]:
                updates = int(any(w.any() for w in twin.w.values()))
        assert found["mistakes", title] == mistakes
        assert found["updates", title] == updates


def test_the_view_difference_is_that_of_the_twin() -> None:
    draw = np.random.default_rng(2)
    y = draw.integers(0, 2, 40)
    views = [(draw.random((40, width)) < 0.3) * np.where(y == 1, 1.0, 0.7)[:, None] for width in (5, 7)]
    views[0][3] = 0
    given = tuple(Examples(sparse.csr_array(x), y) for x in views)
    figure = two_view._difference("Ads", "Ads", (given[0], given[1]))
    order = np.random.default_rng((SEED, 0)).permutation(40)
    twin, differences = naive.make("two_view_pa", C=0.1, gamma=0.5), []
    for i in order.tolist():
        x = {"a": named(views[0][i]), "b": named(views[1][i])}
        scores = twin.view_scores(x, naive.BINARY)  # type: ignore[attr-defined]
        differences.append(abs(scores[0] - scores[1]) if len(scores) == 2 else None)
        twin.learn(x, 2 * int(y[i]) - 1)
    counted = [(i + 1, value) for i, value in enumerate(differences) if value is not None]
    (drawn,) = [line for line in figure.panels[1].lines if line.name == "two-view"]
    assert drawn.x == [i for i, _ in counted]
    means = np.cumsum([value for _, value in counted]) / np.arange(1, len(counted) + 1)
    assert drawn.y == pytest.approx(means, rel=1e-4, abs=1e-9)
    assert len(counted) < 40


def test_synthetic_examples_are_as_the_paper_describes_them() -> None:
    run_ = arow_synthetic._draw(0, 10.0)
    x, truth = np.asarray(run_.train.x), run_.truth
    assert x.shape == (5_000, 20)
    assert (run_.train.y != truth).mean() == pytest.approx(0.1, abs=0.02)
    assert ((x[:, 1] - x[:, 0] > 0) == truth).all()  # the separator is the long axis, at 45 degrees
    spread = np.linalg.eigvalsh(np.cov(x[:, :2].T))
    assert spread == pytest.approx([1, 100], rel=0.1)
    assert x[:, 2:].var(axis=0) == pytest.approx(2 * np.ones(18), rel=0.15)
    assert np.asarray(run_.test.x).shape == (10_000, 20)


def test_noise_replaces_labels_by_others() -> None:
    y = np.arange(4_000) % 20
    noisy = arow_text._noisy(Examples(sparse.csr_array((4_000, 1)), y), 0.25).y
    assert (noisy != y).mean() == pytest.approx(0.25, abs=0.03)
    assert sorted(set(noisy.tolist())) == list(range(20))
    flipped = arow_noise._noisy(Examples(sparse.csr_array((4_000, 1)), y % 2), 0.1).y
    assert (flipped != y % 2).mean() == pytest.approx(0.1, abs=0.02)


def test_ranks_are_means_over_tasks() -> None:
    """Two tasks: AROW, CW, PA, SOP come 1, 2, 3, 4, then share the places 1 and 2 by two."""
    errors = np.array([[[0.1, 0.2, 0.3, 0.4]] * 6, [[0.1, 0.1, 0.3, 0.3]] * 6])
    table, figure = arow_noise._shown("text", errors)
    assert isinstance(table, Table)
    ours = {row.learner: row.ours for row in table.rows if row.of == "noise 0.3"}
    assert ours == {"AROW": 1.25, "CW": 1.75, "PA": 3.25, "SOP": 3.75}
    assert isinstance(figure, Figure)
    assert figure.panels[0].lines[0] == Line("noise 0", [80, 90], [90, 90])
    assert figure.claims[0].holds is False  # on one of two tasks both are as accurate


# Results, pictures, the page.


RESULTS = Results(
    {"seed": 1},
    {
        "pam": [
            Done(
                "a part",
                1.5,
                [
                    Table(
                        "PAM, table 1",
                        "F1 (%)",
                        "Different.",
                        [
                            Row("BUPA", "PA", 60.0, 58.1, 1.0, 2.0, "C=1"),
                            Row("BUPA", "PAM", 60.0, 57.9, 1.0, 2.0),
                            Row("CRX", "PAM", None, 0.125),
                        ],
                        [Claim("PAM is better", False, "57.9 to 58.1")],
                    )
                ],
                [
                    Figure(
                        "pam-x",
                        "PAM, figure 1",
                        "Shows.",
                        [
                            Panel("<b>$x$", "examples", "rate", [curve("PA", [0.5, 0.25]), curve("$PAM", [0.4, 0.2])]),
                            Panel("", "examples", "other", [curve("PA", [0.5, 0.25])], "log"),
                            Panel("", "accuracy", "points", [Line("noise", [80, 90], [85, 80])], "points"),
                            Panel("", "", "boxes", [box("PA", [1, 2, 3]), box("$PAM", [2, 2, 5])], "boxes"),
                        ],
                    )
                ],
            )
        ]
    },
    ["spa needs usps"],
)


def test_results_are_what_their_json_says() -> None:
    text = json.dumps(plain(RESULTS)).encode()
    assert parse(text) == RESULTS
    rows = json.loads(text)["papers"]["pam"][0]["tables"][0]["rows"]
    assert [row["met"] for row in rows] == [True, False, None]  # 1.9 and 2.1 from theirs, whose deviation is 1


@pytest.mark.parametrize("text", [b"", b"{}", b'{"environment": {}, "papers": {"pam": [1]}}'])
def test_other_json_is_no_results(text: bytes) -> None:
    with pytest.raises(FileFormatError, match="no results of palearn reproduce"):
        parse(text)


def test_a_picture_s_name_is_no_path_and_papers_are_known() -> None:
    text = json.dumps(plain(RESULTS))
    with pytest.raises(FileFormatError, match="no results of palearn reproduce"):
        parse(text.replace('"pam-x"', '"../pam-x"').encode())
    with pytest.raises(FileFormatError, match=re.escape("papers that palearn does not know: ['pan']")):
        parse(text.replace('"pam": [', '"pan": [').encode())


def test_the_page_says_what_is_met_and_what_does_not_hold() -> None:
    text = page.render(RESULTS, "reproduction")
    assert "| BUPA | **58.1 ± 2**<br>60 ± 1 | 57.9 ± 2<br>60 ± 1 |" in text
    assert "| CRX |  | 0.125<br>- |" in text
    assert "- **does not hold**: PAM is better (57.9 to 58.1)" in text
    assert "| 0 | 1 | 2 |" in text
    assert "spa needs usps." in text
    assert "](reproduction/pam-x.png)" in text


def test_every_kind_of_panel_is_drawn(tmp_path: Path) -> None:
    (path,) = pictures.draw(RESULTS, tmp_path / "new")
    assert path == tmp_path / "new/pam-x.png"
    with Image.open(path) as picture:
        width, height = picture.size
        colours = picture.convert("RGB").getcolors(2**20)
    assert width > 2 * height
    assert colours is not None
    assert len(colours) > 10


def test_the_page_follows_from_the_results() -> None:
    results = parse(COMMITTED.read_bytes())
    assert PAGE.read_text(encoding="utf-8") == page.render(results, "reproduction")
    assert {paper: [part.part for part in parts] for paper, parts in results.papers.items()} == {
        paper: [part.name for part in parts] for paper, parts in runs.PARTS.items()
    }
    assert list(results.papers) == list(PAPERS)
    assert results.missing == []


def test_the_page_has_its_pictures() -> None:
    drawn = set(re.findall(r"\]\(reproduction/([\w-]+\.png)\)", PAGE.read_text(encoding="utf-8")))
    files = list((ROOT / "docs/reproduction").iterdir())
    assert drawn == {file.name for file in files}
    assert len(drawn) > 10
    assert max(file.stat().st_size for file in files) < 100_000
    for file in files:
        with Image.open(file) as picture:
            picture.verify()


# The command.


def test_a_paper_with_data_that_ship(run: Any, tmp_path: Path) -> None:
    """The figures are those of the committed results, which another run has made."""
    status, text, error = run("reproduce", "two-view", "--plot", str(tmp_path), "--json")
    assert status == 0, error
    found = json.loads(text)
    part = parse(COMMITTED.read_bytes()).papers["two-view"][0]
    (table,) = found["papers"]["two-view"][0]["tables"]
    for row, known in zip(table["rows"], part.tables[0].rows, strict=True):
        assert (row["of"], row["learner"]) == (known.of, known.learner)
        assert row["ours"] == pytest.approx(known.ours, rel=1e-9)
    assert [path.name for path in tmp_path.iterdir()] == ["two-view-ads.png"]
    assert len(found["missing"]) == 1
    assert "webkb_course/page.svm.gz, webkb_course/link.svm.gz" in found["missing"][0]


def test_what_is_missing_is_told_with_where_it_is_to_be_had(run: Any, tmp_path: Path) -> None:
    for options, where in (((), "--data"), (("--data", str(tmp_path)), str(tmp_path))):
        status, text, error = run("reproduce", "spa", *options)
        assert (status, text) == (1, "")
        (line,) = error.strip().splitlines()
        assert "usps/zip.train.gz, usps/zip.test.gz" in line
        assert data.SOURCES["usps"].url in line
        assert where in line
        assert all(part.name in line for part in runs.PARTS["spa"])


def test_every_part_s_data_sets_are_known() -> None:
    parts = [part for each in runs.PARTS.values() for part in each]
    assert {name for part in parts for name in part.sets} == set(data.SOURCES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bupa/bupa.data", b"1,2,x\n"),
        ("bupa/bupa.data", b""),
        ("crx/credit.a.arff", b"nothing"),
        ("webkb_course/page.svm.gz", b"what: is this\n"),
        ("mnist/t10k-images-idx3-ubyte.gz", b"1"),
        ("usps/zip.train.gz", b"a b c\n"),
    ],
    ids=["bupa-word", "bupa-empty", "crx", "webkb", "mnist", "usps"],
)
def test_a_file_of_something_else_is_named(run: Any, tmp_path: Path, name: str, content: bytes) -> None:
    source = next(key for key, value in data.SOURCES.items() if name in value.files)
    for file in data.SOURCES[source].files:
        write(tmp_path, file, content)
    read = {"bupa": data.bupa, "crx": data.crx, "webkb": data.webkb, "mnist": data.mnist, "usps": data.usps}[source]
    with pytest.raises(FileFormatError, match=re.escape(name.split("/")[1].removesuffix(".gz"))):
        read(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pa"], "no paper is called 'pa'; there are pam, spa, pa-mean, two-view, arow"),
        (["--results", str(COMMITTED), "pam"], "leave out the papers and --data"),
        (["--results", str(COMMITTED), "--write", "page.html"], "got 'page.html'"),
        (["--data", "nowhere"], "does not exist"),
    ],
    ids=["paper", "results", "page", "folder"],
)
def test_wrong_use(run: Any, arguments: list[str], told: str) -> None:
    status, text, error = run("reproduce", *arguments)
    assert (status, text) == (2, "")
    assert told in " ".join(re.sub("[│╭╮╰╯─]", " ", error).split())


def test_results_of_an_earlier_run_are_shown_and_written(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(plain(RESULTS)))
    status, text, error = run("reproduce", "--results", str(path), "--write", str(tmp_path / "page.md"))
    assert (status, error) == (0, "")
    assert "DOES NOT HOLD: PAM is better (57.9 to 58.1)" in text
    assert "spa needs usps" in text
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page.render(RESULTS, "page")
    assert (tmp_path / "page/pam-x.png").is_file()
    path.write_text("{}")
    status, _, error = run("reproduce", "--results", str(path))
    assert status == 1
    assert "results.json: these are no results" in " ".join(error.split())
