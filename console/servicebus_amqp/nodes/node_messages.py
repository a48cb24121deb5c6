"""Requests to the nodes `$cbs` and `{entity}/$management`, and their replies.

A request has its operation in the application properties and its arguments in the body. The reply repeats the
request's message id, in its original type.
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
from servicebus_amqp.nodes.refusals import AmqpRefusal


class ReplyVocabulary(Enum):
    """A node's names for status, description and error condition in its replies."""

    CBS = ("status-code", "status-description", "error-condition")
    MANAGEMENT = ("statusCode", "statusDescription", "errorCondition")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """message_id: echoed in its original type. properties: the application properties."""

    message_id: Any
    reply_to: str | None
    properties: Mapping[str, Any]
    body: Any

    @property
    def operation(self) -> str:
        return str(self.properties.get("operation", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReply:
    """status: as in HTTP. condition: present with most failures. body: the value; None for an empty one."""

    status: int
    description: str
    condition: str | None = None
    body: Any = None


def read_request(data: bytes) -> NodeRequest:
    """Read a request from its encoded message. Raises DecodeError."""
    found = split(data)
    properties = read_properties(found.properties)
    return NodeRequest(
        message_id=properties.message_id,
        reply_to=properties.reply_to if isinstance(properties.reply_to, str) else None,
        properties=read_map(found.application_properties),
        body=read_value(found.body) if found.body else None,
    )


def write_reply(request: NodeRequest, reply: NodeReply, vocabulary: ReplyVocabulary) -> bytes:
    """Return the encoded reply to a request."""
    status, description, condition = vocabulary.value
    outcome: dict[str, Any] = {status: Int(reply.status), description: reply.description}
    if reply.condition:
        outcome[condition] = Symbol(reply.condition)
    return Sections(
        properties=write_properties(Properties(correlation_id=request.message_id)),
        application_properties=write_application_properties(outcome),
        body=write_value(reply.body),
    ).join()


def refused(refusal: AmqpRefusal) -> NodeReply:
    """Return the reply to a request that is refused."""
    return NodeReply(status=refusal.status, description=refusal.description, condition=refusal.condition)
