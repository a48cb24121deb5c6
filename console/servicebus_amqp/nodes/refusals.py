"""Refusals for clients: a condition and a description for AMQP, a status for the reply of a node."""

from __future__ import annotations

from servicebus_amqp.encoding.messaging_types import Error, Rejected


class AmqpRefusal(Exception):
    """A refusal for a client: condition and description for AMQP, `status` for a management reply."""

    def __init__(self, condition: str, description: str, status: int) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
        self.status = status


def error_of(refusal: AmqpRefusal) -> Error:
    """Return the refusal as the error of a link or an outcome."""
    return Error(condition=refusal.condition, description=refusal.description)


def rejected(refusal: AmqpRefusal) -> Rejected:
    """Return the refusal as the outcome of a message."""
    return Rejected(error=error_of(refusal))


def bad_argument(description: str) -> AmqpRefusal:
    return AmqpRefusal("com.microsoft:argument-error", description, 400)


def unauthorized(path: str, right: str | None) -> AmqpRefusal:
    """Return the refusal for a missing `right` on the path; None if no token covers the path."""
    lacking = "token is good" if right is None else f"good token gives '{right}'"
    return AmqpRefusal(
        "amqp:unauthorized-access", f"no {lacking} for '{path}' on this connection; put one on $cbs first", 401
    )


def too_many_tokens() -> AmqpRefusal:
    return AmqpRefusal("amqp:resource-limit-exceeded", "this connection holds tokens for too many audiences", 403)


def too_many_links() -> AmqpRefusal:
    return AmqpRefusal("amqp:resource-limit-exceeded", "this connection has too many links; detach some first", 403)


def too_many_replies() -> AmqpRefusal:
    text = "too many replies wait for credit; grant some on the link that receives them"
    return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
