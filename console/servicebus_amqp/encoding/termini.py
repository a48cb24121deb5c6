"""Sources and targets: the two ends of a link.

Rules: a peer's terminus keeps its original bytes (`raw`) and is echoed with them, so that filters and types stay
unchanged. A terminus made or changed here is written from its fields.
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
    """The origin of a link's messages. filter: maps symbols to values, as received."""

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
        """Return the same source with other filters, without its raw bytes."""
        return replace(self, filter=filters, raw=None)


@composite(0x29, "amqp:target:list")
class Target:
    """The destination of a link's messages."""

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
    """The target of a link that controls transactions; known only for a refusal by name."""

    capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    raw: bytes | None = field(default=None, compare=False, repr=False)


Terminus = Source | Target | Coordinator


_ANY_TERMINUS: Final = one_of(Source, Target, Coordinator)


def _read(buffer: bytes, at: int) -> tuple[Terminus, int]:
    terminus, end = _ANY_TERMINUS.read(buffer, at)
    object.__setattr__(terminus, "raw", buffer[at:end])  # new and not shared yet
    return terminus, end


def _write(terminus: Terminus) -> bytes:
    return write_composite(terminus) if terminus.raw is None else terminus.raw


TERMINUS: Final = FieldCodec(_read, _write)
