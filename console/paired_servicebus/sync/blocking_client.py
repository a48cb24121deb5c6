"""The paired client for applications without asyncio (SPEC.md sections 1, 4 and 9)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

from azure.core.async_paging import AsyncItemPaged
from azure.core.paging import ItemPaged
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.application import pair_namespaces as pair
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.verdict import Judge, judge
from paired_servicebus.pairing import PairedServiceBusClient as AsyncClient
from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.management.management_port import SecondaryAdmin
from paired_servicebus.sync.blocking_receiver import PairedReceiver
from paired_servicebus.sync.blocking_sender import PairedSender
from paired_servicebus.sync.exit_hook import close_at_exit, forget
from paired_servicebus.sync.namespace_clients import Namespace
from paired_servicebus.sync.portal import Portal


def pair_namespaces(
    primary: Namespace,
    secondary: Namespace,
    *,
    admin: Callable[[], SecondaryAdmin] | None = None,
    control: bool | str = False,
    environment: str = "",
    read_only: bool = False,
    require_reason: bool = False,
    metrics: int | str | None = None,
    on_change: str = "",
    on_event: Callable[[Event], object] | None = None,
    judge: Judge = judge,
    **options: Any,
) -> PairedServiceBusClient:
    """Pair the primary with the secondary namespace; nothing can be sent before this has returned.

    Args:
        primary: the namespace the application talks to.
        secondary: where messages wait while the primary takes none; needs Manage, Send, and Listen with the syphon.
        admin: makes what manages the secondary, where that is not Atom; called on the pairing's thread.
        control, environment, read_only, require_reason, metrics, on_change: as of `paired_servicebus.pair_namespaces`; the engine
            lives on the pairing's thread.
        on_event: told every journalled event, in order, on the pairing's thread; must not block.
        judge: the verdict on failures, replaceable.
        options: those of `SendAvailabilityPairedNamespaceOptions`, by name.

    Raises: as `paired_servicebus.pair_namespaces`; TypeError for an option there is not. The clients made here are closed then.
    """
    pairing = partial(
        pair,
        control=control,
        environment=environment,
        read_only=read_only,
        require_reason=require_reason,
        metrics=metrics,
        on_change=on_change,
        on_event=on_event,
        judge=judge,
    )
    for name, given in (("primary", primary), ("secondary", secondary)):
        _check_namespace(name, given)
    portal = Portal("servicebus-pairing")
    try:
        inner = portal.call(_pair, primary, secondary, admin or secondary.admin, pairing, options)
    except BaseException:
        portal.close()
        raise
    return PairedServiceBusClient(portal, inner)


async def _pair(
    primary: Namespace,
    secondary: Namespace,
    admin: Callable[[], SecondaryAdmin],
    pairing: Callable[[ServiceBusClient, SendAvailabilityPairedNamespaceOptions], Awaitable[AsyncClient]],
    options: dict[str, Any],
) -> AsyncClient:
    """Make the clients and pair them by `pairing`; they are closed again where that fails."""
    async with AsyncExitStack() as stack:
        try:
            clients = primary.client(), secondary.client()
            manager = admin()
        except (ValueError, OSError) as error:  # OSError: a file of certificates that cannot be read
            raise ConfigurationError(f"the SDK does not accept these settings of a namespace: {error}") from error
        for one in (*clients, manager):
            stack.push_async_callback(one.close)
        chosen = SendAvailabilityPairedNamespaceOptions(secondary_client=clients[1], secondary_admin=manager, **options)
        paired = await pairing(clients[0], chosen)
        stack.pop_all()
        return paired


def _check_namespace(name: str, given: object) -> None:
    if isinstance(given, Namespace):
        return
    is_text = isinstance(given, str)  # it may be a connection string, and is not repeated
    raise ConfigurationError(
        f"{name} is a {'text' if is_text else type(given).__name__}; it is a Namespace of paired_servicebus.sync, such as "
        "Namespace.from_connection_string(...): the pairing makes its own clients"
    )


class PairedServiceBusClient:
    """A primary namespace with a secondary one behind it. Close it, or use it as a context manager; one that is left
    open is closed when the program ends, before its `atexit` handlers run. Names that are not here are the
    asynchronous client's, run on its thread."""

    def __init__(self, portal: Portal, inner: AsyncClient) -> None:
        self._portal = portal
        self._inner = inner
        close_at_exit(self.close)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a paired client has no attribute {name!r}")
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        enter = self._portal.call if inspect.iscoroutinefunction(found) else self._portal.run
        return partial(enter, found)

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> NoReturn:
        """Raise ConfigurationError: a pairing has two namespaces."""
        raise ConfigurationError("one connection string makes no pairing: pass two of Namespace to pair_namespaces")

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary namespace's host."""
        return self._inner.fully_qualified_namespace

    def get_queue_sender(
        self, queue_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """A sender to a queue of the primary namespace, under the pairing; the SDK's options."""
        options = {"client_identifier": client_identifier, "socket_timeout": socket_timeout}
        return PairedSender(self._portal, self._portal.run(self._inner.get_queue_sender, queue_name, **options))

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """A sender to a topic of the primary namespace, under the pairing; the SDK's options."""
        options = {"client_identifier": client_identifier, "socket_timeout": socket_timeout}
        return PairedSender(self._portal, self._portal.run(self._inner.get_topic_sender, topic_name, **options))

    def list_queue_sessions(
        self, queue_name: str, *, state_updated_after: datetime | None = None, timeout: float | None = None
    ) -> ItemPaged[str]:
        """The ids of a queue's sessions in the primary namespace, as the SDK lists them."""
        options = {"state_updated_after": state_updated_after, "timeout": timeout}
        return self._paged(self._portal.run(self._inner.list_queue_sessions, queue_name, **options))

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        """The ids of a subscription's sessions in the primary namespace."""
        options = {"state_updated_after": state_updated_after, "timeout": timeout}
        list_them = self._inner.list_subscription_sessions
        return self._paged(self._portal.run(list_them, topic_name, subscription_name, **options))

    def get_queue_receiver(self, queue_name: str, **options: Any) -> PairedReceiver:
        """A receiver on the primary namespace; the SDK's options but `auto_lock_renewer`."""
        return self._receiver(self._inner.get_queue_receiver, queue_name, options)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> PairedReceiver:
        """A receiver on the primary namespace; the SDK's options but `auto_lock_renewer`."""
        return self._receiver(self._inner.get_subscription_receiver, topic_name, options, subscription_name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the pairing: sends in hand finish or raise, both namespaces' clients are closed, the thread ends."""
        if not self._portal.is_open:
            return
        try:
            self._portal.call(self._inner.close)
        finally:
            self._portal.close()
            forget(self.close)

    def _paged(self, listed: AsyncItemPaged[str]) -> ItemPaged[str]:
        """The same pages, each waited for."""

        async def page(token: str | None) -> tuple[str | None, list[str]]:
            pages: Any = listed.by_page(token)
            found = [each async for each in await anext(pages)]
            return pages.continuation_token, found

        return ItemPaged(partial(self._portal.call, page), lambda found: found)

    def _receiver(self, get: Callable[..., Any], path: str, options: dict[str, Any], *names: str) -> PairedReceiver:
        if "auto_lock_renewer" in options:
            raise ValueError("auto_lock_renewer works on the SDK's own receivers only: call renew_message_lock in time")
        return PairedReceiver(self._portal, self._portal.run(get, path, *names, **options))
