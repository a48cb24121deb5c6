"""The management node of an entity (`orders/$management`): operations by request and reply.

Each operation is one function in one table. It gets the client's arguments and returns the reply's value. Refusals are
AmqpRefusal or BrokerError. The broker settles and locks; messages travel encoded.

Source of the rule operations: "AMQP 1.0 in Azure Service Bus: request-response-based operations". As in the service,
maps by name come in, lists by position and descriptor code go out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from servicebus_amqp.encoding.codec import Array, Described, Int, Timestamp, ULong
from servicebus_amqp.nodes.coordination import OpenTransaction
from servicebus_amqp.nodes.request_ends import AmqpRefusal, bad_argument
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_sandbox.amqp_server.message_codec import raw_of, read_message, show_message, value_of, write_message
from servicebus_sandbox.broker.broker_errors import EntityDisabled, MessageTooLarge
from servicebus_sandbox.broker.entity_settings import Behavior, EntityStatus, Right, Tier
from servicebus_sandbox.broker.message import Message, StoredMessage
from servicebus_sandbox.broker.queues.agenda import MANAGEMENT_COST, MESSAGE_COST
from servicebus_sandbox.broker.queues.message_queue import MessageQueue, Settlement, Settling
from servicebus_sandbox.broker.queues.session_queue import SessionQueue
from servicebus_sandbox.broker.subscription_rules.message_properties import Value
from servicebus_sandbox.broker.subscription_rules.rules import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, Subscription
from servicebus_sandbox.broker.transaction import Act, Transaction
from servicebus_sandbox.faults import Operation

_RULE, _NO_ACTION, _SQL_ACTION = ULong(0x137_0000_0004), ULong(0x137_0000_0005), ULong(0x137_0000_0006)
_SQL, _TRUE, _FALSE, _CORRELATION = (
    ULong(0x13_7000_0006),
    ULong(0x13_7000_0007),
    ULong(0x13_7000_0008),
    ULong(0x13_7000_0009),
)
"""Filters have one zero less than the rest: so they are documented, and so the SDKs read them."""
_COMPATIBILITY: Final = Int(20)
_CORRELATED: Final = {field.replace("_", "-"): field for field in CORRELATION_FIELDS}


def read_rule(name: str, description: object) -> Rule:
    """Return the rule of a request. Raises AmqpRefusal, FilterSyntaxError."""
    parts = _map("rule-description", description)
    sql, correlation, action = (parts.get(part) for part in ("sql-filter", "correlation-filter", "sql-rule-action"))
    if (sql is None) is (correlation is None):
        raise bad_argument("'rule-description' has to hold either 'sql-filter' or 'correlation-filter'")
    return Rule(
        name=name,
        filter=_read_correlation(correlation) if sql is None else _read_sql(_expression("sql-filter", sql)),
        action=None if action is None else SqlAction(_expression("sql-rule-action", action)),
    )


def write_rule(rule: Rule) -> dict[str, Described]:
    """Return the rule for an enumeration: filter, action, name, time of creation."""
    created = Timestamp(round(rule.created_at * 1000))
    return {
        "rule-description": Described(
            _RULE, [_write_filter(rule.filter), _write_action(rule.action), rule.name, created]
        )
    }


def _map(name: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise bad_argument(f"'{name}' is {value!r}; it has to be a map")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise bad_argument(f"'{name}' is {value!r}; it has to be a string")
    return value


def _expression(name: str, value: object) -> str:
    return _text(f"expression of {name}", _map(name, value).get("expression"))


def _read_sql(expression: str) -> Filter:
    """Return the filter of an expression; the SDKs write true and false filters as SQL."""
    plain = (one for one in (TrueFilter(), FalseFilter()) if one.expression == expression)
    return next(plain, None) or SqlFilter(expression)


def _read_correlation(value: object) -> CorrelationFilter:
    parts = _map("correlation-filter", value)
    wanted = {field: _text(name, parts[name]) for name, field in _CORRELATED.items() if parts.get(name) is not None}
    properties = parts.get("properties")
    given = {} if properties is None else _map("properties", properties)
    return CorrelationFilter(
        **wanted, properties={_text("properties", key): _property(key, raw) for key, raw in given.items()}
    )


def _property(name: str, raw: object) -> Value:
    value = value_of(raw)
    if value is None and raw is not None:
        raise bad_argument(f"the property '{name}' is {raw!r}; nothing can be compared with that")
    return value


def _write_filter(found: Filter) -> Described:
    match found:
        case TrueFilter():
            return Described(_TRUE, [])
        case FalseFilter():
            return Described(_FALSE, [])
        case SqlFilter():
            return Described(_SQL, [found.expression, _COMPATIBILITY])
        case CorrelationFilter():
            wanted = [getattr(found, field) for field in _CORRELATED.values()]
            properties = {name: raw_of(value) for name, value in found.properties.items()}
            return Described(_CORRELATION, [*wanted, properties])


def _write_action(action: SqlAction | None) -> Described:
    return Described(_NO_ACTION, []) if action is None else Described(_SQL_ACTION, [action.expression, _COMPATIBILITY])


VENDOR: Final = "com.microsoft:"
PEEK_LOCK: Final = 1
MOST_PEEKED: Final = 250
MOST_PEEKED_BYTES: Final = 1024 * 1024
"""A reply with peeked messages ends at the message that reaches this size; the client requests the rest."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The body of a request to the entity at `path`. Getters raise AmqpRefusal for a missing or invalid argument."""

    namespace: BrokerNamespace
    path: str
    values: Mapping[str, Any]
    transaction: OpenTransaction[Transaction] | None = None

    def do(self, act: Callable[[], object], hold: Callable[[], Act], *, is_send: bool = False) -> None:
        """Do an act now, or reserve it in the request's transaction."""
        if self.transaction is None:
            act()
        else:
            self.transaction.admit(self.namespace.top_level(self.path), is_send=is_send)
            self.transaction.acts.include(hold)

    @property
    def messages(self) -> MessageQueue:
        return self.namespace.message_queue(self.path)

    @property
    def sessions(self) -> SessionQueue:
        queue = self.messages
        if not isinstance(queue, SessionQueue):
            raise AmqpRefusal("amqp:not-allowed", f"'{self.path}' has no sessions", 400)
        return queue

    @property
    def subscription(self) -> Subscription:
        entity = self.namespace.owner(self.path)
        if not isinstance(entity, Subscription):
            raise AmqpRefusal("amqp:not-allowed", f"'{self.path}' is no subscription; only those have rules", 400)
        return entity

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad_argument(f"'{name}' is {value!r}; it has to be a number")
        return value

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise bad_argument(f"'{name}' is missing; it has to be a string")
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_argument(f"'{name}' is {value!r}; it has to be a string")
        return value

    def items(self, name: str, kind: type) -> list[Any]:
        """Return the elements of an array or a list."""
        value = self.values.get(name)
        elements = value.values if isinstance(value, Array) else value
        if not isinstance(elements, list | tuple) or not all(isinstance(element, kind) for element in elements):
            raise bad_argument(f"'{name}' has to be an array of {kind.__name__}")
        return list(elements)

    def timestamp(self, name: str) -> float:
        """Return a time in epoch seconds."""
        value = self.values.get(name)
        if not isinstance(value, Timestamp):
            raise bad_argument(f"'{name}' is {value!r}; it has to be a timestamp")
        return value / 1000

    @property
    def is_partitioned(self) -> bool:
        entity = self.namespace.owner(self.path)
        settings = entity.topic.settings if isinstance(entity, Subscription) else entity.settings
        return settings.enable_partitioning

    def lock_tokens(self) -> list[bytes]:
        return [token.bytes_le for token in self.items("lock-tokens", UUID)]


@dataclass(frozen=True, slots=True)
class NodeOperation:
    """An operation: its act, and the right that it always needs. Rules need Listen: the SDKs document no more.

    operations: those besides management by which faults find it. is_managing: it costs as much as one on entities.
    may_find_nothing: an empty reply is "no content".
    """

    act: Callable[[Arguments], dict[str, Any] | None]
    right: Right = Right.LISTEN
    operations: frozenset[Operation] = frozenset()
    is_managing: bool = False
    may_find_nothing: bool = False


def perform(
    operation: str,
    namespace: BrokerNamespace,
    path: str,
    body: object,
    transaction: OpenTransaction[Transaction] | None = None,
) -> dict[str, Any] | None:
    """Perform one operation on the entity at `path`. Return the reply's value, None for an empty reply.

    A settlement, a schedule, a cancellation and a session's state belong to the transaction, all else is done at once.

    Raises AmqpRefusal and BrokerError.
    """
    found = _OPERATIONS.get(operation.removeprefix(VENDOR))
    if found is None:
        raise AmqpRefusal("amqp:not-implemented", f"unknown operation '{operation}'", 501)
    if body is not None and not isinstance(body, dict):
        raise bad_argument(f"the body of '{operation}' has to be a map")
    if found.is_managing:
        namespace.charge(MANAGEMENT_COST)
    return found.act(Arguments(namespace, path, body or {}, transaction))


def operation_called(name: str) -> NodeOperation:
    """Return the operation of this name; an unknown one needs the right Listen, and does nothing."""
    return _OPERATIONS.get(name.removeprefix(VENDOR), _UNKNOWN)


def rights_for(operation: str, behaves: Behavior) -> tuple[Right, ...]:
    """Return all rights that the operation needs."""
    found = operation_called(operation)
    return (found.right, Right.SEND) if found.act is _peek and behaves.peek_needs_send else (found.right,)


def _peek(arguments: Arguments) -> dict[str, Any] | None:
    status = arguments.namespace.owner(arguments.path).settings.status
    if status is EntityStatus.SEND_DISABLED and not arguments.namespace.behaves.peek_when_send_disabled:
        raise EntityDisabled(arguments.path, status.value)
    found = arguments.messages.peek(
        arguments.integer("from-sequence-number", 0),
        min(MOST_PEEKED, max(0, arguments.integer("message-count", 1))),
        arguments.optional_text("session-id"),
    )
    shown = list(_up_to_limit(found))
    arguments.namespace.charge(max(1, len(shown)) * MESSAGE_COST)
    return {"messages": [{"message": data} for data in shown]} if shown else None


def _up_to_limit(found: list[StoredMessage]) -> Iterator[bytes]:
    size = 0
    for stored in found:
        data = show_message(stored)
        size += len(data)
        yield data
        if size >= MOST_PEEKED_BYTES:
            return


def _renew_lock(arguments: Arguments) -> dict[str, Any]:
    queue = arguments.messages
    ends = [queue.renew(token) for token in arguments.lock_tokens()]
    return {"expirations": Array.of(Timestamp, [_timestamp(end) for end in ends])}


def _receive_by_sequence_number(arguments: Arguments) -> dict[str, Any]:
    settles_on_delivery = arguments.integer("receiver-settle-mode", PEEK_LOCK) != PEEK_LOCK
    numbers = arguments.items("sequence-numbers", int)
    arguments.namespace.charge(max(1, len(numbers)) * MESSAGE_COST)
    found = arguments.messages.receive_deferred(
        numbers,
        settles_on_delivery=settles_on_delivery,
        session_id=arguments.optional_text("session-id"),
    )
    return {"messages": [_locked(stored) for stored in found]}


def _locked(stored: StoredMessage) -> dict[str, Any]:
    token = UUID(int=0) if stored.lock_token is None else UUID(bytes_le=stored.lock_token)
    return {"lock-token": token, "message": write_message(stored)}


_MOST_DELETED: Final = 500
_MOST_DELETED_BY_PREMIUM: Final = 4000


def _batch_delete(arguments: Arguments) -> dict[str, Any]:
    """Delete messages and return their number, also if it is 0.

    Documented ("Batch delete messages in Azure Service Bus", azure-sdk-for-go pull 27499, azure-sdk-for-js pull 39309):
    the arguments and the reply, both limits, dead-letter queues and sessions, that locked messages stay, and that
    partitioned entities refuse. Users saw deferred messages stay (azure-service-bus issue 735). Unknown, and chosen
    here: the conditions of refusals, that scheduled messages stay, that a session has to be held, and the credits.
    """
    most, before = arguments.integer("message-count"), arguments.timestamp("enqueued-time-utc")
    limit = _MOST_DELETED_BY_PREMIUM if arguments.namespace.tier is Tier.PREMIUM else _MOST_DELETED
    if not 1 <= most <= limit:
        tier = arguments.namespace.tier
        raise bad_argument(f"'message-count' is {most}; allowed is 1 to {limit} in the tier {tier}")
    queue, session_id = arguments.messages, arguments.optional_text("session-id")
    if arguments.is_partitioned:
        raise AmqpRefusal("amqp:not-allowed", f"'{arguments.path}' is partitioned; receive its messages instead", 400)
    if isinstance(queue, SessionQueue):
        queue.check_session(arguments.text("session-id"))
    elif session_id is not None:
        raise AmqpRefusal("amqp:not-allowed", f"'{arguments.path}' has no sessions; leave 'session-id' out", 400)
    return {"message-count": Int(queue.delete_waiting(before, most, session_id))}


_DISPOSITIONS: Final = {
    "completed": Settling.COMPLETE,
    "abandoned": Settling.ABANDON,
    "defered": Settling.DEFER,
    "deferred": Settling.DEFER,
    "suspended": Settling.DEAD_LETTER,
}


def _update_disposition(arguments: Arguments) -> None:
    queue, status = arguments.messages, arguments.text("disposition-status")
    kind = _DISPOSITIONS.get(status)
    if kind is None:
        raise bad_argument(
            f"'disposition-status' is '{status}'; it has to be completed, abandoned, defered or suspended"
        )
    settlement = Settlement(
        kind,
        arguments.values.get("properties-to-modify") or None,
        arguments.optional_text("deadletter-reason") or "",
        arguments.optional_text("deadletter-description") or "",
    )
    tokens = list(dict.fromkeys(arguments.lock_tokens()))
    for token in tokens:
        queue.check_settling(token, settlement)
    for token in tokens:
        arguments.do(partial(queue.settle, token, settlement), partial(queue.hold, token, settlement))


def _schedule(arguments: Arguments) -> dict[str, Any]:
    intake = arguments.namespace.send_target(arguments.path).intake
    messages = [_scheduled(item) for item in arguments.items("messages", dict)]
    if arguments.transaction is None:
        return {"sequence-numbers": Array.of(int, intake.send(messages))}
    numbers = [intake.schedule.new_number() for _ in messages]
    arguments.do(lambda: None, partial(intake.hold, messages, numbers=numbers), is_send=True)
    return {"sequence-numbers": Array.of(int, numbers)}


def _scheduled(item: Mapping[str, Any]) -> Message:
    data = item.get("message")
    if not isinstance(data, bytes):
        raise bad_argument("each of 'messages' has to hold 'message', an encoded message")
    try:
        return read_message(data)
    except DecodeError as error:
        raise bad_argument(f"a message cannot be read: {error}") from error


def _cancel(arguments: Arguments) -> None:
    schedule = arguments.namespace.send_target(arguments.path).intake.schedule
    numbers = arguments.items("sequence-numbers", int)
    arguments.do(partial(schedule.cancel, numbers), partial(schedule.hold, numbers), is_send=True)


def _get_session_state(arguments: Arguments) -> dict[str, Any]:
    return {"session-state": arguments.sessions.session_state(arguments.text("session-id"))}


def _set_session_state(arguments: Arguments) -> None:
    state = arguments.values.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise bad_argument("'session-state' has to be binary or null")
    most = arguments.namespace.tier.max_message_bytes
    if state is not None and len(state) > most:
        raise MessageTooLarge(arguments.path, len(state), most)
    sessions, name = arguments.sessions, arguments.text("session-id")
    state = state or None  # an empty state is none
    arguments.do(partial(sessions.set_session_state, name, state), partial(sessions.hold_session_state, name, state))


def _renew_session_lock(arguments: Arguments) -> dict[str, Any]:
    return {"expiration": _timestamp(arguments.sessions.renew_session(arguments.text("session-id")))}


_NO_TIME: Final = 253402300800000
"""Year 10000 in milliseconds: the last-updated-time of clients that list sessions with messages."""


def _get_message_sessions(arguments: Arguments) -> dict[str, Any] | None:
    since, skip = arguments.integer("last-updated-time", _NO_TIME), arguments.integer("skip", 0)
    ids = arguments.sessions.session_ids(state_set_since=None if since >= _NO_TIME else since / 1000)
    page = ids[skip : skip + arguments.integer("top", 100)]
    return {"skip": Int(skip + len(page)), "sessions-ids": Array.of(str, page)} if page else None


def _add_rule(arguments: Arguments) -> None:
    subscription = arguments.subscription
    rule = read_rule(arguments.text("rule-name"), arguments.values.get("rule-description"))
    arguments.namespace.create_rule(subscription.topic.path, subscription.name, rule)


def _remove_rule(arguments: Arguments) -> None:
    subscription = arguments.subscription
    arguments.namespace.delete_rule(subscription.topic.path, subscription.name, arguments.text("rule-name"))


def _enumerate_rules(arguments: Arguments) -> dict[str, Any] | None:
    skip = max(0, arguments.integer("skip", 0))
    page = list(arguments.subscription.rules)[skip : skip + max(0, arguments.integer("top", 100))]
    return {"rules": [write_rule(rule) for rule in page]} if page else None


def _timestamp(seconds: float) -> Timestamp:
    return Timestamp(round(seconds * 1000))


_RECEIVE: Final = frozenset({Operation.RECEIVE})
_UNKNOWN: Final = NodeOperation(lambda _: None)
_OPERATIONS: Final[Mapping[str, NodeOperation]] = {
    "peek-message": NodeOperation(_peek, may_find_nothing=True),
    "renew-lock": NodeOperation(_renew_lock),
    "batch-delete-messages": NodeOperation(_batch_delete, operations=_RECEIVE, is_managing=True),
    "receive-by-sequence-number": NodeOperation(_receive_by_sequence_number, operations=_RECEIVE),
    "update-disposition": NodeOperation(_update_disposition, operations=frozenset({Operation.SETTLE})),
    "schedule-message": NodeOperation(_schedule, Right.SEND, operations=frozenset({Operation.SEND})),
    "cancel-scheduled-message": NodeOperation(_cancel, Right.SEND),
    "get-session-state": NodeOperation(_get_session_state),
    "set-session-state": NodeOperation(_set_session_state),
    "renew-session-lock": NodeOperation(_renew_session_lock),
    "get-message-sessions": NodeOperation(_get_message_sessions, may_find_nothing=True),
    "add-rule": NodeOperation(_add_rule, is_managing=True),
    "remove-rule": NodeOperation(_remove_rule, is_managing=True),
    "enumerate-rules": NodeOperation(_enumerate_rules, is_managing=True, may_find_nothing=True),
}
