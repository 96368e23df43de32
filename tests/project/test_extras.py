"""Packages: the wheel and the sdist are complete, and the wheel without extras does what needs none of them."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import palearn
from palearn import errors
from tests.outputs import Job
from tests.streams import learner, plan, rows

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: Commands of what is installed without extras, as the documents list them, and a piece of their answer.
WORKS = [
    (["--version"], "no pyspark installed"),
    (["learners"], "two_view_pa"),
    (["evaluate", "people.jsonl", "--learner", "pa1"], "predicting no change"),
    (["search", "people.jsonl", "--learner", "pa1", "--key", "key"], "error"),
    (["generate", "--records", "100"], '"features"'),
    (["models", "out"], "alice"),
    (["predict", "out", "people.jsonl", "--key", "key"], "predicted"),
    (["report", "out"], "pa1"),
    (["watch", "out", "--once"], "pa1"),
    (["compact", "out"], "compacted 0 files to 0"),
]
#: Commands that need an extra, and which.
NEEDS = [
    (["stream", "--config", "job.yaml"], "spark"),
    (["replay", "--config", "job.yaml", "--input", "people.jsonl"], "spark"),
    (["state", "export", "checkpoint", "exported"], "spark"),
    (["produce", "people.jsonl", "--topic", "people"], "kafka"),
    (["serve", "out"], "serve"),
    (["report", "out", "--plot", "error.png"], "plots"),
]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    for what in (["pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, "."], ["build", "--sdist", "--no-isolation", "-o", folder, "."]):  # fmt: skip # noqa: E501
        subprocess.run([sys.executable, "-m", *map(str, what)], cwd=ROOT, capture_output=True, check=True)
    return folder


def closure(requirements: list[str], extra: str = "") -> Iterator[str]:
    """Yield the names of all distributions that requirements bring."""
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        yield wanted.name
        for more in wanted.extras or {""}:
            yield from closure(metadata.requires(wanted.name) or [], more)


@pytest.fixture(scope="module")
def bare(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a venv with the wheel and what it requires without extras, installed from a folder."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    site = next(place.glob("lib/python3.*/site-packages"))
    for name in set(closure(PROJECT["dependencies"])):
        for file in metadata.files(name) or ():
            top = Path(file.parts[0])
            if file.parts[0] not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(file.locate().parents[len(file.parts) - 1] / top)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, *map(str, dist.glob("*.whl"))], capture_output=True, check=True)
    return place


@pytest.fixture(scope="module")
def work(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with records, a configuration and the output of a job."""
    folder = tmp_path_factory.mktemp("work")
    lines = [f'{{"label": {1 if i % 3 else -1}, "key": "alice", "features": {{"x": {i % 7}, "y": 1}}}}' for i in range(300)]  # fmt: skip # noqa: E501
    (folder / "people.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "job.yaml").write_text(
        "source: {kafka: {bootstrap_servers: '127.0.0.1:1', topics: [t]}}\nlearners: [{algorithm: pa1}]\n"
        "output: {path: new}\ncheckpoint: checkpoint\n",
        encoding="utf-8",
    )
    items = [("alice", {"label": 1 if i % 3 else -1, "features": {"x": i % 7, "y": 1}}) for i in range(60)]
    Job(folder / "out", plan(learner("pa1"))).run([rows(items[:30]), rows(items[30:], first=30)])
    return folder


def run(bare: Path, work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"COLUMNS": "200"}
    command = [str(bare / "bin/palearn"), *arguments]
    return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("arguments", "told"), WORKS, ids=lambda x: x[0] if isinstance(x, list) else "")
def test_what_needs_no_extra_works_without_any(bare: Path, work: Path, arguments: list[str], told: str) -> None:
    done = run(bare, work, *arguments)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout


@pytest.mark.parametrize(("arguments", "extra"), NEEDS, ids=lambda x: x[0] if isinstance(x, list) else x)
def test_what_needs_an_extra_says_which(bare: Path, work: Path, arguments: list[str], extra: str) -> None:
    done = run(bare, work, *arguments)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert re.fullmatch(
        rf"palearn: this needs \w+, which is not installed: pip install 'palearn\[{extra}\]'", lines[-1]
    )
    assert "Traceback" not in done.stderr


def test_python_says_which_extra_scores_frames(bare: Path, work: Path) -> None:
    done = subprocess.run(
        [bare / "bin/python", "-c", "import palearn.spark; palearn.spark.score"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "MissingExtraError: this needs pyspark, which is not installed: pip install 'palearn[spark]'" in done.stderr


def test_every_extra_that_is_named_is_there() -> None:
    assert set(errors.EXTRAS.values()) <= EXTRAS.keys()
    (together,) = EXTRAS["all"]
    assert Requirement(together).extras == EXTRAS.keys() - {"all", "dev", "store"}


def test_wheel_and_sdist_have_every_file_of_the_package(dist: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "palearn"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {path for path in listed.stdout.split() if (ROOT / path).exists()}
    assert len(tracked) > 150
    (wheel,) = dist.glob("palearn-*.whl")
    (sdist,) = dist.glob("palearn-*.tar.gz")
    assert tracked <= {*zipfile.ZipFile(wheel).namelist()}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked | {"README.md", "CHANGELOG.md", "Makefile", "requirements.lock", "LICENSE"} <= inside


def test_the_version_is_said_once_everywhere() -> None:
    assert palearn.__version__ == PROJECT["version"] == metadata.version("palearn")
