"""What users import and what their pickles name stays where it is, wherever the code behind it lives."""

import importlib
import pickle

import pytest

import palearn
from palearn.learners import Learner
from palearn.models.matrix import MatrixModel

PATHS = [
    "palearn.make",
    "palearn.from_bytes",
    "palearn.learners",
    "palearn.Model",
    "palearn.model.Model",
    "palearn.model.from_bytes",
    "palearn.model.learners",
    "palearn.model.make",
    "palearn.matrix.MatrixModel",
    "palearn.evaluate.evaluate",
    "palearn.search.Plan",
    "palearn.search.candidates",
    "palearn.search.search",
    "palearn.tables.latest_models",
    "palearn.tables.metrics",
    "palearn.tables.read",
    "palearn.spark.score",
    "palearn.sklearn.AROWClassifier",
    "palearn.river.AROWClassifier",
    "palearn.learners.learner._again",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_public_path_leads_somewhere(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


def test_a_name_that_tables_has_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'palearn\.tables' has no attribute 'batch_rows'"):
        importlib.import_module("palearn.tables").batch_rows  # noqa: B018


def test_pickles_written_before_the_modules_moved_are_read() -> None:
    """As protocol 0 writes them: a global by module and name, its argument, a call."""
    model = palearn.make("pa1").learn_one({"a": 1.0}, 1)
    old = b"cpalearn.model\nfrom_bytes\n" + pickle.dumps((model.to_bytes(),), protocol=0)[:-1] + b"R."
    assert pickle.loads(old).weights() == model.weights()
    assert pickle.loads(b"cpalearn.matrix\nMatrixModel\n.") is MatrixModel
    spec = Learner("pa1", "pa1", options={}).identity | {"task": "binary"}
    again = b"cpalearn.learners.learner\n_again\n" + pickle.dumps((spec,), protocol=0)[:-1] + b"R."
    assert pickle.loads(again).identity == Learner("pa1", "pa1", options={}).identity
