"""The management API of one namespace: a request in, an answer out, with no socket in between.

Queues, topics, subscriptions and their rules, the namespace itself; lists in pages; every request needs a token that
gives Manage for what it touches. A queue or topic that is not there is answered as the service does it, with 200 and an
empty feed; for anything else that is missing it has a 404. XML is in `envelopes` and the modules of descriptions,
HTTP in `https`, what an entity may be in `entity_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree
from zlib import crc32

from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.tokens import TokenError
from servicebus_sandbox.atom import envelopes
from servicebus_sandbox.atom.descriptions import NEWEST_VERSION, DescriptionError, describe_namespace, kind_of
from servicebus_sandbox.atom.resources import (
    EntityAt,
    EntityList,
    Listed,
    NamespaceInfo,
    Resource,
    RuleAt,
    RuleList,
    SubscriptionAt,
    SubscriptionList,
    resource_at,
    url_path,
)
from servicebus_sandbox.atom.rule_descriptions import first_rule, read_rule, write_rule
from servicebus_sandbox.broker.access import Right
from servicebus_sandbox.broker.entities import Entity, Subscription
from servicebus_sandbox.broker.entity_checks import TargetMissing, check_settings
from servicebus_sandbox.broker.errors import BrokerError, EntityExists, EntityNotFound, QuotaExceeded
from servicebus_sandbox.broker.namespace import Namespace
from servicebus_sandbox.broker.rules import Rule
from servicebus_sandbox.broker.settings import EntitySettings, QueueSettings, SubscriptionSettings, TopicSettings
from servicebus_sandbox.serving.complaints import Complaints

Item = TypeVar("Item")

MAX_PAGE = 100
_BAD_REQUEST = 400
_FEED = {"Content-Type": "application/atom+xml;type=feed;charset=utf-8"}
_SUPPLEMENTS = (
    ("forward_to", "servicebussupplementaryauthorization"),
    ("forward_dead_lettered_to", "servicebusdlqsupplementaryauthorization"),
)
NOTHING_HERE = "Publicly Listed Services"
"""The title of the feed that stands for an entity that does not exist; some clients look for it."""
_REFUSALS: tuple[tuple[type[Exception], int, str], ...] = (
    (EntityNotFound, 404, ""),
    (EntityExists, 409, "SubCode=40900. Conflict. "),
    (QuotaExceeded, 403, "SubCode=40300. "),
    (TargetMissing, 400, "SubCode=40400. "),
    (BrokerError, 400, "SubCode=40000. "),
    (DescriptionError, 400, "SubCode=40000. "),
    (envelopes.AtomError, 400, "The specified resource description is invalid. "),
)
"""Status and, as clients look for it, the service's own words before the sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`target` is the path and query as sent; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    scheme: str = "https"

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(self.target.partition("?")[2]).items()}

    @property
    def origin(self) -> str:
        """Scheme and authority as the client wrote them, for links in answers."""
        return f"{self.scheme}://{self.headers.get('host', 'localhost')}"

    @property
    def version(self) -> str:
        return self.query.get("api-version", NEWEST_VERSION)


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is XML, or empty."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """The request is answered with an error: the HTTP status and one sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Management:
    """Answers for one namespace. `authorization` judges tokens; `changed` is called after entities changed."""

    def __init__(
        self,
        namespace: Namespace,
        *,
        authorization: Authorization,
        clock: Callable[[], float],
        changed: Callable[[], None],
        complaints: Complaints,
    ) -> None:
        self._namespace = namespace
        self._authorization = authorization
        self._clock = clock
        self._changed = changed
        self._complaints = complaints

    def answer(self, request: Request) -> Answer:
        """Never raises for what a client sent."""
        try:
            return self._act(request)
        except Refusal as refusal:
            return _refused(refusal.status, str(refusal))
        except tuple(error for error, _, _ in _REFUSALS) as error:
            status, words = next((status, words) for kind, status, words in _REFUSALS if isinstance(error, kind))
            if status == _BAD_REQUEST:
                self._complaints.about(type(error).__name__, f"refused a request to its management: {error}")
            return _refused(status, f"{words}{error}")

    def _act(self, request: Request) -> Answer:
        self._authorize(request)
        if request.version > NEWEST_VERSION:
            raise Refusal(400, f"api-version '{request.version}' is not known; the newest is {NEWEST_VERSION}")
        resource = resource_at(request.path)
        if resource is None:
            raise Refusal(404, f"nothing can be managed at '{unquote(request.path)}'")
        action = self._ACTIONS.get((request.method, type(resource)))
        if action is None:
            raise Refusal(405, f"{request.method} does not apply to '{unquote(request.path)}'")
        return action(self, request, resource)

    # ------------------------------------------------------------------ who may

    def _authorize(self, request: Request) -> None:
        token = request.headers.get("authorization", "")
        if not token:
            raise Refusal(401, "the request has no Authorization header; send a shared access signature")
        self._verify(token, f"https://{self._authority(request)}{request.path}", Right.MANAGE)

    def _authorize_forwarding(self, request: Request, settings: EntitySettings) -> None:
        """Whoever forwards to an entity needs a token for it: a supplementary one, or one that covers both."""
        for name, header in _SUPPLEMENTS:
            target = getattr(settings, name, None)
            if target is not None:
                token = request.headers.get(header, request.headers["authorization"])
                self._verify(token, f"https://{self._authority(request)}/{target}", Right.SEND)

    def _verify(self, token: str, audience: str, right: Right) -> None:
        try:
            access = self._authorization.judge(token, audience, self._clock())
        except TokenError as error:
            raise Refusal(401, error.reason) from error
        if right not in access.rights:
            raise Refusal(401, f"the token does not give '{right}' for '{access.path}', which this needs")

    # ------------------------------------------------------------------ reading

    def _get_namespace(self, request: Request, resource: NamespaceInfo) -> Answer:
        namespace = self._namespace
        content = describe_namespace(namespace)
        return _one(self._entry(request, resource, namespace.name, namespace.created_at, content))

    def _get_entity(self, request: Request, resource: EntityAt | SubscriptionAt) -> Answer:
        try:
            entity = self._find(resource)
        except EntityNotFound:
            if isinstance(resource, SubscriptionAt):
                raise
            address = self._address(request, resource)
            return Answer(
                200, envelopes.feed_document(address, NOTHING_HERE, [], next_page=None, now=self._clock()), _FEED
            )
        return _one(self._describe(request, entity), _etag(entity))

    def _get_rule(self, request: Request, resource: RuleAt) -> Answer:
        rule = self._subscription(resource).rules[resource.name]
        return _one(self._describe_rule(request, resource, rule), _etag(rule))

    def _list_entities(self, request: Request, resource: EntityList) -> Answer:
        queues = resource.listed is Listed.QUEUES
        found: Sequence[Entity] = self._namespace.queues() if queues else self._namespace.topics()
        return self._page(request, resource, found, lambda entity: self._describe(request, entity))

    def _list_subscriptions(self, request: Request, resource: SubscriptionList) -> Answer:
        found = self._namespace.subscriptions(resource.topic)
        return self._page(request, resource, found, lambda entity: self._describe(request, entity))

    def _list_rules(self, request: Request, resource: RuleList) -> Answer:
        rules = list(self._subscription(resource).rules)
        return self._page(request, resource, rules, lambda rule: self._describe_rule(request, resource, rule))

    def _page(
        self, request: Request, resource: Resource, found: Sequence[Item], describe: Callable[[Item], envelopes.Entry]
    ) -> Answer:
        query = request.query
        skip, top = _count(query, "$skip", 0), min(_count(query, "$top", MAX_PAGE), MAX_PAGE)
        address, next_page = self._address(request, resource), None
        if top and skip + top < len(found):
            next_page = f"{address}?api-version={request.version}&$skip={skip + top}&$top={top}"
        entries = [describe(item) for item in found[skip : skip + top]]
        title = url_path(resource).rpartition("/")[2]
        return Answer(
            200, envelopes.feed_document(address, title, entries, next_page=next_page, now=self._clock()), _FEED
        )

    # ------------------------------------------------------------------ changing

    def _put(self, request: Request, resource: EntityAt | SubscriptionAt) -> Answer:
        description = envelopes.content_of(request.body)
        present = self._find(resource) if self._is_update(request) else None
        self._check_match(request, resource, present)
        current = present.settings if present else None
        settings = kind_of(description).read(description, current=current, version=request.version)
        self._authorize_forwarding(request, settings)
        check_settings(self._namespace, settings, present=present)
        entity = self._store(resource, settings, first_rule(description), update=present is not None)
        self._changed()
        return _one(self._describe(request, entity), _etag(entity), status=200 if present else 201)

    def _store(
        self, at: EntityAt | SubscriptionAt, settings: EntitySettings, rule: Rule | None, *, update: bool
    ) -> Entity:
        namespace = self._namespace
        match at, settings:
            case EntityAt(path), QueueSettings():
                return (namespace.update_queue if update else namespace.create_queue)(path, settings)
            case EntityAt(path), TopicSettings():
                return (namespace.update_topic if update else namespace.create_topic)(path, settings)
            case SubscriptionAt(topic, name), SubscriptionSettings():
                if update:
                    return namespace.update_subscription(topic, name, settings)
                return namespace.create_subscription(topic, name, settings, first_rule=rule)
        raise Refusal(400, f"what is described is not what belongs at '/{url_path(at)}'")

    def _put_rule(self, request: Request, resource: RuleAt) -> Answer:
        rules = self._subscription(resource).rules
        present = rules[resource.name] if self._is_update(request) else None
        self._check_match(request, resource, present)
        rule = read_rule(envelopes.content_of(request.body), name=resource.name)
        act = self._namespace.update_rule if present else self._namespace.create_rule
        rule = act(resource.topic, resource.subscription, rule)
        return _one(self._describe_rule(request, resource, rule), _etag(rule), status=200 if present else 201)

    def _delete(self, request: Request, resource: EntityAt | SubscriptionAt) -> Answer:
        self._check_match(request, resource, self._find(resource))
        match resource:
            case EntityAt(path):
                self._namespace.delete(path)
            case SubscriptionAt(topic, name):
                self._namespace.delete_subscription(topic, name)
        self._changed()
        return Answer(200)

    def _delete_rule(self, request: Request, resource: RuleAt) -> Answer:
        self._check_match(request, resource, self._subscription(resource).rules[resource.name])
        self._namespace.delete_rule(resource.topic, resource.subscription, resource.name)
        return Answer(200)

    @staticmethod
    def _is_update(request: Request) -> bool:
        return "if-match" in request.headers

    def _check_match(self, request: Request, resource: Resource, present: Entity | Rule | None) -> None:
        """Raise Refusal (412) if the request is meant for another state of what is there."""
        condition = request.headers.get("if-match", "*").strip()
        if present is not None and condition not in ("*", _etag(present)):
            raise Refusal(412, f"'/{url_path(resource)}' was changed since; read it again and repeat the change")

    # ------------------------------------------------------------------ describing

    def _find(self, resource: EntityAt | SubscriptionAt) -> Entity:
        match resource:
            case EntityAt(path):
                entity = self._namespace.entity(path)
            case SubscriptionAt(topic, name):
                entity = self._namespace.subscription(topic, name)
        return entity

    def _subscription(self, at: RuleAt | RuleList) -> Subscription:
        return self._namespace.subscription(at.topic, at.subscription)

    def _describe(self, request: Request, entity: Entity) -> envelopes.Entry:
        at: Resource = EntityAt(entity.path)
        title, kind = entity.path, kind_of(entity.settings)
        if isinstance(entity, Subscription):
            at, title = SubscriptionAt(entity.topic.path, entity.name), entity.name
        content = kind.write(entity, self._authority(request), request.version)
        return self._entry(request, at, title, entity.created_at, content, entity.updated_at)

    def _describe_rule(self, request: Request, at: RuleAt | RuleList, rule: Rule) -> envelopes.Entry:
        place = RuleAt(at.topic, at.subscription, rule.name)
        return self._entry(request, place, rule.name, rule.created_at, write_rule(rule))

    def _entry(
        self,
        request: Request,
        at: Resource,
        title: str,
        published: float,
        content: ElementTree.Element,
        updated: float | None = None,
    ) -> envelopes.Entry:
        return envelopes.Entry(
            address=self._address(request, at),
            title=title,
            author=self._namespace.name,
            published=published,
            updated=published if updated is None else updated,
            content=content,
        )

    def _address(self, request: Request, at: Resource) -> str:
        return f"https://{self._authority(request)}/{url_path(at)}"

    def _authority(self, request: Request) -> str:
        return request.headers.get("host") or self._namespace.name

    _ACTIONS: ClassVar[Mapping[tuple[str, type[Any]], Callable[[Management, Request, Any], Answer]]] = {
        ("GET", NamespaceInfo): _get_namespace,
        ("GET", EntityList): _list_entities,
        ("GET", SubscriptionList): _list_subscriptions,
        ("GET", RuleList): _list_rules,
        ("GET", EntityAt): _get_entity,
        ("GET", SubscriptionAt): _get_entity,
        ("GET", RuleAt): _get_rule,
        ("PUT", EntityAt): _put,
        ("PUT", SubscriptionAt): _put,
        ("PUT", RuleAt): _put_rule,
        ("DELETE", EntityAt): _delete,
        ("DELETE", SubscriptionAt): _delete,
        ("DELETE", RuleAt): _delete_rule,
    }


def _one(entry: envelopes.Entry, etag: str | None = None, *, status: int = 200) -> Answer:
    headers = {"Content-Type": "application/atom+xml;type=entry;charset=utf-8"}
    return Answer(status, envelopes.entry_document(entry), headers if etag is None else headers | {"ETag": etag})


def _refused(status: int, detail: str) -> Answer:
    return Answer(status, envelopes.error_document(status, detail), {"Content-Type": "application/xml; charset=utf-8"})


def _etag(found: Entity | Rule) -> str:
    """A mark that differs after every change."""
    if isinstance(found, Rule):
        return f'"{crc32(repr(found).encode()):08x}"'
    return f'"{found.updated_at * 1_000_000:.0f}"'


def _count(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise Refusal(400, f"{name} is '{text}'; it has to be a whole number, 0 or more")
    return int(text)
