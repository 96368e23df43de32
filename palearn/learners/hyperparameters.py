"""Hyper-parameters as data: one declaration serves validation, error messages, documentation and tests."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from palearn.errors import LearnerError

Value = float | int | bool | str | None
#: Largest integer: the kernels count in 64 bits, and a product of two must fit.
MOST = 2**31 - 1


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of a learner.

    Parameters
    ----------
    name
        The paper's symbol, as keyword arguments and the configuration spell it.
    default
        Value where none is given; it is inside the domain.
    meaning
        One sentence for documentation and help.
    above, at_least
        Exclusive and inclusive lower bound of a number, or None.
    below
        Exclusive upper bound of a number, or None.
    words
        The words allowed (in place of, or beside, a number).
    integer
        Whether a number must be integral.
    truth
        Whether it is True or False.
    optional
        Whether it may be None: not set.
    replaces
        Another parameter that is not used, and becomes None, where this one is set.
    """

    name: str
    default: Value
    meaning: str
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()
    integer: bool = False
    truth: bool = False
    optional: bool = False
    replaces: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether numbers are allowed."""
        return self.above is not None or self.at_least is not None

    @property
    def domain(self) -> str:
        """The allowed range in words, e.g. ``a number > 0``."""
        parts = []
        if self.is_number:
            kind = "an integer" if self.integer else "a finite number"
            low = f"{kind} > {self.above:g}" if self.above is not None else f"{kind} >= {self.at_least:g}"
            parts.append(low if self.below is None else f"{low} and < {self.below:g}")
        parts += [repr(word) for word in self.words]
        parts += ["True or False"] * self.truth + ["None"] * self.optional
        return " or ".join(parts)

    def check(self, value: object, owner: str) -> Value:
        """Return ``value`` as it is used, or raise a LearnerError that names owner, value and domain."""
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, str) and value in self.words:
            return value
        if (self.truth and isinstance(value, bool)) or (self.optional and value is None):
            return value
        if self.is_number and isinstance(value, int | float) and not isinstance(value, bool):
            most = MOST if self.integer else sys.float_info.max
            if most < abs(value) < math.inf:  # of an integer of any size float() would be a traceback
                raise LearnerError(f"{owner}: {self.name} must be {self.domain}, and at most {most}")
            integral = not self.integer or float(value).is_integer()
            inside = (
                (self.above is None or value > self.above)
                and (self.at_least is None or value >= self.at_least)
                and (self.below is None or value < self.below)
            )
            if math.isfinite(value) and integral and inside:
                return int(value) if self.integer else float(value)
        raise LearnerError(f"{owner}: {self.name} must be {self.domain}, got {value!r}")


def resolve(owner: str, parameters: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Value]:
    """Return every parameter's value: the given ones checked, the others at their default."""
    known = {p.name: p for p in parameters}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise LearnerError(f"{owner}: unknown option {name!r}; {hint}it takes {', '.join(known) or 'none'}")
    values = {name: p.check(given[name], owner) if name in given else p.default for name, p in known.items()}
    for p in parameters:
        if p.replaces is None:
            continue
        if values[p.name] is None and values[p.replaces] is None:
            raise LearnerError(f"{owner}: {p.name} or {p.replaces} must be given, got None for both")
        if values[p.name] is not None:
            if given.get(p.replaces) is not None:
                raise LearnerError(f"{owner}: give {p.name} or {p.replaces}, not both")
            values[p.replaces] = None
    return values
