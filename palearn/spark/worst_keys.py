"""The keys that are worst now: in their windows, found by the tasks in what they write, and kept by the driver.

The report asks which keys are bad in all that they saw, and orders them by the same rule
(:func:`palearn.models.counters.certain_error`) over all their records.

The driver knows few keys at a time: the worst of each learner so far. It tells them to the tasks of a batch, which
answer with the new errors of these and with the worst of their own. A key that worse ones pushed out can come back when
it learns again; one that was dropped to make room for others, and starts at zero, leaves.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from palearn.models.counters import certain_error
from palearn.types import FloatArray


class Window(NamedTuple):
    """A key's last labelled records: how many, and the share of mistakes (0 of none)."""

    n: int
    error: float


#: Learner -> key -> its window.
Windows = dict[str, dict[str, Window]]


@dataclass(frozen=True)
class Ranking:
    """The worst ``most`` keys of each learner, of those with ``least`` labelled records or more in their window."""

    most: int
    least: int
    windows: Windows = field(default_factory=dict)

    def updated(self, found: Windows) -> "Ranking":
        """Return the ranking after a batch in which the tasks found these windows."""
        merged = {name: {**self.windows.get(name, {}), **windows} for name, windows in found.items()}
        return replace(self, windows={**self.windows, **{name: self._worst(x) for name, x in merged.items()}})

    def found(self, metrics: pa.Table) -> Windows:
        """Return what rows of the metrics table say of keys that are ranked, and of the worst others."""
        out: Windows = {}
        for name in pc.unique(metrics["learner"]).to_pylist():
            rows = metrics.filter(pc.field("learner") == name).select(["key", "window_n", "window_error"])
            known = pa.array(self.windows.get(name, ()), pa.string())
            ranked = rows.filter(pc.is_in(rows["key"], value_set=known))
            enough = rows.filter(pc.field("window_n") >= self.least)
            certain = _certain(enough["window_n"].to_numpy(), enough["window_error"].to_numpy())
            enough = enough.append_column("certain", pa.array(certain))
            order = [("certain", "descending"), ("key", "ascending")]
            worst = enough.take(pc.select_k_unstable(enough, self.most, order)).drop_columns("certain")
            both = pa.concat_tables([ranked, worst])
            windows = map(Window, both["window_n"].to_pylist(), both["window_error"].fill_null(0.0).to_pylist())
            out[name] = dict(zip(both["key"].to_pylist(), windows, strict=True))
        return out

    def _worst(self, windows: dict[str, Window]) -> dict[str, Window]:
        windows = {key: window for key, window in windows.items() if window.n >= self.least}
        certain = _certain(*(np.array(x) for x in zip(*windows.values(), strict=True))) if windows else ()
        ordered = sorted(zip(windows, certain, strict=True), key=lambda item: (-item[1], item[0]))
        return {key: windows[key] for key, _ in ordered[: self.most]}


def _certain(n: NDArray[Any], share: NDArray[Any]) -> FloatArray:
    return certain_error(np.rint(n * share), n)
