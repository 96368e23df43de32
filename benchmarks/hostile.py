"""Hostile data: mutated records, states and files, in a process of their own that must neither die, hang nor swell.

Every input is made from a valid one by a random generator of its own seed (:mod:`benchmarks.hostile_inputs`), so
``--kind K --seed S`` repeats it. Of each must hold: it is used, or refused with a PalearnError (a record: with a
reason); the process lives; it takes at most :data:`SECONDS`; and memory stays below what its kind states.

Run ``python -m benchmarks.hostile --inputs 1000000 --json``.
"""

import argparse
import faulthandler
import json
import mmap
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.common import environment, show
from benchmarks.hostile_inputs import KINDS, MB, Kind, mutated
from palearn.errors import PalearnError

#: The longest that one input may take. A child that does not get on for so long is stuck where no signal reaches it; it
#: may compile kernels before its first input.
SECONDS, SILENT_SECONDS = 10, 240
_AT = struct.Struct("<qqq")  # kind, seed, and how many inputs were begun


class TooMuch(Exception):
    """An input did what none may do."""


# -- the child -------------------------------------------------------------------------------------------


def try_all(shares: dict[str, int], first: int, place: Path) -> dict[str, Any]:
    """Try so many inputs of each kind, seeds from ``first`` on; ``place`` always says which one is being tried."""
    signal.signal(signal.SIGALRM, _late)
    with place.open("r+b") as file, mmap.mmap(file.fileno(), _AT.size) as at:
        return {name: _try_kind(name, first, inputs, at) for name, inputs in shares.items()}


def _try_kind(name: str, first: int, inputs: int, at: mmap.mmap) -> dict[str, Any]:
    kind, number = KINDS[name], list(KINDS).index(name)
    valid = kind.valid()
    for data in valid:
        kind.use(data)  # compiles what it needs, and must pass
    before, began, told, slowest = _forget_peak(), time.perf_counter(), Counter[str](), 0.0
    for count, seed in enumerate(range(first, first + inputs), 1):
        at[:] = _AT.pack(number, seed, count)
        data = mutated(valid, seed, sealed=kind.sealed)
        start = time.perf_counter()
        told[_tried(kind, name, seed, data, before)] += 1
        slowest = max(slowest, time.perf_counter() - start)
    return {
        "inputs": inputs,
        "seconds": time.perf_counter() - began,
        "slowest_ms": slowest * 1e3,
        "grown_MB": (_peak() - before) / MB,
        "arrow_MB": pa.default_memory_pool().max_memory() / MB,
        "told": dict(told.most_common(8)),
    }


def _tried(kind: Kind, name: str, seed: int, data: bytes, before: int) -> str:
    """Try one input; say what came of it."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        came = kind.use(data)
    except PalearnError as error:
        came = type(error).__name__
    except BaseException as error:
        raise TooMuch(f"--kind {name} --seed {seed}: {error!r:.300}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown, most = _peak() - before, kind.times * len(data) + kind.constant_mb * MB
    if grown > most:
        raise TooMuch(
            f"--kind {name} --seed {seed}: {grown / MB:.0f} MB for {len(data)} bytes, {most / MB:.0f} allowed"
        )
    return came


def _late(*_: Any) -> None:
    raise TooMuch(f"no answer after {SECONDS} s")


def _peak() -> int:
    """Return the most memory that this process has had since :func:`_forget_peak`, in bytes."""
    # What getrusage says begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _forget_peak() -> int:
    """Begin a new measurement of the peak, where the system allows it; return where it stands."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass
    return _peak()


# -- the parent ------------------------------------------------------------------------------------------


def shares(inputs: int, kinds: dict[str, Kind] = KINDS) -> dict[str, int]:
    """Return how many of the inputs are of which kind; each kind has one at least."""
    whole = sum(kind.share for kind in kinds.values())
    return {name: max(1, round(inputs * kind.share / whole)) for name, kind in kinds.items()}


def run(parts: dict[str, int], first: int = 0) -> dict[str, Any]:
    """Try inputs in a child process.

    Raises
    ------
    TooMuch
        An input ended the child, held it up or broke a promise; the message says how to repeat it.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "place")
        place.write_bytes(bytes(_AT.size))
        command = [sys.executable, "-m", "benchmarks.hostile", "--child", json.dumps([parts, first, str(place)])]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = _watched(child, place)
        number, seed, _ = _AT.unpack(place.read_bytes())
    if child.returncode:
        name = list(KINDS)[number]
        raise TooMuch(f"the child ended with {child.returncode} at --kind {name} --seed {seed}:\n{err[-3000:]}")
    found: dict[str, Any] = json.loads(out)
    return found


def _watched(child: subprocess.Popen[str], place: Path) -> tuple[str, str]:
    """Wait for the child as long as it gets on; return what it wrote."""
    was = b""
    while True:
        try:
            return child.communicate(timeout=SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            now = place.read_bytes()
            if now == was:
                child.send_signal(signal.SIGABRT)
                return child.communicate()
            was = now


def main() -> None:
    """Try and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", choices=KINDS, help="only this kind")
    parser.add_argument("--seed", type=int, help="only this input, in this process")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    faulthandler.enable()
    if given.child:
        print(json.dumps(try_all(*_of_child(given.child))))
        return
    if given.seed is not None:
        kind = KINDS[given.kind]
        print(kind.use(mutated(kind.valid(), given.seed, sealed=kind.sealed)))
        return
    parts = {given.kind: given.inputs} if given.kind else shares(given.inputs)
    found = run(parts, given.first)
    told = {"environment": environment(), "arguments": vars(given), "inputs": sum(parts.values()), "kinds": found}
    show(told, as_json=given.json)


def _of_child(text: str) -> tuple[dict[str, int], int, Path]:
    parts, first, place = json.loads(text)
    return parts, first, Path(place)


if __name__ == "__main__":
    main()
