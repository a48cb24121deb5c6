"""The management API of one namespace: a request in, an answer out; its server.

It covers queues, topics, subscriptions, rules and the namespace; lists have pages. Every request needs a token with
Manage for its target. As in the service, a missing queue or topic is answered with 200 and an empty feed, anything else
that is missing with 404. XML is in `entity_xml`, limits in `topology.namespace`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, TypeVar
from urllib.parse import parse_qs, quote, unquote
from xml.etree import ElementTree
from zlib import crc32

from aiohttp import web

from servicebus_amqp.access import TokenError
from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission
from servicebus_amqp.server.http_server import HttpServer, WebSocketServer
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.atom.entity_xml import (
    NEWEST_VERSION,
    AtomEntry,
    AtomError,
    DescriptionError,
    content_of,
    describe_namespace,
    entry_document,
    error_document,
    feed_document,
    first_rule,
    kind_of,
    read_rule,
    write_rule,
)
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityExists, EntityNotFound, QuotaExceeded, Throttled
from servicebus_sandbox.broker.entity_settings import (
    EntitySettings,
    QueueSettings,
    Right,
    SubscriptionSettings,
    TopicSettings,
)
from servicebus_sandbox.broker.queues.agenda import MANAGEMENT_COST
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.broker.topology.namespace import (
    BrokerNamespace,
    Entity,
    Subscription,
    TargetMissing,
    check_settings,
)
from servicebus_sandbox.faults import ConnectionVerdict, FaultBoard
from servicebus_sandbox.serving.amqp_conditions import RefusalLog
from servicebus_sandbox.serving.http_server import FaultGate, reset

# The resource of a management URL: namespace, list, entity, subscription or rule.
#
# Slashes in an entity's path may be encoded (`contoso%2Fx-servicebus-transfer%2F0`) or plain. Pure.


class ResourceKind(Enum):
    """The kinds; the value is the URL path as the service writes it in an entry's id, with places for the names."""

    NAMESPACE = "$namespaceinfo"
    QUEUES = "$Resources/queues"
    TOPICS = "$Resources/topics"
    RULE = "{}/Subscriptions/{}/Rules/{}"
    RULES = "{}/subscriptions/{}/rules"
    SUBSCRIPTION = "{}/Subscriptions/{}"
    SUBSCRIPTIONS = "{}/subscriptions"
    ENTITY = "{}"


_FIXED = {tuple(each.value.lower().split("/")): each for each in ResourceKind if "{" not in each.value}
_BELOW = [(each, each.value.lower().split("/")[1:]) for each in ResourceKind if "{" in each.value]
"""The kinds below an entity, the longest first, with the words behind its path."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: `/eu/jst/subscriptions/s/rules/r` is a RULE with the names (eu/jst, s, r)."""

    kind: ResourceKind
    names: tuple[str, ...] = ()

    @property
    def url_path(self) -> str:
        """Return the encoded path, without the leading slash."""
        return self.kind.value.format(*(quote(name, safe="/$") for name in self.names))


def resource_at(raw_path: str) -> Resource | None:
    """Return the resource at `raw_path`, an encoded URL path; None if there is none."""
    parts = [unquote(part) for part in raw_path.split("/") if part]
    fixed = _FIXED.get(tuple(map(str.lower, parts)))
    if fixed is not None:
        return Resource(fixed)
    if not parts or parts[0].startswith("$"):
        return None
    for kind, words in _BELOW:
        size = len(parts) - len(words)
        if size > 0 and all(word in ("{}", part.lower()) for word, part in zip(words, parts[size:], strict=True)):
            names = [part for word, part in zip(words, parts[size:], strict=True) if word == "{}"]
            return Resource(kind, ("/".join(parts[:size]), *names))
    return None


Item = TypeVar("Item")

MAX_PAGE = 100
_BAD_REQUEST = 400
_FEED = {"Content-Type": "application/atom+xml;type=feed;charset=utf-8"}
_SUPPLEMENTS = (
    ("forward_to", "servicebussupplementaryauthorization"),
    ("forward_dead_lettered_to", "servicebusdlqsupplementaryauthorization"),
)
NOTHING_HERE = "Publicly Listed Services"
"""The title of the feed for a missing entity; some clients search for it."""
_REFUSALS: tuple[tuple[type[Exception], int, str], ...] = (
    (EntityNotFound, 404, ""),
    (EntityExists, 409, "SubCode=40900. Conflict. "),
    (QuotaExceeded, 403, "SubCode=40300. "),
    (Throttled, 503, ""),
    (TargetMissing, 400, "SubCode=40400. "),
    (BrokerError, 400, "SubCode=40000. "),
    (DescriptionError, 400, "SubCode=40000. "),
    (AtomError, 400, "The specified resource description is invalid. "),
)
"""Status and the service's words before the sentence, which clients search for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomRequest:
    """A request; `target` is the path and query as sent, names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    scheme: str = "https"

    @classmethod
    def of(cls, request: web.BaseRequest, body: bytes, scheme: str) -> AtomRequest:
        """Return a request that came over HTTP."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        return cls(method=request.method, target=request.raw_path, headers=headers, body=body, scheme=scheme)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(self.target.partition("?")[2]).items()}

    @property
    def origin(self) -> str:
        """Return scheme and authority as the client wrote them, for links in answers."""
        return f"{self.scheme}://{self.headers.get('host', 'localhost')}"

    @property
    def version(self) -> str:
        return self.query.get("api-version", NEWEST_VERSION)


@dataclass(frozen=True, slots=True)
class AtomResponse:
    """An answer; `body` is XML, or empty."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class AtomRefusal(Exception):
    """An answer with an error: the HTTP status and one sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class ManagementApi:
    """The answers for one namespace. `authorization` judges tokens; `changed` is called after changes of entities."""

    def __init__(
        self,
        namespace: BrokerNamespace,
        *,
        authorization: Authorization,
        clock: Callable[[], float],
        changed: Callable[[], None],
        complaints: RefusalLog,
    ) -> None:
        self._namespace = namespace
        self._authorization = authorization
        self._clock = clock
        self._changed = changed
        self._complaints = complaints

    def answer(self, request: AtomRequest) -> AtomResponse:
        """Return the answer. Never raises for a client's request."""
        try:
            return self._act(request)
        except AtomRefusal as refusal:
            return _refused(refusal.status, str(refusal))
        except tuple(error for error, _, _ in _REFUSALS) as error:
            status, words = next((status, words) for kind, status, words in _REFUSALS if isinstance(error, kind))
            if status == _BAD_REQUEST:
                self._complaints.about(type(error).__name__, f"refused a request to its management: {error}")
            return _refused(status, f"{words}{error}")

    def _act(self, request: AtomRequest) -> AtomResponse:
        self._authorize(request)
        self._namespace.charge(MANAGEMENT_COST)
        if request.version > NEWEST_VERSION:
            raise AtomRefusal(400, f"api-version '{request.version}' is not known; the newest is {NEWEST_VERSION}")
        resource = resource_at(request.path)
        if resource is None:
            raise AtomRefusal(404, f"nothing can be managed at '{unquote(request.path)}'")
        action = self._ACTIONS.get((request.method, resource.kind))
        if action is None:
            raise AtomRefusal(405, f"{request.method} does not apply to '{unquote(request.path)}'")
        return action(self, request, resource)

    # ------------------------------------------------------------------ authorization

    def _authorize(self, request: AtomRequest) -> None:
        token = request.headers.get("authorization", "")
        if not token:
            raise AtomRefusal(401, "the request has no Authorization header; send a shared access signature")
        self._verify(token, f"https://{self._authority(request)}{request.path}", Right.MANAGE)

    def _authorize_forwarding(self, request: AtomRequest, settings: EntitySettings) -> None:
        """Check the token for the forwarding target: a supplementary one, or one that covers both."""
        for name, header in _SUPPLEMENTS:
            target = getattr(settings, name, None)
            if target is not None:
                token = request.headers.get(header, request.headers["authorization"])
                self._verify(token, f"https://{self._authority(request)}/{target}", Right.SEND)

    def _verify(self, token: str, audience: str, right: Right) -> None:
        try:
            access = self._authorization.judge(token, audience, self._clock())
        except TokenError as error:
            raise AtomRefusal(401, error.reason) from error
        resource = resource_at(access.path)
        owner = resource.names[0] if resource is not None and resource.names else access.path
        if right not in access.rights or not access.covers(owner):
            raise AtomRefusal(401, f"the token does not give '{right}' for '{access.path}', which this needs")

    # ------------------------------------------------------------------ reading

    def _get_namespace(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        namespace = self._namespace
        content = describe_namespace(namespace)
        return _one(self._entry(request, resource, namespace.name, namespace.created_at, content))

    def _get_entity(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        try:
            entity = self._find(resource)
        except EntityNotFound:
            if resource.kind is ResourceKind.SUBSCRIPTION:
                raise
            address = self._address(request, resource)
            return AtomResponse(200, feed_document(address, NOTHING_HERE, [], next_page=None, now=self._clock()), _FEED)
        return _one(self._describe(request, entity), _etag(entity))

    def _get_rule(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        rule = self._subscription(resource).rules[resource.names[2]]
        return _one(self._describe_rule(request, resource, rule), _etag(rule))

    def _list_entities(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        queues = resource.kind is ResourceKind.QUEUES
        found: Sequence[Entity] = self._namespace.queues() if queues else self._namespace.topics()
        return self._page(request, resource, found, lambda entity: self._describe(request, entity))

    def _list_subscriptions(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        found = self._namespace.subscriptions(*resource.names)
        return self._page(request, resource, found, lambda entity: self._describe(request, entity))

    def _list_rules(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        rules = list(self._subscription(resource).rules)
        return self._page(request, resource, rules, lambda rule: self._describe_rule(request, resource, rule))

    def _page(
        self,
        request: AtomRequest,
        resource: Resource,
        found: Sequence[Item],
        describe: Callable[[Item], AtomEntry],
    ) -> AtomResponse:
        query = request.query
        skip, top = _count(query, "$skip", 0), min(_count(query, "$top", MAX_PAGE), MAX_PAGE)
        address, next_page = self._address(request, resource), None
        if top and skip + top < len(found):
            next_page = f"{address}?api-version={request.version}&$skip={skip + top}&$top={top}"
        entries = [describe(item) for item in found[skip : skip + top]]
        title = resource.url_path.rpartition("/")[2]
        return AtomResponse(200, feed_document(address, title, entries, next_page=next_page, now=self._clock()), _FEED)

    # ------------------------------------------------------------------ changing

    def _put(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        description = content_of(request.body)
        present = self._find(resource) if self._is_update(request) else None
        self._check_match(request, resource, present)
        current = present.settings if present else None
        settings = kind_of(description).read(description, current=current, version=request.version)
        self._authorize_forwarding(request, settings)
        check_settings(self._namespace, settings, present=present)
        if present is None:
            entity = self._create(resource, settings, first_rule(description))
        else:
            entity = self._namespace.update(present, settings)
        self._changed()
        return _one(self._describe(request, entity), _etag(entity), status=200 if present else 201)

    def _create(self, at: Resource, settings: EntitySettings, rule: Rule | None) -> Entity:
        namespace = self._namespace
        if at.kind is ResourceKind.SUBSCRIPTION and isinstance(settings, SubscriptionSettings):
            return namespace.create_subscription(at.names[0], at.names[1], settings, first_rule=rule)
        if at.kind is ResourceKind.ENTITY and isinstance(settings, QueueSettings):
            return namespace.create_queue(at.names[0], settings)
        if at.kind is ResourceKind.ENTITY and isinstance(settings, TopicSettings):
            return namespace.create_topic(at.names[0], settings)
        raise AtomRefusal(400, f"the description does not fit the address '/{at.url_path}'")

    def _put_rule(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        rules = self._subscription(resource).rules
        present = rules[resource.names[2]] if self._is_update(request) else None
        self._check_match(request, resource, present)
        rule = read_rule(content_of(request.body), name=resource.names[2])
        act = self._namespace.update_rule if present else self._namespace.create_rule
        rule = act(resource.names[0], resource.names[1], rule)
        return _one(self._describe_rule(request, resource, rule), _etag(rule), status=200 if present else 201)

    def _delete(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        self._check_match(request, resource, self._find(resource))
        if resource.kind is ResourceKind.SUBSCRIPTION:
            self._namespace.delete_subscription(*resource.names)
        else:
            self._namespace.delete(*resource.names)
        self._changed()
        return AtomResponse(200)

    def _delete_rule(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        self._check_match(request, resource, self._subscription(resource).rules[resource.names[2]])
        self._namespace.delete_rule(*resource.names)
        return AtomResponse(200)

    @staticmethod
    def _is_update(request: AtomRequest) -> bool:
        return "if-match" in request.headers

    def _check_match(self, request: AtomRequest, resource: Resource, present: Entity | Rule | None) -> None:
        """Raise AtomRefusal (412) if the request is for another state of the entity."""
        condition = request.headers.get("if-match", "*").strip()
        if present is not None and condition not in ("*", _etag(present)):
            raise AtomRefusal(412, f"'/{resource.url_path}' was changed since; read it again and repeat the change")

    # ------------------------------------------------------------------ describing

    def _find(self, resource: Resource) -> Entity:
        if resource.kind is ResourceKind.SUBSCRIPTION:
            return self._namespace.subscription(*resource.names)
        return self._namespace.entity(*resource.names)

    def _subscription(self, at: Resource) -> Subscription:
        return self._namespace.subscription(*at.names[:2])

    def _describe(self, request: AtomRequest, entity: Entity) -> AtomEntry:
        at = Resource(ResourceKind.ENTITY, (entity.path,))
        title, kind = entity.path, kind_of(entity.settings)
        if isinstance(entity, Subscription):
            at, title = Resource(ResourceKind.SUBSCRIPTION, (entity.topic.path, entity.name)), entity.name
        content = kind.write(entity, self._authority(request), request.version)
        return self._entry(request, at, title, entity.created_at, content, entity.updated_at)

    def _describe_rule(self, request: AtomRequest, at: Resource, rule: Rule) -> AtomEntry:
        place = Resource(ResourceKind.RULE, (*at.names[:2], rule.name))
        return self._entry(request, place, rule.name, rule.created_at, write_rule(rule))

    def _entry(
        self,
        request: AtomRequest,
        at: Resource,
        title: str,
        published: float,
        content: ElementTree.Element,
        updated: float | None = None,
    ) -> AtomEntry:
        return AtomEntry(
            address=self._address(request, at),
            title=title,
            author=self._namespace.name,
            published=published,
            updated=published if updated is None else updated,
            content=content,
        )

    def _address(self, request: AtomRequest, at: Resource) -> str:
        return f"https://{self._authority(request)}/{at.url_path}"

    def _authority(self, request: AtomRequest) -> str:
        return request.headers.get("host") or self._namespace.name

    _ACTIONS: ClassVar[
        Mapping[tuple[str, ResourceKind], Callable[[ManagementApi, AtomRequest, Resource], AtomResponse]]
    ] = {
        ("GET", ResourceKind.NAMESPACE): _get_namespace,
        ("GET", ResourceKind.QUEUES): _list_entities,
        ("GET", ResourceKind.TOPICS): _list_entities,
        ("GET", ResourceKind.SUBSCRIPTIONS): _list_subscriptions,
        ("GET", ResourceKind.RULES): _list_rules,
        ("GET", ResourceKind.ENTITY): _get_entity,
        ("GET", ResourceKind.SUBSCRIPTION): _get_entity,
        ("GET", ResourceKind.RULE): _get_rule,
        ("PUT", ResourceKind.ENTITY): _put,
        ("PUT", ResourceKind.SUBSCRIPTION): _put,
        ("PUT", ResourceKind.RULE): _put_rule,
        ("DELETE", ResourceKind.ENTITY): _delete,
        ("DELETE", ResourceKind.SUBSCRIPTION): _delete,
        ("DELETE", ResourceKind.RULE): _delete_rule,
    }


def _one(entry: AtomEntry, etag: str | None = None, *, status: int = 200) -> AtomResponse:
    headers = {"Content-Type": "application/atom+xml;type=entry;charset=utf-8"}
    return AtomResponse(status, entry_document(entry), headers if etag is None else headers | {"ETag": etag})


def _refused(status: int, detail: str) -> AtomResponse:
    return AtomResponse(status, error_document(status, detail), {"Content-Type": "application/xml; charset=utf-8"})


def _etag(found: Entity | Rule) -> str:
    """Return a tag that differs after every change."""
    if isinstance(found, Rule):
        return f'"{crc32(repr(found).encode()):08x}"'
    return f'"{found.updated_at * 1_000_000:.0f}"'


def _count(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise AtomRefusal(400, f"{name} is '{text}'; it has to be a whole number, 0 or more")
    return int(text)


# HTTP/1.1 for the management API, plain or decrypted, on connections that the listener accepted.
#
# aiohttp has keep-alive, chunked bodies and size limits, `serving.http_server` the time limits and faults.
# `management_api` makes the answers.

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 1.0


class HttpsServer:
    """The protocols of one namespace's management connections, and their end. Needs a running loop."""

    def __init__(
        self,
        management: ManagementApi,
        faults: FaultBoard,
        *,
        admission: Admission,
        websockets: WebSocketServer | None = None,
        pages: Mapping[str, bytes] | None = None,
        patience: float = FIRST_REQUEST_SECONDS,
    ) -> None:
        """Serve `management`; `websockets` gets requests for AMQP at its path, `pages` has JSON that needs no token.

        `patience` is the limit in seconds for a first request's head, and for a body; connections wait in `admission`.
        """
        self._management = management
        self._faults = faults
        self._websockets = websockets
        self._pages = pages or {}
        self._gate = FaultGate(faults, connections=lambda: self._server.connections)
        self._server = HttpServer(
            self._serve, admission=admission, patience=patience, log=log, report=RefusalLog("management", log).about
        )

    def protocol(self) -> asyncio.Protocol:
        """Return a protocol for one connection."""
        return self._server()

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def faults_changed(self) -> None:
        """Cut connections that faults reset."""
        if self._faults.connection_verdict() is ConnectionVerdict.RESET:
            for connection in self._server.connections:
                if connection.transport is not None:
                    connection.transport.abort()

    async def close(self) -> None:
        """End every connection; an answer in progress has a second to leave."""
        self._gate.close()
        self._server.pre_shutdown()  # ends idle connections
        await self._server.shutdown(_SHUTDOWN_SECONDS)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if await self._gate.loses_connection(request.protocol):
            return reset(request)
        if self._websockets is not None and self._websockets.is_for(request):
            self._server.prove(request)  # the AMQP inside starts its own probation
            return await self._websockets.serve(request)
        page = self._pages.get(request.path)
        if page is not None and request.method == "GET":
            return web.Response(body=page, content_type="application/json")
        return await self._serve_request(request, await self._server.body_of(request))

    async def _serve_request(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        asked = AtomRequest.of(request, body, request.scheme)

        async def serve() -> AtomResponse:
            return self._answer(asked)

        answer = await self._gate.pass_through(
            unquote(request.path).strip("/"), serve, lambda _, sentence, status: _refused(status, sentence)
        )
        if answer is None:
            return reset(request)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    def _answer(self, request: AtomRequest) -> AtomResponse:
        try:
            return self._management.answer(request)
        except Exception:
            log.exception("management request %s %s failed", request.method, request.target)
            return AtomResponse(
                500, b"<Error><Code>500</Code><Detail>internal error, see the sandbox's log</Detail></Error>"
            )
