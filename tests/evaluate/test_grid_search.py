"""The search: candidates, what chooses and what is reported, keys, processes, and going on where it stopped."""

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

import palearn
from benchmarks.common import family
from palearn import datasets, records
from palearn.errors import ConfigError, LearnerError
from palearn.evaluate.grid_search import Plan, Tried, candidates, configuration, ends, grid, search
from palearn.evaluate.prequential import Examples, settings_of
from palearn.files.options import ReadOptions
from palearn.records import Record

N = 3000


@pytest.fixture(scope="module")
def people() -> list[Record]:
    return [record for _, record in zip(range(N), datasets.a9a(), strict=False)]


@pytest.fixture(scope="module")
def file(people: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search") / "people.jsonl"
    path.write_bytes(b"".join(records.encode(record) + b"\n" for record in people))
    return path


def plan(source: object, learners: list[str], grids: dict[str, list[object]], **more: object) -> Plan:
    examples = Examples(source, ReadOptions(key=more.pop("key", None)))
    return Plan(examples, settings_of(), candidates(learners, grids), **more)


def mistakes_by_hand(people: list[Record], algorithm: str, params: dict[str, float]) -> list[bool]:
    model, wrong = palearn.make(algorithm, **params), []
    for record in people:
        wrong.append(model.predict_one(record.features) != (1 if record.label == 1 else -1))
        model.learn_one(record.features, record.label)
    return wrong


def test_the_first_part_chooses_and_the_rest_is_reported(people: list[Record], file: Path) -> None:
    found = search(plan(file, ["pa1", "arow"], {"C": [0.01, 1.0], "r": [1.0]}), processes=1)
    assert {(x.algorithm, *x.params.values()) for x in found} == {("pa1", 0.01), ("pa1", 1.0), ("arow", 1.0)}
    for tried in found:
        wrong = mistakes_by_hand(people, tried.algorithm, tried.params)
        assert (tried.tune_n, tried.n) == (N // 2, N // 2)
        assert tried.tune_mistakes == sum(wrong[: N // 2])
        assert tried.mistakes == sum(wrong[N // 2 :])
        assert tried.error == tried.mistakes / tried.n
    assert [x.tune_mistakes for x in found] == sorted(x.tune_mistakes for x in found)
    assert found[0].tune_error == found[0].tune_mistakes / (N // 2)
    (learner,) = configuration(found[0])["learners"]
    assert learner == {"name": found[0].algorithm, "algorithm": found[0].algorithm, **found[0].params}


def test_a_choice_at_an_end_of_its_grid_is_told() -> None:
    def tried(**params: object) -> Tried:
        return Tried("arow", params, 10, 1, 10, 1)

    found = [tried(r=r, covariance=kind, constraints=1) for r in (0.5, 2.0, 8.0) for kind in ("full", "diagonal")]
    assert ends(found) == {"r": "least"}
    assert ends(found[::-1]) == {"r": "largest"}
    assert ends([found[2], *found, Tried("pa1", {"C": 1.0}, 10, 1, 10, 1)]) == {}
    assert ends([tried(constraints="all"), tried(constraints=1)]) == {}


def test_the_share_that_chooses_and_keys(people: list[Record], file: Path) -> None:
    (tried,) = search(plan(file, ["pa1"], {"C": [0.1]}, key="occupation", choose=0.2))
    models: dict[str, palearn.Model] = {}
    wrong = []
    for record in people:
        key = records.record_key(record, "occupation")
        if key is None:  # rejected: no key
            continue
        model = models.setdefault(key, palearn.make("pa1", C=0.1))
        wrong.append(model.predict_one(record.features) != (1 if record.label == 1 else -1))
        model.learn_one(record.features, record.label)
    assert tried.tune_n >= 0.2 * len(wrong)
    assert tried.tune_n - 0.2 * len(wrong) <= 0.01 * len(wrong)
    assert tried.tune_n + tried.n == len(wrong)
    assert (tried.tune_mistakes, tried.mistakes) == (sum(wrong[: tried.tune_n]), sum(wrong[tried.tune_n :]))


def test_processes_change_nothing(file: Path) -> None:
    chosen = plan(file, ["pa1"], {"C": [2.0**k for k in range(-4, 1)]})
    seen: list[tuple[int, int]] = []
    assert search(chosen, processes=2, progress=lambda *done: seen.append(done)) == search(chosen, processes=1)
    assert [all_ for _, all_ in seen] == [5, 5]
    assert seen[-1] == (5, 5)


def test_the_processes_of_a_search_that_is_killed_end_too(file: Path) -> None:
    code = (
        "import sys; from tests.evaluate.test_grid_search import plan\n"
        "from palearn.evaluate.grid_search import search\n"
        "many = plan(sys.argv[1], ['pa1'], {'C': [k / 50 for k in range(1, 200)]})\n"
        "search(many, processes=2)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(file)], cwd=Path(__file__).parents[2]) as process:
        until = time.monotonic() + 60
        while len(family(process.pid)) < 4:  # itself, two workers, and what follows their resources
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        started = family(process.pid)
        process.kill()
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_is_done_is_not_run_again(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "done.jsonl"
    one = plan(file, ["pa1"], {"C": [0.1]})
    two = plan(file, ["pa1"], {"C": [0.1, 1.0]})
    first = search(one, resume=noted, processes=1)
    noted.write_bytes(noted.read_bytes() + b'\n{"mark":"x","tried":{"algor')  # killed while it wrote
    seen: list[tuple[int, int]] = []
    both = search(two, resume=noted, processes=1, progress=lambda *done: seen.append(done))
    assert seen == [(2, 2)]
    assert first[0] in both
    assert both == search(two, processes=1)
    monkeypatch.setattr("palearn.evaluate.grid_search._race", lambda *_: pytest.fail("nothing is left to run"))
    assert search(two, resume=noted, processes=1) == both

    monkeypatch.undo()
    file.touch()  # other examples, for all that is known
    seen.clear()
    search(one, resume=noted, processes=1, progress=lambda *done: seen.append(done))
    assert seen == [(1, 1)]


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("C=2^-2:2^1", "C", [0.25, 0.5, 1.0, 2.0]),
        ("r=10^-1:10^1", "r", [0.1, 1.0, 10.0]),
        ("C=0.01:100:3", "C", [0.01, 1.0, 100.0]),
        ("C=0.1,1,2^3", "C", [0.1, 1, 8.0]),
        ("constraints=1,all", "constraints", [1, "all"]),
        ("as_printed=true,false", "as_printed", [True, False]),
    ],
)
def test_grids(text: str, name: str, values: list[object]) -> None:
    found, chosen = grid(text)
    assert found == name
    assert chosen == pytest.approx(values) if all(isinstance(x, float) for x in values) else chosen == values


@pytest.mark.parametrize("text", ["C", "C=", "=1", "C=1:2", "C=2^1:3^2", "C=0:1:3", "C=2:1:3", "C=1:2:3:4"])
def test_what_is_no_grid(text: str) -> None:
    with pytest.raises(ConfigError, match="--grid"):
        grid(text)


def test_candidates() -> None:
    assert len(candidates(["arow"], {"r": [1.0, 2.0], "loss": ["hinge", "squared_hinge"]})) == 4
    assert [params for _, params in candidates(["pa1"], {})] == [{"C": 2.0**k} for k in range(-6, 7, 2)]
    assert candidates(["perceptron"], {}) == (("perceptron", {}),)
    with pytest.raises(ConfigError, match="none of pa1 has a hyper-parameter q"):
        candidates(["pa1"], {"q": [1]})
    with pytest.raises(LearnerError, match="unknown learner 'pa9'"):
        candidates(["pa9"], {})
    with pytest.raises(ConfigError, match="share that chooses"):
        search(Plan(Examples([]), settings_of(), (("pa1", {}),), choose=1.0))


def test_no_examples_have_no_error() -> None:
    (tried,) = search(Plan(Examples([]), settings_of(), (("pa1", {}),)))
    assert tried == Tried("pa1", {}, 0, 0, 0, 0)
    assert math.isnan(tried.error)
