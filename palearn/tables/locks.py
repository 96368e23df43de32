"""One process at a time in a folder: a job on its checkpoint and output, ``palearn compact`` on an output."""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from palearn.errors import ConfigError
from palearn.tables.folder import Folder

#: How long a killed job may take to go, in seconds.
_DYING_S = 3.0
#: What file systems that know no locks answer: many of those that are mounted over a network.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


@contextmanager
def locked(
    folder: Folder,
    *parts: str,
    who: str = "job",
    way: str = "stop it first, or choose a new checkpoint and a new output",
) -> Iterator[None]:
    """Let one job at a time run on a checkpoint or an output; ``parts`` tell where in it the lock is.

    On a local disk by a lock that ends with the process, however that ends. Elsewhere, and on a mounted disk that knows
    no locks, Spark's own log of batches stops the second job at its first commit, and runs stage their files apart.

    Raises
    ------
    ConfigError
        Another job runs.
    """
    if not folder.is_local:
        yield
        return
    folder.fs.create_dir(folder.at(*parts), recursive=True)
    name = folder.at(*parts, "palearn.lock")
    with open(name, "a+", encoding="utf-8") as file:  # not "w": the other's words are in it
        if not _taken(file):
            file.seek(0)
            raise ConfigError(f"another {who} runs on {folder.path} ({file.read().strip()}); {way}")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _taken(file: TextIO) -> bool:
    """Take a lock; wait a little for a job that was killed just now, which holds it until the last of it is gone."""
    until = time.monotonic() + _DYING_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return True
