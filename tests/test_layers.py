"""The architecture as a test: who may import whom, and what no module may do."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "palearn"

#: A module imports only what stands above it; inside a folder (learners, kafka, ...) the order is free.
LAYERS = (
    "types",
    "errors",
    "screen",
    "learners",
    "metrics",
    "records",
    "labels",
    "examples",
    "matrix",
    "runs",
    "state",
    "models",
    "rooms",
    "assembly",
    "columns",
    "buffers",
    "codec",
    "shortcut",
    "model",
    "river",
    "sklearn",
    "__init__",  # the package's own front: make, from_bytes, learners
    "table_schemas",
    "results",
    "intake",
    "bucket",
    "config",
    "warm",
    "scoring",
    "datasets",
    "generate",
    "files",
    "evaluate",
    "search",
    "kafka",
    "spark",
    "tune",
    "compact",
    "tables",
    "weights",
    "queries",
    "predict",
    "plots",
    "reproduce",
    "report",
    "watch",
    "prepare",
    "demo",
    "cli",
    "__main__",
)

#: Third-party packages and the only places that may import them, at the top or inside a function.
HOMES = {
    "pyspark": ("palearn/spark/", "palearn/cli/"),
    "kafka": ("palearn/kafka/",),
    "prometheus_client": ("palearn/spark/monitor.py",),
    "sklearn": ("palearn/sklearn/",),
    "river": ("palearn/river.py",),
    "fastavro": ("palearn/records/avro.py",),
    "google": ("palearn/records/protobuf.py",),
}

FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "jobs").glob("*.py")])
MODULES = [file for file in FILES if file.is_relative_to(PACKAGE)]


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def layer(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def imports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything a module imports, lazily or not."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides where it points"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def imported_layer(name: str) -> str | None:
    """Layer of a dotted name, or None when it is not of this package; a name of the front is `__init__`."""
    package, _, rest = name.partition(".")
    if package != "palearn":
        return None
    first = rest.partition(".")[0]
    exists = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
    return first if first and exists else "__init__"


def test_every_module_has_a_layer():
    unlisted = sorted({layer(file) for file in MODULES} - set(LAYERS))
    assert not unlisted, f"give each of these a place in LAYERS: {unlisted}"


def test_every_layer_is_there():
    assert sorted(set(LAYERS) - {layer(file) for file in MODULES}) == []


@pytest.mark.parametrize("file", MODULES, ids=relative)
def test_a_module_imports_only_what_stands_above_it(file):
    own = layer(file)
    allowed = {*LAYERS[: LAYERS.index(own)], own}
    upward = [
        f"{relative(file)}:{line} imports {name}"
        for line, name in imports(tree(file))
        if imported_layer(name) not in {None, *allowed}
    ]
    assert upward == []


@pytest.mark.parametrize("package", HOMES)
def test_a_package_is_imported_only_where_it_lives(package):
    homes = HOMES[package]
    strays, found = [], 0
    for file in FILES:
        lines = [line for line, name in imports(tree(file)) if name.partition(".")[0] == package]
        found += len(lines)
        if not relative(file).startswith(homes):
            strays += [f"{relative(file)}:{line}" for line in lines]
    assert strays == []
    assert found, f"nothing imports {package} any more: HOMES is out of date"


@pytest.mark.parametrize("module", ["palearn", "palearn.cli", "palearn.engine.bucket", "palearn.evaluate.prequential"])
def test_importing_stays_light(module):
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert module in loaded
    assert loaded & {"pyspark", "pandas", "kafka", "matplotlib"} == set()


def forbidden(module: ast.Module, *, may_print: bool) -> Iterator[str]:
    for line, name in imports(module):
        if name.partition(".")[0] in {"pickle", "cloudpickle", "dill"}:
            yield f"line {line}: {name} runs whatever the bytes say; palearn.models.codec is how models travel"
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        if call in {"eval", "exec"}:
            yield f"line {node.lineno}: {call} runs text"
        elif call in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
            yield f"line {node.lineno}: {call} builds any object; use yaml.safe_load"
        elif call == "print" and not may_print:
            yield f"line {node.lineno}: only palearn/cli prints; others log or return"


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_no_module_unpickles_evaluates_or_prints(file):
    assert list(forbidden(tree(file), may_print=file.parent == PACKAGE / "cli")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from cloudpickle import loads",
        "eval('1')",
        "exec('x = 1')",
        "import yaml\nyaml.load('a', yaml.Loader)",
        "print('hello')",
    ],
)
def test_what_is_forbidden_is_found(source):
    assert len(list(forbidden(ast.parse(source), may_print=False))) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import palearn", ["__init__"]),
        ("import palearn.records", ["records"]),
        ("from palearn import records, make", ["records", "__init__"]),
        ("from palearn.learners.step_sizes import step_size", ["learners"]),
        ("def f():\n    import pyspark.sql", [None]),
    ],
)
def test_imports_are_read_as_layers(source, expected):
    assert [imported_layer(name) for _, name in imports(ast.parse(source))] == expected
