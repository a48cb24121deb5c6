"""Frame bodies as typed values: the performatives of AMQP 1.0 and of its SASL layer.

Rules: field names are the specification's; unknown trailing fields are ignored, missing ones get the specification's
default. servicebus_amqp.encoding.frames has the frame around a body; servicebus_amqp.encoding.transfer_codec has
faster readers for the two performatives of every message.
"""

from __future__ import annotations

from typing import Any

from servicebus_amqp.encoding.amqp_types import UINT_MAX
from servicebus_amqp.encoding.composite_types import (
    BINARY,
    BOOLEAN,
    FIELDS,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    composite,
    read_composite,
    wire,
    write_composite,
)
from servicebus_amqp.encoding.messaging_types import (
    ERROR,
    STATE,
    TERMINUS,
    Coordinator,
    DeliveryState,
    Error,
    Source,
    Target,
)
from servicebus_amqp.protocol_errors import DecodeError

Fields = dict[Any, Any] | None


@composite(0x10, "amqp:open:list")
class Open:
    """idle_time_out: milliseconds, or None for none."""

    container_id: str = wire(STRING)
    hostname: str | None = wire(STRING, default=None)
    max_frame_size: int = wire(UINT, default=UINT_MAX)
    channel_max: int = wire(USHORT, default=0xFFFF)
    idle_time_out: int | None = wire(UINT, default=None)
    outgoing_locales: tuple[str, ...] = wire(SYMBOLS, default=())
    incoming_locales: tuple[str, ...] = wire(SYMBOLS, default=())
    offered_capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    desired_capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    properties: Fields = wire(FIELDS, default=None)


@composite(0x11, "amqp:begin:list")
class Begin:
    """remote_channel: set in the answer to a begin, and only there. Windows count frames."""

    remote_channel: int | None = wire(USHORT, default=None)
    next_outgoing_id: int = wire(UINT)
    incoming_window: int = wire(UINT)
    outgoing_window: int = wire(UINT)
    handle_max: int = wire(UINT, default=UINT_MAX)
    offered_capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    desired_capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    properties: Fields = wire(FIELDS, default=None)


@composite(0x12, "amqp:attach:list")
class Attach:
    """role: True for a receiver. Settle modes are the specification's numbers."""

    name: str = wire(STRING)
    handle: int = wire(UINT)
    role: bool = wire(BOOLEAN)
    snd_settle_mode: int = wire(UBYTE, default=2)
    rcv_settle_mode: int = wire(UBYTE, default=0)
    source: Source | None = wire(TERMINUS, default=None)
    target: Target | Coordinator | None = wire(TERMINUS, default=None)
    unsettled: Fields = wire(MAP, default=None)
    incomplete_unsettled: bool = wire(BOOLEAN, default=False)
    initial_delivery_count: int | None = wire(UINT, default=None)
    max_message_size: int | None = wire(ULONG, default=None)
    offered_capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    desired_capabilities: tuple[str, ...] = wire(SYMBOLS, default=())
    properties: Fields = wire(FIELDS, default=None)


@composite(0x13, "amqp:flow:list")
class Flow:
    """handle None: the session's windows only."""

    next_incoming_id: int | None = wire(UINT, default=None)
    incoming_window: int = wire(UINT)
    next_outgoing_id: int = wire(UINT)
    outgoing_window: int = wire(UINT)
    handle: int | None = wire(UINT, default=None)
    delivery_count: int | None = wire(UINT, default=None)
    link_credit: int | None = wire(UINT, default=None)
    available: int | None = wire(UINT, default=None)
    drain: bool = wire(BOOLEAN, default=False)
    echo: bool = wire(BOOLEAN, default=False)
    properties: Fields = wire(FIELDS, default=None)


@composite(0x14, "amqp:transfer:list")
class Transfer:
    """The payload follows the performative in its frame and is no field of it."""

    handle: int = wire(UINT)
    delivery_id: int | None = wire(UINT, default=None)
    delivery_tag: bytes | None = wire(BINARY, default=None)
    message_format: int | None = wire(UINT, default=None)
    settled: bool | None = wire(BOOLEAN, default=None)
    more: bool = wire(BOOLEAN, default=False)
    rcv_settle_mode: int | None = wire(UBYTE, default=None)
    state: DeliveryState | None = wire(STATE, default=None)
    resume: bool = wire(BOOLEAN, default=False)
    aborted: bool = wire(BOOLEAN, default=False)
    batchable: bool = wire(BOOLEAN, default=False)


@composite(0x15, "amqp:disposition:list")
class Disposition:
    """role: True when a receiver speaks. last None: the same as first; ids wrap, so it may be the smaller number."""

    role: bool = wire(BOOLEAN)
    first: int = wire(UINT)
    last: int | None = wire(UINT, default=None)
    settled: bool = wire(BOOLEAN, default=False)
    state: DeliveryState | None = wire(STATE, default=None)
    batchable: bool = wire(BOOLEAN, default=False)


@composite(0x16, "amqp:detach:list")
class Detach:
    handle: int = wire(UINT)
    closed: bool = wire(BOOLEAN, default=False)
    error: Error | None = wire(ERROR, default=None)


@composite(0x17, "amqp:end:list")
class End:
    error: Error | None = wire(ERROR, default=None)


@composite(0x18, "amqp:close:list")
class Close:
    error: Error | None = wire(ERROR, default=None)


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms:
    sasl_server_mechanisms: tuple[str, ...] = wire(SYMBOLS)


@composite(0x41, "amqp:sasl-init:list")
class SaslInit:
    mechanism: str = wire(SYMBOL)
    initial_response: bytes | None = wire(BINARY, default=None)
    hostname: str | None = wire(STRING, default=None)


@composite(0x42, "amqp:sasl-challenge:list")
class SaslChallenge:
    challenge: bytes = wire(BINARY)


@composite(0x43, "amqp:sasl-response:list")
class SaslResponse:
    response: bytes = wire(BINARY)


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome:
    """code: 0 for ok, 1 for a failed authentication."""

    code: int = wire(UBYTE)
    additional_data: bytes | None = wire(BINARY, default=None)


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslPerformative = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
_ALL = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
_ALL_SASL = (SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome)


def read_performative(buffer: bytes, at: int) -> tuple[Performative, int]:
    """Return the performative at `at` and the offset of the payload. Raises DecodeError."""
    value, end = read_composite(buffer, at)
    if isinstance(value, _ALL):
        return value, end
    raise DecodeError(f"{_name(value)} is no performative of AMQP")


def read_sasl(buffer: bytes, at: int) -> tuple[SaslPerformative, int]:
    """Return the SASL performative at `at` and the offset after it. Raises DecodeError."""
    value, end = read_composite(buffer, at)
    if isinstance(value, _ALL_SASL):
        return value, end
    raise DecodeError(f"{_name(value)} is no performative of AMQP's SASL layer")


def _name(value: object) -> str:
    descriptor = getattr(value, "descriptor", None)
    return type(value).__name__ if descriptor is None else f"a body described as {descriptor!r}"


write_performative = write_composite
