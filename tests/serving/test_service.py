"""The HTTP service: what it answers, to whom, and what it says to requests that are wrong."""

import asyncio
import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import palearn
from benchmarks.serve import free_port, wrong
from palearn.serving import protocol
from palearn.serving.service import Options, Service
from tests.asked import KINDS
from tests.streams import bits

X = {"f1": 1.0, "f4": 2.5}


class Served:
    """A service asked without a network: one ASGI call a request."""

    def __init__(self, out, *, loaded=True, options=None, **more):
        self.service = Service(lambda: palearn.load(out, **more), options or Options(), "1.2.3")
        self.app = self.service.application()
        if loaded:
            self.service._look()

    def ask(self, method, path, body=b"", headers=()):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        name, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": name, "raw_path": name.encode(), "query_string": query.encode(),
            "headers": [(b"host", b"x"), *headers], "http_version": "1.1", "scheme": "http", "root_path": "",
            "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
        }  # fmt: skip
        sent = []
        pieces = [content[i : i + 1000] for i in range(0, len(content), 1000)] or [b""]

        async def receive():
            if not pieces:
                await asyncio.sleep(60)
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], json.loads(body) if body[:1] in (b"{", b"[") else body

    def post(self, body, **more):
        return self.ask("POST", "/predict", body, **more)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return KINDS["binary"].write(tmp_path_factory.mktemp("serve") / "out")


@pytest.fixture(scope="module")
def served(out):
    return Served(out)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_what_load_says_to_the_last_bit(tmp_path, kind):
    made = KINDS[kind]
    out = made.write(tmp_path)
    one, models = Served(out), palearn.load(out)
    name = "views" if made.views else "features"
    asked = [(key, made.example(key, i)[0]) for key in made.keys for i in range(30, 40)]
    answers = []
    for key, x in asked:
        status, answer = one.post({"key": key, name: x})
        assert status == 200
        assert list(answer) == ["key", "learner", "score", "predicted", "probability", "batch_id"]
        (expected,) = models.many([{"key": key, name: x}])
        assert (answer["key"], answer["learner"], answer["batch_id"]) == (key, expected.learner, 2)
        assert bits([answer["score"], answer["predicted"]]) == bits([expected.score, expected.predicted])
        answers.append(answer)
        for learner in made.learners:
            named = one.post({"key": key, name: x, "learner": learner})[1]
            score = models.score(key, x, learner)
            assert named["score"] == (max(score.values()) if isinstance(score, dict) else score)
    status, together = one.post({"instances": [{"key": key, name: x} for key, x in asked]})
    assert (status, together) == (200, {"predictions": answers})


@pytest.mark.parametrize(
    ("body", "status", "reason", "sentence"),
    [
        (b"", 400, "not_json", "is not JSON"),
        (b"{", 400, "not_json", "is not JSON"),
        (b"[" * 100_000, 400, "not_json", "nested too deeply"),
        (b"[]", 400, "not_object", "a JSON list"),
        (b'{"key":"\xff"}', 400, "not_utf8", "not UTF-8"),
        (b'{"key":"a","features":{"f":NaN}}', 422, "non_finite", "holds NaN"),
        ({"key": {}, "features": {}}, 400, "bad_request", "key"),
        ({"key": "a", "instances": []}, 400, "bad_request", "not both"),
        ({"instances": 3}, 400, "bad_request", "instances"),
        ({"features": {}}, 422, "no_key", "needs a key"),
        ({"key": "", "features": {}}, 422, "no_key", "needs a key"),
        ({"key": "a"}, 422, "no_features", "no field 'features'"),
        ({"key": "a", "features": {"(bias)": 1}}, 422, "reserved_name", "bias"),
        ({"key": "a", "features": [1]}, 422, "bad_features", "must map names"),
        ({"key": "a", "id": 1, "label": "spam"}, 422, "no_features", "lacks features"),
        ({"key": "a", "views": {"page": {}}}, 422, "bad_view", "views"),
        ({"key": "stranger", "features": {}}, 404, "no_model", "no model of key 'stranger' up to batch 2"),
        ({"key": "a", "features": {}, "learner": "mine"}, 400, "bad_request", "they have arow, careful"),
        ({"instances": [{"key": "a", "features": {}}, {"key": "b"}]}, 422, "no_features", r"instances\[1\]"),
        ({"instances": [{}] * 1001}, 413, "too_large", "1001 instances"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_a_request_that_is_wrong_is_answered_with_a_sentence(served, body, status, reason, sentence):
    found, problem = served.post(body)
    assert (found, problem["reason"]) == (status, reason)
    assert re.search(sentence, problem["error"]), problem


def test_of_a_thousand_hostile_requests_none_is_a_server_error(served):
    random = np.random.default_rng(7)
    for i in range(1_000):
        body, path, method = wrong(random, i)
        status, problem = served.ask(method.decode(), path.decode("latin-1"), body)
        assert 400 <= status < 500, (body[:80], path, method)
        assert len(problem["error"]) > 10


def test_a_body_is_not_held_once_it_is_too_long(out):
    one = Served(out, options=Options(max_bytes=2_000))
    assert one.post({"key": "a", "features": X})[0] == 200
    for headers in ((), [(b"content-length", b"5000")]):
        status, problem = one.post(b" " * 5_000, headers=headers)
        assert (status, problem["reason"]) == (413, "too_large")
        assert "at most 2000" in problem["error"]


def test_a_key_without_a_model_is_answered_by_the_fallback(out):
    one = Served(out, fallback="a", select="careful")
    answer = one.post({"key": "stranger", "features": X})[1]
    own = one.post({"key": "a", "features": X})[1]
    assert answer == own | {"key": "stranger", "fallback": "a"}
    assert own["learner"] == "careful"
    assert one.ask("GET", "/models/stranger")[0] == 404


def test_a_key_may_be_a_number(tmp_path):
    from palearn.learners import Learner
    from tests.asked import write_models
    from tests.streams import plan, rows

    made = plan(Learner("pa", "pa"))
    one = Served(write_models(tmp_path, made, [rows([("7", {"label": 1, "features": {"f": 1}})])]))
    assert one.post({"key": 7, "features": {"f": 1}})[1]["score"] > 0


def test_models_are_shown_by_their_weights(served, out):
    status, shown = served.ask("GET", "/models/a?top=2")
    assert (status, shown["key"], shown["batch_id"]) == (200, "a", 2)
    assert [x["learner"] for x in shown["learners"]] == ["arow", "careful"]
    expected = KINDS["binary"].expected("a")
    for learner in shown["learners"]:
        assert learner["labels"] == ["ham", "spam"]
        weights = learner["weights"]
        assert len(weights) == 2
        own = {k[2]: v for k, v in expected.items() if k[0] == learner["learner"]}
        for weight in weights:
            value, variance = own[weight["feature"]]
            assert (weight["weight"], weight["variance"]) == (value, variance)
        assert {abs(w["weight"]) for w in weights} == set(sorted((abs(v) for v, _ in own.values()), reverse=True)[:2])
    assert len(served.ask("GET", "/models/a?learner=arow")[1]["learners"]) == 1
    for query in ("top=0", "top=x", "top=9999999", "learner=mine"):
        assert served.ask("GET", f"/models/a?{query}")[0] == 400


def test_before_there_are_models_it_lives_and_is_not_ready(tmp_path):
    one = Served(tmp_path / "later", loaded=False)
    assert one.ask("GET", "/health") == (200, {"status": "ok"})
    for status, problem in (one.ask("GET", "/ready"), one.post({"key": "a", "features": {}})):
        assert (status, problem["reason"]) == (503, "not_ready")
    KINDS["binary"].write(tmp_path / "later")
    one.service._look()
    assert one.ask("GET", "/ready") == (200, {"status": "ready", "batch_id": 2})


def test_who_has_no_token_is_not_let_in(out):
    one = Served(out, options=Options(token="s3cret"))
    right = [(b"authorization", b"Bearer s3cret")]
    for path in ("/metrics", "/docs", "/openapi.json", "/models/a", "/nothing"):
        for headers in ((), [(b"authorization", b"Bearer s3cre")], [(b"authorization", b"s3cret")]):
            assert one.ask("GET", path, headers=headers)[0] == 401
        assert one.ask("GET", path, headers=right)[0] != 401
    assert one.post({"key": "a", "features": X})[0] == 401
    assert one.post({"key": "a", "features": X}, headers=right)[0] == 200
    assert one.ask("GET", "/health")[0] == one.ask("GET", "/ready")[0] == 200


def test_metrics_count_what_was_answered(out):
    one = Served(out)
    one.post({"instances": [{"key": "a", "features": X}] * 3})
    one.post({"key": "stranger", "features": X})
    one.ask("GET", "/models/whatever")
    text = one.ask("GET", "/metrics")[1].decode()
    for line in (
        'palearn_serve_requests_total{code="200",path="/predict"} 1.0',
        'palearn_serve_requests_total{code="404",path="/predict"} 1.0',
        'palearn_serve_requests_total{code="404",path="/models"} 1.0',
        'palearn_serve_predictions_total{learner="arow"} 3.0',
        'palearn_serve_faults_total{reason="no_model"} 2.0',
        "palearn_serve_batch_id 2.0",
        "palearn_serve_keys 2.0",
        "palearn_serve_seconds_count 1.0",
    ):
        assert line in text.splitlines()


def test_the_openapi_document_has_every_path_and_the_page_needs_no_network(served):
    document = served.ask("GET", "/openapi.json")[1]
    assert document["info"]["version"] == "1.2.3"
    assert set(document["paths"]) == {"/predict", "/models/{key}", "/health", "/ready", "/metrics"}
    named = json.dumps(document)
    for reference in set(re.findall(r'"#/components/schemas/(\w+)"', named)):
        assert reference in document["components"]["schemas"]
    page = served.ask("GET", "/docs")[1].decode()
    assert "http://" not in page and "https://" not in page  # noqa: PT018
    for asset in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert served.ask("GET", f"/{asset}")[0] == 200
    secured = protocol.openapi("1", secured=True)
    assert secured["security"] == [{"token": []}]


@pytest.mark.slow
def test_the_command_serves_over_tls_with_a_token_and_follows_new_batches(tmp_path):
    out = KINDS["binary"].write(tmp_path / "out")
    late = out / "models/batch_id=2"
    late.rename(tmp_path / "late")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "9", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "token").write_text("s3cret\n", encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "palearn", "serve", str(out), "--port", str(port), "--refresh", "0.2"]
    command += ["--certificate", str(certificate), "--private-key", str(key), "--token-file", str(tmp_path / "token")]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    context = ssl.create_default_context(cafile=str(certificate))

    def ask(method, path, body=None, headers=None):
        with closing(http.client.HTTPSConnection("localhost", port, context=context, timeout=20)) as link:
            link.request(method, path, body, headers or {"Authorization": "Bearer s3cret"})
            answer = link.getresponse()
            return answer.status, answer.read()

    def wait(told, seconds=40):
        for _ in range(seconds * 10):
            try:
                if told(ask("GET", "/ready")):
                    return
            except OSError:
                assert server.poll() is None, server.stderr.read()
            time.sleep(0.1)
        raise AssertionError("it never came")

    try:
        wait(lambda answer: answer[0] == 200)
        body = json.dumps({"key": "a", "features": X})
        assert json.loads(ask("POST", "/predict", body)[1])["batch_id"] == 1
        assert ask("POST", "/predict", body, {"Authorization": "Bearer no"})[0] == 401
        (tmp_path / "late").rename(late)
        wait(lambda answer: json.loads(answer[1]).get("batch_id") == 2, 5)
        assert json.loads(ask("POST", "/predict", body)[1])["score"] == palearn.load(out).score("a", X)
    finally:
        server.send_signal(signal.SIGTERM)
        told = server.communicate(timeout=30)[1]
    assert f"https://127.0.0.1:{port} answers with the models of {out}" in told
    assert "s3cret" not in told


def test_wrong_use_of_the_command(tmp_path):
    from typer.testing import CliRunner

    from palearn.cli import app

    out = KINDS["binary"].write(tmp_path / "out")
    (tmp_path / "empty").write_text("", encoding="utf-8")
    (tmp_path / "pem").write_text("", encoding="utf-8")
    run = CliRunner()
    for options, sentence in (
        (["--certificate", str(tmp_path / "pem")], "go together"),
        (["--token-file", str(tmp_path / "empty")], "must be printable ASCII"),
        (["--token-file", str(tmp_path / "nowhere")], "cannot be read"),
        (["--fallback", "nobody"], "no model of the fallback key 'nobody'"),
        (["--select", "mine"], "no learner 'mine'"),
    ):
        found = run.invoke(app, ["serve", str(out), *options])
        assert found.exit_code != 0
        assert sentence in f"{found.output} {found.exception}"


def test_batches_are_written_as_the_benchmark_says(tmp_path):
    from benchmarks.serve import publish, write_batch

    write_batch(tmp_path, 0, 70)
    publish(tmp_path, 0)
    assert len(palearn.load(Path(tmp_path)).keys()) == 70
