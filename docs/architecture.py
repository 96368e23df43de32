"""Draw docs/architecture.svg: a record's way, and the packages, from the imports that the code has.

``python docs/architecture.py`` writes the picture; a test compares the committed one with what this draws.
"""

import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "palearn"
#: What each package is for, in the order of the data's way: a column for input, one for learning, one for output.
ROWS = (
    ("cli", "commands"),
    ("spark", "the job: source, operator, sink, replay"),
    ("evaluate", "files without Spark"),
    ("kafka", "local broker, producer"),
    ("config", "YAML to checked settings"),
    ("report", "what people look at"),
    ("serving", "models answer by key"),
    ("engine", "one bucket: validate, join, learn"),
    ("files", "files to records"),
    ("sklearn", "estimators"),
    ("models", "state of many keys, codec"),
    ("tables", "the output folder"),
    ("datasets", "shipped and synthetic data"),
    ("records", "one record: decode, check"),
    ("learners", "algorithms over arrays"),
)
_WAY = (
    ("Kafka", "topics, files"),
    ("source", "bytes, partition, offset"),
    ("bucket", "hash of the key"),
    ("validate", "decode, reject"),
    ("join", "views, labels by id"),
    ("score", "then learn, count"),
    ("state", "RocksDB, checkpoint"),
    ("tables", "Parquet, batch_id=N"),
)
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.s{font-size:11px;fill:#57606a}rect{fill:#eef2ff;stroke:#3f51b5}"
    "path{fill:none;stroke:#8c959f;stroke-width:1.2}.h{font-weight:600;font-size:15px}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9da7b1}rect{fill:#1c2340;stroke:#7986cb}}"
)


def imports() -> dict[str, set[str]]:
    """Return each package's imports of other packages, whole functions' imports among them."""
    names = {name for name, _ in ROWS}
    found: dict[str, set[str]] = {}
    for name in names & {path.name for path in PACKAGE.iterdir()}:
        own = found.setdefault(name, set())
        for file in (PACKAGE / name).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("palearn."):
                    own.add((node.module or "").split(".")[1])
                elif isinstance(node, ast.ImportFrom) and node.module == "palearn":
                    own |= {alias.name for alias in node.names}
        found[name] = own & names - {name}
    return found


def needed(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph without imports that follow from others."""

    def reach(name: str) -> set[str]:
        return set().union(*({x} | reach(x) for x in graph[name])) if graph[name] else set()

    return {name: {x for x in own if not any(x in reach(y) for y in own - {x})} for name, own in graph.items()}


def levels(graph: dict[str, set[str]]) -> dict[str, int]:
    """Return how far each package is above those that import none."""
    out: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in out:
            out[name] = max((level(x) + 1 for x in graph[name]), default=0)
        return out[name]

    for name in graph:
        level(name)
    return out


def _box(x: float, y: float, width: float, title: str, text: str) -> str:
    middle = x + width / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="46" rx="6"/>'
        f'<text x="{middle:g}" y="{y + 20:g}" text-anchor="middle">{escape(title)}</text>'
        f'<text class="s" x="{middle:g}" y="{y + 37:g}" text-anchor="middle">{escape(text)}</text>'
    )


def picture() -> str:
    """Return the drawing as SVG."""
    graph = imports()
    height = levels(graph)
    top = max(height.values())
    about = dict(ROWS)
    order = [name for name, _ in ROWS if name in graph]
    floors = [[name for name in order if height[name] == top - floor] for floor in range(top + 1)]
    width, floor_height = 1180, 82
    parts = ['<text class="h" x="14" y="26">The way of a record</text>']
    for i, (title, text) in enumerate(_WAY):
        x = 14 + i * 146
        parts.append(_box(x, 40, 130, title, text))
        if i:
            parts.append(f'<path marker-end="url(#a)" d="M{x - 16} 63 H{x - 2}"/>')
    parts.append('<path marker-end="url(#a)" d="M955 86 v16 H671 v-12"/>')
    parts.append('<text class="s" x="813" y="117" text-anchor="middle">models of the batch before</text>')
    parts.append('<text class="h" x="14" y="156">The packages, each above what it imports</text>')
    at: dict[str, tuple[float, float, float]] = {}
    for floor, names in enumerate(floors):
        room = (width - 28) / len(names)
        for i, name in enumerate(names):
            wide = min(250.0, room - 12)
            at[name] = (14 + room * (i + 0.5), 174.0 + floor * floor_height, wide)
    for name, lower in sorted(needed(graph).items()):
        x, y, _ = at[name]
        for other in sorted(lower):
            ox, oy, _ = at[other]
            parts.append(f'<path marker-end="url(#a)" d="M{x:g} {y + 46:g} L{ox:g} {oy - 3:g}"/>')
    for name in order:
        x, y, wide = at[name]
        parts.append(_box(x - wide / 2, y, wide, name, about[name]))
    whole = 174 + len(floors) * floor_height
    arrow = '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {whole}" role="img" '
        f'aria-label="The way of a record, and the packages of palearn with their imports">'
        f'<style>{_STYLE}</style><defs>{arrow}<path d="M0 0 L8 4 L0 8 z" style="fill:#8c959f"/></marker></defs>'
    )
    return head + "\n" + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    (ROOT / "docs" / "architecture.svg").write_text(picture(), encoding="utf-8")
