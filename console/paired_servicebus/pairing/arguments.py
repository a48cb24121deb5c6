"""The checks of a caller's arguments, before any contact: each error names the argument and its expected value.

A text in place of a client may be a connection string, so no error repeats it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.pairing.options import SendAvailabilityPairedNamespaceOptions

_MANAGEMENT: Final = ("queues", "create_backlog_queue", "depth", "depths", "namespace", "close")
"""The methods of a `Management` that replaces the SDK's management client."""

_paired: Final[WeakSet[Any]] = WeakSet()
"""The clients of open pairings."""


def check_arguments(primary_client: object, options: object) -> None:
    """Raise ConfigurationError for arguments that make no pairing."""
    if not isinstance(options, SendAvailabilityPairedNamespaceOptions):
        raise ConfigurationError(
            f"options is {_kind(options)}; it is SendAvailabilityPairedNamespaceOptions(secondary_admin=..., "
            "secondary_client=...)"
        )
    _check_client("primary_client", primary_client)
    _check_client("secondary_client", options.secondary_client)
    _check_admin(options.secondary_admin)


@contextmanager
def claim_clients(clients: Mapping[str, Any]) -> Iterator[None]:
    """Mark clients, by their arguments' names, as paired; release them if the block raises.

    Raises:
        ConfigurationError: one is paired already, and would be closed with that pairing.
    """
    weakable = [client for client in clients.values() if type(client).__weakrefoffset__]
    for name, client in clients.items():
        if client in weakable and client in _paired:
            raise ConfigurationError(
                f"{name} is part of another pairing, which closes it at its end: make a separate client for this one"
            )
    _paired.update(weakable)
    try:
        yield
    except BaseException:
        release(clients)
        raise


def release(clients: Mapping[str, Any]) -> None:
    """Release the clients of a pairing that was closed, or not made."""
    for client in clients.values():
        if type(client).__weakrefoffset__:
            _paired.discard(client)


def _check_client(name: str, client: object) -> None:
    is_async = inspect.iscoroutinefunction(getattr(client, "close", None))
    if hasattr(client, "backlog_queue_count"):
        raise ConfigurationError(f"{name} is a paired client already: pass the ServiceBusClient it was made from")
    if hasattr(client, "get_queue_sender") and not is_async:
        raise ConfigurationError(
            f"{name} is the synchronous ServiceBusClient: use the one of azure.servicebus.aio, or pair_namespaces of "
            "paired_servicebus.sync, which needs no asyncio"
        )
    is_client = isinstance(getattr(client, "fully_qualified_namespace", None), str)
    if not (is_client and is_async and hasattr(client, "get_queue_sender")):
        raise ConfigurationError(
            f"{name} is {_kind(client)}; it is a ServiceBusClient of azure.servicebus.aio, such as "
            "ServiceBusClient.from_connection_string(...)"
        )


def _check_admin(admin: object) -> None:
    if isinstance(admin, ServiceBusAdministrationClient):
        return
    if all(inspect.iscoroutinefunction(getattr(admin, name, None)) for name in _MANAGEMENT):
        return
    kind = type(admin)
    if kind.__name__ == "ServiceBusAdministrationClient":
        todo = "use the one of azure.servicebus.aio.management"
    elif kind.__name__ == "ServiceBusManagementClient":
        todo = "pass ArmAdmin(client, resource_group=..., namespace=...), and the client of azure.mgmt.servicebus.aio"
    else:
        todo = "it is a ServiceBusAdministrationClient of azure.servicebus.aio.management, or an ArmAdmin"
    raise ConfigurationError(f"secondary_admin is {_kind(admin)}: {todo}")


def _kind(thing: object) -> str:
    """Return a description of a value's type, without the value."""
    if isinstance(thing, str | bytes):
        return "a text"
    return (
        f"the class {thing.__name__}"
        if isinstance(thing, type)
        else f"a {type(thing).__module__} {type(thing).__name__}"
    )
