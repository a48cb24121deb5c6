"""Requests to a node and their replies, as messages: what `$cbs` and `$management` have in common.

A request carries its operation in application properties and its arguments in the body; the reply is correlated by the
request's message id, in the type it came in. Which reply link is used is the connection's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from servicebus_amqp.encoding.amqp_types import Int, Symbol
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_properties,
    read_value,
    split,
    write_application_properties,
    write_properties,
    write_value,
)


class ReplyVocabulary(Enum):
    """What a node calls status, description and error condition in its replies."""

    CBS = ("status-code", "status-description", "error-condition")
    MANAGEMENT = ("statusCode", "statusDescription", "errorCondition")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """`message_id` has the type it came in and is echoed in it. `properties` are the application properties."""

    message_id: Any
    reply_to: str | None
    properties: Mapping[str, Any]
    body: Any

    @property
    def operation(self) -> str:
        return str(self.properties.get("operation", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReply:
    """`status` is like HTTP's; `condition` is given with most failures; `body` is the value, None for an empty one."""

    status: int
    description: str
    condition: str | None = None
    body: Any = None


def read_request(data: bytes) -> NodeRequest:
    """A request from its encoded message. Raises DecodeError."""
    found = split(data)
    properties = read_properties(found.properties)
    return NodeRequest(
        message_id=properties.message_id,
        reply_to=properties.reply_to if isinstance(properties.reply_to, str) else None,
        properties=read_map(found.application_properties),
        body=read_value(found.body) if found.body else None,
    )


def write_reply(request: NodeRequest, reply: NodeReply, vocabulary: ReplyVocabulary) -> bytes:
    """The encoded reply to a request."""
    status, description, condition = vocabulary.value
    outcome: dict[str, Any] = {status: Int(reply.status), description: reply.description}
    if reply.condition:
        outcome[condition] = Symbol(reply.condition)
    return Sections(
        properties=write_properties(Properties(correlation_id=request.message_id)),
        application_properties=write_application_properties(outcome),
        body=write_value(reply.body),
    ).join()
