"""Whether brokers answer as a configuration says, and what to change if they do not.

They are asked by hand: Kafka's own clients go on trying, log every attempt, and at last say only that nobody answered.
"""

import socket
import ssl
import struct
from contextlib import suppress

from palearn.config import Access
from palearn.errors import BrokerError

_CORRELATION = 7


def _request(kind: int, version: int, body: bytes) -> bytes:
    """Return a request: its size, then kind, version, correlation id, client id and body."""
    request = struct.pack(">hhih7s", kind, version, _CORRELATION, 7, b"palearn") + body
    return struct.pack(">i", len(request)) + request


#: Metadata (3), version 4: no topic, none to be made.
_METADATA = _request(3, 4, struct.pack(">i?", 0, False))
_SASL_HANDSHAKE = 17
_UNKNOWN_MECHANISM = 33

_SILENT = (OSError, ValueError, OverflowError, struct.error)
#: Names of brokers take less.
_MOST_METADATA = 2**20


class NoBroker(BrokerError):
    """No broker accepts connections."""


def require(bootstrap: str, access: Access | None, timeout_s: float = 5.0) -> None:
    """Raise the first broker's fault if none of them can be talked to; passwords are not tried.

    Parameters
    ----------
    bootstrap
        ``host:port``, several separated by commas.
    access
        Security settings; None: the brokers ask for nothing.

    Raises
    ------
    NoBroker
        No broker accepts connections.
    BrokerError
        Somebody does, but asks for something else than ``access`` has.
    """
    first: BrokerError | None = None
    for address in bootstrap.split(","):
        try:
            _try(address.strip(), access, timeout_s)
        except BrokerError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def require_advertised(bootstrap: str, access: Access | None, timeout_s: float = 5.0) -> None:
    """Raise a BrokerError if a broker answers, and says that it is reached where it is not.

    Clients go on trying those addresses for minutes. Where a password is asked for, brokers do not say before.
    """
    if access is not None and access.has_password:
        return
    for address in bootstrap.split(","):
        with suppress(BrokerError, *_SILENT):
            told = _brokers(address.strip(), access, timeout_s)
            break
    else:
        return
    reached, first = 0, None
    for host, port in told:
        name = f"{host}:{port}"
        try:
            socket.getaddrinfo(host, port)
        except OSError:
            raise BrokerError(_advertised(address.strip(), name, "whose name cannot be resolved here")) from None
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
            reached += 1
        except OSError as error:
            reason = "which does not answer" if isinstance(error, TimeoutError) else "which accepts no connections"
            first = first or BrokerError(_advertised(address.strip(), name, reason))
    if first is not None and not reached:
        raise first


def _advertised(address: str, name: str, fault: str) -> str:
    return (
        f"the broker at {address} says that clients reach it at {name}, {fault}: correct the broker's "
        "advertised.listeners, or let this machine know that address (DNS, /etc/hosts, a port that is mapped)"
    )


def _brokers(address: str, access: Access | None, timeout_s: float) -> list[tuple[str, int]]:
    """Return host and port of every broker, as one of them tells them to clients."""
    with _connect(address, timeout_s) as plain:
        with plain if access is None else _encrypted(plain, address, access) as connection:
            connection.sendall(_METADATA)
            (size,) = struct.unpack(">i", _read(connection, 4))
            answer = _read(connection, min(size, _MOST_METADATA))
    (count,) = struct.unpack_from(">i", answer, 8)  # correlation id, throttle time
    at, found = 12, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, at + 4)  # id of the broker
        host = answer[at + 6 : at + 6 + length].decode()
        port, rack = struct.unpack_from(">ih", answer, at + 6 + length)
        found.append((host, port))
        at += 12 + length + max(rack, 0)
    return found


def _read(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes of an answer, or raise an OSError."""
    answer = b""
    while len(answer) < size:
        part = connection.recv(size - len(answer))
        if not part:
            raise ConnectionResetError
        answer += part
    return answer


def answers(address: str, timeout_s: float = 5.0) -> bool:
    """Say whether a broker at ``host:port`` answers a request for metadata, without TLS and password."""
    try:
        with _connect(address, timeout_s) as connection:
            return _gives_metadata(connection)
    except _SILENT:
        return False


def _try(address: str, access: Access | None, timeout_s: float) -> None:
    """Raise a BrokerError if the broker cannot be talked to."""
    try:
        connection = _connect(address, timeout_s)
    except _SILENT:
        raise NoBroker(
            f"no Kafka broker answers at {address}; start one (on this machine: palearn broker start), or correct its "
            "address (source.kafka.bootstrap_servers, --bootstrap-servers)"
        ) from None
    with connection:
        if access is None:
            if not _gives_metadata(connection):
                raise BrokerError(
                    f"the broker at {address} does not answer in plain; if it asks for TLS or a password, set "
                    "source.kafka.access (palearn produce takes it from --config)"
                )
        elif access.has_tls:
            with _encrypted(connection, address, access) as encrypted:
                _let_in(encrypted, address, access)
        else:
            _let_in(connection, address, access)


def _encrypted(connection: socket.socket, address: str, access: Access) -> ssl.SSLSocket:
    """Return the connection with TLS, the broker's certificate checked."""
    context = ssl.create_default_context(cafile=access.ca)
    try:
        return context.wrap_socket(connection, server_hostname=_host_port(address)[0])
    except ssl.SSLCertVerificationError as error:
        raise BrokerError(
            f"the certificate of the broker at {address} is refused ({error.verify_message}): source.kafka.access.ca "
            "must name a PEM file of the authority that signed it, and bootstrap_servers the host it is made out to"
        ) from None
    except OSError:
        raise BrokerError(
            f"the broker at {address} does not speak TLS; correct source.kafka.access.protocol ({access.protocol}; "
            "without access nothing is encrypted), or the port"
        ) from None


def is_wrong_password(access: Access | None, error: Exception) -> bool:
    """Whether an error of a client whose broker answers can only be that its login is refused.

    kafka-python tries a wrong password for as long as it may, and then does not say that it was one.
    """
    return access is not None and access.has_password and "Unable to bootstrap" in str(error)


def _let_in(connection: socket.socket, address: str, access: Access) -> None:
    """Ask for metadata where no password is needed, else which ways to send one the broker knows."""
    if not access.has_password:
        if not _gives_metadata(connection):
            raise BrokerError(
                f"the broker at {address} asks for more than TLS; for a password set source.kafka.access.protocol: "
                "SASL_SSL, with username and password"
            )
        return
    mechanism = access.mechanism.encode()
    answer = _ask(connection, _request(_SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism), 10)
    if not answer:
        raise BrokerError(
            f"the broker at {address} does not answer to {access.protocol}; correct source.kafka.access.protocol "
            "(SASL_SSL if it wants TLS), or the port"
        )
    _, _, fault = struct.unpack(">iih", answer)  # size, correlation id, error
    if fault == _UNKNOWN_MECHANISM:
        raise BrokerError(
            f"the broker at {address} does not take passwords by {access.mechanism}; correct "
            "source.kafka.access.mechanism"
        )
    if fault:
        raise BrokerError(
            f"the broker at {address} asks for no password; correct source.kafka.access.protocol (SSL, or no access at "
            "all), or the port"
        )


def _gives_metadata(connection: socket.socket) -> bool:
    answer = _ask(connection, _METADATA, 16)
    if not answer:
        return False
    _, correlation, _, brokers = struct.unpack(">iiii", answer)  # size, correlation id, throttle time, brokers
    return bool(correlation == _CORRELATION and brokers > 0)


def _ask(connection: socket.socket, request: bytes, size: int) -> bytes:
    """Return so many bytes of the answer, or none."""
    answer = b""
    try:
        connection.sendall(request)
        while len(answer) < size and (part := connection.recv(size - len(answer))):
            answer += part
    except OSError:
        return b""
    return answer if len(answer) == size else b""


def _connect(address: str, timeout_s: float) -> socket.socket:
    return socket.create_connection(_host_port(address), timeout=timeout_s)


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    return host.strip("[]"), int(port)
