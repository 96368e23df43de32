"""make demo-two-view, on a few images: the records it sends, what the job makes of them, and the figures it prints."""

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.metrics import f1_score

import palearn
from palearn import tables
from palearn.cli.demo import steps, two_view
from palearn.cli.demo.two_view import LABELS, PAPER, TEXTS, URLS
from palearn.config import load
from palearn.errors import FileFormatError
from tests.spark.conftest import assert_accounts_balance, replay, stream

CONFIG = Path(__file__).parents[2] / "conf" / "demo-two-view.yaml"
SEEDS, COUNT, LATE, BATCH = (1, 2), 60, 20, 10
MODELS = 2 * len(SEEDS)


@pytest.fixture(scope="module")
def images():
    # The file is sorted by class: some of both.
    return two_view.images()[:: 1966 // COUNT][:COUNT]


@pytest.fixture(scope="module")
def rounds(images):
    return list(two_view.rounds(images, SEEDS, LATE))


def of_key(lines, key):
    return [fields for fields in map(json.loads, lines) if fields["key"] == key]


def test_each_model_gets_each_image_once_from_each_topic(images, rounds):
    sent = {topic: [json.loads(line) for part in rounds for line in part[topic]] for topic in (URLS, TEXTS, LABELS)}
    names = {URLS: "image", TEXTS: "id", LABELS: "id"}
    found = [Counter((fields["key"], fields[names[topic]]) for fields in lines) for topic, lines in sent.items()]
    assert found[0] == found[1] == found[2]
    wanted = {
        (key, image.number)
        for image in images
        for seed in SEEDS
        for key in (f"seed-{seed}", f"seed-{seed}/{image.group}")
    }
    assert found[0] == dict.fromkeys(wanted, 1)
    assert set(names) == set(load(CONFIG).source.kafka.topics)


def test_orders_differ_and_are_the_same_each_time(images, rounds):
    assert list(two_view.rounds(images, SEEDS, LATE)) == rounds
    first, second = ([x["image"] for x in of_key(rounds[1][URLS], f"seed-{seed}")] for seed in SEEDS)
    assert first != second


def test_a_label_comes_with_the_features_of_a_later_image(images, rounds):
    order = [x["image"] for part in rounds for x in of_key(part[URLS], "seed-1")]
    assert not rounds[0][LABELS]
    # Every run takes as many records of each topic, so records of one batch have nearly the same offset.
    assert len(rounds[1][URLS]) == len(rounds[1][TEXTS]) == len(rounds[1][LABELS])
    for urls, label in zip(rounds[1][URLS], rounds[1][LABELS], strict=True):
        urls, label = json.loads(urls), json.loads(label)
        if urls["key"] == "seed-1":
            assert order.index(urls["image"]) - order.index(label["id"]) == LATE
    assert len(rounds[2][LABELS]) == LATE * MODELS
    assert not rounds[2][URLS]


def test_a_site_is_the_domain_of_the_page():
    slake = two_view.group(["local", "origurl*www.slake.com", "origurl*slake.com", "url*ads.com", "origurl*index+html"])
    assert slake == two_view.group(["origurl*slake.com"])
    assert slake != two_view.group(["origurl*geocities.com"])
    assert two_view.group(["url*slake.com", "origurl*labyrinth"]) == "no-site"
    groups = Counter(image.group for image in two_view.images())
    assert len(groups) == two_view.GROUPS + 1
    assert groups["no-site"] < 0.31 * sum(groups.values())


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "key": rng.choice(["seed-1", "seed-1/sites-01", "seed-1/no-site", "seed-2"], 500),
            "learner": rng.choice(["urls", "texts"], 500),
            "label": rng.choice(["1", "-1", None], 500),
            "predicted": rng.choice(["1", "-1"], 500),
        }
    )
    found = two_view.scores(frame)
    groups = {("one", "seed-1"): ["seed-1"], ("sites", "seed-1"): ["seed-1/sites-01", "seed-1/no-site"],
              ("one", "seed-2"): ["seed-2"]}  # fmt: skip
    assert len(found) == 2 * len(groups)
    for learner in ("urls", "texts"):
        for (models, seed), keys in groups.items():
            rows = frame[frame["key"].isin(keys) & frame["label"].notna() & (frame["learner"] == learner)]
            row = found.loc[(learner, models, seed)]
            assert row["f1"] == pytest.approx(100 * f1_score(rows["label"], rows["predicted"], pos_label="1"))
            assert row["error"] == pytest.approx(100 * (rows["label"] != rows["predicted"]).mean())


def test_it_runs_in_a_checkout_only(tmp_path):
    with pytest.raises(FileFormatError, match="run make demo-two-view where"):
        two_view.demo(Console(file=io.StringIO()), tmp_path)


def expected_mistakes(images, rounds, key):
    """Learn a key's images one by one: a batch's labels come before its features, of images that come later."""
    models = {
        "two-view": palearn.make("two_view_pa", C=0.1, gamma=0.5, bias=False),
        **{name: palearn.make("pa1", C=0.1, bias=False) for name in ("urls", "texts", "together")},
    }
    by_number = {image.number: image for image in images}
    order = [by_number[fields["image"]] for part in rounds for fields in of_key(part[URLS], key)]

    def x(name, image):
        views = image.views
        return {"two-view": views, "together": {**views["urls"], **views["texts"]}}.get(name, views.get(name))

    mistakes, said = Counter(dict.fromkeys(models, 0)), {}
    for stop in range(BATCH, COUNT + LATE + 1, BATCH):
        for image in order[max(stop - BATCH - LATE, 0) : max(stop - LATE, 0)]:
            for name, model in models.items():
                mistakes[name] += said[name, image.number] != image.label
                model.learn_one(x(name, image), image.label)
        for image in order[stop - BATCH : stop]:
            # Before the first label there is no class to name; a score of 0 is the negative one.
            said |= {(name, image.number): model.predict_one(x(name, image)) or -1 for name, model in models.items()}
    return dict(mistakes)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_every_part_is_learned_and_a_replay_agrees(broker, images, rounds, tmp_path):
    most = 3 * BATCH * MODELS
    config = load(
        CONFIG,
        [
            f"source.kafka.bootstrap_servers={broker}",
            f"source.kafka.max_offsets_per_trigger={most}",
            f"output.path={tmp_path / 'out'}",
            f"checkpoint={tmp_path / 'checkpoint'}",
            "state.buckets=4",
        ],
    )
    sent = 0
    # The first and the last run have two and one topics to take from: their batches are larger.
    for number, lines in enumerate(rounds):
        sent += two_view.send(lines, tmp_path / f"round-{number}", broker)
        out = stream(config)
    assert sent == 3 * COUNT * MODELS
    totals = assert_accounts_balance(out, sent)[["learned", "scored", "pending"]].sum()
    assert totals["pending"] == 0
    assert totals["learned"] + totals["scored"] == sent

    metrics = tables.metrics(out, latest=True).set_index(["key", "learner"])
    found = two_view.scores(tables.read(out, "predictions"))
    for seed in SEEDS:
        mistakes = expected_mistakes(images, rounds, f"seed-{seed}")
        for learner in PAPER:
            row = metrics.loc[(f"seed-{seed}", learner)]
            assert (row["n"], row["mistakes"]) == (COUNT, mistakes[learner])
            score = found.loc[(learner, "one", f"seed-{seed}")]
            assert score["error"] == pytest.approx(100 * row["error"])
            assert score["f1"] == pytest.approx(100 * dict(row["f1"])["1"])
    assert len({row for row in mistakes.values()}) > 1

    again = load(CONFIG, [f"source.kafka.bootstrap_servers={broker}", f"output.path={tmp_path / 'again'}"])
    replay(again, batches_of=config.checkpoint)
    steps.require_same(out, tmp_path / "again")

    printed = io.StringIO()
    two_view._show(Console(file=printed, width=80), out, sent)
    for name, (mean, spread) in PAPER.items():
        line = next(line for line in printed.getvalue().splitlines() if line.split()[:1] == [name])
        ours = found.loc[(name, "one")]["f1"]
        assert line.split()[1] == f"{ours.mean():.2f}±{ours.std():.2f}"
        assert line.split()[-1] == f"{mean:.2f}±{spread:.2f}"
