"""AMQP's composite types: the performatives of AMQP 1.0 and of its SASL layer, delivery states, termini and the error.

A composite is a frozen dataclass whose fields name their encodings, in the order of the specification:

    @composite(0x1D, "amqp:error:list")
    class Error:
        condition: str = wire(SYMBOL)
        description: str | None = wire(STRING, default=None)

Rules: field names are the specification's. Absent and null fields get their default; unknown trailing fields are
skipped. A missing mandatory field or a value of the wrong kind is a DecodeError. All fields are written, nulls too,
because some peers index into the list without a length check. servicebus_amqp.encoding.frames has the frame around a
body, and faster readers for the two performatives of every message.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, dataclass_transform

from servicebus_amqp.encoding.codec import (
    NULL,
    UINT_MAX,
    Array,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    described,
    encode,
    encode_list,
    skip,
)
from servicebus_amqp.protocol_errors import DecodeError, EncodeError, ProtocolError

T = TypeVar("T")
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

_unpack32: Final = struct.Struct(">I").unpack_from
_WIRE: Final = "wire"
_NULL: Final = NULL[0]


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """The encoding of one kind of field. Nulls never reach `read` or `write`."""

    read: Reader
    write: Writer = encode


@dataclass(frozen=True, slots=True)
class _Shape:
    """readers, writers: of each field, by its name, in order. mandatory: names."""

    code: int
    name: str
    readers: tuple[tuple[str, Reader], ...]
    writers: tuple[tuple[str, Writer], ...]
    mandatory: tuple[str, ...]


_SHAPES: Final[dict[type, _Shape]] = {}
_CLASS_OF_CODE: Final[dict[int, type]] = {}
_CODE_OF_NAME: Final[dict[str, int]] = {}


def wire(kind: FieldCodec, *, default: Any = dataclasses.MISSING, factory: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a composite; it is mandatory without `default` or `factory`."""
    field: Any = dataclasses.field
    return field(default=default, default_factory=factory, metadata={_WIRE: kind})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire, dataclasses.field))
def composite(code: int, name: str) -> Callable[[type[T]], type[T]]:
    """Make a class a composite with AMQP's numeric and symbolic descriptor."""

    def declare(plain: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(plain)
        fields = [field for field in dataclasses.fields(made) if _WIRE in field.metadata]  # type: ignore[arg-type]
        _SHAPES[made] = _Shape(
            code,
            name,
            tuple((field.name, field.metadata[_WIRE].read) for field in fields),
            tuple((field.name, field.metadata[_WIRE].write) for field in fields),
            tuple(
                field.name
                for field in fields
                if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            ),
        )
        _CLASS_OF_CODE[code] = made
        _CODE_OF_NAME[name] = code
        return made

    return declare


_DESCRIPTORS: Final = frozenset((0x44, 0x53, 0x80, 0xA3, 0xB3))
"""Format codes of ulongs and symbols."""


def read_descriptor(buffer: bytes, at: int) -> tuple[int | None, int]:
    """Return the numeric descriptor of the described value at `at` (None: unknown) and the value's offset."""
    if buffer[at : at + 2] == b"\x00\x53":
        return _byte(buffer, at + 2), at + 3
    if buffer[at : at + 1] != b"\x00":
        raise DecodeError(f"a described type was expected at byte {at}")
    if _byte(buffer, at + 1) not in _DESCRIPTORS:  # of another type, which none of ours has and which may be large
        return None, skip(buffer, at + 1)
    descriptor, at = decode(buffer, at + 1)
    if isinstance(descriptor, Symbol):
        return _CODE_OF_NAME.get(descriptor), at
    return (int(descriptor) if isinstance(descriptor, ULong) else None), at


def read_list(buffer: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of items of the list at `at`, the offset of the first and the end of the list."""
    code = _byte(buffer, at)
    if code == 0x45:
        return 0, at + 1, at + 1
    if code == 0xC0:
        return _byte(buffer, at + 2), at + 3, at + 2 + _byte(buffer, at + 1)
    if code != 0xD0 or at + 9 > len(buffer):
        raise DecodeError(f"a list was expected at byte {at}")
    return int(_unpack32(buffer, at + 5)[0]), at + 9, at + 5 + int(_unpack32(buffer, at + 1)[0])


def _byte(buffer: bytes, at: int) -> int:
    if at >= len(buffer):
        raise DecodeError(f"the data ends at byte {len(buffer)}, in the middle of a value")
    return buffer[at]


def read_composite(buffer: bytes, at: int) -> tuple[Any, int]:
    """Return the composite at `at` and the offset after it; an unknown described value stays a Described."""
    code, body = read_descriptor(buffer, at)
    kind = None if code is None else _CLASS_OF_CODE.get(code)
    if kind is None:
        return decode(buffer, at)
    shape = _SHAPES[kind]
    count, at, end = read_list(buffer, body)
    values, at = _read_fields(shape, count, buffer, at)
    for _ in range(count - len(shape.readers)):
        at = skip(buffer, at)
    if at != end:
        raise DecodeError(f"{shape.name} ends at byte {at}, its size field gives {end}")
    for name in shape.mandatory:
        if name not in values:
            raise DecodeError(f"{shape.name} came without its {name}, which is mandatory")
    return kind(**values), end


def _read_fields(shape: _Shape, count: int, buffer: bytes, at: int) -> tuple[dict[str, Any], int]:
    """Return the first `count` fields that are not null, and the offset after them."""
    values: dict[str, Any] = {}
    name = shape.name
    try:
        for name, read in shape.readers[:count]:
            if buffer[at] == _NULL:  # most are
                at += 1
            else:
                values[name], at = read(buffer, at)
    except IndexError as error:
        raise DecodeError(f"the data ends at byte {len(buffer)}, in the middle of {shape.name}") from error
    except DecodeError as error:
        raise DecodeError(f"{name} of {shape.name}: {error.description}") from error
    return values, at


def write_composite(value: Any) -> bytes:
    """Write a composite with all its fields. Raises EncodeError."""
    shape = _SHAPES[type(value)]
    items = []
    for name, write in shape.writers:
        item = getattr(value, name)
        items.append(NULL if item is None else write(item))
    return described(shape.code, encode_list(items))


# kinds of fields


def _checked(kind: type, what: str) -> Reader:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = decode(buffer, at)
        if not isinstance(value, kind):
            raise DecodeError(f"{what} was expected, not {type(value).__name__}")
        return value, end

    return read


def _integer(kind: type[UByte | UShort | UInt | ULong]) -> FieldCodec:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = decode(buffer, at)
        if type(value) is not kind and (
            not isinstance(value, int) or isinstance(value, bool) or not kind.LOWEST <= value <= kind.HIGHEST
        ):
            raise DecodeError(f"a {kind.__name__.lower()} was expected, not {_shown(value)}")
        return int(value), end

    return FieldCodec(read, lambda value: encode(kind(value)))


def _shown(value: object) -> str:
    """Return a peer's value for an error's text: numbers as they are, otherwise only the type."""
    return repr(value) if isinstance(value, int) else f"a value of type {type(value).__name__}"


def _read_symbols(buffer: bytes, at: int) -> tuple[tuple[str, ...], int]:
    value, end = decode(buffer, at)
    names = value.values if isinstance(value, Array) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise DecodeError("symbols were expected")
    return tuple(names), end


def _write_symbols(names: tuple[str, ...]) -> bytes:
    return encode(Array.of(Symbol, map(Symbol, names))) if names else NULL


def _write_fields(fields: dict[Any, Any]) -> bytes:
    return encode({Symbol(key) if type(key) is str else key: value for key, value in fields.items()})


ANY: Final = FieldCodec(decode)
BOOLEAN: Final = FieldCodec(_checked(bool, "a boolean"))
BINARY: Final = FieldCodec(_checked(bytes, "a binary"))
STRING: Final = FieldCodec(_checked(str, "a string"))
SYMBOL: Final = FieldCodec(_checked(str, "a symbol"), lambda name: encode(Symbol(name)))
SYMBOLS: Final = FieldCodec(_read_symbols, _write_symbols)
MAP: Final = FieldCodec(_checked(dict, "a map"))
UBYTE: Final = _integer(UByte)
USHORT: Final = _integer(UShort)
UINT: Final = _integer(UInt)
ULONG: Final = _integer(ULong)
FIELDS: Final = FieldCodec(MAP.read, _write_fields)


def one_of(*kinds: type) -> FieldCodec:
    """Return the codec of a field that contains one of these composites, or a Described if that is among them."""

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = read_composite(buffer, at)
        if not isinstance(value, kinds):
            raise DecodeError(f"{type(value).__name__} came where {kinds[0].__name__} or its like was expected")
        return value, end

    return FieldCodec(read, lambda value: write_composite(value) if type(value) in _SHAPES else encode(value))


# Delivery states, sources and targets, and the error that AMQP carries in outcomes, detaches, ends and closes.
#
# Rules: an error always has condition, description and an info map, since peers index into all three. An outcome has
# all its fields. A state without a class here stays a Described; a server refuses it by its descriptor.
#
# A peer's terminus keeps its original bytes (`raw`) and is echoed with them, so that filters and types stay unchanged.
# One made or changed here is written from its fields.


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


_OUTCOME: Final = one_of(Accepted, Rejected, Released, Modified)


# Transactions: the bodies of a coordinator's messages, its answer to a declare, and the state of an act.


@composite(0x31, "amqp:declare:list")
class Declare:
    global_id: Any = wire(ANY, default=None)


@composite(0x32, "amqp:discharge:list")
class Discharge:
    """fail: roll back. txn_id is mandatory in AMQP; a client without one gets an answer instead of an end."""

    txn_id: bytes | None = wire(BINARY, default=None)
    fail: bool = wire(BOOLEAN, default=False)


@composite(0x33, "amqp:declared:list")
class Declared:
    txn_id: bytes = wire(BINARY)


@composite(0x34, "amqp:transactional-state:list")
class TransactionalState:
    """The state of a send, or of a settlement with its outcome, in a transaction."""

    txn_id: bytes | None = wire(BINARY, default=None)
    outcome: DeliveryState | None = wire(_OUTCOME, default=None)


DeliveryState = Accepted | Rejected | Released | Modified | Received | Declared | TransactionalState | Described

STATE: Final = one_of(Accepted, Rejected, Released, Modified, Received, Declared, TransactionalState, Described)

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
    if isinstance(state, TransactionalState) and state.outcome:
        bare = len(write_composite(replace(state, outcome=ACCEPTED)))
        return replace(state, outcome=fit_state(state.outcome, room - bare))
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
    """The target of a link that controls transactions."""

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
    """role: True for a receiver. Settle modes are the specification's numbers; None only in a refusal of ours."""

    name: str = wire(STRING)
    handle: int = wire(UINT)
    role: bool = wire(BOOLEAN)
    snd_settle_mode: int | None = wire(UBYTE, default=2)
    rcv_settle_mode: int | None = wire(UBYTE, default=0)
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


def _one_of(kinds: tuple[type, ...], protocol: str) -> Reader:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = read_composite(buffer, at)
        if isinstance(value, kinds):
            return value, end
        raise DecodeError(f"{_name(value)} is no performative of {protocol}")

    return read


read_performative: Final = _one_of((Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close), "AMQP")
"""Return the performative at an offset and the offset of the payload. Raises DecodeError."""
read_sasl: Final = _one_of((SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome), "AMQP's SASL layer")
"""Return the SASL performative at an offset and the offset after it. Raises DecodeError."""


def _name(value: object) -> str:
    descriptor = getattr(value, "descriptor", None)
    return type(value).__name__ if descriptor is None else f"a body described as {descriptor!r}"


write_performative = write_composite
