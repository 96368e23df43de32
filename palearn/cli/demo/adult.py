"""``make demo``: a real broker, a real topic, the streaming job, its results, and a replay that must agree."""

import time
from pathlib import Path

from rich.console import Console

from palearn.cli.demo import steps
from palearn.report import overview
from palearn.report.terminal_table import Column, Sheet
from palearn.tables import weights

PORT = 29092
TOPIC = "adult"
#: The model whose weights are shown.
SHOWN = ("Exec-managerial", "arow")


def demo(console: Console, checkout: Path) -> None:
    """Run the demonstration in a checkout; everything it makes is in ``.demo``."""
    folder = steps.fresh_folder(checkout, "demo", PORT)
    began = time.monotonic()
    with steps.running_broker(console, "1/5", PORT, folder / "broker"):
        _stream_and_replay(console, checkout, folder)
    _show(console, folder / "out")
    steps.require_same(folder / "out", folder / "replay")
    console.print("5/5  replay and stream: models and metrics are equal bit for bit", style="bold green")
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. Next: README.md, 'Your own topic in five minutes'.")


def _stream_and_replay(console: Console, checkout: Path, folder: Path) -> None:
    steps.produce_adult(console, "2/5", PORT, TOPIC)
    config = checkout / "conf" / "demo.yaml"
    console.print("3/5  spark-submit jobs/stream.py --config conf/demo.yaml", highlight=False)
    steps.submit(console, config, folder / "stream.log", "stream")
    console.print("4/5  spark-submit jobs/replay.py: the same topic again, as one batch", highlight=False)
    steps.submit(console, config, folder / "replay.log", "replay", "--set", f"output.path={folder / 'replay'}")


def _show(console: Console, out: Path) -> None:
    console.print("\nError of each occupation's models, test-then-train, beside predicting no change", highlight=False)
    found = overview.summary(out)
    console.print(overview.statuses(found), highlight=False)
    console.print(overview.errors(found))
    key, learner = SHOWN
    console.print(f"\nStrongest weights of {learner} for {key} (+: earns over 50,000 a year)", highlight=False)
    strongest = weights.strongest(out, weights.Choice(key), learner=learner)
    features = Column("feature", [x.feature for x in strongest], "text")
    console.print(Sheet((features, Column("weight", [f"{x.weight:+.3f}" for x in strongest]))))
    picture = out.parent / "error.png"
    overview.plot(overview.history(out), picture)
    console.print(f"Tables (Parquet): {out}\nPlot of the rolling error: {picture}", highlight=False, soft_wrap=True)
