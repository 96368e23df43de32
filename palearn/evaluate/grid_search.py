"""Hyper-parameters by prequential error: one part of the stream's past chooses, the rest says how good the choice is.

Every candidate takes all examples in order, test-then-train. Its mistakes among the first part choose; those after it
are reported, as no choice has seen them. Candidates share passes, some in each process, so that a file is read a few
times and not once a candidate. What is done is written down, and not run again.
"""

import hashlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import msgspec

from palearn.errors import ConfigError, LearnerError
from palearn.evaluate.examples import Examples
from palearn.evaluate.prequential import compare
from palearn.learners import LEARNERS, Learner
from palearn.models.labels import Known
from palearn.models.state import Settings
from palearn.records import KINDS

#: The part of the examples that chooses ends at a multiple of so many records, or of a hundredth of a short stream.
_PIECE, _SHORT = 500, 10_000
#: Candidates of one pass.
_TOGETHER = 16
#: Values that a learner has when a grid names none for it.
_TWOS = tuple(2.0**k for k in range(-6, 7, 2))


class Tried(msgspec.Struct, frozen=True):
    """A candidate and its mistakes: of the first ``tune_n`` labelled examples, and of the ``n`` that follow."""

    algorithm: str
    params: dict[str, Any]
    tune_n: int
    tune_mistakes: int
    n: int
    mistakes: int

    @property
    def tune_error(self) -> float:
        """Error on the tuning part."""
        return self.tune_mistakes / self.tune_n if self.tune_n else math.nan

    @property
    def error(self) -> float:
        """Error on the hold-out part."""
        return self.mistakes / self.n if self.n else math.nan


class _Noted(msgspec.Struct, frozen=True):
    """A candidate with its results, and a mark of the search that it belongs to."""

    mark: str
    tried: Tried


@dataclass(frozen=True)
class Plan:
    """A search: candidates, what they learn from, and the share of the examples that chooses."""

    examples: Examples
    settings: Settings
    candidates: tuple[tuple[str, dict[str, Any]], ...]
    tie: str = "negative"
    choose: float = 0.5
    labels: Mapping[str, Known] | None = None


def ends(found: Sequence[Tried]) -> dict[str, str]:
    """Return which numbers of the first candidate are the ``least`` or ``largest`` of those tried with its learner."""
    best, out = found[0], {}
    for name, value in best.params.items():
        tried = {x.params[name] for x in found if x.algorithm == best.algorithm}
        if len(tried) < 2 or any(isinstance(x, bool) or not isinstance(x, int | float) for x in tried):
            continue
        if value in (min(tried), max(tried)):
            out[name] = "least" if value == min(tried) else "largest"
    return out


def grid(text: str) -> tuple[str, list[Any]]:
    """Return the name and values of a grid ``NAME=VALUES``.

    Values are separated by commas; ``LOW:HIGH`` are the powers between the two with the base that they are written
    with (``2^-4:2^4``, ``10^-3:10^1``), ``LOW:HIGH:COUNT`` as many values evenly spread by their logarithms.

    Raises
    ------
    ConfigError
        It is no grid.
    """
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise ConfigError(f"--grid takes NAME=VALUES such as C=2^-4:2^4 or r=0.1,1,10, got {text!r}")
    try:
        return name, [value for item in values.split(",") for value in _range(item)]
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ConfigError(
            f"--grid {text}: a range is LOW:HIGH of powers (2^-4:2^4) or LOW:HIGH:COUNT, both > 0"
        ) from None


def _range(item: str) -> list[Any]:
    parts = item.split(":")
    if len(parts) == 1:
        return [_value(item)]
    low, high = (_number(part) for part in parts[:2])
    if not 0 < low <= high or len(parts) > 3:
        raise ValueError(item)
    if len(parts) == 3:
        count = int(parts[2])
        step = math.log(high / low) / max(1, count - 1)
        return [low * math.exp(step * i) for i in range(count - 1)] + [high] * (count > 0)
    (base, first), (other, last) = (part.split("^") for part in parts)
    if base != other:
        raise ValueError(item)
    return [float(base) ** k for k in range(int(first), int(last) + 1)]


def _number(text: str) -> float:
    base, power, exponent = text.partition("^")
    return float(base) ** float(exponent) if power else float(text)


def _value(text: str) -> Any:
    """Return a number where the text is one, else a truth value or the word."""
    if text in ("true", "false"):
        return text == "true"
    try:
        number = _number(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in text and "^" not in text else number


def candidates(learners: Sequence[str], grids: Mapping[str, Sequence[Any]]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return every learner with every combination of the values that the grids have for it.

    A learner without a grid of its own is tried with powers of two for its first number (C, r, …).

    Raises
    ------
    ConfigError
        A grid's name is no hyper-parameter of any learner, or there is nothing to try.
    """
    out: list[tuple[str, dict[str, Any]]] = []
    for name in learners:
        if name not in LEARNERS:
            raise LearnerError(f"unknown learner {name!r}; known are {', '.join(LEARNERS)}")
        own = {p.name: p for p in LEARNERS[name].parameters}
        chosen = {key: values for key, values in grids.items() if key in own}
        if not chosen:
            numbers = [p for p in LEARNERS[name].parameters if isinstance(p.default, float) and p.above == 0]
            chosen = {numbers[0].name: _TWOS} if numbers else {}
        out += [(name, dict(zip(chosen, values, strict=True))) for values in itertools.product(*chosen.values())]
    unused = [key for key in grids if not any(key in {p.name for p in LEARNERS[x].parameters} for x in learners)]
    if unused:
        raise ConfigError(f"none of {', '.join(learners)} has a hyper-parameter {', '.join(unused)}")
    return tuple(out)


def search(
    plan: Plan,
    *,
    resume: Path | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tried]:
    """Try every candidate; return them, the best tuning error first.

    Parameters
    ----------
    resume
        A file in which finished candidates are noted; those that are in it are not run again.
    processes
        At most so many; None: as many as cores.
    progress
        Called with the number of candidates done and of all.
    """
    if not 0 < plan.choose < 1:
        raise ConfigError(f"the share that chooses must be between 0 and 1, got {plan.choose}")
    for algorithm, params in plan.candidates:
        Learner(algorithm, algorithm, task=plan.settings.task, tie=plan.tie, options=params)
    if resume is not None:
        _require_writable(resume)
    mark = _mark(plan)
    known = {_name(x.algorithm, x.params): x for x in _read(resume, mark)}
    left = [x for x in plan.candidates if _name(*x) not in known]
    cores = processes or os.cpu_count() or 1
    size = max(1, min(_TOGETHER, -(-len(left) // cores)))
    groups = [left[i : i + size] for i in range(0, len(left), size)]
    for tried in _run(plan, groups, cores):
        _append(resume, mark, tried)
        known |= {_name(x.algorithm, x.params): x for x in tried}
        if progress is not None:
            progress(len(known), len(plan.candidates))
    found = [known[_name(*x)] for x in plan.candidates]
    return sorted(found, key=lambda x: (x.tune_mistakes, _name(x.algorithm, x.params)))


def _run(plan: Plan, groups: list[list[tuple[str, dict[str, Any]]]], cores: int) -> Iterator[list[Tried]]:
    if len(groups) < 2:
        for group in groups:
            yield _race(plan, group)
        return
    # A fork would copy numba's and Arrow's threads in whatever state they are.
    context = get_context("spawn")
    with ProcessPoolExecutor(min(cores, len(groups)), mp_context=context, initializer=_end_with_parent) as pool:
        for future in as_completed([pool.submit(_race, plan, group) for group in groups]):
            yield future.result()


def _end_with_parent() -> None:
    """End this worker when the process that wants its results is gone, however that ended: nobody else would."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _race(plan: Plan, group: list[tuple[str, dict[str, Any]]]) -> list[Tried]:
    learners = [
        Learner(str(i), algorithm, task=plan.settings.task, tie=plan.tie, options=params)
        for i, (algorithm, params) in enumerate(group)
    ]
    labels = plan.labels
    curve = compare(plan.examples, plan.settings, learners, piece=_PIECE, labels=labels).curve
    if curve and curve[-1][0] < _SHORT:  # how long it is, only having read it says
        curve = compare(plan.examples, plan.settings, learners, piece=max(1, curve[-1][0] // 100), labels=labels).curve
    total, ends = curve[-1] if curve else (0, [0] * len(group))
    first, chose = next((point for point in curve if point[0] >= plan.choose * total), (0, ends))
    return [
        Tried(algorithm, params, first, chose[i], total - first, ends[i] - chose[i])
        for i, (algorithm, params) in enumerate(group)
    ]


def configuration(best: Tried, kinds: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the ``learners`` block of a job's configuration for a candidate, and ``records.columns`` of a file's."""
    learners = [{"name": best.algorithm, "algorithm": best.algorithm, **best.params}]
    columns = {name: kind for name, kind in kinds.items() if kind in KINDS}
    return {"learners": learners, **({"records": {"columns": columns}} if columns else {})}


def _name(algorithm: str, params: Mapping[str, Any]) -> str:
    return f"{algorithm} {msgspec.json.encode(params, order='sorted').decode()}"


def _mark(plan: Plan) -> str:
    """Return what results depend on besides the candidate, in short."""
    source = plan.examples.source
    if isinstance(source, str | Path):
        found = os.stat(source)
        of: Any = [str(Path(source).resolve()), found.st_size, found.st_mtime_ns]
    else:
        of = None
    told = [of, *plan.examples[1:], msgspec.to_builtins(plan.settings), plan.tie, plan.choose]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]


def _read(resume: Path | None, mark: str) -> Iterable[Tried]:
    if resume is None or not resume.exists():
        return []
    found = []
    for line in resume.read_bytes().splitlines():
        with suppress(msgspec.DecodeError):  # a kill has cut it short; its candidate is run again
            found.append(msgspec.json.decode(line, type=_Noted))
    return [noted.tried for noted in found if noted.mark == mark]


def _require_writable(resume: Path) -> None:
    """Raise a ConfigError before a long search, not after its first candidates."""
    try:
        resume.open("ab").close()
    except OSError as error:
        raise ConfigError(f"{resume} cannot be written: {error.strerror}") from None


def _append(resume: Path | None, mark: str, tried: Sequence[Tried]) -> None:
    if resume is not None:
        with resume.open("ab") as file:
            for x in tried:
                file.write(b"\n" + msgspec.json.encode(_Noted(mark, x)))
