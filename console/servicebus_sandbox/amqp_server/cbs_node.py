"""The token node `$cbs`: a client puts a token for an audience, and is told whether it is good.

Tokens are told apart by what they look like, not by their declared type: clients write `jwt` beside shared access
signatures. What a token proves is judged by `authorization`, what it opened is kept in `grants`.

Held against what users of the service report: the token is judged before it is looked whether the entity is there, so
that nobody can probe for names (azure-sdk-for-net issue 44734); a bad token gets 401, `com.microsoft:auth-failed` and a
description that begins with the flaw, as in `ExpiredToken: ` (azure-service-bus-java 354) or `InvalidAudience: `
(azure-sdk-for-net 27644); a missing entity gets 404 and the sentence below (azure-service-bus 304 and 451), for
`.../$management` too. No report tells whether that 404 comes with a condition: ours has none. A good token that lacks a
right is accepted here, and refused where the right is needed, with `amqp:unauthorized-access` (azure-spring-boot 939).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.proven_access import ProvenAccess, TokenError
from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.serving.amqp_conditions import AmqpRefusal, bad_argument

PUT_TOKEN = "put-token"
AUTH_FAILED = "com.microsoft:auth-failed"


def judge_token(properties: Mapping[str, Any], token: object, *, judge: Authorization, now: float) -> ProvenAccess:
    """What a put-token request opens.

    Raises AmqpRefusal: 400 for a malformed request, 401 for a bad token, 404 for an entity that is not there.
    """
    operation, audience = properties.get("operation"), properties.get("name")
    if operation != PUT_TOKEN:
        raise bad_argument(f"the token node knows the operation '{PUT_TOKEN}', not '{operation}'")
    if not isinstance(audience, str) or not isinstance(token, str):
        raise bad_argument("a put-token request needs 'name', the audience, and the token as a string value")
    try:
        access = judge.judge(token, audience, now)
        judge.check_entity(access.path)
    except TokenError as error:
        raise AmqpRefusal(AUTH_FAILED, error.reason, 401) from error
    except EntityNotFound as error:
        # without a condition: given one, the SDK keeps status and description to itself
        raise AmqpRefusal("", f"The messaging entity '{audience}' could not be found.", 404) from error
    return access
