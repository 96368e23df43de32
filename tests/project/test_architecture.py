"""The drawing of the packages is that of the code."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_made_from_the_imports() -> None:
    module = load()
    committed = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert committed == module.picture(), "the packages' imports have changed: run python docs/architecture.py"


def test_it_shows_every_package_and_no_import_upwards() -> None:
    module = load()
    graph = module.imports()
    packages = {path.parent.name for path in (ROOT / "palearn").glob("*/__init__.py")}
    assert graph.keys() == packages
    height = module.levels(graph)
    assert all(height[other] < height[name] for name, own in graph.items() for other in own)
    assert "pyspark" not in graph
    assert graph["learners"] == set()


def test_an_import_that_follows_from_others_is_not_drawn() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert load().needed(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}
