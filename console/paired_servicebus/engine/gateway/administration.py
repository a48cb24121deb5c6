"""HTTP at the gateway: WebSockets, and administration that is relayed to the primary with the engine's credential.

Clients sign with the gateway's own keys, so rights are enforced here, before a body is read. Hosts in the client's form
become the primary's on the way in, and the client's again on the way out; everything else passes as it is. While the
primary does not answer, reads are answered by what it last said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn, Protocol
from urllib.parse import quote, unquote, urlsplit
from xml.parsers import expat
from xml.sax.saxutils import escape

from aiohttp import web

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.engine.clients.namespace_requests import NamespaceAnswer
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing
from paired_servicebus.engine.gateway.seen_answers import SeenAnswer, SeenAnswers
from servicebus_amqp.access import TokenError
from servicebus_amqp.server.http_server import HttpServer

MAX_BODY: Final = 1024 * 1024
"""Bytes of a description; the largest of the service have some kilobytes."""
MAX_RELAYED: Final = 32
"""Requests under way at the same time: their bodies are held."""
ASKING_SECONDS: Final = 20.0
READING_SECONDS: Final = 3.0
"""The limit for a read whose answer was seen before, and for every read after a request without an answer."""
AWAY_SECONDS: Final = 5.0
"""After a request without an answer: others are not relayed in this time."""
_MAX_SENTENCE: Final = 400
_AWAY: Final = frozenset({500, 502, 503, 504})
_BUSY: Final = re.compile(rb"busy|throttl|5000[0-9]", re.IGNORECASE)
"""The primary answers, and asks for a pause."""
_REQUEST_HEADERS: Final = ("accept", "content-type", "if-match", "if-none-match", "x-ms-client-request-id")
_ANSWER_HEADERS: Final = ("content-type", "etag", "last-modified", "retry-after")
UNSEEN: Final = (
    ", and no read of this had an answer since the engine's start: try again, or switch off what the program asks of "
    "administration; it can send without it"
)
UNCHANGED: Final = ", so nothing was changed: try again when 'paired status' is healthy"
UNKNOWN: Final = ", so the change may have been made or not: read it before another try"
OFF: Final = (
    "administration through the gateway is off: set administration = true in [gateway] of pairing.toml, or use the "
    "namespace's own connection string"
)

# What a request is for.

_SUPPLEMENTS: Final = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""Elements that name another entity, with the header of the token for it."""
_PATH: Final = re.compile(
    r"/(?P<entity>.+?)(?P<below>/subscriptions(?:/(?P<name>[^/]+)(?:/rules(?:/[^/]+)?)?)?)?", re.IGNORECASE | re.DOTALL
)
_MESSAGES: Final = re.compile(r".*/messages(/head|/[^/]+/[^/]+)?", re.IGNORECASE | re.DOTALL)
"""The service's own HTTP for messages: it would receive around the gateway."""
_VERBS: Final = ("GET", "PUT", "DELETE")
_HOST: Final = re.compile(r"[A-Za-z0-9._\-\[\]:]{1,260}")


class AdministrationRefusal(Exception):
    """An answer with an error: the HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class AdministeredResource:
    """What a URL names. path: decoded. entity: the path that a key has to be for; None: the whole namespace."""

    path: str
    entity: str | None

    @classmethod
    def at(cls, raw_path: str) -> AdministeredResource:
        """Read an encoded path. Raises AdministrationRefusal."""
        path = "/" + unquote(raw_path).strip("/")
        parts = path[1:].split("/")
        if any(part in (".", "..") for part in parts) or ("" in parts and path != "/") or not path.isprintable():
            raise AdministrationRefusal(400, "the path has an empty or relative segment, or a control character")
        if path == "/" or path.startswith("/$"):
            return cls(path, None)
        found = _PATH.fullmatch(path)
        if found is None or _MESSAGES.fullmatch(path):
            raise AdministrationRefusal(404, "nothing can be administrated here; messages go over AMQP")
        name = found["name"]
        return cls(path, found["entity"] if name is None else f"{found['entity']}/subscriptions/{name}")


class PrimaryAdministration(Protocol):
    """The management interface of the primary."""

    authority: str

    async def authorization(self) -> str: ...
    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, seconds: float
    ) -> NamespaceAnswer: ...
    async def close(self) -> None: ...


# Hosts in descriptions.


@dataclass(frozen=True, slots=True)
class ForwardElement:
    """An element of a description that names another entity. start, end: of its text, in bytes of the document."""

    name: str
    text: str
    start: int
    end: int


_START_TAG: Final = re.compile(rb"""<[^>"']*(?:"[^"]*"[^>"']*|'[^']*'[^>"']*)*>""")


def forwards_of(body: bytes) -> list[ForwardElement]:
    """Return the elements of a description that name another entity. Raises AdministrationRefusal.

    A document type is refused, and with it every entity of XML; so is another encoding than UTF-8.
    """
    found: list[ForwardElement] = []
    pieces: list[str] | None = None
    begun = 0
    reader = expat.ParserCreate("utf-8")

    def refuse(*_: object) -> None:
        raise AdministrationRefusal(400, "the body has a document type: send an Atom entry without one")

    def start(name: str, _: object) -> None:
        nonlocal pieces, begun
        if pieces is not None:
            raise AdministrationRefusal(400, "an element that names an entity has elements inside")
        if name.rpartition(":")[2] in _SUPPLEMENTS:
            pieces, begun = [], reader.CurrentByteIndex

    def end(name: str) -> None:
        nonlocal pieces
        local = name.rpartition(":")[2]
        if pieces is not None and local in _SUPPLEMENTS:
            tag = _START_TAG.match(body, begun)
            first = tag.end() if tag is not None else reader.CurrentByteIndex
            found.append(ForwardElement(local, "".join(pieces).strip(), first, max(first, reader.CurrentByteIndex)))
            pieces = None

    def text(data: str) -> None:
        if pieces is not None:
            pieces.append(data)

    reader.StartDoctypeDeclHandler, reader.StartElementHandler = refuse, start
    reader.EndElementHandler, reader.CharacterDataHandler = end, text
    try:
        body.decode("utf-8")
        reader.Parse(body, True)
    except (expat.ExpatError, UnicodeDecodeError) as error:
        raise AdministrationRefusal(400, f"the body is not well-formed XML in UTF-8: {error}") from error
    return found


def target_of(forward: ForwardElement, hosts: Sequence[str], authority: str) -> tuple[str, str]:
    """Return the path of the entity that an element names, and its address at the primary.

    The address has a port only if the client's has one, because the service gives back what it got. Raises
    AdministrationRefusal: it names another host.
    """
    if "://" not in forward.text:
        return forward.text.strip("/"), forward.text
    try:
        parts = urlsplit(forward.text)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise AdministrationRefusal(400, f"{forward.name} is not the address of an entity: {error}") from error
    if host not in hosts:
        raise AdministrationRefusal(400, f"{forward.name} names an entity of another namespace, at {host[:100]}")
    path = unquote(parts.path).strip("/")
    scheme = "https" if parts.scheme == "http" else parts.scheme
    return path, f"{scheme}://{authority if port is not None else without_port(authority)}/{path}"


def host_in(authority: str) -> str:
    """Return the host of an authority, in lower case and without its port; empty: it has none."""
    try:
        return (urlsplit(f"//{authority}").hostname or "").lower()
    except ValueError:
        return ""


def without_port(authority: str) -> str:
    """Return an authority without its port."""
    return re.sub(r":\d+\Z", "", authority)


class AnswerHosts:
    """Writes the client's form of the host in place of the primary's, where an answer has links and addresses."""

    def __init__(self, authority: str) -> None:
        self._pattern = re.compile(
            rb"(<(?:[\w.-]+:)?(?:id|ForwardTo|ForwardDeadLetteredMessagesTo)(?:\s[^<>]*)?>|"
            rb"<(?:link|entry|feed)\s[^<>]*?(?:href|xml:base)=[\"'])"
            rb"(https?|sb|amqps?)://" + re.escape(host_in(authority).encode()) + rb"(:\d+)?(?=[/?<\"'])",
            re.IGNORECASE,
        )

    def to_client(self, body: bytes, scheme: str, authority: str) -> bytes:
        """Return an answer's body for a client that reached us by scheme and authority."""

        def write(found: re.Match[bytes]) -> bytes:
            written = scheme.encode() if found[2].lower().startswith(b"http") else found[2]
            is_forward = found[3] is None and b"forward" in found[1].lower()
            shown = without_port(authority) if is_forward else authority
            return found[1] + written + b"://" + shown.encode()

        return self._pattern.sub(write, body)


_RULES: Final = re.compile(rb"<([\w.-]+:)?AuthorizationRules\b.*?</\1?AuthorizationRules>", re.DOTALL)


def without_keys(body: bytes) -> bytes:
    """Return a description without the keys of the entity's own rules, which open the primary itself."""
    return _RULES.sub(b"", body)


# Answers.


class Administration:
    """The answers to administration clients.

    Args:
        keys: those that clients sign with.
        primary: where requests go; None: administration is off.
        seen: the primary's answers.
        clock: epoch seconds.
        refused: called with the sentence of each refusal of a client, and the client.
    """

    def __init__(
        self,
        keys: KeyRing,
        primary: PrimaryAdministration | None,
        *,
        seen: SeenAnswers,
        clock: Callable[[], float],
        refused: Callable[[str, str], object],
    ) -> None:
        self._keys = keys
        self._primary = primary
        self._seen = seen
        self._clock = clock
        self._refused = refused
        self._hosts = None if primary is None else AnswerHosts(primary.authority)
        self._away_until = 0.0
        self._relayed = 0

    async def answer(self, request: web.BaseRequest, server: HttpServer) -> web.Response:
        """Return the answer to one request."""
        try:
            return await self._answer(request, server)
        except AdministrationRefusal as refusal:
            self._refused(str(refusal), client_of(request))
            return _refusal(refusal.status, str(refusal))

    async def read(self, entity: str) -> None:
        """Read an entity at the primary, for the time when it is away. Does nothing when it does not answer."""
        if self._primary is not None and self._clock() >= self._away_until:
            resource = AdministeredResource.at(f"/{entity}")
            target = f"/{quote(entity)}?enrich=False&api-version=2021-05"
            await self._ask(self._primary, "GET", target, resource, {}, b"")

    async def _answer(self, request: web.BaseRequest, server: HttpServer) -> web.Response:
        primary = self._primary
        if not (_HOST.fullmatch(request.headers.get("Host", "")) and host_in(request.host)):
            raise AdministrationRefusal(400, "the request names no host")
        if not request.raw_path.isascii():
            raise AdministrationRefusal(400, "the address of the request is not encoded")
        if "websocket" in request.headers.get("Upgrade", "").lower():
            raise AdministrationRefusal(404, "AMQP over WebSocket has the path /$servicebus/websocket")
        if primary is None:
            raise AdministrationRefusal(501, OFF)
        if request.method not in _VERBS:
            raise AdministrationRefusal(405, f"{request.method[:20]} is not relayed: there are {', '.join(_VERBS)}")
        raw_path, _, query = request.raw_path.partition("?")
        resource = AdministeredResource.at(raw_path)
        manages = self._check_right(request, resource)
        if self._relayed >= MAX_RELAYED:
            raise AdministrationRefusal(503, f"{MAX_RELAYED} requests are under way: try again")
        self._relayed += 1
        try:
            body, headers = await self._translate(request, server, primary)
            target = f"{raw_path}?{query}" if query else raw_path
            found = await self._ask(primary, request.method, target, resource, headers, body)
        finally:
            self._relayed -= 1
        return self._response(request, found if manages else replace(found, body=without_keys(found.body)))

    # -- rights -------------------------------------------------------------------------------------------------------

    def _check_right(self, request: web.BaseRequest, resource: AdministeredResource) -> bool:
        """Return whether the client's key has Manage. Raises AdministrationRefusal."""
        token = request.headers.get("Authorization", "")
        if not token:
            raise AdministrationRefusal(401, "the request has no Authorization header: sign it with a gateway's key")
        is_read = request.method == "GET" and resource.entity is not None
        rights = {GatewayRight.MANAGE} | ({GatewayRight.LISTEN} if is_read else set())
        return GatewayRight.MANAGE in self._prove(request, token, resource.path, resource.entity, rights)

    def _prove(
        self, request: web.BaseRequest, token: str, path: str, entity: str | None, rights: set[GatewayRight]
    ) -> frozenset[str]:
        """Return the rights of the token's key. Raises AdministrationRefusal unless it has one of `rights` there."""
        try:
            access = self._keys.judge(token, f"https://{request.host}{quote(path)}", self._clock())
        except TokenError as error:
            raise AdministrationRefusal(401, error.reason) from error
        if not rights & access.rights:
            raise AdministrationRefusal(401, f"the key '{access.key}' lacks the right {' or '.join(sorted(rights))}")
        if access.entities is not None and (entity is None or not access.covers(entity)):
            what = "the whole namespace" if entity is None else f"'{entity}'"
            raise AdministrationRefusal(401, f"the key '{access.key}' is for some entities, and not for {what}")
        return access.rights

    # -- the primary --------------------------------------------------------------------------------------------------

    async def _translate(
        self, request: web.BaseRequest, server: HttpServer, primary: PrimaryAdministration
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers for the primary. Raises AdministrationRefusal."""
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        if (request.content_length or 0) > MAX_BODY:
            raise AdministrationRefusal(413, f"the body has more than {MAX_BODY:,} bytes")
        try:
            body = await server.body_of(request)
        except web.HTTPRequestEntityTooLarge as error:
            raise AdministrationRefusal(413, f"the body has more than {MAX_BODY:,} bytes") from error
        hosts = (host_in(request.host), host_in(primary.authority))
        for forward in reversed(forwards_of(body) if body else []):
            if not forward.text:
                continue
            path, address = target_of(forward, hosts, primary.authority)
            entity = AdministeredResource.at("/" + quote(path)).entity
            if entity is None:
                raise AdministrationRefusal(400, f"{forward.name} names no entity")
            header = _SUPPLEMENTS[forward.name]
            token = request.headers.get(header) or request.headers["Authorization"]
            self._prove(request, token, f"/{path}", entity, {GatewayRight.SEND, GatewayRight.MANAGE})
            headers[header] = await self._authorization(primary)
            body = body[: forward.start] + escape(address).encode() + body[forward.end :]
        return body, headers

    async def _authorization(self, primary: PrimaryAdministration) -> str:
        try:
            return await primary.authorization()
        except WireError as error:
            raise AdministrationRefusal(
                503, f"the engine has no token for the primary: {one_line(str(error))}"
            ) from error

    async def _ask(
        self,
        primary: PrimaryAdministration,
        method: str,
        target: str,
        resource: AdministeredResource,
        headers: Mapping[str, str],
        body: bytes,
    ) -> SeenAnswer:
        """Return the primary's answer, or what it said before. Raises AdministrationRefusal."""
        known = self._seen.get(target) if method == "GET" else None
        if self._clock() < self._away_until:
            return known or _away(primary, UNSEEN if method == "GET" else UNCHANGED)
        is_short = method == "GET" and (known is not None or self._away_until > 0)
        seconds = READING_SECONDS if is_short else ASKING_SECONDS
        signed = dict(headers) | {"Authorization": await self._authorization(primary)}
        try:
            found = await primary.send(method, target, signed, body, seconds=seconds)
        except WireError:
            self._away_until = self._clock() + AWAY_SECONDS
            return known or _away(primary, UNSEEN if method == "GET" else UNKNOWN)
        self._away_until = 0.0
        if found.status in _AWAY and known is not None and _BUSY.search(found.body) is None:
            return known
        if found.status == 401:
            text = one_line(found.body.decode(errors="replace"), most=_MAX_SENTENCE)
            raise AdministrationRefusal(401, f"the primary refuses the engine's own credential: {text}")
        kept = {name: found.headers[name] for name in _ANSWER_HEADERS if name in found.headers}
        answer = SeenAnswer(found.status, kept, found.body)
        self._seen.note(method, target, resource.path, answer, self._clock())
        return answer

    def _response(self, request: web.BaseRequest, found: SeenAnswer) -> web.Response:
        assert self._hosts is not None, "there is a primary"
        body = self._hosts.to_client(found.body, request.scheme, request.host)
        headers = dict(found.headers)
        if found.seen_at is not None:
            headers["Age"] = str(max(0, round(self._clock() - found.seen_at)))
        return web.Response(status=found.status, body=body, headers=headers)


def client_of(request: web.BaseRequest) -> str:
    """Return a request and its client for the operator."""
    agent = request.headers.get("User-Agent", "without a name")
    return one_line(f"{request.method} {request.path}, {agent}", most=160)


def _away(primary: PrimaryAdministration, remark: str) -> NoReturn:
    raise AdministrationRefusal(503, f"the management of {primary.authority} does not answer{remark}")


def _refusal(status: int, sentence: str) -> web.Response:
    body = f"<Error><Code>{status}</Code><Detail>{escape(sentence)}</Detail></Error>"
    headers = {"Content-Type": "application/xml; charset=utf-8"} | ({"Retry-After": "5"} if status == 503 else {})
    answer = web.Response(status=status, body=body.encode(), headers=headers)
    if status != 401:  # it may be a stranger's: a connection without a good token is not kept
        answer.force_close()
    return answer
