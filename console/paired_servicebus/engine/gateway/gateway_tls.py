"""TLS at the gateway: a certificate of its own authority, in the engine's state folder.

The files are made at the first TLS hello, or by `paired gateway --ca`. The authority's key is never written, so it
signs nothing else. Clients trust the authority until both end together; then all are made anew.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from paired_servicebus.engine.gateway.gateway_keys import exclusive
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.sections.gateway_options import GatewayOptions
from servicebus_amqp.server.listener import Certificates

LIFETIME: Final = timedelta(days=820)
"""Some systems accept no certificate with a longer life."""
RENEWAL: Final = timedelta(days=30)
"""Before their end the files are made anew."""


class GatewayCertificates:
    """The certificate of one gateway.

    Args:
        folder: of the files.
        address: where the gateway listens; the certificate is for it, for loopback and for this machine's name.
        host: one more name that the certificate is for.
        warn: called with a sentence for the operator.
    """

    def __init__(self, folder: Path, address: str, *, host: str = "", warn: Callable[[str], object] = str) -> None:
        self._folder = folder / f"{address}{host and f'-{host}'}".replace(":", "_")
        self._address = address
        self._host = host
        self._warn = warn
        self._loaded: tuple[tuple[int, int], ssl.SSLContext] | None = None
        self._turn = asyncio.Lock()

    async def context(self) -> ssl.SSLContext:
        """Return the server's context, made anew when the files have changed. Raises OSError."""
        async with self._turn:
            if self._loaded is None or self._loaded[0] != self._state():
                self._loaded = await asyncio.to_thread(self._load)
            return self._loaded[1]

    def authority(self) -> str:
        """Return the authority's certificate as PEM; make the files if they are missing or end soon. Raises OSError."""
        return self._files().ca_file.read_text()

    def _load(self) -> tuple[tuple[int, int], ssl.SSLContext]:
        context = self._files().server_context()
        return self._state(), context

    def _state(self) -> tuple[int, int]:
        try:
            found = (self._folder / "server.pem").stat()
        except OSError:
            return (0, 0)
        return found.st_ino, found.st_mtime_ns

    def _files(self) -> Certificates:
        files = Certificates(*(self._folder / name for name in ("ca.pem", "server.pem", "server.key")))
        if not self._is_good(files):
            self._folder.parent.mkdir(mode=0o700, exist_ok=True)
            with exclusive(self._folder.parent):
                if not self._is_good(files):
                    self._make()
        return files

    def _is_good(self, files: Certificates) -> bool:
        try:
            files.server_context()
            reader = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            reader.load_verify_locations(files.ca_file)
            ends = min(ssl.cert_time_to_seconds(str(one["notAfter"])) for one in reader.get_ca_certs())
        except (OSError, ValueError):  # ssl.SSLError is an OSError
            return False
        return ends > time.time() + RENEWAL.total_seconds()

    def _make(self) -> None:
        """Make the files; those that were there end soon, or cannot be used."""
        from servicebus_amqp.server.certificates import make_certificates  # not before a client needs TLS

        names = {socket.gethostname(), socket.getfqdn(), self._host}
        if not ipaddress.ip_address(self._address).is_unspecified:
            names.add(self._address)
        new = self._folder.with_name(f".{self._folder.name}.{os.getpid()}")
        make_certificates(new, host_names=sorted(names - {""}), owner="Paired Gateway", lifetime=LIFETIME)
        if self._folder.exists():
            self._warn("the gateway's certificate ended: clients need what 'paired gateway --ca' prints now")
            shutil.rmtree(self._folder)
        new.rename(self._folder)


def certificates_of(
    options: GatewayOptions, places: EnginePaths, *, warn: Callable[[str], object] = str
) -> GatewayCertificates:
    """Return the gateway's certificate, whose files are beside its keys."""
    keys = options.keys or places.gateway_keys
    return GatewayCertificates(keys.with_name("gateway.tls"), options.address, host=options.host, warn=warn)
