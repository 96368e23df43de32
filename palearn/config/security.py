"""What lets one into a Kafka cluster: one description, the options of Java's and of Python's clients."""

import ssl
from pathlib import Path
from typing import Literal

from palearn.config.section import Section, Text


class Access(Section, frozen=True):
    """What lets one into a Kafka cluster.

    ``username`` and ``password`` are for the SASL protocols; ``ca`` is a PEM file of the authorities that may have
    signed the brokers' certificates (None: those that Java and Python trust).
    """

    protocol: Literal["SASL_SSL", "SASL_PLAINTEXT", "SSL"] = "SASL_SSL"
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    username: Text | None = None
    password: Text | None = None
    ca: Text | None = None

    @property
    def has_password(self) -> bool:
        """Whether the protocol asks for a user and a password."""
        return self.protocol != "SSL"

    @property
    def has_tls(self) -> bool:
        """Whether what is sent is encrypted."""
        return self.protocol != "SASL_PLAINTEXT"

    def java_options(self) -> dict[str, str]:
        """Return the options of Kafka's Java clients. The authorities are in them, as executors may lack the file."""
        options: dict[str, str] = {"security.protocol": self.protocol}
        if self.ca is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _authorities(self.ca)}
        if self.has_password:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            assert self.username is not None
            assert self.password is not None
            login = (
                f"org.apache.kafka.common.security.{module} required "
                f"username={_quoted(self.username)} password={_quoted(self.password)};"
            )
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        return options

    def python_options(self) -> dict[str, str]:
        """Return the options of kafka-python's clients."""
        options: dict[str, str] = {"security_protocol": self.protocol}
        if self.ca is not None:
            options["ssl_cafile"] = self.ca
        if self.has_password:
            assert self.username is not None
            assert self.password is not None
            username = self.username
            if self.mechanism != "PLAIN":  # SCRAM's own escapes, which kafka-python leaves out
                username = username.replace("=", "=3D").replace(",", "=2C")
            login = {"sasl_plain_username": username, "sasl_plain_password": self.password}
            options |= {"sasl_mechanism": self.mechanism, **login}
        return options

    def faults(self) -> list[str]:
        """Return what is wrong, each with its path."""
        found = []
        for name in ("username", "password"):
            given = getattr(self, name) is not None
            if self.has_password and not given:
                found.append(f"{name}: {self.protocol} needs one; ${{NAME}} or ${{file:PATH}} brings it")
            if given and not self.has_password:
                found.append(f"{name}: the protocol {self.protocol} asks for none")
        if self.ca is not None:
            if not self.has_tls:
                found.append(f"ca: the protocol {self.protocol} has no TLS")
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ca)
            except ssl.SSLError:
                found.append(f"ca: {self.ca} holds no certificate that can be read; a PEM file is wanted")
            except OSError as error:
                found.append(f"ca: {self.ca} cannot be read: {error.strerror}")
        return found


def _authorities(path: str) -> str:
    """Return the certificates of a PEM file; comments around them may be in any encoding."""
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _quoted(text: str) -> str:
    """Return a text as a JAAS configuration has it."""
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return f'"{text}"'
