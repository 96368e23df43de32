"""Signals that ask a stream to stop: SIGTERM and SIGINT, whatever moment they come at.

Before the query runs nothing is held, and the process leaves at once. From then on a signal only asks: the driver ends
the batch or leaves it, takes the last snapshot, and exits with 0. A second signal ends the process at once.
Nothing is imported here that takes time: a signal may come while all else is loaded.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

log = logging.getLogger("palearn.stream")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Whether a signal has asked the process to stop."""

    def __init__(self) -> None:
        self.asked = False
        self._holding = False
        self._listening = False

    def listen(self) -> None:
        """Take the signals from now on, which only a main thread can; PySpark takes one for itself when it starts."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._signalled)
            self._listening = True

    def begin(self) -> None:
        """Take the signals for one more stream: what asked an earlier one of this process to stop is over."""
        self.asked = self._holding = False
        self.listen()

    def hold(self) -> None:
        """Only be asked from now on: there is something to end."""
        self._holding = True
        self.listen()

    def end(self) -> None:
        """Let no signal disturb the end of the process: it is done, and a moment later it is gone."""
        if self._listening and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(128 + number)
        if not self._holding:
            _say("stopped before the first batch: nothing has changed")
            os._exit(0)
        self.asked = True


#: Signals are the process's: there is one of it.
STOP = Stop()


class Batches:
    """A ``foreachBatch`` function that begins no batch once the process is asked to stop.

    What it raises then is one line: Spark looks with a regular expression, whose stack grows with every character,
    whether an error of Python's is only the interruption. Java's own trace in it is too long for the stack of its
    thread, which would end with a trace of a thousand lines.

    Parameters
    ----------
    write
        Called for every batch before that, with the frame and the batch's number.
    """

    def __init__(self, write: Callable[[Any, int], None]) -> None:
        self._write = write
        #: Set when a batch waits, as it came after the signal; and by who stops the query, to let it end.
        self.held, self.over = threading.Event(), threading.Event()

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write a batch; one that comes after the signal waits for the end of the query, and is left."""
        left = RuntimeError(f"batch {batch_id} was left: the stream stops")
        if STOP.asked:
            self.held.set()
            self.over.wait()
            raise left
        try:
            self._write(frame, batch_id)
        except Exception:
            if STOP.asked:
                raise left from None
            raise


def _say(message: str) -> None:
    """Write a line of the log past its streams, which this may have interrupted."""
    record = log.makeRecord(log.name, logging.INFO, __file__, 0, message, (), None, extra={"event": "stopping"})
    handlers = logging.getLogger().handlers
    line = handlers[0].format(record) if handlers else message
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{line}\n".encode())


# -- children ------------------------------------------------------------------------------------------------

_shielding = False


def _shield_child() -> None:
    if _shielding:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_shield_child)


@contextmanager
def shielded() -> Iterator[None]:
    """Start processes that SIGTERM does not end: one that is sent to all of a job would take Spark's Java from it.

    Java ends by itself when this process does.
    """
    global _shielding
    _shielding = True
    try:
        yield
    finally:
        _shielding = False
