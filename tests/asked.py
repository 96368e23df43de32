"""Models tables that tests ask about: one of each kind of model, and one of hostile names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import palearn
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, BucketConfig
from tests.streams import Row, chunk, learner, plan, rows
from tests.tables.test_reading import write
from tests.variants import flat

HOSTILE = 'it\'s "a" `b` \\n $x {y} [z*] ?%41 <i>[red]\n\x1b[31m\U000e0041 é'


def write_models(out: Path, made: BucketConfig, batches: Sequence[list[Row]]) -> Path:
    """Write the tables of a job that learned these batches."""
    blob = None
    for batch_id, batch in enumerate(batches):
        bucket = Bucket(made, blob, batch_id)
        bucket.learn(chunk(batch))
        for name, table in bucket.results().items():
            write(out, name, batch_id, result_rows.plain(table, name))
        blob = bucket.to_bytes()
    return out


@dataclass
class Kind:
    """A job: its learners by name, settings, labels, and the names that stand in its tables."""

    learners: dict[str, dict[str, Any]]
    labels: list[Any]
    settings: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ("a", "b")
    prefix: str = ""

    @property
    def views(self) -> tuple[str, ...]:
        return self.settings.get("views", ())

    @property
    def task(self) -> str:
        return self.settings.get("task", "binary")

    def example(self, key: str, i: int) -> tuple[Any, Any]:
        """Return features and label of a key's i-th record."""
        own = self.keys.index(key)
        names = {f"{self.prefix}f{(i * i + own) % 5}": 1.0 + i % 3, f"{self.prefix}only {own}": i / 7}
        x: Any = names
        if self.views:
            parts = list(names.items())
            x = {view: dict(parts[v::2]) for v, view in enumerate(self.views)}
        return x, self.labels[(i * i + i // 3 + own) % len(self.labels)]

    def batches(self) -> list[list[Row]]:
        """Return three batches; key number 1 has no record in the last."""
        field_ = "views" if self.views else "features"
        out = []
        for batch in range(3):
            items = []
            for i in range(8 * batch, 8 * batch + 8):
                for key in self.keys if batch < 2 else self.keys[:1]:
                    x, y = self.example(key, i)
                    items.append((key, {"label": y, field_: x}))
            out.append(rows(items, first=100 * batch))
        return out

    def write(self, out: Path) -> Path:
        """Write the job's tables."""
        made = [
            learner(o["algorithm"], name, task=self.task, **{k: v for k, v in o.items() if k != "algorithm"})
            for name, o in self.learners.items()
        ]
        return write_models(out, plan(*made, **self.settings), self.batches())

    def expected(self, key: str, batch: int = 2) -> dict[tuple[str, str, str], tuple[float, float | None]]:
        """Return weight and variance by learner, label and feature: those of models that know of no tables."""
        seen = 8 * (batch + 1 if key == self.keys[0] else min(batch + 1, 2))
        out = {}
        for name, options in self.learners.items():
            common = {k: v for k, v in self.settings.items() if k != "views"}
            model = palearn.make(
                options["algorithm"], **common, **{k: v for k, v in options.items() if k != "algorithm"}
            )
            for i in range(seen):
                model.learn_one(*self.example(key, i))
            variances = flat(model.variances())
            for path, weight in flat(model.weights()).items():
                label = path[0] if self.task == "multiclass" else self.labels[0]
                feature = path[-1 - (options["algorithm"] == "two_view_pa") :]
                out[name, str(label), ":".join(feature)] = (weight, variances.get(path))
        return out


KINDS = {
    "binary": Kind(
        {"arow": {"algorithm": "arow"}, "careful": {"algorithm": "pa1", "C": 0.1}},
        ["spam", "ham"],
        {"positive": "spam"},
    ),
    "multiclass": Kind(
        {"arow": {"algorithm": "arow"}, "mine": {"algorithm": "pa2"}}, ["x", "y", "z"], {"task": "multiclass"}
    ),
    "views": Kind(
        {"all": {"algorithm": "arow"}, "both": {"algorithm": "two_view_pa"}}, [1, -1], {"views": ("page", "link")}
    ),
    "hostile": Kind(
        {HOSTILE: {"algorithm": "arow"}},
        [HOSTILE, "other"],
        {"positive": HOSTILE},
        (HOSTILE, HOSTILE + "'; DROP TABLE models; --"),
        HOSTILE,
    ),
}


def questions(kind: Kind) -> list[list[str]]:
    """Return the options of ``palearn models`` that the queries of ``--sql`` must answer alike."""
    one, other = kind.keys
    first = next(iter(kind.learners))
    return [
        [],
        ["--batch", "0"],
        ["--key", one, "--top", "3"],
        ["--key", other, "--batch", "1", "--top", "1000", "--learner", first],
        ["--key", one, "--with", other, "--top", "5"],
        ["--key", one, "--batch", "0", "--with-batch", "2", "--top", "1000"],
    ]


def same(found: Sequence[Sequence[Any]], told: list[dict[str, Any]]) -> bool:
    """Whether an engine's rows are those that the command told, to the last bit."""
    return [list(map(_exact, row)) for row in found] == [list(map(_exact, row.values())) for row in told]


def _exact(cell: Any) -> Any:
    return cell.hex() if isinstance(cell, float) and math.isfinite(cell) else cell
