"""The HTTP service: an ASGI application over :class:`palearn.serving.Loaded`.

Every answer that is none is a sentence with a reason code. Questions are answered in the event loop, one after the
other, with the models as they are; new batches are read in a thread meanwhile, and are there all at once.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import swagger_ui_bundle
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from palearn.errors import PalearnError, RecordError
from palearn.serving import protocol
from palearn.serving.loaded import Answer, Loaded
from palearn.serving.protocol import MOST_BYTES, KeyModels, Predictions, Problem, RequestError

log = logging.getLogger("palearn.serve")

#: Paths that ask for no token: what starts and watches a service asks them.
_OPEN = ("/health", "/ready")
_JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_STATUS = {
    "bad_request": 400, "not_json": 400, "not_utf8": 400, "not_object": 400, "no_key": 422, "no_model": 404,
    "not_found": 404, "not_ready": 503, "too_large": 413,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How the service behaves.

    Parameters
    ----------
    token
        What a request must bring as ``Authorization: Bearer TOKEN``; None: nothing.
    refresh
        Seconds from one look for new batches to the next.
    max_bytes
        Longest request, in bytes.
    """

    token: str | None = None
    refresh: float = 1.0
    max_bytes: int = MOST_BYTES


class Measured:
    """What ``/metrics`` says."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        path = ["path", "code"]
        self.requests = Counter("palearn_serve_requests", "Requests answered.", path, registry=registry)
        self.predictions = Counter("palearn_serve_predictions", "Records scored.", ["learner"], registry=registry)
        self.faults = Counter("palearn_serve_faults", "Requests without an answer.", ["reason"], registry=registry)
        self.refresh_failures = Counter(
            "palearn_serve_refresh_failures", "Looks for new batches that failed.", registry=registry
        )
        self.seconds = Histogram(
            "palearn_serve_seconds", "Time to answer POST /predict, in seconds.", registry=registry,
            buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
        )  # fmt: skip
        self.batch = Gauge("palearn_serve_batch_id", "The newest batch whose models answer.", registry=registry)
        self.keys = Gauge("palearn_serve_keys", "Keys that have models.", registry=registry)


class Service:
    """The endpoints, and the models that they ask.

    Parameters
    ----------
    load
        Reads all models; called again until there are any.
    version
        Of palearn, for the OpenAPI page.
    """

    def __init__(self, load: Callable[[], Loaded], options: Options, version: str) -> None:
        self._load, self._options = load, options
        self._models: Loaded | None = None
        self._told = ""
        self.measured = Measured()
        self._document = _encode(protocol.openapi(version, secured=options.token is not None))

    def application(self) -> ASGIApp:
        """Return the ASGI application."""
        assets = Path(swagger_ui_bundle.swagger_ui_path)
        routes = [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models/{key:path}", self.models),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
            Mount("/docs/assets", StaticFiles(directory=assets)),
        ]
        app = Starlette(
            routes=routes, lifespan=self._lifespan, exception_handlers={HTTPException: _http_problem}
        )  # fmt: skip
        app.router.redirect_slashes = False
        return Guard(app, self._options.token, self.measured)

    # -- endpoints -------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """Answer ``POST /predict``."""
        began = time.perf_counter()
        try:
            question = protocol.parse(await _body(request, self._options.max_bytes))
            models = self._ready()
            found = models.answers(question.keys, question.values, question.learner)
        except PalearnError as error:
            return self._problem(error)
        answers: list[Answer] = []
        for i, answer in enumerate(found):
            if isinstance(answer, RecordError):
                return self._problem(answer, None if question.single else i)
            answers.append(answer)
            self.measured.predictions.labels(answer.learner).inc()
        content = answers[0] if question.single else Predictions(answers)
        self.measured.seconds.observe(time.perf_counter() - began)
        return Response(_encode(content), media_type=_JSON)

    async def models(self, request: Request) -> Response:
        """Answer ``GET /models/KEY``."""
        try:
            asked = request.query_params
            top, learner = _integer("top", asked.get("top", "10")), asked.get("learner")
            models, key = self._ready(), request.path_params["key"]
            rows = models.model(key, learner, top)
            found = msgspec.convert({"key": key, "batch_id": models.batch_id, "learners": rows}, KeyModels)
        except PalearnError as error:
            return self._problem(error)
        return Response(_encode(found), media_type=_JSON)

    async def health(self, request: Request) -> Response:
        """Answer ``GET /health``: the process answers."""
        return Response(b'{"status":"ok"}', media_type=_JSON)

    async def ready(self, request: Request) -> Response:
        """Answer ``GET /ready``: models are loaded."""
        try:
            models = self._ready()
        except PalearnError as error:
            return self._problem(error)
        return Response(_encode({"status": "ready", "batch_id": models.batch_id}), media_type=_JSON)

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``, for Prometheus."""
        return Response(generate_latest(self.measured.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """Answer ``GET /openapi.json``."""
        return Response(self._document, media_type=_JSON)

    async def docs(self, request: Request) -> Response:
        """Answer ``GET /docs``: the OpenAPI page; its scripts come from here, not from the network."""
        return HTMLResponse(_PAGE)

    # -- models ------------------------------------------------------------------------------------------

    def _ready(self) -> Loaded:
        if self._models is None:
            raise RequestError("not_ready", self._told or "the models are being read")
        return self._models

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        yield
        task.cancel()

    async def _follow(self) -> None:
        """Read the models, and then each batch that is new; what cannot be read is tried again."""
        while True:
            try:
                await asyncio.to_thread(self._look)
                self._told = ""
            except (PalearnError, OSError) as error:
                self.measured.refresh_failures.inc()
                if str(error) != self._told:
                    log.warning("%s", error)
                self._told = str(error)
            await asyncio.sleep(self._options.refresh)

    def _look(self) -> None:
        if self._models is None:
            models = self._load()
            models.read_all()
            self._models = models
        elif not self._models.refresh():
            return
        keys = len(self._models.keys())
        self.measured.batch.set(self._models.batch_id)
        self.measured.keys.set(keys)
        log.info("batch %s answers, %s keys", f"{self._models.batch_id:,}", f"{keys:,}")

    def _problem(self, error: PalearnError, instance: int | None = None) -> Response:
        reason, detail = "bad_request", str(error)
        if isinstance(error, RecordError | RequestError):
            reason, detail = error.reason, error.detail
        if instance is not None:
            detail = f"instances[{instance}]: {detail}"
        self.measured.faults.labels(reason).inc()
        return _answer(_STATUS.get(reason, 422), Problem(detail, reason, instance))


class Guard:
    """Lets in who has the token, counts requests, and turns what nobody foresaw into a sentence."""

    def __init__(self, app: ASGIApp, token: str | None, measured: Measured) -> None:
        self._app, self._token, self._measured = app, None if token is None else f"Bearer {token}".encode(), measured

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def counted(message: dict[str, object]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]  # type: ignore[assignment]
            await send(message)

        path: str = scope["path"]
        if self._token is not None and path not in _OPEN and not self._is_let_in(scope):
            problem = Problem("this service asks for a token: Authorization: Bearer TOKEN", "unauthorized")
            response = _answer(401, problem, {"WWW-Authenticate": "Bearer"})
            await response(scope, receive, counted)  # type: ignore[arg-type]
        else:
            await self._app(scope, receive, counted)  # type: ignore[arg-type]
        known = path if path in _KNOWN else "/models" if path.startswith("/models/") else "other"
        self._measured.requests.labels(known, status).inc()

    def _is_let_in(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        assert self._token is not None
        return hmac.compare_digest(given, self._token)


_KNOWN = ("/predict", "/health", "/ready", "/metrics", "/openapi.json", "/docs")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>palearn serve</title>
<link rel="stylesheet" href="docs/assets/swagger-ui.css"><link rel="icon" href="docs/assets/favicon-32x32.png"></head>
<body><div id="page"></div><script src="docs/assets/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "openapi.json", dom_id: "#page"});</script></body></html>
"""


async def _body(request: Request, most: int) -> bytes:
    """Return a request's body, or raise before more of it is held than may be."""
    told = request.headers.get("content-length", "")
    parts, size = list[bytes](), int(told) if told.isdigit() else 0
    if size <= most:
        size = 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > most:
                break
    if size > most:
        raise RequestError("too_large", f"the request has {size} bytes or more, at most {most} are allowed")
    return b"".join(parts)


def _integer(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 100_000 and len(text) < 9):
        raise RequestError("bad_request", f"{name} must be an integer from 1 to 100000, got {text!r:.80}")
    return int(text)


def _answer(status: int, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(problem), status, headers, media_type=_JSON)


async def _http_problem(request: Request, error: Exception) -> Response:
    """Answer what no endpoint does: a path that there is not, or a method that it has not."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another")
        problem = Problem(f"{request.url.path:.80} takes {allowed}, not {request.method:.20}", "bad_method")
        return _answer(405, problem, dict(error.headers or {}))
    paths = "POST /predict, GET /models/KEY, /health, /ready, /metrics, /docs"
    return _answer(
        error.status_code, Problem(f"there is no {request.url.path!r:.80} here; there are {paths}", "not_found")
    )
