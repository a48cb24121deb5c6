"""A namespace by its name and credential: the SDK clients of a pairing are made from it.

The pairing bounds the time of each send, so its client does not retry by itself. The client of the application's
receivers keeps the SDK's retries (SPEC.md section 3).
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
    """A namespace and its credential.

    Args:
        fully_qualified_namespace: `contoso.servicebus.windows.net`.
        credential: AzureNamedKeyCredential, AzureSasCredential, or a credential of azure-identity. Its owner closes it.
            A synchronous token credential is called on a thread.
        options: arguments of both SDK clients, such as `connection_verify`.
        messaging: further arguments of the messaging client, such as `transport_type` or `http_proxy`.
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
        """Return the namespace of a connection string, which the SDK reads when the pairing is made."""
        return cls("", None, options or {}, messaging or {}, conn_str)

    def __repr__(self) -> str:
        return f"Namespace({self.fully_qualified_namespace or 'from a connection string'})"

    def client(self) -> ServiceBusClient:
        """Return a messaging client for the running loop, without retries unless the options name some."""
        return self._client({"retry_total": 0})

    def receiving_client(self) -> ServiceBusClient:
        """Return a messaging client for the application's receivers, with the SDK's retries or the options' own."""
        return self._client({})

    def _client(self, defaults: dict[str, Any]) -> ServiceBusClient:
        chosen: dict[str, Any] = {**defaults, **self.options, **self.messaging}
        if "ssl_context" not in chosen:
            chosen["ssl_context"] = tls_context(chosen.get("connection_verify"))
        if self._connection_string is not None:
            return ServiceBusClient.from_connection_string(self._connection_string, **chosen)
        return ServiceBusClient(self.fully_qualified_namespace, _asynchronous(self.credential), **chosen)

    def admin(self) -> ServiceBusAdministrationClient:
        """Return an Atom management client for the running loop."""
        text = self._connection_string
        if text is None and isinstance(self.credential, AzureNamedKeyCredential):
            name, key = self.credential.named_key  # the SDK's management client takes such a credential only so
            host = self.fully_qualified_namespace
            text = f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={key}"
        if text is not None:
            return ServiceBusAdministrationClient.from_connection_string(text, **self.options)
        credential = _asynchronous(self.credential)
        return ServiceBusAdministrationClient(self.fully_qualified_namespace, credential, **self.options)


def _asynchronous(credential: Any) -> Any:
    """Return the credential in the form that asynchronous clients need."""
    get_token = getattr(credential, "get_token", None)
    if get_token is None or inspect.iscoroutinefunction(get_token):
        return credential
    return _ThreadedCredential(credential)


class _ThreadedCredential:
    """A synchronous token credential, called on a thread because it may wait for the network."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token for the scopes."""
        token: AccessToken = await asyncio.to_thread(self._credential.get_token, *scopes, **options)
        return token

    async def close(self) -> None:
        """Do nothing: the caller closes its credential."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()
