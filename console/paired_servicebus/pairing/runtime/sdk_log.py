"""What the SDK does not log: warnings about connections whose failures the pairing judges.

The SDK warns of each connection that a namespace ends, for every link that was on it. The same failure is raised to the
pairing, which judges it and logs what follows from it. So these records are dropped, and no others: an application's
receivers, and its senders beside the pairing, are logged as ever. What the SDK logs at INFO stays too.

A record names its connection by its link's client identifier; the SDK documents neither.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from azure.servicebus.aio import ServiceBusClient

LOGGERS: Final = tuple(
    f"azure.servicebus._pyamqp.aio.{module}"
    for module in (
        "_connection_async",
        "_link_async",
        "_management_operation_async",
        "_receiver_async",
        "_sender_async",
        "_session_async",
    )
)
"""Those that write records of one connection at WARNING or above. A filter counts for its own logger only."""

_links: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_clients: Final[WeakSet[ServiceBusClient]] = WeakSet()

Link = TypeVar("Link")


def judged(link: Link) -> Link:
    """Take note of an SDK sender or receiver whose failures the pairing judges; return it."""
    name = getattr(link, "client_identifier", None)
    if isinstance(name, str):
        _links[name] = link
    return link


def all_judged(client: ServiceBusClient) -> None:
    """Take note of a client of which no link is the application's."""
    _clients.add(client)


def _is_judged(name: object) -> bool:
    if name in _links:
        return True
    handlers = [handler for client in tuple(_clients) for handler in getattr(client, "_handlers", ())]
    return any(getattr(handler, "_name", None) == name for handler in handlers)


class _Unjudged(logging.Filter):
    """Lets a record pass unless it is a warning about a connection that the pairing judges."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        name = getattr(record, "amqpConnection", None)
        return record.levelno < logging.WARNING or name is None or not _is_judged(name)


_UNJUDGED: Final = _Unjudged()
for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_UNJUDGED)
