"""The paired client for applications without asyncio (SPEC.md sections 1, 4 and 9)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from azure.core.async_paging import AsyncItemPaged
from azure.core.paging import ItemPaged
from azure.servicebus import AutoLockRenewer

from paired_servicebus.application import pair_namespaces as pair
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    ParkedView,
    QueueView,
    Readiness,
    SyphonView,
    UnusedView,
)
from paired_servicebus.core.model.verdict import Judge, judge
from paired_servicebus.namespaces import Namespace
from paired_servicebus.pairing import PairedServiceBusClient as AsyncClient
from paired_servicebus.pairing.management.management_port import SecondaryAdmin
from paired_servicebus.pairing.opening import PairingOptions
from paired_servicebus.sections.fleet_options import Fleet
from paired_servicebus.sync.blocking_links import PairedReceiver, PairedSender
from paired_servicebus.sync.portal import Portal, close_at_exit, forget

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


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
    fleet: Fleet | None = None,
    on_event: Callable[[Event], object] | None = None,
    judge: Judge = judge,
    **options: Unpack[PairingOptions],
) -> PairedServiceBusClient:
    """Pair the primary with the secondary namespace; nothing can be sent before this has returned.

    Arguments and errors are those of `paired_servicebus.pair_namespaces`. `admin` and `on_event` are called on the
    pairing's thread, and an engine lives there.
    """

    async def start() -> AsyncClient:
        return await pair(
            primary,
            secondary,
            admin=admin,
            control=control,
            environment=environment,
            read_only=read_only,
            require_reason=require_reason,
            metrics=metrics,
            on_change=on_change,
            fleet=fleet,
            on_event=on_event,
            judge=judge,
            **options,
        )

    portal = Portal("servicebus-pairing")
    try:
        inner = portal.call(start)
    except BaseException:
        portal.close()
        raise
    return PairedServiceBusClient(portal, inner)


class PairedServiceBusClient:
    """A primary namespace with a secondary one behind it. Close it, or use it as a context manager.

    An open client is closed when the program ends, before its `atexit` handlers. The asynchronous client's other
    names run on its thread.
    """

    def __init__(self, portal: Portal, inner: AsyncClient) -> None:
        self._portal = portal
        self._inner = inner
        close_at_exit(self.close)

    if TYPE_CHECKING:  # the names that are looked up on the asynchronous client, with their types
        backlog_queue_count: int
        backlog_queue_indices: tuple[int, ...]

        def stands_ready(self) -> None: ...
        def collector(self) -> Collector: ...
        def watch(self, path: str, *, probe: bool = False) -> None: ...
        def force(self, path: str, *, by: str, why: str = "") -> str: ...
        def pin(self, path: str, *, by: str, why: str = "") -> str: ...
        def release(self, path: str, *, by: str, why: str = "") -> str: ...
        def pause_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str: ...
        def resume_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str: ...
        def redrive(self, queue: int, numbers: Collection[int] = ()) -> str: ...
        def move_stranded(self, path: str) -> str: ...
        def clean_up(self, path: str) -> str: ...
        def check(self) -> Readiness: ...
        def alarms(self) -> tuple[str, ...]: ...
        def entity_views(self) -> tuple[EntityView, ...]: ...
        def queue_views(self) -> tuple[QueueView, ...]: ...
        def parked_view(self) -> ParkedView | None: ...
        def syphon_view(self) -> SyphonView: ...
        def unused_view(self) -> UnusedView: ...
        def billed(self) -> Meter: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"a paired client has no attribute {name!r}")
            found = getattr(self._inner, name)
            if not callable(found):
                return found
            enter = self._portal.call if inspect.iscoroutinefunction(found) else self._portal.run
            return partial(enter, found)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._inner) if not name.startswith("_"))})

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
        """Return a sender to a queue of the primary namespace, under the pairing; the SDK's options."""
        options = {"client_identifier": client_identifier, "socket_timeout": socket_timeout}
        return PairedSender(self._portal, self._portal.run(self._inner.get_queue_sender, queue_name, **options))

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """Return a sender to a topic of the primary namespace, under the pairing; the SDK's options."""
        options = {"client_identifier": client_identifier, "socket_timeout": socket_timeout}
        return PairedSender(self._portal, self._portal.run(self._inner.get_topic_sender, topic_name, **options))

    def list_queue_sessions(
        self, queue_name: str, *, state_updated_after: datetime | None = None, timeout: float | None = None
    ) -> ItemPaged[str]:
        """Return the ids of a queue's sessions in the primary namespace, as the SDK lists them."""
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
        """Return the ids of a subscription's sessions in the primary namespace."""
        options = {"state_updated_after": state_updated_after, "timeout": timeout}
        list_them = self._inner.list_subscription_sessions
        return self._paged(self._portal.run(list_them, topic_name, subscription_name, **options))

    def get_queue_receiver(self, queue_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace; the SDK's options."""
        return self._receiver(self._inner.get_queue_receiver, queue_name, options)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace; the SDK's options."""
        return self._receiver(self._inner.get_subscription_receiver, topic_name, options, subscription_name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
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
        """Return the same pages, blocking for each."""

        async def page(token: str | None) -> tuple[str | None, list[str]]:
            pages: Any = listed.by_page(token)
            found = [each async for each in await anext(pages)]
            return pages.continuation_token, found

        return ItemPaged(partial(self._portal.call, page), lambda found: found)

    def _receiver(self, get: Callable[..., Any], path: str, options: dict[str, Any], *names: str) -> PairedReceiver:
        renewer = options.pop("auto_lock_renewer", None)
        if renewer is not None and not isinstance(renewer, AutoLockRenewer):
            raise TypeError(f"auto_lock_renewer is an azure.servicebus.AutoLockRenewer, not {type(renewer).__name__}")
        return PairedReceiver(self._portal, self._portal.run(get, path, *names, **options), renewer)
