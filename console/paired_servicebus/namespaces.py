"""A namespace by its name and credential: the SDK clients of a pairing are made from it.

The pairing bounds the time of each send, so its client does not retry by itself. The client of the application's
receivers keeps the SDK's retries (SPEC.md section 3).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self
from weakref import WeakSet

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.connection_string import Parts, complaint, host_of, parts_of
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.endpoint import tls_context


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
    _made: _Made = field(default_factory=lambda: _Made(), compare=False)

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
            client = ServiceBusClient.from_connection_string(self._connection_string, **chosen)
            self._made.credential = self._made.credential or _credential_in(parts_of(self._connection_string))
            sdk_internals.use_credential(client, self._made.credential)
            return client
        return ServiceBusClient(self.fully_qualified_namespace, self._made.source(self.credential), **chosen)

    def admin(self) -> ServiceBusAdministrationClient:
        """Return an Atom management client for the running loop."""
        text = self._management_string()
        if text is not None:
            client = ServiceBusAdministrationClient.from_connection_string(text, **self.options)
            self._made.admins.add(client)
            return client
        credential = self._made.source(self.credential)
        return ServiceBusAdministrationClient(self.fully_qualified_namespace, credential, **self.options)

    def renew(self, connection_string: str) -> None:
        """Replace the key, or the signature, of every client made from this, without a restart. Any thread may call it.

        Links use it from when they next open; those that are open stay. A failed-over entity fails back with its next
        accepted ping. An identity renews itself.

        Raises:
            ConfigurationError: it is no namespace's connection string, another namespace's, or has a signature instead
                of a key. Nothing has changed.
        """
        parts = parts_of(connection_string)
        fault = complaint(parts) or self._mismatch(parts)
        if fault:
            raise ConfigurationError(f"the connection string {fault}")
        credential, new = self._made.credential or self.credential, _credential_in(parts)
        if isinstance(credential, AzureNamedKeyCredential) and isinstance(new, AzureNamedKeyCredential):
            credential.update(*new.named_key)
        elif isinstance(credential, AzureSasCredential) and isinstance(new, AzureSasCredential):
            credential.update(new.signature)
        else:
            raise ConfigurationError("a key replaces a key and a signature a signature; an identity renews itself")
        donor = ServiceBusAdministrationClient.from_connection_string(connection_string)
        for admin in tuple(self._made.admins):
            sdk_internals.adopt_signatures(admin, donor)

    def _mismatch(self, parts: Parts) -> str:
        text = self._connection_string
        host = self.fully_qualified_namespace if text is None else host_of(parts_of(text))
        is_same = host_of(parts).casefold() == host.casefold()
        return "" if is_same else f"is of {host_of(parts)}, and this namespace is {host}"

    def _management_string(self) -> str | None:
        """Return the present connection string for a management client; None for an identity."""
        credential = self._made.credential or self.credential
        if isinstance(credential, AzureNamedKeyCredential):
            name, key = credential.named_key  # the SDK's management client accepts such a credential only as a string
            signed = f"SharedAccessKeyName={name};SharedAccessKey={key}"
        elif isinstance(self._made.credential, AzureSasCredential):
            signed = f"SharedAccessSignature={self._made.credential.signature}"
        else:
            return self._connection_string
        if self._connection_string is None:
            return f"Endpoint=sb://{self.fully_qualified_namespace}/;{signed}"
        kept = (
            part for part in self._connection_string.split(";") if not part.strip().lower().startswith("sharedaccess")
        )
        return ";".join([*filter(None, kept), signed])


class _Made:
    """What `Namespace.renew` changes, and the source of tokens that all clients share.

    credential: of a connection string's clients; None: there are none yet.
    """

    def __init__(self) -> None:
        self.credential: AzureNamedKeyCredential | AzureSasCredential | None = None
        self.admins: WeakSet[ServiceBusAdministrationClient] = WeakSet()
        self._source: TokenSource | None = None

    def source(self, credential: Any) -> Any:
        """Return the credential for asynchronous clients."""
        if not hasattr(credential, "get_token"):
            return credential
        self._source = self._source or TokenSource(credential)
        return self._source


def _credential_in(parts: Parts) -> AzureNamedKeyCredential | AzureSasCredential:
    """Return a connection string's key or signature as a credential that can be renewed."""
    signature = parts.get("sharedaccesssignature")
    if signature:
        return AzureSasCredential(signature)
    return AzureNamedKeyCredential(parts["sharedaccesskeyname"], parts["sharedaccesskey"])


PATIENCE: Final = 0.5
"""Seconds of an ended request that say nothing of the credential."""


class TokenSource:
    """The application's token credential, in the form that asynchronous clients need.

    A synchronous one is called on a thread of its own, because it may wait for the network: one thread for one request,
    however many wait for it, and none that holds the program's end.
    """

    def __init__(self, credential: Any) -> None:
        self._credential = credential
        self._is_asynchronous = inspect.iscoroutinefunction(credential.get_token)
        self._asked: list[float] = []
        self._silent_since: float | None = None
        self._threads: dict[object, asyncio.Future[AccessToken]] = {}

    def __repr__(self) -> str:
        return type(self._credential).__name__

    @property
    def silence(self) -> float:
        """Seconds for which the credential has answered no request; 0 once it answers."""
        now = time.monotonic()
        return now - min([*self._asked, now if self._silent_since is None else self._silent_since])

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token for the scopes."""
        began = time.monotonic()
        self._asked.append(began)
        try:
            asking = self._credential.get_token if self._is_asynchronous else self._ask_on_thread
            token: AccessToken = await asking(*scopes, **options)
        except asyncio.CancelledError:
            if self._silent_since is None and time.monotonic() - began > PATIENCE:
                self._silent_since = began
            raise
        except Exception:
            self._silent_since = None
            raise
        else:
            self._silent_since = None
            return token
        finally:
            self._asked.remove(began)

    async def _ask_on_thread(self, *scopes: str, **options: Any) -> AccessToken:
        loop = asyncio.get_running_loop()
        key = (loop, scopes, repr(options))
        if key not in self._threads:
            answer = self._threads[key] = loop.create_future()
            answer.add_done_callback(partial(self._answered, key))
            call = partial(contextvars.copy_context().run, self._credential.get_token, *scopes, **options)
            threading.Thread(target=_answer, args=(call, answer), name="a credential's token", daemon=True).start()
        return await asyncio.shield(self._threads[key])

    def _answered(self, key: object, answer: asyncio.Future[AccessToken]) -> None:
        del self._threads[key]
        answer.exception()  # its callers may all have gone

    async def close(self) -> None:
        """Do nothing: the caller closes its credential."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


def _answer(call: Callable[[], AccessToken], answer: asyncio.Future[AccessToken]) -> None:
    """Run a call on this thread and hand its result to the future's loop."""
    set_it: Callable[[], None]
    try:
        set_it = partial(answer.set_result, call())
    except Exception as error:  # noqa: BLE001 - it is the waiting caller's
        set_it = partial(answer.set_exception, error)
    with suppress(RuntimeError):  # the loop has ended, and its callers with it
        answer.get_loop().call_soon_threadsafe(set_it)
