"""What is sent to the service and what it answers, and the OpenAPI document that says so."""

from typing import Any

import msgspec

from palearn import records
from palearn.errors import PalearnError, RecordError
from palearn.records import LabelValue
from palearn.serving.loaded import Answer

#: Most records of one request: none waits long behind another's.
MOST_INSTANCES = 1_000
#: Longest request, in bytes, where nothing else is said.
MOST_BYTES = 8 * 1024 * 1024


class RequestError(PalearnError, ValueError):
    """A request cannot be answered: a reason code, which is none of a record's, and a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Instance(msgspec.Struct):
    """A record to be scored: a key, and features or views of features as in a job's records."""

    key: str
    features: dict[str, float | str | bool | list[str] | None] | None = None
    views: dict[str, dict[str, float | str | bool | list[str] | None]] | None = None
    learner: str | None = None


class Instances(msgspec.Struct):
    """Records to be scored at once; all of them are, or none."""

    instances: list[Instance]
    learner: str | None = None


class Predictions(msgspec.Struct):
    """The answers to ``instances``, in their order."""

    predictions: list[Answer]


class Problem(msgspec.Struct, omit_defaults=True):
    """Why there is no answer: a sentence, a reason code, and of ``instances`` the place of the first that is wrong."""

    error: str
    reason: str
    instance: int | None = None


class Weight(msgspec.Struct):
    """A weight of a model; ``variance`` and ``z_score`` are a second-order learner's."""

    feature: str
    label: str | None
    weight: float
    variance: float | None
    z_score: float | None


class LearnerModel(msgspec.Struct):
    """A learner's model of a key: its labels, how many features it has, and its largest weights."""

    learner: str
    labels: list[str | None]
    features: int
    weights: list[Weight]


class KeyModels(msgspec.Struct):
    """The models of a key."""

    key: str
    batch_id: int
    learners: list[LearnerModel]


class Question(msgspec.Struct):
    """A request's records as they came, and the learner that shall answer."""

    keys: list[str | None]
    values: list[bytes]
    learner: str | None
    single: bool


class _Envelope(msgspec.Struct):
    key: LabelValue | None = None
    learner: str | None = None
    instances: list[msgspec.Raw] | None = None


_envelope = msgspec.json.Decoder(_Envelope).decode


def parse(body: bytes) -> Question:
    """Return what a request asks.

    Raises
    ------
    RequestError
        It is no such request.
    """
    outer = _read(body)
    if outer.instances is None:
        return Question([_key(outer)], [body], outer.learner, True)
    if outer.key is not None:
        raise RequestError("bad_request", "a request has a key and features, or instances, not both")
    if len(outer.instances) > MOST_INSTANCES:
        raise RequestError(
            "too_large", f"the request has {len(outer.instances)} instances, at most {MOST_INSTANCES} are allowed"
        )
    values = [bytes(raw) for raw in outer.instances]
    inner = [_read(value, i) for i, value in enumerate(values)]
    return Question(list(map(_key, inner)), values, outer.learner, False)


def _read(body: bytes, instance: int | None = None) -> _Envelope:
    where = "the request" if instance is None else f"instances[{instance}]"
    try:
        return _envelope(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        try:
            records.decode_value(body)  # says best what is wrong with it
        except RecordError as fault:
            if fault.reason in ("not_utf8", "not_json", "not_object", "non_finite"):
                raise RequestError(fault.reason, f"{where}: {fault.detail}") from None
        raise RequestError("bad_request", f"{where}: {error}") from None


def _key(outer: _Envelope) -> str | None:
    return None if outer.key is None else records.label_text(outer.key)


def openapi(version: str, *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the service."""
    types = [Instance, Instances, Answer, Predictions, KeyModels, Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    of = dict(zip((x.__name__ for x in types), schemas, strict=True))
    example = {"key": "alice", "features": {"free": 1, "len": 0.3}}
    body = {"schema": {"oneOf": [of["Instance"], of["Instances"]]}, "example": example}
    path_key = {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}}
    top = {"name": "top", "in": "query", "schema": {"type": "integer", "minimum": 1, "default": 10}}
    learner = {"name": "learner", "in": "query", "schema": {"type": "string"}}
    predict = {
        "summary": "Score a record, or up to 1,000 at once",
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": _responses(
            of, {"oneOf": [of["Answer"], of["Predictions"]]}, [400, 404, 413, 422, 503], "The answer, or one a record"
        ),
    }
    models = {
        "summary": "A key's labels and largest weights, by learner",
        "parameters": [path_key, top, learner],
        "responses": _responses(of, of["KeyModels"], [400, 404, 503], "The models of the key"),
    }
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    paths = {
        "/predict": {"post": predict},
        "/models/{key}": {"get": models},
        "/health": {"get": {"summary": "The process answers", "responses": {"200": {"description": "It does"}}}},
        "/ready": {"get": {"summary": "Models are loaded", "responses": _responses(of, {}, [503], "They are")}},
        "/metrics": {
            "get": {"summary": "For Prometheus", "responses": {"200": {"description": "Its text format", **text}}}
        },
    }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "palearn serve", "version": version, "description": "One small linear classifier a key."},
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


_WHY = {
    400: "The request cannot be read",
    404: "There is no model of the key",
    413: "The request is too large",
    422: "The record cannot be scored",
    503: "No models are loaded yet",
}


def _responses(of: dict[str, Any], fine: dict[str, Any], faults: list[int], description: str) -> dict[str, Any]:
    problem = {"application/json": {"schema": of["Problem"]}}
    found: dict[str, Any] = {"200": {"description": description, "content": {"application/json": {"schema": fine}}}}
    return found | {str(status): {"description": _WHY[status], "content": problem} for status in faults}
