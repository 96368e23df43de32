"""A proxy before an object store, for tests: it counts requests, and kills a process at the n-th one that writes."""

import contextlib
import http.client
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Trap(NamedTuple):
    """A process that is killed at the ``n``-th writing request, ``before`` the store has it or after."""

    pid: int
    n: int
    before: bool


class Proxy:
    """A proxy on ``port``, before a store on ``backend``."""

    def __init__(self, backend: int) -> None:
        self.backend, self.counts, self.writes = backend, Counter[str](), 0
        self.log: list[str] = []
        self.trap: Trap | None = None
        self.sprung = False
        self._lock, self._local = threading.Lock(), threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            connection.close()

    def reset(self, trap: Trap | None = None) -> None:
        """Count anew, and set a trap."""
        with self._lock:
            self.counts, self.writes, self.trap, self.sprung = Counter(), 0, trap, False
            self.log.clear()

    def seen(self, kind: str, path: str, writes: bool) -> Trap | None:
        """Count a request; return the trap that it springs."""
        with self._lock:
            self.counts[kind] += 1
            self.log.append(f"{kind} {path}")
            self.writes += writes
            if writes and self.trap is not None and self.writes == self.trap.n:
                self.sprung = True
                return self.trap
        return None

    def forward(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[Any, bytes]:
        """Return the store's answer; a connection that it has closed meanwhile is made anew."""
        for attempt in (0, 1):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self.backend, timeout=60)
                self._connections.append(connection)
            try:
                connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers:
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                answer = connection.getresponse()
                return answer, answer.read()
            except (http.client.HTTPException, OSError):
                connection.close()
                self._local.connection = None
                if attempt:
                    raise
        raise AssertionError


@contextlib.contextmanager
def proxied(backend: int) -> Iterator[Proxy]:
    """Give a proxy before a store."""
    proxy = Proxy(backend)
    try:
        yield proxy
    finally:
        proxy.close()


def _kind(method: str, path: str, headers: Any) -> str:
    parts = urlsplit(path)
    if method == "GET" and parts.path.count("/") < 2:
        return "LIST"
    if method == "PUT" and headers.get("If-None-Match"):
        return "PUT-if-none"
    return f"{method}-part" if "upload" in parts.query else method


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

        def handle_expect_100(self) -> bool:
            done = super().handle_expect_100()
            self.wfile.flush()
            return done

        def _body(self) -> bytes:
            if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _any(self) -> None:
            body = self._body()
            kind = _kind(self.command, self.path, self.headers)
            trap = proxy.seen(kind, self.path, self.command in ("PUT", "POST", "DELETE"))
            if trap is not None and trap.before:
                os.kill(trap.pid, signal.SIGKILL)
                self.close_connection = True
                return
            left_out = ("connection", "transfer-encoding", "expect", "content-length")
            headers = [(name, value) for name, value in self.headers.items() if name.lower() not in left_out]
            if body or self.command in ("PUT", "POST"):
                headers.append(("Content-Length", str(len(body))))
            answer, data = proxy.forward(self.command, self.path, headers, body)
            if trap is not None:
                os.kill(trap.pid, signal.SIGKILL)
                self.close_connection = True
                return
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in left_out:
                        self.send_header(name, value)
                head = self.command == "HEAD"
                self.send_header("Content-Length", (head and answer.getheader("Content-Length")) or str(len(data)))
                self.end_headers()
                if not head:
                    self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    return Handler
