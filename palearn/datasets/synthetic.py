r"""Synthetic keyed streams of any size, whose concepts drift: what each key's labels follow is known exactly.

Record :math:`i = 0, 1, \ldots` is made so:

* Its key is ``k0``, ``k1``, …, drawn with probability proportional to :math:`(j + 1)^{-s}` for key :math:`j`
  (``zipf`` is s; 0: all alike).
* Its features are ``features`` independent standard normal numbers, rounded to three decimals: ``f0``, ``f1``, …; with
  views, feature j belongs to view j modulo their number.
* Every key has weights of its own: vectors :math:`u_c` and :math:`v_c` of independent standard normal numbers for each
  class c. The concept's class is :math:`\arg\max_c \langle w_c, x \rangle`, the first of equal ones, with w = u but
  where ``drift`` is ``rotating``.
* With probability ``noise`` (at most 1/2) the label is one of the other classes instead, each as likely: no learner's
  expected error is lower.
* Labels are −1 and 1 of two classes, else 0, 1, ….

``drift``, with :math:`c = \lfloor i / \text{every} \rfloor`:

==========  ==========================================================================================
``none``    the concept stays
``abrupt``  after each ``every`` records, of all keys at once, every class becomes the next one (of two
            classes: the labels flip); the class is (arg max + c) modulo the number of classes
``gradual`` the same, but a record is of concept c + 1 already with a probability that rises from 0 to 1
            over the ``every`` records of c
``rotating`` :math:`w = u \cos\theta + v \sin\theta` with :math:`\theta = 2\pi i / \text{every}`
==========  ==========================================================================================

Records are made in blocks of :data:`BLOCK`, each from a generator of its own, so that a seed gives the same bytes
however many are asked for at once. Memory does not grow with their number: it is a block, 8 bytes a key, and the
weights of the keys that came last (:data:`CACHE_BYTES`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np

from palearn.errors import ConfigError
from palearn.types import FloatArray, IntArray

Drift: TypeAlias = Literal["none", "abrupt", "gradual", "rotating"]

#: Records that one random generator makes.
BLOCK = 1000
#: The weights of the keys that came last are kept, up to so many bytes.
CACHE_BYTES = 32 * 2**20
#: What the generators are for: the records of a block, the weights of a key.
_RECORDS, _WEIGHTS = 0, 1
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Stream:
    """A stream; see the module for what each field means.

    Raises
    ------
    ConfigError
        A field is outside its domain.
    """

    keys: int = 100
    features: int = 20
    drift: str = "none"
    every: int = 10_000
    noise: float = 0.0
    classes: int = 2
    views: Sequence[str] = field(default_factory=tuple)
    zipf: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        bounds = {"keys": 1, "features": 1, "every": 1, "classes": 2, "seed": 0}
        for name, least in bounds.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be >= {least}, got {getattr(self, name)}")
        if self.drift not in get_args(Drift):
            raise ConfigError(f"drift must be one of {', '.join(get_args(Drift))}, got {self.drift!r}")
        if not 0 <= self.noise <= 0.5:
            raise ConfigError(f"noise must be in [0, 0.5], got {self.noise}")
        if not 0 <= self.zipf <= 10:
            raise ConfigError(f"zipf must be in [0, 10], got {self.zipf}")
        if len(set(self.views)) < len(self.views) or not all(self.views) or len(self.views) > self.features:
            raise ConfigError(f"views must be different names, and no more than features, got {list(self.views)}")

    def values(self, first: int, stop: int) -> Iterator[bytes]:
        """Yield the records from ``first`` up to ``stop`` as JSON: the fields key, label, and features or views."""
        names = [f"f{i}" for i in range(self.features)]
        for block in range(first // BLOCK, -(-stop // BLOCK)):
            begin = block * BLOCK
            keys, x, label = self._block(block)
            rows = slice(max(first - begin, 0), stop - begin)
            for key, row, y in zip(keys[rows].tolist(), x[rows].tolist(), label[rows].tolist(), strict=True):
                yield _encode({"key": f"k{key}", "label": y, **self._fields(names, row)})

    def weights(self, key: int) -> FloatArray:
        """Return a key's u and v, shape (2, classes, features)."""
        found: FloatArray = self._weights(key)
        return found

    def _fields(self, names: list[str], row: list[float]) -> dict[str, Any]:
        if not self.views:
            return {"features": dict(zip(names, row, strict=True))}
        n = len(self.views)
        return {"views": {view: dict(zip(names[i::n], row[i::n], strict=True)) for i, view in enumerate(self.views)}}

    def _block(self, number: int) -> tuple[IntArray, FloatArray, IntArray]:
        """Return the keys, features and labels of a block."""
        draw = _generator(self.seed, _RECORDS, number)
        x = draw.standard_normal((BLOCK, self.features)).round(3)
        u = draw.random((3, BLOCK))
        other = draw.integers(1, self.classes, BLOCK)
        keys = np.searchsorted(self._shares[:-1], u[0] * self._shares[-1], side="right")
        place = number * BLOCK + np.arange(BLOCK)
        classes = self._classes(keys, x, place)
        concept = place // self.every
        if self.drift == "gradual":
            concept += u[1] < (place % self.every) / self.every
        if self.drift in ("abrupt", "gradual"):
            classes = classes + concept
        classes = (classes + np.where(u[2] < self.noise, other, 0)) % self.classes
        return keys, x, 2 * classes - 1 if self.classes == 2 else classes

    def _classes(self, keys: IntArray, x: FloatArray, place: IntArray) -> IntArray:
        """Return the class that each record's key gives it."""
        out = np.empty(BLOCK, np.int64)
        angle = 2 * np.pi * (place % self.every) / self.every
        for key in np.unique(keys).tolist():
            rows = np.flatnonzero(keys == key)
            u, v = self._weights(key)
            scores = x[rows] @ u.T
            if self.drift == "rotating":
                scores = scores * np.cos(angle[rows])[:, None] + x[rows] @ v.T * np.sin(angle[rows])[:, None]
            out[rows] = scores.argmax(axis=1)
        return out

    @cached_property
    def _shares(self) -> FloatArray:
        shares: FloatArray = np.cumsum(np.arange(1, self.keys + 1, dtype=float) ** -self.zipf)
        return shares

    @cached_property
    def _weights(self) -> Any:
        size = 2 * self.classes * self.features

        def make(key: int) -> FloatArray:
            numbers: FloatArray = _generator(self.seed, _WEIGHTS, key).standard_normal(size)
            return numbers.reshape(2, self.classes, self.features)

        return lru_cache(maxsize=max(1, CACHE_BYTES // (8 * size)))(make)


def _generator(seed: int, kind: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(kind, number))))
