"""The configuration: defaults, overrides, and every fault told with its place."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from palearn import config
from palearn.errors import ConfigError

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("conf", "docker")
    for path in (ROOT / folder).glob("*.yaml")
    if "learners" in (yaml.safe_load(path.read_text(encoding="utf-8")) or {})
)
CONTRACT = """
source:
  kafka: {bootstrap_servers: "127.0.0.1:9092", topics: [examples], starting_offsets: earliest,
          max_offsets_per_trigger: 100000, options: {}}
records: {format: json, key: record, task: binary, positive: null, bias: true, views: null}
learners:
  - {name: arow, algorithm: arow, r: 1.0, covariance: diagonal}
  - {name: careful, algorithm: pa1, C: 0.1}
join: {}
state: {buckets: 64, max_keys: null, max_features: 10000}
metrics: {window: 1000, fading: 0.999}
output: {path: out, models: {every_batches: 1}, metrics: {}, predictions: false, rejected: {}, batches: {}}
checkpoint: checkpoint
trigger: available_now
"""


def minimal() -> dict[str, Any]:
    return {
        "source": {"kafka": {"bootstrap_servers": "127.0.0.1:9092", "topics": ["examples"]}},
        "learners": [
            {"name": "arow", "algorithm": "arow", "r": 1.0, "covariance": "diagonal"},
            {"name": "careful", "algorithm": "pa1", "C": 0.1},
        ],
        "output": {"path": "out"},
        "checkpoint": "checkpoint",
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    """The minimal configuration with one value changed."""
    tree = minimal()
    node: Any = tree
    *parents, last = path.split(".")
    for step in parents:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    node[int(last) if isinstance(node, list) else last] = value
    return tree


def test_source_learners_output_and_checkpoint_are_enough() -> None:
    written = yaml.safe_load(CONTRACT)
    written["source"]["kafka"]["max_offsets_per_trigger"] = 250_000  # the example says less than the default
    assert config.parse(minimal()) == config.parse(written)


def test_defaults_reach_the_plan() -> None:
    plan = config.parse(minimal()).bucket_config
    assert plan.tables == {"models", "metrics", "rejected", "expired", "drifts", "forgotten"}
    assert (plan.max_keys, plan.settings.max_features, plan.settings.window) == (None, 10_000, 1000)
    assert [(x.name, x.algorithm) for x in plan.learners] == [("arow", "arow"), ("careful", "pa1")]
    assert plan.learners[1].params["C"] == 0.1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_shipped_configurations_load(path: Path) -> None:
    assert config.load(path).bucket_config.learners


def test_there_are_shipped_configurations() -> None:
    assert {path.parent.name for path in FILES} == {"conf", "docker"}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("sorce", {}, "sorce.*did you mean 'source'"),
        ("source.kafka.options", {"maxoffsetspertrigger": 5}, r"maxoffsetspertrigger: set source\.kafka\.max_offsets"),
        ("source.kafka.topic", "x", r"source\.kafka\.topic.*did you mean 'topics'"),
        ("records.positiv", 1, r"records\.positiv.*did you mean 'positive'"),
        ("state.bucket", 1, r"state\.bucket.*did you mean 'buckets'"),
        ("output.model", {}, r"output\.model.*did you mean 'models'"),
        ("assembly", {}, r"assembly: unknown key 'assembly'; did you mean 'join'"),
        ("records.topics", {"examples": {"veiw": "page"}}, r"records\.topics\.examples\.veiw.*did you mean 'view'"),
        ("join", {"max_waiting": 5}, r"join\.max_waiting.*did you mean 'max_pending'"),
        ("output.accounts", {}, r"output\.accounts.*did you mean 'batches'"),
        ("output.models", {"every": 2}, r"output\.models\.every.*did you mean 'every_batches'"),
        ("output.models.every_batche", 1, r"output\.models\.every_batche.*did you mean 'every_batches'"),
        ("trigger", {"procesing_time": "1s"}, "procesing_time.*did you mean 'processing_time'"),
        ("records.key", {"feild": "user"}, "feild.*did you mean 'field'"),
        ("learners.0.R", 1, "learners.0: .*unknown option 'R'.*r"),
        ("learners.0.r", -1, r"learners\.0: .*r must be .*> 0, got -1"),
        ("learners.0.algorithm", "arrow", r"learners\.0: .*arrow.*arow"),
        ("learners.0.covariance", "ful", r"learners\.0: .*covariance must be"),
        ("learners.1.name", "arow", r"learners\.1\.name: 'arow' stands twice"),
        ("learners.0.view", "page", r"learners\.0\.view: 'page'"),
        ("learners.0", {"algorithm": "two_view_pa"}, r"learners\.0: two_view_pa needs two views"),
        ("learners", [], "learners"),
        ("source", {}, "source: give kafka or files"),
        ("source.kafka.topics", [], "source.kafka.topics"),
        ("records.task", "regression", r"records\.task"),
        ("records.key", {}, r"records\.key"),
        ("records.views", ["page", "page"], r"records\.views"),
        ("records.views", ["a:b"], r"records\.views"),
        ("state.buckets", 0, r"state\.buckets"),
        ("state.max_features", "many", r"state\.max_features"),
        ("metrics.window", 0, r"metrics\.window"),
        ("metrics.fading", 1.5, r"metrics\.fading"),
        ("output.predictions", True, r"output\.predictions"),
        ("checkpoint", "", "checkpoint"),
        ("trigger", "now", "trigger"),
        ("trigger", {"processing_time": "10 parsecs"}, "trigger"),
        ("source.kafka.access", {"pasword": "x"}, "did you mean 'password'"),
        (
            "source.kafka.access",
            {},
            r"access\.username: SASL_SSL needs one.*access\.password: SASL_SSL",
        ),
        ("source.kafka.access", {"protocol": "SSL", "username": "a"}, r"access\.username: .*SSL asks for none"),
        ("source.kafka.access", {"protocol": "TLS"}, r"source\.kafka\.access\.protocol"),
        (
            "source.kafka.access",
            {"protocol": "SSL", "ca": "none.pem"},
            r"access\.ca: none\.pem cannot be read: No",
        ),
        ("source.kafka.access", {"protocol": "SSL", "ca": __file__}, r"access\.ca: .* holds no certificate"),
        ("source.kafka.access", {"protocol": "SASL_PLAINTEXT", "ca": "x"}, r"access\.ca: .*SASL_PLAINTEXT has no TLS"),
        ("output.path", "${A-B}", r"output\.path: \$\{ begins a variable"),
        ("output.path", "${file:none}", r"output\.path: the file none cannot be read: No such file"),
    ],
)
def test_a_fault_is_told_with_its_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        config.parse(changed(path, value))


@pytest.mark.parametrize("missing", ["source", "learners", "output", "checkpoint"])
def test_what_is_missing_is_named(missing: str) -> None:
    tree = minimal()
    del tree[missing]
    with pytest.raises(ConfigError, match=missing):
        config.parse(tree)


def test_all_faults_at_once() -> None:
    tree = minimal() | {"state": {"buckets": 0, "bukets": 2}, "metrics": {"window": 0}, "chekpoint": "x"}
    tree["learners"] = [{"algorithm": "pa1", "C": -1}, {"algorithm": "arow", "r": 0}]
    with pytest.raises(ConfigError) as caught:
        config.parse(tree)
    for words in ("bukets", "chekpoint", "state.buckets", "metrics.window", "learners.0", "learners.1"):
        assert words in str(caught.value), words


def test_positive_is_for_the_binary_task() -> None:
    with pytest.raises(ConfigError, match=r"records\.positive"):
        config.parse(minimal() | {"records": {"task": "multiclass", "positive": "spam"}})


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", "kafka:9")
    monkeypatch.setenv("NUMBER", "7")
    tree = changed("source.kafka.bootstrap_servers", "${BROKER},b:${BROKER}")
    tree["source"]["kafka"]["topics"] = ["t-${NUMBER}"]
    kafka = config.parse(tree).source.kafka
    assert kafka is not None
    assert (kafka.bootstrap_servers, kafka.topics) == ("kafka:9,b:kafka:9", ["t-7"])


def test_environment_not_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOBODY", raising=False)
    with pytest.raises(ConfigError, match=r"output\.path.*NOBODY is not set"):
        config.parse(changed("output.path", "${NOBODY}/out"))


def test_what_is_no_text_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(os.environb, b"LATIN", b"caf\xe9")
    with pytest.raises(ConfigError, match=r"output\.path: the environment variable LATIN is no UTF-8 text"):
        config.parse(changed("output.path", "${LATIN}"))
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match=r"output\.path: the file .*latin is no UTF-8 text"):
        config.parse(changed("output.path", f"${{file:{tmp_path / 'latin'}}}"))


#: Quotes, escapes, variables, separators and other alphabets.
PASSWORD = " \"a\" 'b' \\c\\n; ${d} #=,{} é☃🗝\\"


@pytest.mark.parametrize("variable", ["${PASSWORD}", "${file:FOLDER/password}"])
def test_a_password_comes_from_the_environment_or_a_file_as_it_is(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(PASSWORD + "\n", encoding="utf-8")
    access = {"username": "jane", "password": variable.replace("FOLDER", str(tmp_path))}
    kafka = config.parse(changed("source.kafka.access", access)).source.kafka
    assert kafka is not None
    assert kafka.access is not None
    assert kafka.access.password == PASSWORD
    assert kafka.access.python_options()["sasl_plain_password"] == PASSWORD
    login = kafka.client_options["sasl.jaas.config"]
    module, _, rest = login.partition(' required username="jane" password=')
    assert module == "org.apache.kafka.common.security.scram.ScramLoginModule"
    # A text in quotes, with backslashes before backslashes and quotes, which JSON reads as Java does.
    assert json.loads(rest.removesuffix(";")) == PASSWORD


def test_a_login_has_no_line_break_and_scram_s_escapes_where_kafka_python_leaves_them_out() -> None:
    access = config.Access(username="a=b,c", password="one\r\ntwo")
    assert 'password="one\\r\\ntwo";' in access.java_options()["sasl.jaas.config"]
    assert 'username="a=b,c"' in access.java_options()["sasl.jaas.config"]
    assert access.python_options()["sasl_plain_username"] == "a=3Db=2Cc"
    plain = config.Access(mechanism="PLAIN", username="a=b,c", password="x")
    assert plain.python_options()["sasl_plain_username"] == "a=b,c"


@pytest.mark.parametrize(
    "override",
    [
        "source.kafka.access.password=hunter2",
        "source.kafka.access={username: jane, password: hunter2}",
        "source={kafka: {bootstrap_servers: b, topics: [t], access: {username: jane, password: hunter2}}}",
        "source.kafka.options.kafka.sasl.jaas.config=hunter2",
        "source.kafka.options={kafka.ssl.keystore.password: hunter2}",
        "source.kafka.access.password:hunter2",
    ],
)
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(override: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)--set") as caught:
        config.parse(minimal(), [override])
    assert "hunter2" not in str(caught.value)
    if "=" in override:
        assert "'${NAME}'" in str(caught.value)
        assert "'${file:PATH}'" in str(caught.value)


def test_a_variable_on_the_command_line_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    overrides = ["source.kafka.access.username=jane", "source.kafka.access.password=${SECRET}"]
    kafka = config.parse(minimal(), overrides).source.kafka
    assert kafka is not None
    assert kafka.access == config.Access(username="jane", password="hunter2")


@pytest.mark.parametrize(
    ("given", "read"),
    [("10s", "10 seconds"), ("100ms", "100 milliseconds"), ("5 minutes", "5 minutes"), ("1 day", "1 day")],
)
def test_an_interval_is_given_to_spark_in_its_own_words(given: str, read: str) -> None:
    trigger = config.parse(changed("trigger", {"processing_time": given})).trigger
    assert isinstance(trigger, config.ProcessingTime)
    assert trigger.interval == read


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("source.kafka.options", "${SECRET}"),
        ("source.kafka.access", "${SECRET}"),
        ("source.kafka.access", {"protocol": "${SECRET}"}),
        ("source.kafka.access", {"password": ["${SECRET}"]}),
        ("source.kafka.access", {"password": "${SECRET}"}),
        ("source.kafka.access", {"password": "${SECRET}", "mechanism": "OAUTHBEARER"}),
        ("source.kafka.options", {"kafka.sasl.jaas.config": ["${SECRET}"]}),
        ("source.kafka.option", {"kafka.sasl.jaas.config": "${SECRET}"}),
        ("source.kafka.topics", "${SECRET}"),
        ("state.buckets", "${SECRET}"),
        ("records.task", "${SECRET}"),
    ],
)
def test_secrets_do_not_appear_in_errors(path: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2-hunter2")
    with pytest.raises(ConfigError) as caught:
        config.parse(changed(path, value))
    assert "hunter2" not in str(caught.value)


def test_overrides() -> None:
    overrides = ["learners.1.C=0.5", "state.buckets=7", "output.predictions={}", "metrics.window=5", "checkpoint=c2"]
    made = config.parse(minimal(), overrides)
    assert made.make_learners()[1].params["C"] == 0.5
    assert (made.state.buckets, made.metrics.window, made.checkpoint) == (7, 5, "c2")
    assert "predictions" in made.bucket_config.tables


@pytest.mark.parametrize("number", ["1e-3", "1E3", "0.001", "5"])
def test_an_override_that_is_a_number_is_one(number: str) -> None:
    assert config.parse(minimal(), [f"learners.1.C={number}"]).make_learners()[1].params["C"] == float(number)


@pytest.mark.parametrize(
    "override",
    ["learners.1.C", "=1", "learners.9.C=1", "learners.x.C=1", "checkpoint.x=1", "checkpoint.x.y=1", "state={"],
)
def test_wrong_overrides_are_told(override: str) -> None:
    with pytest.raises(ConfigError):
        config.parse(minimal(), [override])


def test_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        config.load(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1,\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml is not YAML") as caught:
        config.load(broken)
    assert "\n" not in str(caught.value)
    broken.write_text("- 1\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml.*mapping"):
        config.load(broken)


def test_the_fingerprint_is_what_state_depends_on() -> None:
    base = config.parse(minimal()).fingerprint
    for path, value in (("learners.0.r", 2.0), ("state.buckets", 7), ("records.bias", False), ("metrics.window", 7)):
        assert config.parse(changed(path, value)).fingerprint != base, path
    for path, value in (
        ("output.path", "elsewhere"),
        ("source.kafka.max_offsets_per_trigger", 5),
        ("trigger", {"processing_time": "9s"}),
        ("monitoring.prometheus", {"port": 9999}),
    ):
        assert config.parse(changed(path, value)).fingerprint == base, path


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ({"view": "page"}, "is none of records.views"),
        ({"fields": {"lable": "y"}}, "a record has the fields label"),
        ({"fields": {"label": "features"}}, "needs a plain name of its own"),
        ({"fields": {"label": 'a"b'}}, "needs a plain name of its own"),
    ],
)
def test_a_topic_whose_values_cannot_be_read_is_refused(form: dict[str, Any], fault: str) -> None:
    tree = minimal()
    tree["records"] = {"topics": {tree["source"]["kafka"]["topics"][0]: form}}
    with pytest.raises(ConfigError, match=fault):
        config.parse(tree)


def test_a_form_of_a_topic_that_is_not_read_is_refused() -> None:
    tree = minimal()
    tree["records"] = {"topics": {"elsewhere": {}}}
    with pytest.raises(ConfigError, match=r"source\.kafka\.topics has no such topic"):
        config.parse(tree)
