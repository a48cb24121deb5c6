"""The token node `$cbs`: a client puts a token for an audience and gets a verdict.

Kinds of tokens are recognized by their form: clients write `jwt` beside shared access signatures. A bad token gets 401,
`com.microsoft:auth-failed` and a description that begins with the flaw, as in `ExpiredToken: ` (azure-service-bus-java
354) or `InvalidAudience: ` (azure-sdk-for-net 27644). A missing entity gets 404 without a condition: with one, the
Python SDK hides status and description (azure-service-bus 304 and 451).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from servicebus_amqp.access.sas_tokens import TokenError
from servicebus_amqp.nodes.refusals import AmqpRefusal, bad_argument

PUT_TOKEN: Final = "put-token"
AUTH_FAILED: Final = "com.microsoft:auth-failed"


def read_put_token(properties: Mapping[str, Any], token: object) -> tuple[str, str]:
    """Return the audience and the token of a put-token request. Raises AmqpRefusal: 400 for any other request."""
    operation, audience = properties.get("operation"), properties.get("name")
    if operation != PUT_TOKEN:
        raise bad_argument(f"the token node knows the operation '{PUT_TOKEN}', not '{operation}'")
    if not isinstance(audience, str) or not isinstance(token, str):
        raise bad_argument("a put-token request needs 'name', the audience, and the token as a string value")
    return audience, token


def bad_token(error: TokenError) -> AmqpRefusal:
    """Return the refusal of a token that proves nothing."""
    return AmqpRefusal(AUTH_FAILED, error.reason, 401)


def no_such_entity(audience: str) -> AmqpRefusal:
    """Return the refusal of a good token for an entity that does not exist."""
    return AmqpRefusal("", f"The messaging entity '{audience}' could not be found.", 404)
