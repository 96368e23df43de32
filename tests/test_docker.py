"""docker/ is checked by reading: its files agree with each other and with the versions of the lock file."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def stream():
    return yaml.safe_load((ROOT / "docker/stream.yaml").read_text(encoding="utf-8"))


def locked(package):
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)[1]


def test_every_image_is_pinned(compose):
    images = [service["image"] for service in compose["services"].values()]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(images) == 6
    for image in images:
        assert re.search(r":\d+\.\d+\.\d+", image), f"{image} moves under its tag"


def test_the_connector_is_of_the_locked_spark():
    assert re.search(r"spark-sql-kafka-0-10_2\.13:([\d.]+)", DOCKERFILE)[1] == locked("pyspark")


def test_the_job_does_not_run_as_root():
    lines = DOCKERFILE.splitlines()
    user = lines.index("USER palearn")
    assert user < next(i for i, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
    assert not any(line.startswith("USER") for line in lines[user + 1 :])


def test_what_the_image_copies_is_there_and_reaches_the_builder():
    allowed = (ROOT / "docker/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copies
    for source in " ".join(copies).split():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed


def test_services_wait_for_services_that_exist(compose):
    services = compose["services"]
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            assert name in services
            assert wait["condition"] != "service_healthy" or "healthcheck" in services[name]


def test_the_topic_and_the_broker_are_the_same_everywhere(compose, stream):
    services, source = compose["services"], stream["source"]["kafka"]
    inside = "kafka:29092"
    assert f"INSIDE://{inside}," in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"--bootstrap-server={inside}" in services["topic"]["command"]
    assert f"--bootstrap-servers {inside}" in services["produce"]["command"][0]
    assert source["bootstrap_servers"] == inside
    (topic,) = source["topics"]
    assert f"--topic={topic}" in services["topic"]["command"]
    assert f"--topic {topic} " in services["produce"]["command"][0]


def test_the_broker_is_published_on_the_loopback_address_only(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_the_job_writes_is_on_a_volume(compose, stream):
    targets = [volume.split(":")[1] for volume in compose["services"]["job"]["volumes"]]
    for written in (stream["output"]["path"], stream["checkpoint"]):
        assert any(written.startswith(f"{target}/") for target in targets)
