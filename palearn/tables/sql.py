"""SQL over a models table that gives what ``palearn models`` shows: for Spark SQL, and for DuckDB.

Keys, learners and paths are whatever text they are: they stand in quotes, and what does not print is escaped.
"""

from dataclasses import dataclass
from pathlib import Path

from palearn.errors import FileFormatError
from palearn.tables import delta, reading
from palearn.tables.folder import Folder
from palearn.tables.weights import Choice


@dataclass(frozen=True)
class Dialect:
    """How an engine writes what the queries need."""

    name: str

    def text(self, text: str) -> str:
        """Return a string literal."""
        if self.name == "spark":
            marks = {"\\": "\\\\", "'": "\\'"}
            return "'" + "".join(marks.get(x, x) if x.isprintable() else f"\\U{ord(x):08X}" for x in text) + "'"
        parts, run = [], ""
        for x in text:
            if x.isprintable():
                run += x.replace("'", "''")
            else:
                parts += [f"'{run}'", f"chr({ord(x)})"]
                run = ""
        return " || ".join([*parts, f"'{run}'"]) if parts else f"'{run}'"

    def table(self, out: str | Path) -> str:
        """Return the models table of an output folder."""
        output, folder = Folder(str(out)), Folder(f"{out}/models")
        log = delta.is_delta(output, "models")
        whole = ""
        if output.is_store and not log:
            # A pattern of files may find a part of the batch that is being written.
            whole = f" WHERE batch_id <= {reading.Tables(str(out)).last_batch() or 0}"
        found = self._delta(folder) if log else self._parquet(folder)
        return f"(SELECT * FROM {found}{whole})" if whole else found

    def _delta(self, folder: Folder) -> str:
        if self.name == "spark":
            return f"delta.`{folder.uri.replace('`', '``')}`"
        return f"delta_scan({self.text(folder.path)})"

    def _parquet(self, folder: Folder) -> str:
        """Return a table of plain Parquet files."""
        if self.name == "spark":
            return f"parquet.`{folder.pattern.replace('`', '``')}`"
        if "\\" in folder.root:
            raise FileFormatError(f"DuckDB takes the backslash in {folder.root} for a folder's end: rename the folder")
        root = folder.path if folder.is_store else folder.root
        plain = "".join(f"[{x}]" if x in "*?[" else x for x in root)
        files = self.text(f"{plain}/batch_id=*/*.parquet")
        return f"read_parquet({files}, hive_partitioning = true, hive_types = {{'batch_id': BIGINT}})"

    def size(self, column: str) -> str:
        """Return the length of a list."""
        return f"size({column})" if self.name == "spark" else f"len({column})"

    def item(self, column: str, position: str) -> str:
        """Return an item of a list; positions count from 0."""
        return f"{column}[{position}]" if self.name == "spark" else f"{column}[{position} + 1]"

    def quotient(self, number: str, divisor: str) -> str:
        """Return a quotient of whole numbers, rounded down."""
        return f"({number} div {divisor})" if self.name == "spark" else f"({number} // {divisor})"

    def numbered(self, column: str, item: str) -> str:
        """Return what gives a row for each ``item`` of a list, numbered by ``i`` from 0."""
        if self.name == "spark":
            return f"posexplode({column}) AS (i, {item})"
        return f"generate_subscripts({column}, 1) - 1 AS i, unnest({column}) AS {item}"


DIALECTS = (Dialect("spark"), Dialect("duckdb"))


def keys(out: str | Path, dialect: Dialect, *, learner: str | None = None, batch: int | None = None) -> str:
    """Return a query for the keys that have models."""
    return (
        f"WITH newest AS (\n{_newest(out, dialect, None, learner, batch)}\n)\n"
        "SELECT key, count(*) AS learners, max(n_learned) AS n_learned\n"
        "FROM newest GROUP BY key ORDER BY key"
    )


def strongest(out: str | Path, dialect: Dialect, choice: Choice, *, learner: str | None = None, top: int = 10) -> str:
    """Return a query for the largest weights of a key, ``top`` a learner."""
    return (
        f"WITH {_weights(out, dialect, 'mine', choice, learner)},\n"
        "ranked AS (\n"
        "  SELECT *, row_number() OVER (PARTITION BY learner ORDER BY abs(weight) DESC, i) AS place FROM mine\n)\n"
        "SELECT learner, label, feature, weight, variance, weight / sqrt(variance) AS z_score\n"
        f"FROM ranked WHERE place <= {top} ORDER BY learner, place"
    )


def compared(
    out: str | Path, dialect: Dialect, one: Choice, other: Choice, *, learner: str | None = None, top: int = 10
) -> str:
    """Return a query for the largest differences between two models, ``top`` a learner."""
    return (
        f"WITH {_weights(out, dialect, 'mine', one, learner)},\n"
        f"{_weights(out, dialect, 'theirs', other, learner)},\n"
        "compared AS (\n"
        "  SELECT coalesce(a.learner, b.learner) AS learner, coalesce(a.label, b.label) AS label,\n"
        "    coalesce(a.feature, b.feature) AS feature, a.weight AS weight, b.weight AS other,\n"
        "    coalesce(b.weight, 0) - coalesce(a.weight, 0) AS difference,\n"
        "    a.variance AS variance, b.variance AS other_variance\n"
        "  FROM mine a FULL OUTER JOIN theirs b\n"
        "    ON a.learner = b.learner AND a.class = b.class AND a.feature = b.feature\n"
        "),\n"
        "ranked AS (\n"
        "  SELECT *, row_number() OVER (\n"
        "    PARTITION BY learner ORDER BY abs(difference) DESC, label, feature\n"
        "  ) AS place FROM compared\n"
        "  WHERE learner IN (SELECT learner FROM mine) AND learner IN (SELECT learner FROM theirs)\n)\n"
        "SELECT learner, label, feature, weight, other, difference, variance, other_variance\n"
        f"FROM ranked WHERE place <= {top} ORDER BY learner, place"
    )


def _newest(out: str | Path, dialect: Dialect, key: str | None, learner: str | None, batch: int | None) -> str:
    """Return a query for the newest row of each key and learner."""
    where = [
        f"{column} {sign} {value}"
        for column, sign, value in (
            ("key", "=", None if key is None else dialect.text(key)),
            ("learner", "=", None if learner is None else dialect.text(learner)),
            ("batch_id", "<=", batch),
        )
        if value is not None
    ]
    return (
        "  SELECT * FROM (\n"
        "    SELECT *, row_number() OVER (PARTITION BY key, learner ORDER BY batch_id DESC) AS age\n"
        f"    FROM {dialect.table(out)}\n"
        + (f"    WHERE {' AND '.join(where)}\n" if where else "")
        + "  ) WHERE age = 1"
    )


def _weights(out: str | Path, dialect: Dialect, name: str, choice: Choice, learner: str | None) -> str:
    """Return common table expressions ``name``: a key's weights, a row each, numbered by ``i``.

    Weights are label-major. A binary model has two labels and one block of weights, the positive label's; ``class`` is
    the label where there are several blocks.
    """
    d = dialect
    features, labels = d.size("features"), d.size("labels")
    blocks, block = d.quotient(d.size("weights"), features), d.quotient("i", features)
    label, own_label = d.item("labels", f"{labels} - {blocks} + {block}"), d.item("labels", block)
    return (
        f"{name}_rows AS (\n{_newest(out, d, choice.key, learner, choice.batch)}\n),\n"
        f"{name} AS (\n"
        f"  SELECT learner, i, {label} AS label,\n"
        f"    CASE WHEN {labels} > {blocks} THEN '' ELSE {own_label} END AS class,\n"
        f"    {d.item('features', f'i % {features}')} AS feature, weight, {d.item('variances', 'i')} AS variance\n"
        f"  FROM (SELECT *, {d.numbered('weights', 'weight')} FROM {name}_rows)\n)"
    )
