"""Filters for the SDK's warnings about connections whose failures the pairing judges.

The SDK warns of each connection that a namespace ends, for every link on it. The pairing receives the same failures,
judges them and logs the consequences, so these records are dropped. Records at INFO and below, of an application's
receivers, and of its senders outside the pairing are unchanged.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.pairing import sdk_internals

_links: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_clients: Final[WeakSet[ServiceBusClient]] = WeakSet()

Link = TypeVar("Link")


def register_link(link: Link) -> Link:
    """Register an SDK sender or receiver whose failures the pairing judges; return it."""
    name = getattr(link, "client_identifier", None)
    if isinstance(name, str):
        _links[name] = link
    return link


def register_client(client: ServiceBusClient) -> None:
    """Register a client whose links all belong to the pairing."""
    _clients.add(client)


def _is_judged(name: str) -> bool:
    return name in _links or any(name in sdk_internals.link_names(client) for client in tuple(_clients))


class _Unjudged(logging.Filter):
    """A filter that drops warnings about the pairing's connections."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        name = sdk_internals.connection_name(record)
        return record.levelno < logging.WARNING or name is None or not _is_judged(name)


_UNJUDGED: Final = _Unjudged()
for _name in sdk_internals.LOGGERS:
    logging.getLogger(_name).addFilter(_UNJUDGED)  # a logger's children do not inherit its filters
