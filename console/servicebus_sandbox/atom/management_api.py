"""The management API of one namespace: a request in, an answer out; its server.

It covers queues, topics, subscriptions, rules and the namespace; lists have pages. Every request needs a token with
Manage for its target. As in the service, a missing queue or topic, and anything below a missing topic, is answered with
200 and a feed without entries; a missing subscription or rule with 404. Addresses in answers repeat the request's
query. The ETag is that of the addressed queue or topic before the request. XML is in `entity_xml` and `rule_xml`,
limits in `topology.namespace`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import ClassVar, TypeVar
from urllib.parse import parse_qs, quote, unquote
from xml.etree.ElementTree import Element

from aiohttp import web

from servicebus_amqp.access import TokenError
from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission
from servicebus_amqp.server.http_server import HttpServer, WebSocketServer
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.atom import entity_xml as xml
from servicebus_sandbox.atom.rule_xml import first_rule, read_rule, write_rule
from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    EntityExists,
    EntityNotFound,
    InvalidSettings,
    QuotaExceeded,
    Throttled,
)
from servicebus_sandbox.broker.entity_settings import (
    EntitySettings,
    QueueSettings,
    Right,
    SubscriptionSettings,
    TopicSettings,
    check_update,
)
from servicebus_sandbox.broker.queues.agenda import MANAGEMENT_COST
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.broker.topology.namespace import (
    BrokerNamespace,
    Entity,
    Queue,
    Subscription,
    TargetMissing,
    Topic,
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
_MAX_NUMBER = 2**31 - 1
_BAD_REQUEST, _MISSING, _TAKEN = 400, 404, 409
_FEED = {"Content-Type": "application/atom+xml;type=feed;charset=utf-8"}
_SECURE = {"Strict-Transport-Security": "max-age=31536000"}
_LISTED = (ResourceKind.QUEUES, ResourceKind.TOPICS)
_PLAIN = (*_LISTED, ResourceKind.NAMESPACE)
"""The kinds whose answers have no Strict-Transport-Security."""
_BELOW_TOPICS = (ResourceKind.SUBSCRIPTIONS, ResourceKind.SUBSCRIPTION, ResourceKind.RULES, ResourceKind.RULE)
_SUPPLEMENTS = (
    ("forward_to", "servicebussupplementaryauthorization"),
    ("forward_dead_lettered_to", "servicebusdlqsupplementaryauthorization"),
)
_VERBS = {"GET": "Get", "PUT": "CreateOrUpdate", "DELETE": "Delete"}
_CLAIMS = {
    "GET": "Manage,EntityRead claims required for this operation. ",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite. ",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete. ",
}
"""The service's words where a token lacks a right, which clients search for: below a topic, and else."""
_REFUSALS: tuple[tuple[type[Exception], int, str], ...] = (
    (EntityNotFound, _MISSING, "SubCode=40400. Not Found. "),
    (EntityExists, _TAKEN, "SubCode=40900. Conflict. "),
    (QuotaExceeded, 403, "SubCode=40300. "),
    (Throttled, 503, ""),
    (TargetMissing, _BAD_REQUEST, "SubCode=40400. "),
    (BrokerError, _BAD_REQUEST, "SubCode=40000. "),
    (xml.DescriptionError, _BAD_REQUEST, "SubCode=40000. "),
    (xml.AtomError, _BAD_REQUEST, "The specified resource description is invalid. "),
)
"""Status and the service's words before the sentence, which clients search for; below a topic it has none."""


@dataclass(frozen=True, kw_only=True)
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

    @cached_property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(self.target.partition("?")[2]).items()}

    @property
    def plain_path(self) -> str:
        """Return the path with the slashes of names as they are."""
        return quote(unquote(self.path), safe="/$~")

    @property
    def authority(self) -> str:
        return self.headers.get("host", "localhost")

    @cached_property
    def address(self) -> str:
        """Return the address in answers: the plain path and the query as sent."""
        query = self.target.partition("?")[2]
        return f"https://{self.authority}{self.plain_path}{'?' if query else ''}{query}"

    @property
    def is_update(self) -> bool:
        return "if-match" in self.headers

    @property
    def origin(self) -> str:
        """Return scheme and authority as the client wrote them, for links in answers."""
        return f"{self.scheme}://{self.authority}"

    @property
    def version(self) -> str:
        return self.query.get("api-version", xml.NEWEST_VERSION)


@dataclass(frozen=True, slots=True)
class AtomResponse:
    """An answer; `body` is XML, or empty. `reason` replaces the status's own words."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


class AtomRefusal(Exception):
    """An answer with an error: the HTTP status and one sentence; `reason` is sent beside the status, without a body."""

    def __init__(self, status: int, detail: str, *, reason: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.reason = status, reason


class RightMissing(AtomRefusal):
    """A good token without the right for a request."""


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
        resource = resource_at(request.path)
        owner = self._owner(resource)
        tag = {} if owner is None else {"ETag": _etag(owner)}  # of the time before the request
        try:
            answer = self._act(request, resource)
        except AtomRefusal as refusal:
            if refusal.reason is not None:
                answer = AtomResponse(refusal.status, reason=refusal.reason)
            else:
                answer = refused(refusal.status, str(refusal), self._tail(request, resource, owner))
        except tuple(error for error, _, _ in _REFUSALS) as error:
            answer = self._refuse(request, resource, owner, error)
        is_plain = answer.status == _OK and resource is not None and resource.kind in _PLAIN
        return replace(answer, headers={**answer.headers, **({} if is_plain else _SECURE), **tag})

    def _owner(self, resource: Resource | None) -> Queue | Topic | None:
        """Return the queue or topic at or above the address."""
        try:
            found = self._namespace.owner(resource.names[0]) if resource is not None and resource.names else None
        except EntityNotFound:
            return None
        return found.topic if isinstance(found, Subscription) else found

    def _refuse(
        self, request: AtomRequest, resource: Resource | None, owner: Queue | Topic | None, error: Exception
    ) -> AtomResponse:
        """Return the refusal for a broker's error or a wrong description."""
        status, words = next((status, words) for kind, status, words in _REFUSALS if isinstance(error, kind))
        if status == _BAD_REQUEST:
            self._complaints.about(type(error).__name__, f"refused a request to its management: {error}")
        sentence = _named(error) if isinstance(error, InvalidSettings) else str(error)
        if request.method == "DELETE" and status == _MISSING and owner is None:
            pass  # nothing before the sentence, whatever was to be deleted
        elif resource is None or resource.kind not in _BELOW_TOPICS:
            sentence = f"{words}{sentence}"
        elif status in (_MISSING, _TAKEN) and isinstance(owner, Topic):
            return self._missing_or_taken(resource.names[1:], owner, error, status)
        elif status in (_MISSING, _TAKEN) and owner is None:
            sentence = f"{sentence}: no topic of the namespace policy of '{self._namespace.name}' has this path"
        return refused(status, sentence, self._tail(request, resource, owner))

    def _missing_or_taken(self, names: tuple[str, ...], topic: Topic, error: Exception, status: int) -> AtomResponse:
        """Return the broker's own refusal for a subscription or rule, called `names`, of an existing topic."""
        if isinstance(error, EntityNotFound) and names and not error.path.lower().endswith(f"/{names[-1].lower()}"):
            names = names[:1]  # the subscription above the rule is missing
        entity = f"'{self._named(topic)}{''.join(f'|{name}' for name in names)}'"
        found = f"Entity {entity} was not found" if status == _MISSING else f"The entity {entity} already exists"
        if len(names) > 1 and status == _MISSING:
            return refused(status, found, _tail(f"{_GATEWAY}_{_BROKER}", self._named(topic), self._clock()))
        return refused(status, found, _tail(_BROKER, "NoSystemTracker", self._clock()))

    def _tail(self, request: AtomRequest, resource: Resource | None, owner: Queue | Topic | None) -> str:
        """Return the tracking id behind a sentence of the gateway; below an entity it names that one."""
        who = f"{request.authority}:{unquote(request.path).strip('/')}"
        if owner is not None and resource is not None and (resource.kind in _BELOW_TOPICS or "$" in resource.names[0]):
            who = self._named(owner)
        return _tail(_GATEWAY, who, self._clock())

    def _named(self, entity: Queue | Topic) -> str:
        """Return an entity's name in sentences."""
        return f"{self._namespace.name}:{type(entity).__name__}:{entity.path}"

    def _act(self, request: AtomRequest, resource: Resource | None) -> AtomResponse:
        self._authorize(request, resource)
        self._namespace.charge(MANAGEMENT_COST)
        if request.version > xml.NEWEST_VERSION:
            raise AtomRefusal(400, f"api-version '{request.version}' is not known; the newest is {xml.NEWEST_VERSION}")
        if resource is None:
            raise AtomRefusal(404, f"nothing can be managed at '{unquote(request.path)}'")
        action = self._ACTIONS.get((request.method, resource.kind))
        if action is None:
            raise AtomRefusal(405, f"{request.method} does not apply to '{unquote(request.path)}'")
        self._check_sub_queue(request, resource)
        return action(self, request, resource)

    def _check_sub_queue(self, request: AtomRequest, resource: Resource) -> None:
        """Raise AtomRefusal (400) for a sub-queue of an existing entity, which cannot be managed."""
        path = resource.names[0] if resource.kind is ResourceKind.ENTITY else ""
        if "$" in path and self._owner(resource) is not None:
            raise AtomRefusal(400, f"the verb ({request.method}) does not apply to the sub-queue '{path}'")

    # ------------------------------------------------------------------ authorization

    def _authorize(self, request: AtomRequest, resource: Resource | None) -> None:
        """Check the token: Manage for the address, any right for the namespace's description."""
        token = request.headers.get("authorization", "")
        if not token:
            raise AtomRefusal(401, "the Authorization header has no claim; send a shared access signature")
        right = None if resource is not None and resource.kind is ResourceKind.NAMESPACE else Right.MANAGE
        try:
            self._verify(token, f"https://{request.authority}{request.path}", right)
        except AtomRefusal as refusal:
            owner = self._owner(resource)
            if resource is not None and resource.kind in _BELOW_TOPICS and owner is not None:
                reason = _unauthorized(request, resource)
                raise AtomRefusal(401, str(refusal), reason=reason) from refusal
            if not isinstance(refusal, RightMissing):
                raise
            is_read = request.method == "GET"
            if is_read and owner is None and resource is not None and resource.kind is ResourceKind.ENTITY:
                return  # its absence is no secret
            raise AtomRefusal(401, f"{_CLAIMS.get(request.method, '')}{refusal}") from refusal

    def _authorize_forwarding(self, request: AtomRequest, settings: EntitySettings) -> None:
        """Check the token for the forwarding target: a supplementary one, or one that covers both."""
        for name, header in _SUPPLEMENTS:
            target = getattr(settings, name, None)
            if target is not None:
                token = request.headers.get(header, request.headers["authorization"])
                self._verify(token, f"https://{request.authority}/{target}", Right.SEND)

    def _verify(self, token: str, audience: str, right: Right | None) -> None:
        try:
            access = self._authorization.judge(token, audience, self._clock())
        except TokenError as error:
            raise AtomRefusal(401, error.reason) from error
        resource = resource_at(access.path)
        owner = resource.names[0] if resource is not None and resource.names else access.path
        if (right is not None and right not in access.rights) or not access.covers(owner):
            wanted = right or "any right"
            raise RightMissing(401, f"the token does not give '{wanted}' for '{access.path}', which this needs")

    # ------------------------------------------------------------------ reading

    def _get_namespace(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        namespace, address = self._namespace, request.address
        entry = xml.AtomEntry(
            address=address,
            link=address,
            title=namespace.name,
            author=namespace.name,
            updated=namespace.created_at,
            content=xml.describe_namespace(namespace),
        )
        return _one(entry)

    def _get_entity(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        """Return an entity or a rule; below a missing queue or topic there is the feed without entries."""
        try:
            found = self._found(resource)
        except EntityNotFound:
            if isinstance(self._owner(resource), Topic) and resource.kind is not ResourceKind.ENTITY:
                raise
            return AtomResponse(200, xml.missing_document(self._clock()), _FEED)
        return _one(self._entry(request, found, self._described(request, found)))

    def _list(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        found: Sequence[Entity | Rule]
        match resource.kind:
            case ResourceKind.QUEUES:
                found = self._namespace.queues()
            case ResourceKind.TOPICS:
                found = self._namespace.topics()
            case ResourceKind.SUBSCRIPTIONS:
                found = self._namespace.subscriptions(*resource.names)
            case _:
                found = list(self._namespace.subscription(*resource.names).rules)
        query = request.query
        skip, top = _count(query, "skip", 0), min(_count(query, "top", MAX_PAGE), MAX_PAGE)
        next_page = None
        if not top or skip + top < len(found):
            others = [one for one in request.target.partition("?")[2].split("&") if _name_of(one) not in _PAGING]
            page = "&".join([f"%24skip={skip + top}", f"%24top={top}", *filter(None, others)])
            next_page = f"{request.address.partition('?')[0]}?{page}"
        entries = [self._listed(request, item) for item in found[skip : skip + top]]
        title = resource.kind.value.rpartition("/")[2].capitalize()
        body = xml.feed_document(request.address, title, entries, next_page=next_page, now=self._clock())
        return AtomResponse(200, body, _FEED)

    def _listed(self, request: AtomRequest, item: Entity | Rule) -> xml.AtomEntry:
        """Return an entry of a list; its link is relative to the list's address."""
        content = self._described(request, item, in_list=True)
        entry, version = self._entry(request, item, content), f"?api-version={request.version}"
        if isinstance(item, Queue | Topic):
            address, link = f"https://{request.authority}/{_quoted(item.path)}", f"../{_quoted(item.path)}"
        else:
            whole = request.address.partition("?")[0].rstrip("/")
            address, link = f"{whole}/{_quoted(item.name)}", f"{whole.rpartition('/')[2]}/{_quoted(item.name)}"
        return replace(entry, address=f"{address}{version}", link=f"{link}{version}", base=request.address)

    # ------------------------------------------------------------------ changing

    def _put(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        description = xml.content_of(request.body)
        present = self._find(resource) if request.is_update else None
        self._check_match(request, resource)
        if present is None and resource.kind is ResourceKind.SUBSCRIPTION:
            self._namespace.topic(resource.names[0])
        current = present.settings if present else None
        settings = xml.kind_of(description).read(description, current=current, version=request.version)
        self._authorize_forwarding(request, settings)
        if current is not None and type(settings) is type(current):
            check_update(current, settings)
        check_settings(self._namespace, settings, present=present)
        if present is None:
            entity = self._create(resource, settings, first_rule(description))
        else:
            entity = self._namespace.update(present, settings)
        self._changed()
        return self._changed_entity(request, entity, description)

    def _changed_entity(self, request: AtomRequest, entity: Entity, description: Element) -> AtomResponse:
        """Answer a PUT: an update of a queue or topic repeats the description, others are as made now."""
        now, status = self._clock(), 200 if request.is_update else 201
        if request.is_update and not isinstance(entity, Subscription):
            sent = xml.new_description(xml.kind_of(entity.settings).element)
            sent.extend([xml.copied(child) for child in description])
            return _one(replace(self._entry(request, entity, sent), published=None, updated=now))
        return _one(self._made(request, entity, self._described(request, entity, made_at=now), now), status=status)

    def _made(self, request: AtomRequest, found: Entity | Rule, content: Element, now: float) -> xml.AtomEntry:
        """Return the entry of a PUT, whose addresses have the scheme of the request."""
        entry = self._entry(request, found, content)
        return replace(entry, address=request.address, link=request.address, published=now, updated=now)

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
        present = self._found(resource) if request.is_update else None
        self._check_match(request, resource)
        rule = read_rule(xml.content_of(request.body), name=resource.names[2])
        act = self._namespace.update_rule if present else self._namespace.create_rule
        rule, now = act(resource.names[0], resource.names[1], rule), self._clock()
        content = self._described(request, rule, made_at=now)
        return _one(self._made(request, rule, content, now), status=200 if present else 201)

    def _delete(self, request: AtomRequest, resource: Resource) -> AtomResponse:
        self._found(resource)
        self._check_match(request, resource)
        if resource.kind is ResourceKind.SUBSCRIPTION:
            self._namespace.delete_subscription(*resource.names)
        elif resource.kind is ResourceKind.RULE:
            self._namespace.delete_rule(*resource.names)
        else:
            self._namespace.delete(*resource.names)
        self._changed()
        return AtomResponse(200)

    def _check_match(self, request: AtomRequest, resource: Resource) -> None:
        """Raise AtomRefusal (412) if the request is for another state of the queue or topic."""
        owner, conditions = self._owner(resource), request.headers.get("if-match", "*").split(",")
        wanted = {condition.strip().removeprefix("W/").strip('"') for condition in conditions}
        if owner is not None and not wanted & {"*", _etag(owner)}:
            raise AtomRefusal(412, f"'/{resource.url_path}' was changed since; read it again and repeat the change")

    # ------------------------------------------------------------------ describing

    def _find(self, resource: Resource) -> Entity:
        if resource.kind in _BELOW_TOPICS:
            return self._namespace.subscription(*resource.names[:2])
        return self._namespace.entity(*resource.names)

    def _found(self, resource: Resource) -> Entity | Rule:
        entity = self._find(resource)
        if resource.kind is ResourceKind.RULE and isinstance(entity, Subscription):
            return entity.rules[resource.names[2]]
        return entity

    def _described(
        self, request: AtomRequest, found: Entity | Rule, *, made_at: float | None = None, in_list: bool = False
    ) -> Element:
        if isinstance(found, Rule):
            return write_rule(found, made_at=made_at, in_list=in_list)
        kind = xml.kind_of(found.settings)
        return kind.write(found, request.authority, request.version, made_at=made_at, in_list=in_list)

    def _entry(self, request: AtomRequest, found: Entity | Rule, content: Element) -> xml.AtomEntry:
        """Return the entry of a GET. Subscriptions and rules have no author, and addresses of messaging."""
        is_below, address = isinstance(found, Subscription | Rule), request.address
        if is_below:
            address = f"sb{address.removeprefix('https')}"
        return xml.AtomEntry(
            address=address,
            link=address,
            title=found.name if isinstance(found, Subscription | Rule) else found.path,
            author=None if is_below else self._namespace.name,
            published=found.created_at,
            updated=found.created_at if isinstance(found, Rule) else found.updated_at,
            content=content,
        )

    _ACTIONS: ClassVar[
        Mapping[tuple[str, ResourceKind], Callable[[ManagementApi, AtomRequest, Resource], AtomResponse]]
    ] = {
        ("GET", ResourceKind.NAMESPACE): _get_namespace,
        **dict.fromkeys([("GET", kind) for kind in (*_LISTED, ResourceKind.SUBSCRIPTIONS, ResourceKind.RULES)], _list),
        **{
            (method, kind): act
            for method, act in (("GET", _get_entity), ("PUT", _put), ("DELETE", _delete))
            for kind in (ResourceKind.ENTITY, ResourceKind.SUBSCRIPTION, ResourceKind.RULE)
        },
        ("PUT", ResourceKind.RULE): _put_rule,
    }


_OK = 200
_GATEWAY, _BROKER = "G1", "B1"
_PAGING = ("$skip", "$top")
_TICKS_AT_EPOCH = 621_355_968_000_000_000


def _one(entry: xml.AtomEntry, *, status: int = 200) -> AtomResponse:
    headers = {"Content-Type": "application/atom+xml;type=entry;charset=utf-8"}
    return AtomResponse(status, xml.entry_document(entry), headers)


def refused(status: int, sentence: str, tail: str = "") -> AtomResponse:
    """Return a refusal; `tail` is the tracking id behind the sentence."""
    body = xml.error_document(status, f"{sentence.rstrip('.')}.{tail}" if tail else sentence)
    return AtomResponse(status, body, {"Content-Type": "application/xml; charset=utf-8"})


def _unauthorized(request: AtomRequest, resource: Resource) -> str:
    """Return the service's words for a request below a topic that its token does not allow."""
    is_list = resource.kind in (ResourceKind.SUBSCRIPTIONS, ResourceKind.RULES)
    verb = "Enumerate" if is_list else _VERBS.get(request.method, request.method)
    operation = f"{verb}{resource.kind.name.capitalize()}"
    place = f"sb://{request.authority}/{resource.url_path}"
    return f"SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation on endpoint '{place}'"


def _tail(node: str, who: str, now: float) -> str:
    stamp = xml.write_time(now, 0).removesuffix("Z")
    return f" TrackingId:{uuid.uuid4()}_{node}, SystemTracker:{who}, Timestamp:{stamp}"


def _named(error: InvalidSettings) -> str:
    """Return the sentence with the refused value in the service's words."""
    if error.value is None:
        return xml.named_sentence(error)
    value = _span(error.value) if isinstance(error.value, timedelta) else error.value
    return f"{xml.named_sentence(error)}.\r\nParameter name: {xml.element_of(error.field)}\r\nActual value was {value}"


def _span(value: timedelta) -> str:
    """Return a duration as the service's sentences have it: 25.00:00:00, 00:06:00."""
    sign, length = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(length.seconds, 60)
    fraction = f".{length.microseconds:06d}0" if length.microseconds else ""
    days = f"{length.days}." if length.days else ""
    return f"{sign}{days}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{fraction}"


def _etag(entity: Queue | Topic) -> str:
    """Return the ticks of the latest change, to the millisecond."""
    return str(_TICKS_AT_EPOCH + int(entity.updated_at * 1000) * 10_000)


def _quoted(name: str) -> str:
    return quote(name, safe="/$~")


def _name_of(parameter: str) -> str:
    return unquote(parameter.partition("=")[0])


def _count(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(f"${name}", str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_NUMBER)) and int(text) <= _MAX_NUMBER):
        sentence = f"${name} is '{text[:40]}'; it has to be a whole number from 0 to {_MAX_NUMBER}"
        raise AtomRefusal(400, f"{sentence}.\r\nParameter name: {name}")
    return int(text)


# HTTP/1.1 for the management API, plain or decrypted, on connections that the listener accepted.
#
# aiohttp has keep-alive, chunked bodies and size limits, `serving.http_server` the time limits and faults.
# `management_api` makes the answers.

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 1.0
SERVER = "Microsoft-HTTPAPI/2.0"


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
            unquote(request.path).strip("/"), serve, lambda _, sentence, status: refused(status, sentence)
        )
        if answer is None:
            return reset(request)
        headers = {**answer.headers, "Server": SERVER}
        return web.Response(status=answer.status, reason=answer.reason, body=answer.body, headers=headers)

    def _answer(self, request: AtomRequest) -> AtomResponse:
        try:
            return self._management.answer(request)
        except Exception:
            log.exception("management request %s %s failed", request.method, request.target)
            return AtomResponse(
                500, b"<Error><Code>500</Code><Detail>internal error, see the sandbox's log</Detail></Error>"
            )
