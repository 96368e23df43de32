"""What the broker runs on: Java, which has to be there, and Kafka's jars, which come from Maven Central.

The jars are kept in the user's cache folder, not in ``~/.m2``: jgo would leave POMs without their jars there
and Spark's own resolver fails on such a half-filled repository. The folder of jars is there whole or not at
all; what an interrupted download leaves is thrown away by the next one. It is compared with ``jars.sha256`` before
each use: a tenth of a second, and no jar runs that is not the one that was published.
"""

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from palearn.errors import BrokerError

_log = logging.getLogger(__name__)

KAFKA_VERSION = "4.3.1"

_KAFKA = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"

#: The oldest Java that Kafka 4 runs on.
MIN_JAVA = 17

_ATTEMPTS = 3
_CHECKSUMS = Path(__file__).with_name("jars.sha256")


def find_java() -> Path:
    """Return the first ``java`` of version 17 or newer, of ``JAVA_HOME`` and then of the ``PATH``.

    Raises
    ------
    BrokerError
        There is none; says what was found and what to install.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [home and shutil.which("java", path=str(Path(home) / "bin")), shutil.which("java")]
    found = []
    for candidate in dict.fromkeys(candidates):
        if candidate:
            version = _java_version(candidate)
            if version is not None and version >= MIN_JAVA:
                return Path(candidate)
            found.append(f"{candidate} is {'no working Java' if version is None else f'version {version}'}")
    message = (
        f"Kafka needs Java {MIN_JAVA} or newer; "
        f"{'; '.join(found) or 'neither JAVA_HOME nor PATH has a java'}. Install one (Debian, Ubuntu: "
        "apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@21), or let JAVA_HOME name it"
    )
    raise BrokerError(message)


def _java_version(java: str) -> int | None:
    """Return the feature version (8 for the old ``1.8.0_292``), or None when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def kafka_jars(progress: Callable[[int, int], None] | None = None) -> Path:
    """Return the folder that holds Kafka's jars; fetch them first when it is not there.

    Parameters
    ----------
    progress
        Called with the number of jars fetched and their total, while they are fetched.

    Raises
    ------
    BrokerError
        Maven Central cannot be reached, what came from it is not what was published, or a jar is damaged.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palearn"
    jars = cache / f"kafka-{KAFKA_VERSION}"
    if jars.exists():
        if fault := _fault(jars):
            raise BrokerError(f"{fault}, in {jars}; delete that folder, and the next start fetches Kafka again")
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            _log.info("fetching Kafka %s (about 45 MB) from Maven Central into %s", KAFKA_VERSION, jars)
            _fetch(cache / f"kafka-{KAFKA_VERSION}.partial", progress)
            (cache / f"kafka-{KAFKA_VERSION}.partial" / "jars").rename(jars)
            shutil.rmtree(cache / f"kafka-{KAFKA_VERSION}.partial")
    return jars


def _fetch(partial: Path, progress: Callable[[int, int], None] | None) -> None:
    """Fetch the jars into ``partial/jars``, from the beginning when an attempt fails."""
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            _download(partial, progress)
        except (OSError, RuntimeError, ValueError, SyntaxError) as error:
            # No network, no such file, and (from behind a proxy) a page of HTML in place of a POM.
            if attempt == _ATTEMPTS:
                message = (
                    f"cannot fetch Kafka {KAFKA_VERSION} from Maven Central: {error}. Check the network "
                    "(a proxy is named by HTTPS_PROXY), then try again"
                )
                raise BrokerError(message) from error
            time.sleep(attempt)
        else:
            return


def _download(partial: Path, progress: Callable[[int, int], None] | None) -> None:
    from jgo.maven import MavenContext

    folder = partial / "jars"
    folder.mkdir(parents=True)
    context = MavenContext(repo_cache=partial / "repository", timeout=30)
    given, transitive = context.resolver.resolve([context.create_dependency(_KAFKA)])
    artifacts = [d.artifact for d in (*given, *transitive) if d.scope in (None, "compile", "runtime")]
    # Kafka depends on slf4j and on log4j2, but not on what makes the one write through the other. It is asked
    # for on its own, or jgo lets log4j's table of versions replace those of Kafka.
    log4j = next(artifact for artifact in artifacts if artifact.artifactId == "log4j-core")
    binding = f"org.apache.logging.log4j:log4j-slf4j-impl:{log4j.version}"
    artifacts.append(context.create_dependency(binding).artifact)
    for done, artifact in enumerate(artifacts, 1):
        jar = artifact.resolve()  # jgo only warns when a checksum differs
        shutil.copy(jar, folder)
        if progress is not None:
            progress(done, len(artifacts))
    if fault := _fault(folder):
        raise OSError(fault)


def _fault(folder: Path) -> str | None:
    """Return what is wrong with the folder of Kafka's jars."""
    checksums = read_checksums(_CHECKSUMS)
    missing = checksums.keys() - {jar.name for jar in folder.iterdir()}
    if missing:
        return f"{min(missing)} is missing"
    return differing(folder.iterdir(), checksums)


def read_checksums(file: Path) -> dict[str, str]:
    """Return name -> SHA-256 of a list that sha256sum has printed."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if line[0] != "#")
    return {name: checksum for checksum, name in lines}


def differing(jars: Iterable[Path], checksums: dict[str, str]) -> str | None:
    """Return a sentence about the first jar that is not what its name says."""
    for jar in sorted(jars):
        with jar.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != checksums.get(jar.name):
                return f"{jar.name} is damaged, or not what Maven Central has under that name"
    return None
