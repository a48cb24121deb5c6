"""How a synchronous application says which namespace it means: what its SDK clients would have been made from.

The asynchronous clients are made here, on the pairing's thread. They do not retry by themselves: the pairing owns the
time (SPEC.md section 3).
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import Any, Self

from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.pairing.runtime.tls import tls_context


@dataclass(frozen=True, slots=True, repr=False)
class Namespace:
    """A namespace and how to get in.

    Args:
        fully_qualified_namespace: `contoso.servicebus.windows.net`.
        credential: AzureNamedKeyCredential, AzureSasCredential, or one of azure-identity's; synchronous ones are asked
            for tokens on a thread of their own. They stay the caller's.
        options: what both of the SDK's clients are made with, such as `connection_verify`.
        messaging: what its messaging client is made with besides, such as `transport_type` or `http_proxy`.
    """

    fully_qualified_namespace: str
    credential: Any
    options: dict[str, Any] = field(default_factory=dict)
    messaging: dict[str, Any] = field(default_factory=dict)
    _connection_string: str | None = None

    @classmethod
    def from_connection_string(
        cls, conn_str: str, *, options: dict[str, Any] | None = None, messaging: dict[str, Any] | None = None
    ) -> Self:
        """The namespace of a connection string. Raises ValueError where the SDK cannot read it, once it is paired."""
        return cls("", None, options or {}, messaging or {}, conn_str)

    def __repr__(self) -> str:
        return f"Namespace({self.fully_qualified_namespace or 'from a connection string'})"

    def client(self) -> ServiceBusClient:
        """Its messaging client; needs the running loop."""
        chosen: dict[str, Any] = {"retry_total": 0, **self.options, **self.messaging}
        if "ssl_context" not in chosen:
            chosen["ssl_context"] = tls_context(chosen.get("connection_verify"))
        if self._connection_string is not None:
            return ServiceBusClient.from_connection_string(self._connection_string, **chosen)
        return ServiceBusClient(self.fully_qualified_namespace, _asynchronous(self.credential), **chosen)

    def admin(self) -> ServiceBusAdministrationClient:
        """Its management client, by Atom; needs the running loop."""
        said = self._connection_string
        if said is None and isinstance(self.credential, AzureNamedKeyCredential):
            name, key = self.credential.named_key  # the SDK's management client takes such a credential only so
            host = self.fully_qualified_namespace
            said = f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={key}"
        if said is not None:
            return ServiceBusAdministrationClient.from_connection_string(said, **self.options)
        credential = _asynchronous(self.credential)
        return ServiceBusAdministrationClient(self.fully_qualified_namespace, credential, **self.options)


def _asynchronous(credential: Any) -> Any:
    """The credential as asynchronous clients take it."""
    get_token = getattr(credential, "get_token", None)
    if get_token is None or inspect.iscoroutinefunction(get_token):
        return credential
    return _ThreadedCredential(credential)


class _ThreadedCredential:
    """A synchronous token credential, asked on another thread: it may wait for the network."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """A token for the scopes."""
        token: AccessToken = await asyncio.to_thread(self._credential.get_token, *scopes, **options)
        return token

    async def close(self) -> None:
        """It is the caller's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()
