"""Models loaded by key: what the stream would say next, to the last bit, and why."""

import math
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palearn
from palearn.engine.bucket import Bucket
from palearn.errors import ConfigError, FileFormatError, LearnerError, NoModelError, RecordError
from palearn.serving import Answer
from tests.asked import HOSTILE, KINDS, write_models
from tests.streams import bits, chunk, learner, plan, rows
from tests.variants import VARIANTS, Variant

KEYS = ("a", "ключ", "c")


def job(variant: Variant, tie: str = "negative"):
    return plan(
        learner(variant.name, "mine", task=variant.task, tie=tie, **variant.options),
        task=variant.task, views=variant.views, bias=tie == "negative",
    )  # fmt: skip


def history(variant: Variant):
    items = [
        (key, {"views" if variant.views else "features": x, "label": y})
        for seed, key in enumerate(KEYS)
        for x, y in variant.normal(seed, 25)
    ]
    return rows(items)


def questions(variant: Variant) -> list[tuple[str, Any]]:
    """Return keys and features that come next: usual ones, none, new and huge ones."""
    asked = [(key, x) for seed, key in enumerate(KEYS, 7) for x, _ in variant.normal(seed, 5)]
    new = variant.shape({"a": 1.5, "e": -2.0, "never seen": 3.0})
    return [*asked, *((key, variant.shape({})) for key in KEYS), (KEYS[0], new), (KEYS[1], variant.shape({"b": 1e300}))]


def streamed(made, blob: bytes, asked, variant: Variant) -> list[dict[str, Any]]:
    """Return what the stream says of unlabelled records, which leave the models as they are."""
    bucket = Bucket(made, blob, 1)
    name = "views" if variant.views else "features"
    bucket.learn(chunk(rows([(key, {name: x}) for key, x in asked], first=1000)))
    found = bucket.results()["predictions"].to_pylist()
    return sorted(found, key=lambda row: row["offset"])


def scores_by_its_matrix(variant: Variant) -> bool:
    return variant.name == "sop" and variant.options["covariance"] == "full"


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not scores_by_its_matrix(v)], ids=str)
def test_every_learner_answers_as_in_the_stream_and_says_why(tmp_path, variant: Variant) -> None:
    made = job(variant)
    bucket = Bucket(made)
    bucket.learn(chunk(history(variant)))
    blob = bucket.to_bytes()
    out = write_models(tmp_path, made, [history(variant)])
    asked = questions(variant)
    expected = streamed(made, blob, asked, variant)
    one, all_ = palearn.load(out), palearn.load(str(out))
    all_.read_all()
    name = "views" if variant.views else "features"
    for models in (one, all_):
        assert sorted(models.keys()) == sorted(KEYS)
        many = models.many({"key": key, name: x} for key, x in asked)
        for (key, x), row, answer in zip(asked, expected, many, strict=True):
            assert isinstance(answer, Answer)
            assert (answer.key, answer.learner, answer.batch_id) == (key, "mine", 0)
            said = [answer.score, answer.predicted, answer.probability]
            assert bits(said) == bits([row["score"], row["predicted"], row["probability"]])
            assert row["predicted"] is None or models.proba(key, x)[row["predicted"]] == row["probability"]
            assert models.predict(key, x) == row["predicted"]
            score = models.score(key, x)
            if variant.task == "multiclass":
                assert set(score) == {"x", "y", "z"}
                score = score[row["predicted"]]
            assert bits(score) == bits(row["score"])
            parts = models.explain(key, x)
            assert [part.contribution for part in parts] == sorted(
                (part.contribution for part in parts), key=lambda c: -abs(c)
            )
            assert math.isclose(
                math.fsum(part.contribution for part in parts), row["score"], abs_tol=1e-9, rel_tol=1e-9
            )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [None, 0, 1])
def test_a_batch_answers_as_models_that_learned_so_far(tmp_path, kind, batch):
    """Each learner's score is that of a model of one key, which knows nothing of tables."""
    made = KINDS[kind]
    models = palearn.load(made.write(tmp_path), batch)
    assert models.batch_id == (2 if batch is None else batch)
    for key in made.keys:
        seen = 8 * (models.batch_id + 1 if key == made.keys[0] else min(models.batch_id + 1, 2))
        for name, options in made.learners.items():
            common = {k: v for k, v in made.settings.items() if k != "views"}
            own = palearn.make(options["algorithm"], **common, **{k: v for k, v in options.items() if k != "algorithm"})
            for i in range(seen):
                own.learn_one(*made.example(key, i))
            for i in range(40, 48):
                x, _ = made.example(key, i)
                assert models.score(key, x, name) == own.score_one(x)
                assert models.predict(key, x, name) == str(own.predict_one(x))


def test_new_batches_are_taken_up_by_refresh_and_not_before(tmp_path):
    kind = KINDS["binary"]
    out = kind.write(tmp_path / "out")
    late = []
    for number in (1, 2):
        folder = out / f"models/batch_id={number}"
        late.append((folder, folder.rename(tmp_path / f"late-{number}")))
    single, whole = palearn.load(out), palearn.load(out)
    whole.read_all()
    x, _ = kind.example("a", 50)
    known = [palearn.load(out).score("a", x)]
    for number, (folder, kept) in enumerate(late, 1):
        kept.rename(folder)
        known.append(palearn.load(out).score("a", x))
        for models in (single, whole):
            assert (models.batch_id, models.score("a", x)) == (number - 1, known[number - 1])
            assert models.refresh()
            assert not models.refresh()
            assert (models.batch_id, models.score("a", x)) == (number, known[number])
    assert len(set(known)) == 3


def test_layers_of_many_batches_answer_like_one_table(tmp_path):
    made = plan(learner("arow"), learner("pa1"))
    batches = [
        rows(
            [(f"k{(i * 7 + j) % 5}", {"label": (i + j) % 2, "features": {f"f{j}": i + 1}}) for j in range(3)],
            first=10 * i,
        )
        for i in range(20)
    ]
    out = write_models(tmp_path / "out", made, batches)
    folders = sorted(out.glob("models/*"), key=lambda path: int(path.name[9:]))
    hidden = [(folder, folder.rename(tmp_path / folder.name)) for folder in folders[1:]]
    models = palearn.load(out)
    models.read_all()
    x = {f"f{j}": j + 0.5 for j in range(3)}
    for folder, kept in hidden:
        kept.rename(folder)
        assert models.refresh()
        assert len(models._layers) <= 8
        fresh = palearn.load(out)
        assert set(fresh.keys()) == set(models.keys())
        asked = [{"key": key, "features": x} for key in sorted(fresh.keys())]
        for name in ("arow", "pa1"):
            assert models.many(asked, name) == fresh.many(asked, name)


def test_which_learner_answers(tmp_path):
    out = KINDS["binary"].write(tmp_path)
    x = {"f1": 1.0}
    models = palearn.load(out, select="careful")
    assert models.learners == ("arow", "careful")
    assert models.many([{"key": "a", "features": x}])[0].learner == "careful"
    assert models.many([{"key": "a", "features": x}], "arow")[0].learner == "arow"
    assert palearn.load(out, learners=["careful"]).learners == ("careful",)
    for faulty in ({"select": "mine"}, {"learners": ["mine"]}):
        with pytest.raises(ConfigError, match="no learner 'mine'; they have arow, careful"):
            palearn.load(out, **faulty).score("a", x)
    with pytest.raises(ConfigError, match="no learner 'mine'"):
        models.score("a", x, "mine")


def test_a_key_without_a_model(tmp_path):
    out = KINDS["binary"].write(tmp_path)
    models = palearn.load(out)
    with pytest.raises(NoModelError, match="no model of key 'stranger' up to batch 2"):
        models.predict("stranger", {"f1": 1})
    found = models.many([{"key": "stranger", "features": {}}, {"key": "a", "features": {}}, {"features": {}}])
    assert [x.reason if isinstance(x, RecordError) else x.key for x in found] == ["no_model", "a", "no_key"]
    other = palearn.load(out, fallback="a")
    assert other.predict("stranger", {"f1": 1}) == models.predict("a", {"f1": 1})
    asked, known = other.many([{"key": "stranger", "features": {}}, {"key": "a", "features": {}}])
    assert (asked.key, asked.fallback, asked.score) == ("stranger", "a", known.score)
    with pytest.raises(ConfigError, match="no model of the fallback key 'nobody'"):
        palearn.load(out, fallback="nobody")


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        ({"f": math.nan}, "non_finite"),
        ({"f": 10**400}, "non_finite"),
        ({"f": {"g": 1}}, "bad_features"),
        ({7: 1}, "bad_features"),
        ({"(bias)": 1}, "reserved_name"),
        ({"f" * 513: 1}, "name_too_long"),
        ({"f\ud800": 1}, "not_utf8"),
        ([1, 2], "bad_features"),
    ],
    ids=str,
)
def test_features_that_cannot_be_used_are_refused_with_the_reason(tmp_path, x, reason):
    models = palearn.load(KINDS["binary"].write(tmp_path))
    for ask in (models.predict, models.score, models.explain):
        with pytest.raises(RecordError) as fault:
            ask("a", x)
        assert fault.value.reason == reason
    assert models.many([{"key": "a", "features": x}])[0].reason == reason
    assert models.predict("a", {"f1": 1}) is not None


def test_views_that_are_missing(tmp_path):
    models = palearn.load(KINDS["views"].write(tmp_path))
    for x, reason in (
        ({"page": {}}, "bad_view"),
        ({"page": {}, "link": 3}, "bad_features"),
        ({"f": 1}, "bad_features"),
    ):
        with pytest.raises(RecordError) as fault:
            models.score("a", x)
        assert fault.value.reason == reason


def test_explaining_names_values_and_doubt(tmp_path):
    models = palearn.load(KINDS["binary"].write(tmp_path))
    parts = {part.feature: part for part in models.explain("a", {"f1": 2.0, "unknown": 5.0}, "arow")}
    assert set(parts) == {"f1", "(bias)"}
    assert parts["(bias)"].is_bias
    f1 = parts["f1"]
    assert not f1.is_bias
    assert f1.contribution == f1.weight * 2.0
    assert f1.z_score == f1.weight / math.sqrt(f1.variance)
    assert all(part.variance is part.z_score is None for part in models.explain("a", {"f1": 2.0}, "careful"))


def test_explaining_another_label(tmp_path):
    models = palearn.load(KINDS["multiclass"].write(tmp_path))
    x = {"f1": 2.0}
    for label, score in models.score("a", x).items():
        parts = models.explain("a", x, label=label)
        assert math.isclose(math.fsum(part.contribution for part in parts), score, abs_tol=1e-12)
    with pytest.raises(ConfigError, match="no label 'nothing'"):
        models.explain("a", x, label="nothing")


def test_a_score_that_is_no_sum_is_not_explained(tmp_path):
    made = plan(learner("sop", covariance="full"), learner("pa"))
    out = write_models(tmp_path, made, [rows([("k", {"label": 1, "features": {"f": 1.0}})])])
    with pytest.raises((ConfigError, LearnerError), match="full covariance"):
        palearn.load(out).score("k", {"f": 1.0})
    assert palearn.load(out, learners=["pa"]).explain("k", {"f": 1.0})


def test_hostile_names_and_labels(tmp_path):
    kind = KINDS["hostile"]
    models = palearn.load(kind.write(tmp_path))
    for key in kind.keys:
        assert models.predict(key, {HOSTILE: 1.0}) in kind.labels


def test_a_folder_that_cannot_be_loaded(tmp_path):
    with pytest.raises(FileFormatError, match="has no models"):
        palearn.load(tmp_path)
    out = KINDS["binary"].write(tmp_path / "out")
    for file in out.glob("models/*/*"):
        table = pq.read_table(file)
        column = table.schema.get_field_index("format_version")
        pq.write_table(
            table.set_column(column, table.schema.field(column), pa.array([99] * table.num_rows, pa.int32())), file
        )
    with pytest.raises(ConfigError, match="newer palearn"):
        palearn.load(out).score("a", {})


def test_threads_ask_while_batches_come(tmp_path):
    out = KINDS["binary"].write(tmp_path / "out")
    late = out / "models/batch_id=2"
    late.rename(tmp_path / "late")
    models = palearn.load(out)
    models.read_all()
    x = {"f1": 1.0, "f4": 2.0}
    before, faults, answers = models.score("a", x), [], set()

    def ask():
        try:
            for i in range(300):
                answers.add(models.score("a", x | {f"new {i}": 1.0}))
        except Exception as error:  # a thread's error would be lost
            faults.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    (tmp_path / "late").rename(late)
    models.refresh()
    for thread in threads:
        thread.join()
    assert faults == []
    assert answers <= {before, models.score("a", x)}
