"""HTTP as management clients and identities speak it: through a proxy, and signed where there is no token.

A proxy's password goes beside its address, never in it: errors of the layers below quote addresses. Signing happens
where a request leaves, since Atom's client signs once an hour whatever happens to the key meanwhile.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AioHttpTransport

from paired_servicebus.secret import Secret

_NEVER: Final = 253402300799


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """An HTTP proxy: its address, and who we are there."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: Secret) -> HttpProxy:
        """From a URL that was checked when pairing.toml was read."""
        parts = urlsplit(url.reveal())
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, parts.hostname or "", parts.port or 0, user, password)

    @property
    def url(self) -> str:
        """Without user and password."""
        return (
            f"{self.scheme}://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.scheme}://{self.host}:{self.port}"
        )

    def authorization(self) -> str:
        """The header that says who we are."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def for_messaging(self) -> dict[str, Any]:
        """As the SDK's messaging clients want it: its asynchronous ones take no host without a scheme."""
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
        """Sends one request."""
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization()
        if self._proxy is not None:
            options["proxy"] = self._proxy.url
            if self._proxy.user:
                options["proxy_headers"] = {"Proxy-Authorization": self._proxy.authorization()}
        return await super().send(request, **options)


class UnsignedCredential:
    """Stands where a management client wants a credential, and gives nothing: the transport signs."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """A token that is replaced before it leaves."""
        return AccessToken("", _NEVER)

    async def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()
