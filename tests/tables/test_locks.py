"""The lock files: every requirement has a hash, and every installation asks for them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")


def requirements(lock: Path) -> dict[str, str]:
    """Return what each requirement of a lock file is followed by."""
    text = re.sub(r"^ *#.*\n", "", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {found[1]: found[0] for found in re.finditer(r"^(\S+)(?:.*\\\n)*.*\n", text, re.MULTILINE)}


def test_there_are_four_lock_files() -> None:
    kinds = ("-audit", "-build", "-runtime", "")
    assert [lock.name for lock in LOCKS] == [f"requirements{kind}.lock" for kind in kinds]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_is_one_version_with_a_hash(lock: Path) -> None:
    found = requirements(lock)
    assert len(found) > 5
    for name, text in found.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+(\[[\w,]+\])?==[\w.+!-]+", name), name
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", text), name


@pytest.mark.parametrize(
    ("name", "text"), [("Makefile", MAKEFILE), ("Dockerfile", DOCKERFILE)], ids=["Makefile", "Dockerfile"]
)
def test_what_is_installed_from_a_lock_file_is_asked_for_by_hash(name: str, text: str) -> None:
    commands = text.replace("\\\n", " ")
    installing = [line for line in re.split(r"\n|&&", commands) if re.search(r"-r \S*requirements\S*\.lock", line)]
    assert len(installing) >= 2, name
    for line in installing:
        assert "--require-hashes" in line, line


def test_nothing_else_comes_from_an_index() -> None:
    """Whatever pip installs without a lock file is a wheel that was just made."""
    commands = f"{MAKEFILE}\n{DOCKERFILE}".replace("\\\n", " ")
    others = [
        line
        for line in re.split(r"\n|&&", commands)
        if re.search(r"\bpip\b.*\b(install|wheel)\b|PIP_INSTALL\)|INTO_ENVIRONMENT\)", line)
        and not line.startswith(("PIP_INSTALL", "INTO_ENVIRONMENT"))
        and "--require-hashes" not in line
    ]
    assert [line for line in others if "--no-deps" not in line and "pip install uv" not in line] == []


def test_the_checksums_of_jars_are_lists_that_sha256sum_reads() -> None:
    lists = sorted((ROOT / "palearn").glob("*/*.sha256"))
    assert {file.name for file in lists} >= {"jars.sha256", "connector-4.2.0.sha256"}
    for file in lists:
        lines = file.read_text(encoding="utf-8").splitlines()
        listed = [line for line in lines if not line.startswith("#")]
        assert all(re.fullmatch(r"[0-9a-f]{64}  \S+\.jar", line) for line in listed)
        assert len({line.split()[1] for line in listed}) == len(listed) > 10
