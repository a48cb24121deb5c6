"""Trace contexts of messages and the spans of sends, by the tracer of azure-core (`settings.tracing_implementation`).

The SDK makes a span `ServiceBus.message` for each message, whose context travels in the message's properties, and a
span `ServiceBus.send` for each call, linked to its messages. It uses the context of the running task. Sends of several
callers share a task here, and backlog queues get messages through our own AMQP. The spans are therefore made here, in
the caller's context, and the SDK's are left out (`sdk_internals.send_untraced`).

A tracer that raises costs its span, never a send. Without a tracer each function returns at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from azure.core.settings import settings
from azure.core.tracing import Link, SpanKind

TRACE_PARENT: Final = "traceparent"
DIAGNOSTIC_ID: Final = "Diagnostic-Id"
"""The trace parent's older name; the SDK writes both."""
TRACE_STATE: Final = "tracestate"
CONTEXT_NAMES: Final = (TRACE_PARENT, DIAGNOSTIC_ID, TRACE_STATE)

Headers = Mapping[str, str]
"""A trace context: W3C's headers `traceparent` and `tracestate`."""
Attributes = Mapping[str, str | int]
_SERVICE_BUS: Final = {"az.namespace": "Microsoft.ServiceBus", "messaging.system": "servicebus"}

COMPLAINT_SECONDS: Final = 60.0
"""Seconds between two warnings about a tracer that raises."""

log = logging.getLogger(__name__)
_complaint: Final = {"due": 0.0}


def is_on() -> bool:
    """Return whether the application has a tracer for Azure's SDKs."""
    return settings.tracing_implementation() is not None


def context_of(properties: Mapping[Any, Any] | None) -> Headers:
    """Return the trace context in a message's application properties; empty without one."""
    if not properties:
        return {}
    parent = _text(properties, TRACE_PARENT) or _text(properties, DIAGNOSTIC_ID)
    if not parent:
        return {}
    state = _text(properties, TRACE_STATE)
    return {TRACE_PARENT: parent, TRACE_STATE: state} if state else {TRACE_PARENT: parent}


def properties_of(context: Headers) -> dict[bytes, str]:
    """Return the application properties in which a context travels, with the SDK's keys."""
    parent, state = context.get(TRACE_PARENT), context.get(TRACE_STATE)
    found = {DIAGNOSTIC_ID.encode(): parent, TRACE_PARENT.encode(): parent} if parent else {}
    return {**found, TRACE_STATE.encode(): state} if state else found


def new_message_context(host: str, entity: str) -> Headers:
    """Return the context of a new message: that of a span `ServiceBus.message` in the caller's trace."""
    attributes = {**_SERVICE_BUS, "net.peer.name": host, "messaging.destination.name": entity}
    with Span("ServiceBus.message", SpanKind.PRODUCER, attributes) as span:
        return span.headers()


def send_span(host: str, entity: str, contexts: Iterable[Headers]) -> Span:
    """Return a span `ServiceBus.send` to run a send in, linked to its messages' contexts."""
    links = [Link(dict(context)) for context in contexts if context]
    attributes: dict[str, str | int] = {**_SERVICE_BUS, "messaging.operation": "publish"}
    if len(links) > 1:
        attributes["messaging.batch.message_count"] = len(links)
    attributes |= {"message_bus.destination": entity, "peer.address": host}
    return Span("ServiceBus.send", SpanKind.CLIENT, attributes, links)


class Span:
    """A span of the application's tracer, as a context manager; without a working tracer it does nothing."""

    __slots__ = ("_attributes", "_kind", "_links", "_name", "_span")

    def __init__(self, name: str, kind: SpanKind, attributes: Attributes, links: Sequence[Link] = ()) -> None:
        self._name = name
        self._kind = kind
        self._attributes = attributes
        self._links = list(links)
        self._span: Any = None

    def __enter__(self) -> Self:
        self._span = _guarded(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        span, self._span = self._span, None
        if span is not None:
            _guarded(lambda: span.__exit__(kind, error, trace))

    def headers(self) -> Headers:
        """Return its context; empty without a working tracer."""
        return (_guarded(self._span.to_header) if self._span is not None else None) or {}

    def _begin(self) -> Any:
        tracer = settings.tracing_implementation()
        if tracer is None:
            return None
        span = tracer(name=self._name, kind=self._kind, links=self._links)
        for key, value in self._attributes.items():
            span.add_attribute(key, value)
        return span.__enter__()


class DetachedSpan:
    """A span that begins now; no task runs in it, and no trace is its parent."""

    __slots__ = ("_context", "_span")

    def __init__(self, span: Span) -> None:
        self._context = Context()
        self._span = span
        self._context.run(span.__enter__)

    def end(self, failure: BaseException | None = None) -> None:
        """End it. failure: of the work in it."""
        kind, trace = (None, None) if failure is None else (type(failure), failure.__traceback__)
        self._context.run(self._span.__exit__, kind, failure, trace)


def _guarded(act: Callable[[], Any]) -> Any:
    """Return the tracer's answer; None if it raises, which is logged."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - a foreign tracer may raise anything, and no send depends on it
        _complain(error)
        return None


def _complain(error: Exception) -> None:
    """Log a tracer's error, as a warning once in COMPLAINT_SECONDS."""
    now = monotonic()
    is_due = now >= _complaint["due"]
    _complaint["due"] = now + COMPLAINT_SECONDS if is_due else _complaint["due"]
    level = logging.WARNING if is_due else logging.DEBUG
    log.log(level, "the tracer raised %s: spans are missing, sends go on", type(error).__name__, exc_info=is_due)


def _text(properties: Mapping[Any, Any], name: str) -> str:
    """Return a property as text, however the SDK keys and types it; empty without it."""
    found = properties.get(name.encode(), properties.get(name))
    if isinstance(found, bytes):
        return found.decode("ascii", "replace")
    return found if isinstance(found, str) else ""
