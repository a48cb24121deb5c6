"""The token node `$cbs`: a client puts a token for an audience and gets a verdict.

Token kinds are recognized by their form, not by their declared type: clients write `jwt` beside shared access
signatures. `authorization` judges a token, `grants` keeps the access.

Sources are reports of the service's users. The token is judged before the entity is looked up, so that names cannot be
probed (azure-sdk-for-net issue 44734). A bad token gets 401, `com.microsoft:auth-failed` and a description that begins
with the flaw, as in `ExpiredToken: ` (azure-service-bus-java 354) or `InvalidAudience: ` (azure-sdk-for-net 27644). A
missing entity gets 404 and the sentence below (azure-service-bus 304 and 451), for `.../$management` too. Reports do
not show whether that 404 has a condition; here it has none. A good token that lacks a right is accepted here and
refused where the right is needed, with `amqp:unauthorized-access` (azure-spring-boot 939).
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
    """Return the access that a put-token request proves.

    Raises AmqpRefusal: 400 for a malformed request, 401 for a bad token, 404 for a missing entity.
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
        # no condition: with one, the SDK hides status and description
        raise AmqpRefusal("", f"The messaging entity '{audience}' could not be found.", 404) from error
    return access
