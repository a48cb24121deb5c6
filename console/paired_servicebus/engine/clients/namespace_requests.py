"""HTTP requests to the management interface of one namespace, signed with the engine's credential.

For the gateway, which relays what its clients ask. The credential is read again for each request. Redirects are not
followed, so that a signature goes to the namespace alone.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from yarl import URL

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.errors import WireConnectionError
from paired_servicebus.engine.clients.client_factory import HttpProxy, NamespaceCredentials
from paired_servicebus.pairing.amqp_client.endpoint import SAS, tls_context, token_for

MAX_ANSWER: Final = 16 * 1024 * 1024
"""More than a page of a hundred entities has."""
MAX_CONNECTIONS: Final = 16


@dataclass(frozen=True, slots=True)
class NamespaceAnswer:
    """An answer of the namespace. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NamespaceRequests:
    """The management of one namespace. Contacts nothing when made; `close` it once.

    authority: the namespace's host, with a port where the connection string has one.
    """

    def __init__(self, namespace: NamespaceConfig, access: NamespaceCredentials) -> None:
        self.authority = namespace.host
        self._access = access
        self._ca_file = namespace.ca_file
        self._proxy = HttpProxy.of(namespace.proxy) if namespace.proxy is not None else None
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()

    async def authorization(self) -> str:
        """Return a header for the whole namespace. Raises WireAuthenticationError."""
        token = await token_for(self._access.credential, f"https://{self.authority}", now=time.time())
        return token.text if token.kind == SAS else f"Bearer {token.text}"

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, seconds: float
    ) -> NamespaceAnswer:
        """Send one request.

        target: path and query, encoded; they are sent as they are. seconds: for the whole answer.

        Raises:
            WireConnectionError: no answer in time, or a larger one than MAX_ANSWER.
        """
        url = URL(f"https://{self.authority}{target}", encoded=True)
        try:
            async with (
                asyncio.timeout(seconds),
                (await self._open()).request(
                    method,
                    url,
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,
                    **self._through_proxy(),
                ) as answer,
            ):
                found = await answer.content.read(MAX_ANSWER + 1)
                while (piece := await answer.content.read(MAX_ANSWER + 1)) and len(found) <= MAX_ANSWER:
                    found += piece
        except (OSError, aiohttp.ClientError) as error:  # TimeoutError is an OSError
            reason = str(error) or f"no answer within {seconds:g} s"
            raise WireConnectionError(f"the management of {self.authority} does not answer: {reason}") from error
        if len(found) > MAX_ANSWER:
            raise WireConnectionError(f"the management of {self.authority} answered more than {MAX_ANSWER:,} bytes")
        return NamespaceAnswer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, found)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _open(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                trust: ssl.SSLContext = await asyncio.to_thread(tls_context, self._ca_file)
                connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=trust)
                self._session = aiohttp.ClientSession(
                    connector=connector, auto_decompress=False, skip_auto_headers=["User-Agent", "Accept-Encoding"]
                )
            return self._session

    def _through_proxy(self) -> dict[str, Any]:
        proxy = self._proxy
        if proxy is None:
            return {}
        headers = {"Proxy-Authorization": proxy.authorization()} if proxy.user else None
        return {"proxy": proxy.url, "proxy_headers": headers}
