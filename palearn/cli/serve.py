"""``palearn serve``: a job's models over HTTP."""

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from palearn.cli.failures import log_to_stderr
from palearn.cli.shared import app, usage
from palearn.errors import ConfigError, FileFormatError

#: The environment's name of the token, where no file has it.
TOKEN = "PALEARN_SERVE_TOKEN"


@app.command()
def serve(
    out: Annotated[str, typer.Argument(help="Output folder of a job, or a URI.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8750,
    fallback: Annotated[
        str, typer.Option(help="Key whose model answers for a key that has none; none: that is an error.")
    ] = "none",
    select: Annotated[
        str, typer.Option(help="Learner that answers where a request names none, or best: the key's best so far.")
    ] = "best",
    learner: Annotated[list[str], typer.Option(help="Load this learner; default: all.")] = [],  # noqa: B006
    refresh: Annotated[float, typer.Option(help="Seconds between two looks for new batches.", min=0.1)] = 1.0,
    max_bytes: Annotated[int, typer.Option(help="Longest request, in bytes.", min=1)] = 8 * 1024 * 1024,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"File with the bearer token that requests must bring; default: {TOKEN}, or none."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="The certificate's private key, PEM.")] = None,
) -> None:
    """Answer over HTTP with a job's models, and follow its new batches.

    POST /predict scores a record or up to 1,000; GET /models/KEY, /health, /ready, /metrics for Prometheus, and /docs,
    the OpenAPI page. If there are no models yet, /ready says so until there are.
    """
    import uvicorn

    import palearn
    from palearn.serving.service import Options, Service

    if (certificate is None) != (private_key is None):
        usage("--certificate and --private-key go together")
    for file in (certificate, private_key):
        if file is not None and not file.is_file():
            raise ConfigError(f"there is no file {file}")
    token = _token(token_file)
    log_to_stderr()

    def load() -> palearn.serving.Loaded:
        return palearn.load(out, learners=learner, select=select, fallback=None if fallback == "none" else fallback)

    with suppress(FileFormatError):  # a job may write them later
        load()
    service = Service(load, Options(token, refresh, max_bytes), palearn.__version__)
    scheme = "http" if certificate is None else "https"
    log = logging.getLogger("palearn.serve")
    log.info("%s://%s:%s answers with the models of %s", scheme, host, port, out)
    if token is None and host not in ("127.0.0.1", "localhost", "::1"):
        log.warning("whoever reaches %s may ask: give --token-file or %s", host, TOKEN)
    uvicorn.run(
        service.application(), host=host, port=port, log_level="warning", access_log=False, server_header=False,
        ssl_certfile=certificate, ssl_keyfile=private_key,
    )  # fmt: skip


def _token(file: Path | None) -> str | None:
    """Return the token that requests must bring, or None."""
    if file is None:
        token = os.environ.get(TOKEN, "")
        if not token:
            return None
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from None
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"the token of {file or TOKEN} must be printable ASCII without blanks, and not empty")
    return token
