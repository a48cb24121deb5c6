"""Delivery states, sources and targets, and the error that AMQP carries in outcomes, detaches, ends and closes.

Rules: an error always has condition, description and an info map, since peers index into all three. An outcome has all
its fields. A state without a class here (transactions) stays a Described and is passed on.

A peer's terminus keeps its original bytes (`raw`) and is echoed with them, so that filters and types stay unchanged.
One made or changed here is written from its fields.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Final

from servicebus_amqp.encoding.amqp_types import Described
from servicebus_amqp.encoding.codec import NULL
from servicebus_amqp.encoding.composite_types import (
    ANY,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    SYMBOLS,
    UINT,
    ULONG,
    FieldCodec,
    composite,
    one_of,
    wire,
    write_composite,
)
from servicebus_amqp.protocol_errors import EncodeError, ProtocolError


@composite(0x1D, "amqp:error:list")
class Error:
    """The reason why a link, session, connection or delivery failed. info: maps symbols (or plain str) to values."""

    condition: str = wire(SYMBOL)
    description: str = wire(STRING, default="")
    info: dict[Any, Any] = wire(FIELDS, factory=dict)


ERROR: Final = one_of(Error)


@composite(0x23, "amqp:received:list")
class Received:
    section_number: int = wire(UINT)
    section_offset: int = wire(ULONG)


@composite(0x24, "amqp:accepted:list")
class Accepted:
    pass


@composite(0x25, "amqp:rejected:list")
class Rejected:
    error: Error | None = wire(ERROR, default=None)


@composite(0x26, "amqp:released:list")
class Released:
    pass


@composite(0x27, "amqp:modified:list")
class Modified:
    delivery_failed: bool = wire(BOOLEAN, default=False)
    undeliverable_here: bool = wire(BOOLEAN, default=False)
    message_annotations: dict[Any, Any] | None = wire(FIELDS, default=None)


DeliveryState = Accepted | Rejected | Released | Modified | Received | Described

STATE: Final = one_of(Accepted, Rejected, Released, Modified, Received, Described)

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

_ENCODED_ACCEPTED: Final = write_composite(ACCEPTED)
_ENCODED_RELEASED: Final = write_composite(RELEASED)


def write_state(state: DeliveryState | None) -> bytes:
    """Write a delivery state; None is null. Raises EncodeError."""
    if state is ACCEPTED:
        return _ENCODED_ACCEPTED
    if state is RELEASED:
        return _ENCODED_RELEASED
    return NULL if state is None else STATE.write(state)


def read_state(buffer: bytes, at: int) -> tuple[DeliveryState | None, int]:
    """Return the delivery state at `at` (None for null) and the offset after it. Raises DecodeError."""
    if buffer.startswith(_ENCODED_ACCEPTED, at):
        return ACCEPTED, at + len(_ENCODED_ACCEPTED)
    if buffer[at : at + 1] == b"\x40":
        return None, at + 1
    state, end = STATE.read(buffer, at)
    return state, end


def error_of(failure: ProtocolError) -> Error:
    """Return the error that reports a failure to the peer."""
    return Error(condition=str(failure.condition), description=failure.description)


def fit_error(error: Error, room: int) -> Error:
    """Return the error if it fits `room` bytes, otherwise one without info and with a truncated description."""
    if len(write_composite(error)) <= room:
        return error
    bare = Error(condition=error.condition)
    left = max(0, room - len(write_composite(bare)) - 16)
    return replace(bare, description=error.description.encode()[:left].decode("utf-8", "ignore"))


def fit_state(state: DeliveryState, room: int) -> DeliveryState:
    """Return the state if it fits `room` bytes, otherwise one without its longest part.

    Raises:
        EncodeError: the state has no part that may be omitted.
    """
    size = len(write_state(state))
    if size <= room:
        return state
    if isinstance(state, Rejected) and state.error:
        return Rejected(error=fit_error(state.error, room - len(write_composite(Rejected())) - 8))
    if isinstance(state, Modified):
        return replace(state, message_annotations=None)
    raise EncodeError(f"a delivery state of {size} bytes; {room} is the most the peer takes")


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
