"""Sources and targets: the two ends of a link.

Rules: a terminus that came from a peer keeps the bytes it came in (`raw`) and is echoed by them, so that
filters and types stay as they were; one that was made or changed here is written from its fields. Which
addresses exist and what a filter means does not belong here.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Final

from servicebus_amqp.encoding.composite_types import (
    ANY,
    BOOLEAN,
    FIELDS,
    SYMBOL,
    SYMBOLS,
    UINT,
    FieldCodec,
    composite,
    one_of,
    wire,
    write_composite,
)
from servicebus_amqp.encoding.delivery_states import STATE, DeliveryState


@composite(0x28, "amqp:source:list")
class Source:
    """Where a link's messages come from; `filter` maps symbols to values, as they came."""

    address: Any = wire(ANY, default=None)
    durable: int = wire(UINT, default=0)
    expiry_policy: str = wire(SYMBOL, default="session-end")
    timeout: int = wire(UINT, default=0)
    dynamic: bool = wire(BOOLEAN, default=False)
    dynamic_node_properties: dict[Any, Any] | None = wire(FIELDS, default=None)
    distribution_mode: str | None = wire(SYMBOL, default=None)
    filter: dict[Any, Any] | None = wire(FIELDS, default=None)
    default_outcome: DeliveryState | None = wire(STATE, default=None)
    outcomes: tuple[str, ...] = wire(SYMBOLS, default=())
    capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    raw: bytes | None = field(default=None, compare=False, repr=False)

    def with_filter(self, filters: dict[Any, Any] | None) -> Source:
        """The same source with other filters; written from its fields then."""
        return replace(self, filter=filters, raw=None)


@composite(0x29, "amqp:target:list")
class Target:
    """Where a link's messages go."""

    address: Any = wire(ANY, default=None)
    durable: int = wire(UINT, default=0)
    expiry_policy: str = wire(SYMBOL, default="session-end")
    timeout: int = wire(UINT, default=0)
    dynamic: bool = wire(BOOLEAN, default=False)
    dynamic_node_properties: dict[Any, Any] | None = wire(FIELDS, default=None)
    capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    raw: bytes | None = field(default=None, compare=False, repr=False)


@composite(0x30, "amqp:coordinator:list")
class Coordinator:
    """The target of a link that controls transactions; known so that it can be refused by name."""

    capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    raw: bytes | None = field(default=None, compare=False, repr=False)


Terminus = Source | Target | Coordinator


_ANY_TERMINUS: Final = one_of(Source, Target, Coordinator)


def _read(buffer: bytes, at: int) -> tuple[Terminus, int]:
    terminus, end = _ANY_TERMINUS.read(buffer, at)
    object.__setattr__(terminus, "raw", buffer[at:end])  # it was made here, and nobody has seen it yet
    return terminus, end


def _write(terminus: Terminus) -> bytes:
    return write_composite(terminus) if terminus.raw is None else terminus.raw


TERMINUS: Final = FieldCodec(_read, _write)
