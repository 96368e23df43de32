"""What a job left: its errors; the learners that there are; demonstrations."""

from pathlib import Path
from typing import Annotated

import typer

from palearn.cli.failures import log_to_stderr
from palearn.cli.shared import Json, app, console, output_folder, print_json, print_rows, progress


@app.command()
def report(
    out: Annotated[str, typer.Argument(help="Output folder of a job.", callback=output_folder)],
    plot: Annotated[Path | None, typer.Option(help="Draw the rolling error to this PNG or SVG.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write all there is to see to this page.", dir_okay=False)] = None,
    json: Json = False,
) -> None:
    """Show the records' statuses and the error of every learner and key."""
    from palearn.report import overview
    from palearn.report.page import page

    history = overview.history(out)
    if plot is not None:
        overview.plot(history, plot)
    if html is not None:
        page(history, html)
    found = overview.summed(history)
    if json:
        print_json(found)
        return
    console.print(overview.statuses(found), highlight=False)
    if why := overview.reasons(history):
        console.print(why, highlight=False)
    console.print(overview.errors(found))
    for written in filter(None, (html, plot)):
        console.print(f"{written} is written", soft_wrap=True, highlight=False)


@app.command()
def watch(
    out: Annotated[str, typer.Argument(help="Output folder of a job; it need not be there yet.")],
    keys: Annotated[int, typer.Option(help="Name so many keys.", min=0, max=1000)] = 6,
    every: Annotated[float, typer.Option(help="Look for new batches every so many seconds.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show what is there now, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON of what is there now, and end.")] = False,
) -> None:
    """Follow a job by what it writes: records by status, errors, rate, the keys that are worst now; Ctrl-C ends it."""
    from palearn.report import live as watching

    seen = watching.Watch(out, keys)
    if not (once or json):
        watching.follow(seen, console, every)
        return
    found = watching.once(seen)
    if json:
        print_json(found)
    else:
        console.print(watching.view(seen))


@app.command("learners")
def learners_(json: Json = False) -> None:
    """List every learner with its hyper-parameters and source."""
    from palearn.models.single import learners

    if json:
        print_json(learners())
        return
    rows = [
        {
            "learner": x["name"],
            "what it is": x["summary"],
            "options": ", ".join(f"{p['name']}={p['default']}" for p in x["parameters"]),
            "source": x["source"],
        }
        for x in learners()
    ]
    print_rows(rows)


@app.command()
def demo() -> None:
    """Stream UCI Adult through a real Kafka, show what was learned, replay it and compare."""
    from palearn.cli.demo.adult import demo as run

    log_to_stderr()
    run(console, Path.cwd())


@app.command()
def demo_two_view() -> None:
    """Stream an example's two views and its late label from three topics, compare learners, replay it and compare."""
    from palearn.cli.demo.two_view import demo as run

    run(console, Path.cwd())


@app.command()
def demo_s3() -> None:
    """Stream UCI Adult with checkpoint and Delta tables in an object store, replay it, and read it with others."""
    from palearn.cli.demo.stored import demo as run

    log_to_stderr()
    run(console, Path.cwd())


@app.command()
def prepare() -> None:
    """Fetch the jars of Kafka and of Spark's connector, and compile the kernels: what first use would wait for."""
    from palearn.cli.prepare import prepare as run

    with progress("steps") as bar:
        task = bar.add_task("preparing", total=None)
        run(lambda what, done, total: bar.update(task, description=what, completed=done, total=total))
