"""The jar of the checkpoint file manager is made of the source beside it."""

import subprocess
import zipfile
from pathlib import Path

from palearn.spark import connectors
from tests import jar


def test_the_jar_is_its_source_compiled(tmp_path: Path) -> None:
    """Another compiler may order the pool of constants otherwise: names of classes and sizes are compared then."""
    compiled = jar.classes(tmp_path)
    with zipfile.ZipFile(connectors.MANAGER_JAR) as kept:
        there = {name: kept.read(name) for name in kept.namelist() if name.endswith(".class")}
    assert there.keys() == compiled.keys()
    assert sorted(there) == ["palearn/ObjectStoreCheckpointFileManager$Upload.class", "palearn/ObjectStoreCheckpointFileManager.class"]  # fmt: skip # noqa: E501
    for name, content in compiled.items():
        assert content[:8] == there[name][:8] == b"\xca\xfe\xba\xbe\x00\x00\x00\x3d", "Java 17's"
        assert len(content) == len(there[name]), name
        assert content == there[name] or not is_same_compiler(), name


def is_same_compiler() -> bool:
    """Whether the jar was made by a javac of this feature release."""
    told = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True).stdout
    return told.startswith("javac 17.")
