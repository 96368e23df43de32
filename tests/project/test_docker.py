"""docker/ without Docker: linters, Spark's and palearn's own parsers, and files that agree with each other.

No engine is asked, so what is shown is that every line is understood and fits the others, not that it runs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
import typer.main
import yaml

from palearn.cli import app, stream
from palearn.config import load

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
PIN = re.compile(r":v?\d+\.\d+\.\d+")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def job():
    return load(ROOT / "docker/stream.yaml")


def run(*command, **environment):
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | spark | {"PATH": path} | environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def pins(lock):
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


# -- linters --------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing():
    found = run("hadolint", "docker/Dockerfile")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_compose_is_valid_by_its_published_schema():
    found = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker/compose.yaml")
    assert found.returncode == 0, found.stdout


# -- the image ------------------------------------------------------------------------------------------


def test_every_image_is_pinned(compose):
    images = [service["image"] for service in compose["services"].values()]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(images) == 10
    for image in images:
        assert PIN.search(image), f"{image} moves under its tag"


def test_the_image_is_made_of_the_locked_versions():
    assert re.search(r"spark-sql-kafka-0-10_2\.13:([\d.]+)", DOCKERFILE)[1] == pins("requirements.lock")["pyspark"]
    runtime = pins("requirements-runtime.lock")
    assert {"pyspark", "numba"} <= runtime.keys()
    assert runtime.items() <= pins("requirements.lock").items()
    assert not {"pytest", "mypy"} & runtime.keys()
    python = re.search(r"^FROM python:(\d+\.\d+)\.", DOCKERFILE, re.MULTILINE)[1]
    assert f"/lib/python{python}/site-packages/pyspark" in DOCKERFILE


def test_nothing_runs_as_root():
    lines = DOCKERFILE.splitlines()
    user = lines.index("USER 10001")
    assert user < next(i for i, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
    assert not any(line.startswith("USER") for line in lines[user + 1 :])
    assert "useradd --create-home --uid 10001" in DOCKERFILE


def test_what_the_image_copies_is_there_and_reaches_the_builder():
    allowed = (ROOT / "docker/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copies
    for source in " ".join(copies).split():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed


def test_the_image_is_prepared_by_a_command_that_exists():
    (command,) = re.findall(r"^RUN palearn (\w+)$", DOCKERFILE, re.MULTILINE)
    assert command in typer.main.get_command(app).commands


# -- the entry point: Kubernetes' two roles, and everything else as it is ----------------------------------


@pytest.fixture
def stubs(tmp_path):
    """Return a folder of a java and a spark-submit that print what they are given."""
    for name in ("java", "spark-submit"):
        stub = tmp_path / name
        stub.write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n')
        stub.chmod(0o755)
    return tmp_path


def enter(stubs, *given, **environment):
    path = f"{stubs}{os.pathsep}{os.environ['PATH']}"
    return run("bash", "docker/entrypoint.sh", *given, PATH=path, **environment).stdout.splitlines()


def test_a_command_is_run_as_it_is(stubs):
    assert enter(stubs, "java", "-cp", "a b") == ["java", "-cp", "a b"]


def test_a_driver_in_kubernetes_is_spark_submit_in_its_pod(stubs):
    found = enter(stubs, "driver", "--class", "x y", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    address = "spark.driver.bindAddress=10.0.0.1"
    assert found == ["spark-submit", "--deploy-mode", "client", "--conf", address, "--class", "x y"]


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:1",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_CLASSPATH": "/extra/*",
    "SPARK_JAVA_OPT_0": "-Dfirst=a b",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(1, 11)},
}


def test_an_executor_in_kubernetes_is_told_what_its_pod_was_told(stubs):
    java, *options = enter(stubs, "executor", **EXECUTOR)
    assert java == "java"
    main = options.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert options[: main - 2] == ["-Dfirst=a b", *(f"-Dn={number}" for number in range(1, 11)), "-Xms1g", "-Xmx1g"]
    jars = Path(pyspark.__file__).parent / "jars/*"
    assert options[main - 2 : main] == ["-cp", f"/opt/spark/conf:/extra/*:{jars}"]
    given = options[main + 1 :]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--driver-url": "spark://driver:1", "--executor-id": "7", "--cores": "2", "--app-id": "app",
        "--hostname": "10.0.0.2", "--resourceProfileId": "0", "--podName": "pod",
    }  # fmt: skip
    usage = run("spark-class", options[main], "--help").stderr
    assert all(f"   {option} <" in usage for option in given[::2])


# -- the services ---------------------------------------------------------------------------------------


def test_services_wait_for_services_that_exist(compose):
    services = compose["services"]
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            assert name in services
            assert wait["condition"] != "service_healthy" or "healthcheck" in services[name]


def test_what_keeps_running_says_whether_it_is_well(compose):
    services = compose["services"]
    ending = {n for s in services.values() for n, w in s.get("depends_on", {}).items() if "completed" in w["condition"]}
    assert ending == {"produce"}
    assert {name for name, service in services.items() if "healthcheck" not in service} == ending


def test_ports_are_published_on_the_loopback_address_only(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_volumes_exist(compose):
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (ROOT / "docker" / source).is_file(), source


def test_master_and_workers_are_started_with_options_they_know(compose):
    services = compose["services"]
    for name in ("master", "worker"):
        found = run(*services[name]["command"], "--help")
        assert found.returncode == 0, found.stderr
    command = services["master"]["command"]
    host, port = (command[command.index(option) + 1] for option in ("--host", "--port"))
    assert host == "master"  # the service's name is the host's
    assert services["worker"]["command"][-1] == f"spark://{host}:{port}"
    assert f"--master=spark://{host}:{port}" in services["job"]["command"]
    assert services["worker"]["deploy"]["replicas"] == 2


def test_the_job_is_submitted_with_options_that_spark_and_palearn_know(compose):
    command = compose["services"]["job"]["command"]
    script = command.index("jobs/stream.py")
    assert (ROOT / command[script]).is_file()
    found = run(*command[:script], "--version")
    assert found.returncode == 0, found.stderr
    connector = re.search(r"spark-sql-kafka-[^\"]+", DOCKERFILE)[0]
    assert f"--packages=org.apache.spark:{connector}" in command
    assert "--conf=spark.driver.host=job" in command  # the service's own name, which the workers know

    (option,) = command[script + 1 :]
    mounted = dict(volume.split(":")[1::-1] for volume in compose["services"]["job"]["volumes"])
    config = ROOT / "docker" / mounted[option.removeprefix("--config=")]
    alone = typer.Typer()
    alone.command()(stream)
    typer.main.get_command(alone).make_context("stream", [f"--config={config}"])


def test_the_data_set_is_produced_with_options_that_palearn_knows(compose, job):
    program, name, *options = compose["services"]["produce"]["command"]
    assert program == "palearn"
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, options).params
    assert given["files"] == ["a9a"]
    assert list(job.source.kafka.topics) == [given["topic"]]
    assert given["bootstrap_servers"] == job.source.kafka.bootstrap_servers
    listeners = compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{job.source.kafka.bootstrap_servers}," in listeners


def test_what_the_job_writes_is_in_one_volume_of_driver_and_workers(compose, job):
    (data,) = compose["services"]["worker"]["volumes"]
    assert data in compose["services"]["job"]["volumes"]
    for written in (job.output.path, job.checkpoint):
        assert written.startswith(f"{data.split(':')[1]}/")
    assert job.make_learners()
    assert job.state.partitions == compose["services"]["worker"]["deploy"]["replicas"]


# -- monitoring -----------------------------------------------------------------------------------------


def mounted(service):
    """Return where a service sees files of this folder -> their content."""
    parts = (volume.split(":") for volume in service["volumes"])
    files = {place: ROOT / "docker" / source for source, place, *_ in parts if source.startswith("./")}
    return {place: yaml.safe_load(file.read_text(encoding="utf-8")) for place, file in files.items()}


def test_monitoring_starts_only_when_it_is_asked_for(compose):
    services = compose["services"]
    assert {n for n, s in services.items() if s.get("profiles") == ["monitoring"]} == {"prometheus", "grafana"}
    assert all("profiles" not in s for n, s in services.items() if n not in ("prometheus", "grafana", "serve"))
    assert services["serve"]["profiles"] == ["serve"]
    readme = (ROOT / "docker/README.md").read_text(encoding="utf-8")
    assert "--profile monitoring up" in readme


def test_prometheus_asks_the_job_where_it_answers(compose, job):
    files = mounted(compose["services"]["prometheus"])
    asked = files["/etc/prometheus/prometheus.yml"]
    ((target,),) = (static["targets"] for scrape in asked["scrape_configs"] for static in scrape["static_configs"])
    service, port = target.split(":")
    assert service in compose["services"]
    assert (job.monitoring.prometheus.host, job.monitoring.prometheus.port) == ("0.0.0.0", int(port))
    assert not any(port in published for published in compose["services"][service]["ports"])
    assert [f"/etc/prometheus/{file}" for file in asked["rule_files"]] == ["/etc/prometheus/alerts.yml"]
    assert "/etc/prometheus/alerts.yml" in files
    assert "prometheus-client" in pins("requirements-runtime.lock")


def test_grafana_is_given_the_data_source_and_the_dashboard(compose):
    grafana = compose["services"]["grafana"]
    files = mounted(grafana)
    (source,) = files["/etc/grafana/provisioning/datasources/palearn.yaml"]["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert f"127.0.0.1:{port}:{port}" in compose["services"][host]["ports"]
    (provider,) = files["/etc/grafana/provisioning/dashboards/palearn.yaml"]["providers"]
    ((place, dashboard),) = ((p, x) for p, x in files.items() if p.startswith(f"{provider['options']['path']}/"))
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == place
    parts = [*dashboard["panels"], *dashboard["templating"]["list"]]
    assert {(part["datasource"]["type"], part["datasource"]["uid"]) for part in parts} == {
        ("prometheus", source["uid"])
    }
    areas = [tuple(panel["gridPos"][x] for x in "xywh") for panel in dashboard["panels"]]
    cells = [(x + i, y + j) for x, y, w, h in areas for i in range(w) for j in range(h)]
    assert len(set(cells)) == len(cells), "panels lie on each other"
    assert max(x for x, _ in cells) < 24
