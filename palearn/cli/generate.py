"""``generate``: synthetic streams to try things with."""

import itertools
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from palearn.cli.shared import app
from palearn.errors import FileFormatError

#: Records that are written at once.
_PART = 1000


@app.command()
def generate(
    records: Annotated[int, typer.Option(help="So many records.", min=0)] = 100_000,
    keys: Annotated[int, typer.Option(help="So many keys, each with weights of its own.")] = 100,
    features: Annotated[int, typer.Option(help="Features of a record.")] = 20,
    classes: Annotated[int, typer.Option(help="Labels: -1 and 1, or 0, 1, 2, … of more than two.")] = 2,
    drift: Annotated[str, typer.Option(help="How the concept changes: none, abrupt, gradual or rotating.")] = "none",
    every: Annotated[int, typer.Option(help="Records between two changes, or of one full rotation.")] = 10_000,
    noise: Annotated[float, typer.Option(help="Share of wrong labels.")] = 0.0,
    views: Annotated[str | None, typer.Option(help="Names of views that share the features, with commas.")] = None,
    zipf: Annotated[float, typer.Option(help="Key j comes with a probability as (j + 1)^-s; 0: all alike.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A file to write; default: standard output.")] = None,
) -> None:
    """Write a keyed, drifting stream as JSON lines; the key is the field "key"."""
    from palearn.datasets.synthetic import Stream

    stream = Stream(keys, features, drift, every, noise, classes, views.split(",") if views else (), zipf, seed)
    values = stream.values(0, records)
    try:
        with open(sys.stdout.fileno() if out is None else out, "wb", closefd=out is not None) as file:
            while part := list(itertools.islice(values, _PART)):
                file.write(b"\n".join(part) + b"\n")
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise FileFormatError(f"{out or 'standard output'} cannot be written: {error.strerror}") from None
