"""``make demo-two-view``: a join of two views from two topics, and of delayed labels from a third.

UCI's images of web pages in five random orders, each learned by one model and, once more, by a model a group of
sites. The job runs three times on one checkpoint, as a scheduled job does: that the labels are late does not depend
on a clock. Each topic has one partition: every batch takes the same images from all three, so the batches, and with
them the order in which examples come together, are the same each time.
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec
from rich.console import Console

from palearn import datasets
from palearn.cli.demo import steps
from palearn.errors import StreamError
from palearn.kafka.produce import produce
from palearn.records import Record
from palearn.report import overview
from palearn.report.terminal_table import Column, Sheet
from palearn.tables import reading

if TYPE_CHECKING:
    import pandas as pd

PORT = 29094
URLS, TEXTS, LABELS = "ads-urls", "ads-texts", "ads-labels"
SEEDS = (1, 2, 3, 4, 5)
#: So many images later than its features comes a label.
LATE = 300
#: So many groups of sites.
GROUPS = 16

#: View -> the places whose terms it has. The paper's second view has no captions; no view has ``local``.
VIEWS = {"urls": ("url", "ancurl"), "texts": ("origurl", "alt", "caption")}

#: Learner -> the paper's F1 on Ads in %: mean and spread (Nguyen, Chang and Hui 2012, table 2).
PAPER = {"two-view": (85.74, 1.97), "urls": (83.69, 3.04), "texts": (76.01, 2.88), "together": (81.08, 1.99)}


class Image(NamedTuple):
    """An example: its number, its group of sites, its views and its label."""

    number: int
    group: str
    views: dict[str, dict[str, float]]
    label: Any


def demo(console: Console, checkout: Path) -> None:
    """Run the demonstration in a checkout; everything it makes is in ``.demo-two-view``."""
    folder = steps.fresh_folder(checkout, "demo-two-view", PORT)
    began = time.monotonic()
    config = checkout / "conf" / "demo-two-view.yaml"
    with steps.running_broker(console, "1/6", PORT, folder / "broker"):
        sent = _stream(console, config, folder)
        console.print("5/6  spark-submit jobs/replay.py --batches-of: the same batches again", highlight=False)
        options = ["--batches-of", str(folder / "checkpoint"), "--set", f"output.path={folder / 'replay'}"]
        steps.submit(console, config, folder / "replay.log", "replay", *options, errors=False)
    _show(console, folder / "out", sent)
    steps.require_same(folder / "out", folder / "replay")
    console.print("6/6  replay and stream: models and metrics are equal bit for bit", style="bold green")
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. Tables (Parquet): {folder / 'out'}", soft_wrap=True)


def _stream(console: Console, config: Path, folder: Path) -> int:
    """Produce each round's records, and run the job on them; return how many there were."""
    told = (
        f"the first {LATE} images: {URLS} and {TEXTS}, no label yet",
        f"the other images, and {LABELS}, each label {LATE} images late",
        f"the last {LATE} labels",
    )
    sent = 0
    for number, (title, lines) in enumerate(zip(told, rounds(images(), SEEDS), strict=True), start=2):
        with steps.step(console, f"{number}/6  {title}"):
            count = send(lines, folder / f"round-{number - 1}", f"127.0.0.1:{PORT}")
        command = "spark-submit jobs/stream.py --config conf/demo-two-view.yaml"
        console.print(f"     {count:,} records; {command}", highlight=False, soft_wrap=True)
        # A line's errors are of all keys: those of all sites and of groups together, which says nothing.
        steps.submit(console, config, folder / "stream.log", "stream", errors=False)
        sent += count
    return sent


# -- records --------------------------------------------------------------------------------------------


def images() -> list[Image]:
    """Return the data set in its own order."""
    return [_image(number, record) for number, record in enumerate(datasets.internet_ads(), start=1)]


def _image(number: int, record: Record) -> Image:
    terms = record.features or {}
    views = {
        view: {name: value for name, value in terms.items() if name.partition("*")[0] in places}
        for view, places in VIEWS.items()
    }
    return Image(number, group(terms), views, record.label)


def group(terms: Iterable[str]) -> str:
    """Return the group of an image's site.

    The site is the domain of the page that the image is on: of the page's terms that are host names, such as
    ``origurl*www.slake.com`` and ``origurl*slake.com``, the shortest. A third of the pages have none, for UCI kept
    frequent terms only; they are one group.
    """
    places = (name.partition("*") for name in terms)
    hosts = [term for place, _, term in places if place == "origurl" and "." in term and "+" not in term]
    if not hosts:
        return "no-site"
    return f"sites-{crc32(min(hosts, key=lambda host: (len(host), host)).encode()) % GROUPS:02d}"


def rounds(found: Sequence[Image], seeds: Sequence[int], late: int = LATE) -> Iterator[dict[str, list[bytes]]]:
    """Yield what comes before each run of the job, topic -> lines: the first features, most of all, the last labels.

    Each image comes twice a seed, for the model ``seed-1`` of all sites and for that of its group, ``seed-1/sites-03``.
    """
    orders = {seed: random.Random(seed).sample(found, len(found)) for seed in seeds}
    size = len(found)
    features_from, labels_from = (0, late, size, size), (0, 0, size - late, size)
    for number in range(3):
        lines: dict[str, list[bytes]] = {URLS: [], TEXTS: [], LABELS: []}
        for at in range(*features_from[number : number + 2]):
            for key, image in _models(orders, at):
                lines[URLS].append(_line(key=key, image=image.number, features=image.views["urls"]))
                lines[TEXTS].append(_line(key=key, id=image.number, views={"texts": image.views["texts"]}))
        for at in range(*labels_from[number : number + 2]):
            lines[LABELS] += [_line(key=key, id=image.number, label=image.label) for key, image in _models(orders, at)]
        yield lines


def _models(orders: dict[int, list[Image]], at: int) -> Iterator[tuple[str, Image]]:
    """Yield the keys of the models that learn the image at a place of each order."""
    for seed, order in orders.items():
        yield f"seed-{seed}", order[at]
        yield f"seed-{seed}/{order[at].group}", order[at]


def _line(**fields: Any) -> bytes:
    return msgspec.json.encode(fields) + b"\n"


def send(lines: dict[str, list[bytes]], folder: Path, bootstrap: str) -> int:
    """Write a round's records to files and send them to their topics, which are made; return how many there were."""
    folder.mkdir(parents=True)
    sent = 0
    for topic, content in lines.items():
        file = folder / f"{topic}.jsonl"
        file.write_bytes(b"".join(content))
        sent += produce([file], topic=topic, bootstrap=bootstrap, key="key", partitions=1).sent
    return sent


# -- results --------------------------------------------------------------------------------------------


def scores(predictions: "pd.DataFrame") -> "pd.DataFrame":
    """Return error and F1 of the advertisements in %, a row a learner and seed, for one model and for groups of sites.

    The counts of a seed's groups are added up.
    """
    known = predictions[predictions["label"].notna()]
    seed, _, group = (known["key"].str.partition("/")[part] for part in range(3))
    said, is_ad = known["predicted"] == "1", known["label"] == "1"
    counts = known.assign(
        seed=seed,
        models=group.map(lambda name: "sites" if name else "one"),
        n=1,
        wrong=said != is_ad,
        hits=said & is_ad,
    )
    sums = counts.groupby(["learner", "models", "seed"])[["n", "wrong", "hits"]].sum()
    # 2 TP / (2 TP + FP + FN): every mistake is one of the last two.
    f1 = 2 * sums["hits"] / (2 * sums["hits"] + sums["wrong"])
    found: pd.DataFrame = 100 * f1.to_frame("f1").assign(error=sums["wrong"] / sums["n"])
    return found


def _show(console: Console, out: Path, sent: int) -> None:
    """Print the records by status, and the learners beside the paper's."""
    found = overview.summary(out)
    learned, scored = found["records"]["learned"], found["records"]["scored"]
    if learned + scored != sent:
        message = f"{sent:,} records were sent, and became: {overview.statuses(found)}"
        raise StreamError(message)
    console.print(
        f"\nOf {sent:,} records {learned:,} were learned, and {scored} only scored: images without any term.\n"
        "Every part found the others of its image: none waits, none expired.",
        highlight=False,
        soft_wrap=True,
    )
    by_seed = scores(reading.read(out, "predictions"))
    console.print(f"F1 of the advertisements, and error, in %: mean ± spread of {len(SEEDS)} orders\n", highlight=False)
    console.print(_table(by_seed))
    console.print()
    ours = by_seed["f1"].xs("one", level="models").groupby("learner").mean()
    console.print(
        "The paper's F1 is of 5-fold test sets; ours is prequential (test-then-train), from the\n"
        "first image on, on the version without duplicates: compare the order, not the digits.\n"
        f"Best first, here:   {_order(ours.to_dict())}\n"
        f"Best first, paper:  {_order({name: mean for name, (mean, _) in PAPER.items()})}\n",
        highlight=False,
        soft_wrap=True,
    )


def _table(by_seed: "pd.DataFrame") -> Sheet:
    wide = by_seed.groupby(["learner", "models"]).agg(["mean", "std"])
    cells: list[list[str]] = []
    for name, paper in PAPER.items():
        ours = [wide.loc[(name, models), figure] for figure in ("f1", "error") for models in ("one", "sites")]
        figures = [*((x["mean"], x["std"]) for x in ours), paper]
        cells.append([f"{mean:.2f}±{spread:.2f}" for mean, spread in figures])
    titles = ("F1\none model", "F1\nby site", "error\none model", "error\nby site", "F1\nthe paper")
    columns = [Column(title, column, rank=i) for i, (title, *column) in enumerate(zip(titles, *cells, strict=True))]
    return Sheet((Column("learner", list(PAPER), "name"), *columns), "a wider terminal has all")


def _order(f1: dict[str, float]) -> str:
    return ", ".join(sorted(f1, key=lambda name: -f1[name]))
