"""HTTP transport of management clients and identities: proxies, and request signing.

A proxy's password stays out of its URL, because errors of lower layers quote URLs. The transport signs each request,
because the Atom client signs only once an hour and would miss a changed key.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AioHttpTransport

from paired_servicebus.secret import Secret

_NEVER: Final = 253402300799


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """An HTTP proxy: its address, user and password."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: Secret) -> HttpProxy:
        """Parse a URL that load_config has checked."""
        parts = urlsplit(url.reveal())
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, parts.hostname or "", parts.port or 0, user, password)

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return (
            f"{self.scheme}://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.scheme}://{self.host}:{self.port}"
        )

    def authorization(self) -> str:
        """Return the Proxy-Authorization header."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def for_messaging(self) -> dict[str, Any]:
        """Return the proxy options of the SDK's messaging clients; the asynchronous ones need a scheme in the host."""
        named: dict[str, Any] = {"proxy_hostname": self.url.rpartition(":")[0], "proxy_port": self.port}
        return named | ({"username": self.user, "password": self.password} if self.user else {})


class HttpTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core looks it up when it is first asked for
    """azure-core's HTTP transport.

    Args:
        ca_file: certificate authorities to trust in place of the usual ones.
        proxy: where to go through.
        authorization: gives the Authorization header of each request, in place of the client's.
    """

    def __init__(
        self,
        *,
        ca_file: Path | None = None,
        proxy: Secret | None = None,
        authorization: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(**({"connection_verify": str(ca_file)} if ca_file is not None else {}))
        self._proxy = HttpProxy.of(proxy) if proxy is not None else None
        self._authorization = authorization

    async def send(self, request: Any, **options: Any) -> Any:
        """Send one request."""
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization()
        if self._proxy is not None:
            options["proxy"] = self._proxy.url
            if self._proxy.user:
                options["proxy_headers"] = {"Proxy-Authorization": self._proxy.authorization()}
        return await super().send(request, **options)


class UnsignedCredential:
    """A credential for clients that require one; the transport signs instead."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return an empty token, which the transport replaces."""
        return AccessToken("", _NEVER)

    async def close(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()
