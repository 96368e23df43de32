"""The jar of palearn's checkpoint file manager, from its source: ``python -m tests.jar`` writes it anew.

It has no times in it: the same source and compiler give the same bytes. Compiled for Java 17 against the Spark that is
installed and the jars of s3a that ``palearn prepare`` has fetched.
"""

import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from palearn.spark import connectors

SOURCE = Path(connectors.__file__).parent / "java/ObjectStoreCheckpointFileManager.java"


def classes(folder: Path) -> dict[str, bytes]:
    """Compile, and return the content of each class by its name in the jar."""
    path = [*(Path(pyspark.__file__).parent / "jars").glob("*.jar"), *connectors.s3a_jars()]
    command = ["javac", "--release", "17", "-g:none", "-proc:none", "-d", str(folder), "-cp", ":".join(map(str, path))]
    subprocess.run([*command, str(SOURCE)], check=True, capture_output=True)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.class"))}


def main() -> None:
    """Write the jar."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(connectors.MANAGER_JAR, "w") as jar:
        for name, content in {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n\n", **classes(Path(folder))}.items():
            jar.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


if __name__ == "__main__":
    main()
