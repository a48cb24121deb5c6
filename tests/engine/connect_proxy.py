"""A tiny HTTP proxy: CONNECT alone, with a password if it is told one, to wherever a test says a name is."""

from __future__ import annotations

import socketserver
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from socket import SHUT_RDWR, create_connection, socket


@dataclass
class ConnectProxy:
    """A running proxy: `targets` it was asked for and connected to, and how many it turned away."""

    where: Mapping[str, int]
    login: str = ""
    targets: list[str] = field(default_factory=list)
    turned_away: int = 0
    port: int = 0

    def answer(self, client: socket) -> None:
        """One connection, to its end."""
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = client.recv(4096)
            if not chunk:
                return
            head += chunk
        lines = head.decode("latin-1").split("\r\n")
        if self.login and f"Basic {b64encode(self.login.encode()).decode()}" not in head.decode("latin-1"):
            self.turned_away += 1
            client.sendall(b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n')
            return
        target = lines[0].split(" ")[1]
        self.targets.append(target)
        name, _, port = target.partition(":")
        with create_connection(("127.0.0.1", self.where.get(name, int(port))), 10) as upstream:
            upstream.settimeout(None)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_copy, args=(upstream, client), daemon=True)
            back.start()
            _copy(client, upstream)
            back.join(10)


def _copy(source: socket, sink: socket) -> None:
    try:
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(SHUT_RDWR)
        except OSError:
            pass


@contextmanager
def connect_proxy(where: Mapping[str, int], login: str = "") -> Iterator[ConnectProxy]:
    """`where`: names and the ports on this machine that they stand for. `login`: `user:password`."""
    proxy = ConnectProxy(where, login)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            proxy.answer(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
