"""The keys with the highest rolling error, found by the tasks in what they write, and kept by the driver.

The driver knows few keys at a time: the worst of each learner so far. It tells them to the tasks of a batch, which
answer with the new errors of these and with the worst of their own. A key that worse ones pushed out can come back when
it learns again.
"""

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

#: Learner -> key -> rolling error.
Errors = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Ranking:
    """The worst ``most`` keys of each learner, of those with ``least`` labelled records or more in their window."""

    most: int
    least: int
    errors: Errors = field(default_factory=dict)

    def updated(self, found: Errors) -> "Ranking":
        """Return the ranking after a batch in which the tasks found these errors."""
        merged = {name: {**self.errors.get(name, {}), **errors} for name, errors in found.items()}
        return replace(self, errors={**self.errors, **{name: _worst(x, self.most) for name, x in merged.items()}})

    def found(self, metrics: pa.Table) -> Errors:
        """Return what rows of the metrics table say of keys that are ranked, and of the worst others."""
        out: Errors = {}
        for name in pc.unique(metrics["learner"]).to_pylist():
            rows = metrics.filter(pc.field("learner") == name).select(["key", "window_n", "window_error"])
            known = pa.array(self.errors.get(name, ()), pa.string())
            ranked = rows.filter(pc.is_in(rows["key"], value_set=known))
            enough = rows.filter(pc.field("window_n") >= self.least)
            order = [("window_error", "descending"), ("key", "ascending")]
            worst = enough.take(pc.select_k_unstable(enough, self.most, order))
            both = pa.concat_tables([ranked, worst])
            out[name] = dict(zip(both["key"].to_pylist(), both["window_error"].to_pylist(), strict=True))
        return out


def _worst(errors: dict[str, float], most: int) -> dict[str, float]:
    return dict(sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:most])
