"""A real broker that asks for TLS and passwords: its certificates, its users, and what lets one in."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import UserScramCredentialUpsertion

from palearn.kafka import local_broker
from tests.conftest import free_port_pair

#: A word to look for, and a password with it and with what quoted texts of Java, YAML, JSON and shells stumble over.
MARK = "hunter2Xq7"
PASSWORD = f" {MARK} \"q\" 's' \\b\\n; ${{x}} é☃🗝 #=,{{}}\\"
USER = "jane=doe,jr"
#: The user of the mechanism PLAIN stands in the broker's settings.
PLAIN_USER, PLAIN_PASSWORD = "plain", "pläin ☃🗝 pass"
#: A key store's own password; it never leaves the broker.
_STORE = "changeit"


@dataclass(frozen=True)
class Secure:
    """A broker of this machine with a listener a protocol; ``servers``: protocol -> ``host:port``."""

    folder: Path
    servers: dict[str, str]
    port: int

    @property
    def password(self) -> Path:
        """The file of the user's password."""
        return self.folder / "password"

    def authority(self, name: str = "own") -> str:
        """Return the PEM file of the authority that signed the broker's certificate; ``other`` is one that did not."""
        return str(self.folder / f"{name}.pem")

    def kafka(self, protocol: str, *, at: str | None = None, **changes: Any) -> dict[str, Any]:
        """Return what lets one in by a protocol, as in ``source.kafka``; ``at``: the protocol of the listener asked."""
        access = {"protocol": protocol}
        if protocol.startswith("SASL"):
            access |= {"username": USER, "password": f"${{file:{self.password}}}"}
        if protocol.endswith("SSL"):
            access |= {"ca": self.authority()}
        kafka: dict[str, Any] = {"bootstrap_servers": self.servers[at or protocol]}
        return kafka if protocol == "PLAINTEXT" else kafka | {"access": access | changes}


def start(folder: Path) -> Secure:
    """Start it in a folder."""
    _make_certificates(folder)
    port = free_port_pair()
    extra = {protocol: f"127.0.0.1:{free_port_pair()}" for protocol in ("SASL_SSL", "SSL", "SASL_PLAINTEXT")}
    secure = Secure(folder, {"PLAINTEXT": f"127.0.0.1:{port}", **extra}, port)
    local_broker.start(port, folder / "data", settings=_settings(secure, extra))
    client = KafkaAdminClient(bootstrap_servers=secure.servers["PLAINTEXT"])
    try:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            user = UserScramCredentialUpsertion(USER, mechanism, PASSWORD)
            assert client.alter_user_scram_credentials([user]) == {USER: None}
    finally:
        client.close()
    secure.password.write_text(PASSWORD + "\n")
    return secure


def _settings(secure: Secure, extra: dict[str, str]) -> dict[str, str]:
    """Return Kafka's own settings: the further listeners, their certificate, and who is let in."""
    own = f"CLIENT://127.0.0.1:{secure.port}"
    advertised = ",".join([own, *(f"{protocol}://{server}" for protocol, server in extra.items())])
    kinds = ["CLIENT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{protocol}:{protocol}" for protocol in extra)]
    module = "org.apache.kafka.common.security.{}LoginModule required"
    plain = f'{module.format("plain.Plain")} user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
    return {
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{secure.port + 1}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(kinds),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(secure.folder / "server.p12"),
        "ssl.keystore.password": _STORE,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        **{
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": f"{module.format('scram.Scram')};"
            for listener in ("sasl_ssl", "sasl_plaintext")
            for mechanism in ("scram-sha-256", "scram-sha-512")
        },
    }


def _make_certificates(folder: Path) -> None:
    """Make an authority (``own``) that signs the broker's certificate, and one that does not (``other``)."""
    authority = ("-keyalg", "EC", "-validity", "3650", "-ext", "bc:c=ca:true", "-ext", "ku:c=keyCertSign,cRLSign")
    for name in ("own", "other"):
        _keytool(folder / name, "-genkeypair", "-alias", name, "-dname", f"CN={name}", *authority)
        _keytool(folder / name, "-exportcert", "-alias", name, "-rfc", "-file", f"{folder / name}.pem")
    server = ("-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-keyalg", "EC", "-validity", "3650")
    _keytool(folder / "own", "-genkeypair", "-alias", "server", "-signer", "own", *server)
    source = ("-srckeystore", str(folder / "own"), "-srcstorepass", _STORE, "-srcalias", "server")
    _keytool(folder / "server.p12", "-importkeystore", *source, prefix="dest")


def _keytool(store: Path, command: str, *options: str, prefix: str = "") -> None:
    """Run what comes with every Java."""
    place = (f"-{prefix}keystore", str(store), f"-{prefix}storepass", _STORE)
    done = subprocess.run(["keytool", command, *place, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
