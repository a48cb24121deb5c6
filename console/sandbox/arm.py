"""Azure Resource Manager for the sandbox's namespaces: a request in, an answer out, with no socket in between.

Namespaces, queues, topics, subscriptions, rules, authorization rules and their keys, as azure-mgmt-servicebus asks for
them. Any subscription and any resource group will do. Everything is done at once: what Azure takes a while for is
answered as done. Bearer tokens of the sandbox's issuer are asked for, for ARM's own audience and with every right. What
is done for which address is in `arm_namespaces`, `arm_entities` and `arm_keys`; the port is in `arm_server`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from console.sandbox import arm_entities, arm_keys, arm_namespaces
from console.sandbox.arm_addresses import PROVIDER, read_address
from console.sandbox.arm_calls import Actions, ArmRefusal, Call, Opener, Place, Places, Reply
from console.sandbox.broker.access import ALL_RIGHTS
from console.sandbox.broker.errors import BrokerError, EntityExists, EntityNotFound
from console.sandbox.descriptions import DescriptionError
from console.sandbox.entity_checks import TargetMissing
from console.sandbox.issuer import RESOURCE_MANAGER, Issuer
from console.sandbox.management import Request
from console.sandbox.tokens import TokenError

NEWEST_VERSION = "2026-01-01"
_VERSION = re.compile(r"(\d{4}-\d{2}-\d{2})(-preview)?", re.ASCII)
_ACTIONS: Actions = {**arm_namespaces.ACTIONS, **arm_entities.ACTIONS, **arm_keys.ACTIONS}
_REFUSALS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (EntityNotFound, 404, "NotFound", ""),
    (EntityExists, 409, "Conflict", "SubCode=40900. "),
    (TargetMissing, 400, "BadRequest", "SubCode=40400. "),
    (BrokerError, 400, "BadRequest", "SubCode=40000. "),
    (DescriptionError, 400, "BadRequest", "SubCode=40000. "),
)
"""Status, ARM's code and the service's own words before the sentence."""


class ResourceManager:
    """Answers for all namespaces. `opener` makes a new one; without it none can be made. `clock`: epoch seconds."""

    def __init__(
        self, places: Sequence[Place], *, issuer: Issuer, clock: Callable[[], float], opener: Opener | None = None
    ) -> None:
        self._places = Places(places, opener)
        self._issuer = issuer
        self._clock = clock

    async def answer(self, request: Request) -> Reply:
        """Never raises for what a client sent."""
        try:
            return await self._act(request)
        except ArmRefusal as refusal:
            return _refused(refusal.status, refusal.code, str(refusal))
        except tuple(row[0] for row in _REFUSALS) as error:
            status, code, words = next(row[1:] for row in _REFUSALS if isinstance(error, row[0]))
            return _refused(status, code, f"{words}{error}")

    async def _act(self, request: Request) -> Reply:
        self._authorize(request)
        _check_version(request.query.get("api-version"))
        address = read_address(request.path)
        if address is None:
            raise ArmRefusal(404, "InvalidResourceType", f"there is nothing of {PROVIDER} at '{request.path}'")
        action = _ACTIONS.get((request.method, address.words, len(address.names)))
        if action is None:
            what = "/".join(address.words)
            raise ArmRefusal(405, "MethodNotAllowed", f"the sandbox has no {request.method} for '{what}'")
        reply = action(Call(request, address, self._places))
        return reply if isinstance(reply, Reply) else await reply

    def _authorize(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise ArmRefusal(401, "AuthenticationFailed", "the request has no bearer token in its Authorization header")
        try:
            bearer = self._issuer.judge(token.strip(), audiences=RESOURCE_MANAGER, now=self._clock())
        except TokenError as error:
            raise ArmRefusal(401, "InvalidAuthenticationToken", error.reason) from error
        if not bearer.rights >= ALL_RIGHTS:
            raise ArmRefusal(403, "AuthorizationFailed", "the token's role does not let its holder manage namespaces")


def _check_version(version: str | None) -> None:
    if version is None:
        raise ArmRefusal(400, "MissingApiVersionParameter", "the query has no api-version, which every request needs")
    match = _VERSION.fullmatch(version)
    if match is None or match[1] > NEWEST_VERSION:
        raise ArmRefusal(
            400, "InvalidApiVersionParameter", f"api-version '{version}' is not known; the newest is {NEWEST_VERSION}"
        )


def _refused(status: int, code: str, sentence: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": sentence}})
