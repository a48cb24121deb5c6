"""The control URL: plain HTTP on loopback for faults, the clock and the state.

`POST /faults`, `GET /faults`, `DELETE /faults/ID`, `GET /state`, `POST /tokens`, `POST /clock`, `GET /clock`. JSON both
ways; a refusal is an object with one sentence under `error`. Faults are in `faults`, tokens in `access`.

The URL has a secret in its path: other users of this machine reach the port, and do not know it. It serves no web page:
a request has a loopback address as its Host, no Origin, and a body declared as JSON, which a page cannot send unasked.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from servicebus_sandbox.access.authorization import LIFETIME_SECONDS, LONGEST_SECONDS, AzureRole, Issuer, parse_role
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.topology.namespace import Entity, Queue, Topic
from servicebus_sandbox.clock import SandboxClock
from servicebus_sandbox.faults import FIELDS, FaultError, describe_fault, read_fault
from servicebus_sandbox.serving.http_server import HttpPort

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]

JSON: Final = "application/json"
_FAULT = "/faults/"
_LONGEST_ECHO = 200
_TOKEN_FIELDS = ("role", "scope", "lifetime")
_CLOCK_FIELDS = ("advance_s",)
_USAGE = "use POST /faults, GET /faults, DELETE /faults/ID, GET /state, POST /tokens, POST /clock or GET /clock"


class HttpControlServer(HttpPort):
    """The control URL of some namespaces. Open it once, close it once."""

    def __init__(self, nodes: Callable[[], Sequence[NamespaceServer]], issuer: Issuer, clock: SandboxClock) -> None:
        """Serve; `nodes` returns the present namespaces."""
        super().__init__("the control URL", log=log)
        self._nodes = nodes
        self._issuer = issuer
        self._clock = clock
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/faults"): self._begin_fault,
            ("GET", "/faults"): self._list_faults,
            ("GET", "/state"): self._state,
            ("POST", "/tokens"): self._issue_token,
            ("POST", "/clock"): self._set_clock,
            ("GET", "/clock"): self._tell_clock,
        }
        self._host = ""
        self._secret = f"/{secrets.token_urlsafe(18)}"

    async def open(self, host: str, port: int = 0) -> str:
        """Listen; return the URL without a slash at its end. Raises ListenError."""
        self._host = host
        return f"http://{host}:{await self.listen(host, port)}{self._secret}"

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._check_caller(request)
            return await self._handler_for(request)(request)
        except _Refusal as refusal:
            return web.json_response({"error": str(refusal)}, status=refusal.status)
        except web.HTTPException as error:
            return web.json_response(
                {"error": f"{_echo(request.method, self._place(request))}: {error.reason}; {_USAGE}"},
                status=error.status,
            )

    def _check_caller(self, request: web.BaseRequest) -> None:
        """Raise _Refusal for a request without the secret, or of a web page under any name for this address."""
        given = f"/{request.path[1:].partition('/')[0]}"
        if not hmac.compare_digest(given.encode(), self._secret.encode()):
            raise _Refusal(403, "the path has not the secret of the control URL: use the URL that is printed")
        host = request.headers.get("Host", "")
        if not _is_here(host, self._host):
            raise _Refusal(
                403, f"Host is {host[:_LONGEST_ECHO]!r}; the control URL answers to localhost and loopback addresses"
            )
        if "Origin" in request.headers:
            raise _Refusal(403, "the request carries an Origin, as those of web pages do; the control URL serves none")
        if request.method == "POST" and request.content_type != JSON:
            raise _Refusal(415, f"the body is declared as {request.content_type!r}; send Content-Type: {JSON}")

    def _handler_for(self, request: web.BaseRequest) -> Handler:
        place = self._place(request)
        if request.method == "DELETE" and place.startswith(_FAULT):
            return self._end_fault
        handler = self._routes.get((request.method, place))
        if handler is None:
            known = place.startswith(_FAULT) or any(path == place for _, path in self._routes)
            status, reason = (405, "Method Not Allowed") if known else (404, "Not Found")
            raise _Refusal(status, f"{_echo(request.method, place)}: {reason}; {_USAGE}")
        return handler

    def _place(self, request: web.BaseRequest) -> str:
        return request.path.removeprefix(self._secret)

    async def _begin_fault(self, request: web.BaseRequest) -> web.Response:
        wanted = await self._object(request, FIELDS)
        name = wanted.get("namespace")
        node = next((node for node in self._nodes() if node.name == name), None)
        if node is None:
            raise _Refusal(400, f"namespace is {name!r}; there are {', '.join(node.name for node in self._nodes())}")
        try:
            fault = node.faults.begin(read_fault(wanted))
        except FaultError as error:
            raise _Refusal(400, str(error)) from error
        return web.json_response({"id": fault.id}, status=201)

    async def _list_faults(self, _: web.BaseRequest) -> web.Response:
        faults = [describe_fault(node.name, fault) for node in self._nodes() for fault in node.faults.active()]
        return web.json_response({"faults": faults})

    async def _end_fault(self, request: web.BaseRequest) -> web.Response:
        fault_id = self._place(request).removeprefix(_FAULT)
        for node in self._nodes():
            if any(fault.id == fault_id for fault in node.faults.active()):
                node.faults.remove(fault_id)
                return web.json_response({"id": fault_id})
        raise _Refusal(404, f"no fault '{fault_id[:_LONGEST_ECHO]}' is active; GET /faults lists those that are")

    async def _issue_token(self, request: web.BaseRequest) -> web.Response:
        wanted = await self._object(request, _TOKEN_FIELDS)
        role, scope, lifetime = (wanted.get(name) for name in _TOKEN_FIELDS)
        if not isinstance(role, str) or not isinstance(scope, str):
            raise _Refusal(400, f"role and scope have to be strings; roles are {', '.join(AzureRole)}")
        lifetime = LIFETIME_SECONDS if lifetime is None else lifetime
        if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or not 0 < lifetime <= LONGEST_SECONDS:
            raise _Refusal(400, f"lifetime has to be seconds, more than 0 and at most {LONGEST_SECONDS:g}")
        try:
            token = self._issuer.issue(parse_role(role), scope, lifetime=lifetime)
        except ValueError as error:
            raise _Refusal(400, str(error)) from error
        return web.json_response(token._asdict(), status=201)

    async def _set_clock(self, request: web.BaseRequest) -> web.Response:
        seconds = (await self._object(request, _CLOCK_FIELDS)).get("advance_s")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise _Refusal(400, f"advance_s has to be a number of seconds, not {json.dumps(seconds)}")
        try:
            self._clock.advance(seconds)
        except ValueError as error:
            raise _Refusal(400, f"advance_s: {error}") from error
        for node in self._nodes():
            node.clock_jumped()
        return await self._tell_clock(request)

    async def _tell_clock(self, _: web.BaseRequest) -> web.Response:
        now = self._clock()
        times = {"now": datetime.fromtimestamp(now, UTC).isoformat(), "epoch_s": now, "ahead_s": self._clock.ahead}
        return web.json_response(times)

    async def _state(self, _: web.BaseRequest) -> web.Response:
        namespaces = [_namespace(node) for node in self._nodes()]
        return web.json_response({"namespaces": namespaces, "tasks": len(asyncio.all_tasks())})

    async def _object(self, request: web.BaseRequest, fields: Sequence[str]) -> dict[str, Any]:
        """Return the body, an object with only these fields."""
        try:
            wanted = json.loads(await self.body_of(request))
        except (ValueError, RecursionError) as error:
            raise _Refusal(400, f"the body is not JSON: {error}") from error
        if not isinstance(wanted, dict):
            raise _Refusal(400, f"the body has to be an object with {', '.join(fields)}")
        for name in wanted:
            if name not in fields:
                raise _Refusal(400, f"unknown field '{name[:_LONGEST_ECHO]}'; known are {', '.join(fields)}")
        return wanted


class _Refusal(Exception):
    """An answer with this status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def _is_here(host: str, listening: str) -> bool:
    """Return whether a Host header is a name that only local programs use; any other may be DNS rebinding."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in ("localhost", listening) or ip_address(name).is_loopback
    except ValueError:
        return False


def _echo(method: str, place: str) -> str:
    return f"{method} {place}"[:_LONGEST_ECHO]


def _namespace(node: NamespaceServer) -> dict[str, Any]:
    namespace = node.namespace
    entities: list[Entity] = [*namespace.queues(), *namespace.topics()]
    for topic in namespace.topics():
        entities += namespace.subscriptions(topic.path)
    return {
        "name": node.name,
        "connections": len(node.connections),
        "links": sum(len(connection.links) for connection in node.connections),
        "entities": [_entity(entity) for entity in entities],
        "faults": [describe_fault(node.name, fault) for fault in node.faults.active()],
    }


def _entity(entity: Entity) -> dict[str, Any]:
    kind = "queue" if isinstance(entity, Queue) else "topic" if isinstance(entity, Topic) else "subscription"
    return {
        "path": entity.path,
        "kind": kind,
        "status": entity.settings.status.value,
        **asdict(entity.counts()),
        "size_bytes": entity.size_bytes,
    }
