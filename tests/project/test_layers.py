"""The architecture as a test: who may import whom, and what no module may do."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "palearn"

#: What every room may import: types and faults.
BASE = {"errors", "types", "arrow_limits"}
#: A room, a package of palearn or a module of its front, and the other rooms that it may import.
ROOMS: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "arrow_limits": {"errors"},
    "learners": BASE,
    "records": BASE,
    "tables": BASE,
    "models": BASE | {"learners", "records"},
    "files": BASE | {"records"},
    "datasets": BASE | {"records"},
    "engine": BASE | {"models", "tables", "learners", "records"},
    "config": BASE | {"engine", "models", "tables", "learners", "records"},
    "evaluate": BASE | {"engine", "files", "models", "tables", "learners", "records"},
    "report": BASE | {"__init__", "tables", "models"},  # of the front its version, which a page names
    "kafka": BASE | {"config", "files", "records"},
    # Of the front its version, which driver and workers compare.
    "spark": BASE | {"__init__", "config", "engine", "files", "kafka", "tables", "models", "learners", "records"},
    "sklearn": BASE | {"models", "learners"},
    "serving": BASE | {"engine", "models", "tables", "learners", "records"},
    "__init__": BASE | {"models", "serving"},  # the front: make, from_bytes, learners, load
    "model": {"models"},  # public paths, which pickles name
    "matrix": {"models"},
    "search": {"evaluate"},
    "river": BASE | {"models", "learners", "records"},
    "cli": {
        *BASE, "learners", "records", "tables", "models", "files", "datasets", "engine", "config", "evaluate", "report",
        "kafka", "spark", "sklearn", "serving", "__init__",
    },
    "__main__": {"cli", "spark"},
}  # fmt: skip

#: Third-party packages and the only places that may import them, at the top or inside a function.
HOMES = {
    "pyspark": ("palearn/spark/", "palearn/cli/"),
    "kafka": ("palearn/kafka/",),
    "prometheus_client": ("palearn/spark/monitor.py", "palearn/serving/service.py"),
    "sklearn": ("palearn/sklearn/",),
    "starlette": ("palearn/serving/",),
    "swagger_ui_bundle": ("palearn/serving/",),
    "uvicorn": ("palearn/cli/serve.py",),
    "river": ("palearn/river.py",),
    "fastavro": ("palearn/records/avro.py",),
    "google": ("palearn/records/protobuf.py",),
}

FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "jobs").glob("*.py")])
MODULES = [file for file in FILES if file.is_relative_to(PACKAGE)]


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def room(file: Path) -> str:
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


def imported_room(name: str) -> str | None:
    """Room of a dotted name, or None when it is not of this package; a name of the front is `__init__`."""
    package, _, rest = name.partition(".")
    if package != "palearn":
        return None
    first = rest.partition(".")[0]
    exists = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
    return first if first and exists else "__init__"


def test_the_rooms_are_those_that_are_there():
    assert sorted({room(file) for file in MODULES}) == sorted(ROOMS)


def test_no_room_imports_itself_through_others():
    """The rules have no circle: the rooms can be put in an order in which each imports earlier ones only."""
    assert len(list(TopologicalSorter(ROOMS).static_order())) == len(ROOMS)


def test_the_front_stays_small():
    packages = [path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    modules = [path for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]
    assert len(packages) <= 15
    assert len(modules) <= 8


@pytest.mark.parametrize("file", MODULES, ids=relative)
def test_a_module_imports_only_what_its_room_may(file):
    own = room(file)
    strays = [
        f"{relative(file)}:{line} imports {name}"
        for line, name in imports(tree(file))
        if imported_room(name) not in {None, own, *ROOMS[own]}
    ]
    assert strays == []


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
def test_imports_are_read_as_rooms(source, expected):
    assert [imported_room(name) for _, name in imports(ast.parse(source))] == expected
