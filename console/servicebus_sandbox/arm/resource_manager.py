"""Azure Resource Manager for the sandbox's namespaces: a request in, an answer out.

It covers the part of azure-mgmt-servicebus for namespaces, queues, topics, subscriptions, rules, authorization rules,
keys and disaster-recovery pairings. Any subscription is accepted, and any resource group for a namespace that was not
made in one. A namespace is reported as in progress until `activation_s` has passed. Requests need a bearer token of the
sandbox's issuer for ARM's audience with every right. A namespace's faults affect its requests as over Atom
(`serving.http_server`). The handlers are in `arm_resources` and `disaster_recovery`.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from aiohttp import web

from servicebus_amqp.access import TokenError
from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS
from servicebus_sandbox.access.authorization import RESOURCE_MANAGER, Issuer
from servicebus_sandbox.arm.arm_request import (
    PROVIDER,
    ArmAddress,
    ArmNamespace,
    ArmNamespaces,
    ArmRequest,
    ArmResponse,
    NamespaceOwner,
    entity_path,
    read_address,
)
from servicebus_sandbox.arm.arm_resources import RESOURCE_ACTIONS
from servicebus_sandbox.arm.disaster_recovery import DISASTER_RECOVERY_ACTIONS
from servicebus_sandbox.atom.entity_xml import DescriptionError, named_sentence
from servicebus_sandbox.atom.management_api import AtomRequest
from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    EntityExists,
    EntityNotFound,
    Throttled,
)
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS
from servicebus_sandbox.broker.queues.agenda import MANAGEMENT_COST
from servicebus_sandbox.broker.topology.namespace import TargetMissing
from servicebus_sandbox.faults import FaultVerdict
from servicebus_sandbox.serving.amqp_conditions import RefusalLog
from servicebus_sandbox.serving.http_server import HttpPort, HttpRefusal, reset

log = logging.getLogger(__name__)

ACTIONS = {**RESOURCE_ACTIONS, **DISASTER_RECOVERY_ACTIONS}
NEWEST_VERSION = "2026-01-01"
_VERSION = re.compile(r"(\d{4}-\d{2}-\d{2})(-preview)?", re.ASCII)
_BAD_REQUEST = "BadRequest"
_REFUSALS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (EntityExists, 409, "Conflict", "SubCode=40900. "),
    (TargetMissing, 400, "BadRequest", "SubCode=40400. "),
    (Throttled, 429, "TooManyRequests", "SubCode=50004. "),
    (BrokerError, 400, "BadRequest", "SubCode=40000. "),
    (DescriptionError, 400, "BadRequest", "SubCode=40000. "),
)
"""Status, ARM's code and the service's words before the sentence."""


_FAULTY: dict[FaultVerdict, tuple[int, str, str]] = {
    FaultVerdict.BUSY: (429, "TooManyRequests", "SubCode=50004. "),
    FaultVerdict.DISABLED: (403, "Forbidden", ""),
    FaultVerdict.NOT_FOUND: (404, "NotFound", ""),
    FaultVerdict.UNAUTHORIZED: (401, "AuthenticationFailed", ""),
}
"""Codes of ARM and the service, from the page "Service Bus Resource Manager exceptions"."""
_BUSY_SECONDS = "10"
_ENTITIES = (("queues",), ("topics",))


class ResourceManager(HttpPort):
    """The port of ARM for all namespaces. `owner` creates and ends them, if given. `clock` returns epoch seconds."""

    def __init__(
        self,
        places: Sequence[ArmNamespace],
        *,
        issuer: Issuer,
        clock: Callable[[], float],
        owner: NamespaceOwner | None = None,
        time: Callable[[], float] | None = None,
        activation_s: float = 0.0,
        tls: ssl.SSLContext | None = None,
        patience: float = FIRST_REQUEST_SECONDS,
    ) -> None:
        """Serve `places`. Creations and changes of pairings last `activation_s` seconds of `time`, the entities' clock.

        Tokens are judged by `clock`, which no client can advance. `patience` is the limit in seconds for the first
        bytes and for a request.
        """
        super().__init__("the ARM port", log=log, tls=tls, patience=patience)
        self._new_places = partial(ArmNamespaces, owner=owner, clock=time or clock, activation_s=activation_s)
        self._places = self._new_places(places)
        self._issuer = issuer
        self._clock = clock
        self._complaints = RefusalLog("ARM")

    async def close(self) -> None:
        """Release the requests that faults hold, and end every connection; an answer in progress has a second."""
        self._release()
        await super().close()

    def _release(self) -> None:
        for place in self._places.all():
            place.gate.close()

    def replace(self, places: Sequence[ArmNamespace]) -> None:
        """Serve these namespaces in place of the present ones."""
        self._release()
        self._places = self._new_places(places)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = AtomRequest.of(request, await self.body_of(request), request.scheme)
        try:
            reply = await self.answer(asked)
        except Exception:
            log.exception("ARM request %s %s failed", asked.method, asked.target)
            reply = _refused(500, "InternalServerError", "internal error, see the sandbox's log")
        if reply is None:
            return reset(request)
        headers = {**_headers(request), **reply.headers}
        if reply.body is None:
            return web.Response(status=reply.status, headers=headers)
        charset = "; charset=utf-8" if reply.status < _FIRST_ERROR else ""
        text = json.dumps(reply.body, separators=(",", ":"), ensure_ascii=False)
        return web.Response(
            status=reply.status, body=text.encode(), headers=headers | {"Content-Type": f"application/json{charset}"}
        )

    async def answer(self, request: AtomRequest) -> ArmResponse | None:
        """Return the answer; None for a connection that a fault resets. Never raises for a client's request."""
        address = read_address(request.path)
        is_of_namespace = address is not None and address.words[:1] == ("namespaces",)
        place = self._places.get(address.names[0]) if address and address.names and is_of_namespace else None
        if address is None or place is None or self._places.clock() < place.ready_at:
            return await self._answer(request, address)

        async def serve() -> ArmResponse:
            return await self._answer(request, address)

        return await place.gate.pass_through(entity_path(address), serve, _refused_by_fault)

    async def _answer(self, request: AtomRequest, address: ArmAddress | None) -> ArmResponse:
        try:
            return await self._act(request, address)
        except HttpRefusal as refusal:
            return _refused(refusal.status, refusal.code, str(refusal))
        except EntityNotFound as error:
            return _refused(404, "EntityNotFound", f"{_kind_of(error.path, address)} does not exist: {error}")
        except tuple(row[0] for row in _REFUSALS) as error:
            status, code, words = next(row[1:] for row in _REFUSALS if isinstance(error, row[0]))
            if code == _BAD_REQUEST:
                self._complaints.about(type(error).__name__, f"refused a request: {error}")
            return _refused(status, code, f"{words}{named_sentence(error)}")

    async def _act(self, request: AtomRequest, address: ArmAddress | None) -> ArmResponse:
        self._authorize(request)
        _check_version(request.query.get("api-version"))
        if address is None:
            raise HttpRefusal(404, "InvalidResourceType", f"there is nothing of {PROVIDER} at '{request.path}'")
        action = ACTIONS.get((request.method, address.words, len(address.names)))
        if action is None:
            words = "/".join(address.words)
            raise HttpRefusal(405, "MethodNotAllowed", f"the sandbox has no {request.method} for '{words}'")
        self._charge(address)
        reply = action(ArmRequest(request, address, self._places))
        return reply if isinstance(reply, ArmResponse) else await reply

    def _charge(self, address: ArmAddress) -> None:
        """Take the credits of an operation on an entity; those on a namespace are free. Raises Throttled."""
        place = self._places.get(address.names[0]) if address.words[1:2] in _ENTITIES and address.names else None
        if place is not None:
            place.node.namespace.charge(MANAGEMENT_COST)

    def _authorize(self, request: AtomRequest) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise HttpRefusal(401, "AuthenticationFailed", "the Authorization header has no bearer token")
        try:
            bearer = self._issuer.judge(token.strip(), audiences=RESOURCE_MANAGER, now=self._clock())
        except TokenError as error:
            raise HttpRefusal(401, "InvalidAuthenticationToken", error.reason) from error
        if bearer.scopes or not bearer.rights >= ALL_RIGHTS:
            raise HttpRefusal(403, "AuthorizationFailed", "the token's role does not let its holder manage namespaces")


def _kind_of(path: str, address: ArmAddress | None) -> str:
    """Return the kind of the missing entity at `path`, as the service's sentence begins."""
    parts = path.lower().split("/")
    if parts[-2:-1] == ["rules"]:
        return "Rule"
    if parts[-2:-1] == ["subscriptions"]:
        return "Subscription"
    return "Topic" if address is not None and address.words[1:2] == ("topics",) else "Queue"


def _check_version(version: str | None) -> None:
    if version is None:
        raise HttpRefusal(400, "MissingApiVersionParameter", "the query has no api-version, which every request needs")
    match = _VERSION.fullmatch(version)
    if match is None or match[1] > NEWEST_VERSION:
        raise HttpRefusal(
            400, "InvalidApiVersionParameter", f"api-version '{version}' is not known; the newest is {NEWEST_VERSION}"
        )


def _refused(status: int, code: str, sentence: str) -> ArmResponse:
    return ArmResponse(status, {"error": {"code": code, "message": sentence}})


def _refused_by_fault(verdict: FaultVerdict, sentence: str, status: int) -> ArmResponse:
    status, code, words = _FAULTY.get(verdict, (status, "ServiceUnavailable", ""))
    refused = _refused(status, code, f"{words}{sentence}")
    return replace(refused, headers={"Retry-After": _BUSY_SECONDS}) if verdict is FaultVerdict.BUSY else refused


_FIRST_ERROR = 400
_LEFT = {"GET": ("reads", 1099), "DELETE": ("deletes", 799)}
_WRITES = ("writes", 799)
"""The requests that are left to a subscription, by method; here they never get fewer."""


def _headers(request: web.BaseRequest) -> dict[str, str]:
    """Return the headers of every answer: ids for support, limits, and no caching."""
    own, (name, left) = str(uuid.uuid4()), _LEFT.get(request.method, _WRITES)
    given = request.headers.get("x-ms-client-request-id")
    return {
        "x-ms-request-id": own,
        "x-ms-correlation-request-id": str(uuid.uuid4()) if request.method == "DELETE" else own,
        "x-ms-routing-request-id": f"SANDBOX:{own}",
        f"x-ms-ratelimit-remaining-subscription-{name}": str(left),
        f"x-ms-ratelimit-remaining-subscription-global-{name}": str(left * 15),
        "Cache-Control": "no-cache",
        "Pragma": "no-cache",
        "Expires": "-1",
        "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
        "X-Content-Type-Options": "nosniff",
        "Server": "Service-Bus-Resource-Provider/SANDBOX",
        **({"x-ms-client-request-id": f"{given}_RP"} if given else {}),
    }
