"""The management API of one namespace: a request in, an answer out, no socket.

It covers queues, topics, subscriptions, rules and the namespace; lists have pages. Every request needs a token with
Manage for its target. As in the service, a missing queue or topic is answered with 200 and an empty feed, anything else
that is missing with 404. XML is in `atom_documents` and the modules `*_xml`, HTTP in `https_server`, limits in
`entity_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qs, quote, unquote
from xml.etree import ElementTree
from zlib import crc32

from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.token_issuer import TokenError
from servicebus_sandbox.atom import atom_documents
from servicebus_sandbox.atom.entity_xml import NEWEST_VERSION, DescriptionError, describe_namespace, kind_of
from servicebus_sandbox.atom.rule_xml import first_rule, read_rule, write_rule
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityExists, EntityNotFound, QuotaExceeded, Throttled
from servicebus_sandbox.broker.entity_settings import (
    EntitySettings,
    QueueSettings,
    Right,
    SubscriptionSettings,
    TopicSettings,
)
from servicebus_sandbox.broker.queues.credits import MANAGEMENT_COST
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.broker.topology.entity_checks import TargetMissing, check_settings
from servicebus_sandbox.broker.topology.messaging_entities import Entity, Subscription
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.serving.amqp_conditions import RefusalLog

# The resource of a management URL: namespace, list, entity, subscription or rule.
#
# Slashes in an entity's path may be encoded (`contoso%2Fx-servicebus-transfer%2F0`) or plain. Pure.


class Listed(StrEnum):
    """The lists of a namespace."""

    QUEUES = "queues"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class NamespaceInfoResource:
    """`/$namespaceinfo`"""


@dataclass(frozen=True, slots=True)
class EntityList:
    """`/$Resources/queues` or `/$Resources/topics`"""

    listed: Listed


@dataclass(frozen=True, slots=True)
class EntityAt:
    """`/path`, a queue or a topic"""

    path: str


@dataclass(frozen=True, slots=True)
class SubscriptionList:
    """`/topic/subscriptions`"""

    topic: str


@dataclass(frozen=True, slots=True)
class SubscriptionAt:
    """`/topic/subscriptions/name`"""

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class RuleList:
    """`/topic/subscriptions/name/rules`"""

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class RuleAt:
    """`/topic/subscriptions/name/rules/rule`"""

    topic: str
    subscription: str
    name: str


Resource = NamespaceInfoResource | EntityList | EntityAt | SubscriptionList | SubscriptionAt | RuleList | RuleAt


def resource_at(raw_path: str) -> Resource | None:
    """Return the resource at `raw_path`, an encoded URL path; None if there is none."""
    parts = [unquote(part) for part in raw_path.split("/") if part]
    lower = [part.lower() for part in parts]
    if lower == ["$namespaceinfo"]:
        return NamespaceInfoResource()
    if len(parts) == 2 and lower[0] == "$resources":
        return EntityList(Listed(lower[1])) if lower[1] in set(Listed) else None
    if not parts or parts[0].startswith("$"):
        return None
    if len(parts) > 4 and lower[-4] == "subscriptions" and lower[-2] == "rules":
        return RuleAt("/".join(parts[:-4]), parts[-3], parts[-1])
    if len(parts) > 3 and lower[-3] == "subscriptions" and lower[-1] == "rules":
        return RuleList("/".join(parts[:-3]), parts[-2])
    if len(parts) > 2 and lower[-2] == "subscriptions":
        return SubscriptionAt("/".join(parts[:-2]), parts[-1])
    if len(parts) > 1 and lower[-1] == "subscriptions":
        return SubscriptionList("/".join(parts[:-1]))
    return EntityAt("/".join(parts))


def url_path(resource: Resource) -> str:
    """Return the encoded path of `resource`, without the leading slash, as the service writes it in an entry's id."""
    match resource:
        case NamespaceInfoResource():
            parts: tuple[str, ...] = ("$namespaceinfo",)
        case EntityList(listed):
            parts = ("$Resources", listed)
        case EntityAt(path):
            parts = (path,)
        case SubscriptionList(topic):
            parts = (topic, "subscriptions")
        case SubscriptionAt(topic, name):
            parts = (topic, "Subscriptions", name)
        case RuleList(topic, subscription):
            parts = (topic, "subscriptions", subscription, "rules")
        case RuleAt(topic, subscription, name):
            parts = (topic, "Subscriptions", subscription, "Rules", name)
    return "/".join(quote(part, safe="/$") for part in parts)


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
    (atom_documents.AtomError, 400, "The specified resource description is invalid. "),
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
        action = self._ACTIONS.get((request.method, type(resource)))
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
        if right not in access.rights:
            raise AtomRefusal(401, f"the token does not give '{right}' for '{access.path}', which this needs")

    # ------------------------------------------------------------------ reading

    def _get_namespace(self, request: AtomRequest, resource: NamespaceInfoResource) -> AtomResponse:
        namespace = self._namespace
        content = describe_namespace(namespace)
        return _one(self._entry(request, resource, namespace.name, namespace.created_at, content))

    def _get_entity(self, request: AtomRequest, resource: EntityAt | SubscriptionAt) -> AtomResponse:
        try:
            entity = self._find(resource)
        except EntityNotFound:
            if isinstance(resource, SubscriptionAt):
                raise
            address = self._address(request, resource)
            return AtomResponse(
                200, atom_documents.feed_document(address, NOTHING_HERE, [], next_page=None, now=self._clock()), _FEED
            )
        return _one(self._describe(request, entity), _etag(entity))

    def _get_rule(self, request: AtomRequest, resource: RuleAt) -> AtomResponse:
        rule = self._subscription(resource).rules[resource.name]
        return _one(self._describe_rule(request, resource, rule), _etag(rule))

    def _list_entities(self, request: AtomRequest, resource: EntityList) -> AtomResponse:
        queues = resource.listed is Listed.QUEUES
        found: Sequence[Entity] = self._namespace.queues() if queues else self._namespace.topics()
        return self._page(request, resource, found, lambda entity: self._describe(request, entity))

    def _list_subscriptions(self, request: AtomRequest, resource: SubscriptionList) -> AtomResponse:
        found = self._namespace.subscriptions(resource.topic)
        return self._page(request, resource, found, lambda entity: self._describe(request, entity))

    def _list_rules(self, request: AtomRequest, resource: RuleList) -> AtomResponse:
        rules = list(self._subscription(resource).rules)
        return self._page(request, resource, rules, lambda rule: self._describe_rule(request, resource, rule))

    def _page(
        self,
        request: AtomRequest,
        resource: Resource,
        found: Sequence[Item],
        describe: Callable[[Item], atom_documents.AtomEntry],
    ) -> AtomResponse:
        query = request.query
        skip, top = _count(query, "$skip", 0), min(_count(query, "$top", MAX_PAGE), MAX_PAGE)
        address, next_page = self._address(request, resource), None
        if top and skip + top < len(found):
            next_page = f"{address}?api-version={request.version}&$skip={skip + top}&$top={top}"
        entries = [describe(item) for item in found[skip : skip + top]]
        title = url_path(resource).rpartition("/")[2]
        return AtomResponse(
            200, atom_documents.feed_document(address, title, entries, next_page=next_page, now=self._clock()), _FEED
        )

    # ------------------------------------------------------------------ changing

    def _put(self, request: AtomRequest, resource: EntityAt | SubscriptionAt) -> AtomResponse:
        description = atom_documents.content_of(request.body)
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
        raise AtomRefusal(400, f"the description does not fit the address '/{url_path(at)}'")

    def _put_rule(self, request: AtomRequest, resource: RuleAt) -> AtomResponse:
        rules = self._subscription(resource).rules
        present = rules[resource.name] if self._is_update(request) else None
        self._check_match(request, resource, present)
        rule = read_rule(atom_documents.content_of(request.body), name=resource.name)
        act = self._namespace.update_rule if present else self._namespace.create_rule
        rule = act(resource.topic, resource.subscription, rule)
        return _one(self._describe_rule(request, resource, rule), _etag(rule), status=200 if present else 201)

    def _delete(self, request: AtomRequest, resource: EntityAt | SubscriptionAt) -> AtomResponse:
        self._check_match(request, resource, self._find(resource))
        match resource:
            case EntityAt(path):
                self._namespace.delete(path)
            case SubscriptionAt(topic, name):
                self._namespace.delete_subscription(topic, name)
        self._changed()
        return AtomResponse(200)

    def _delete_rule(self, request: AtomRequest, resource: RuleAt) -> AtomResponse:
        self._check_match(request, resource, self._subscription(resource).rules[resource.name])
        self._namespace.delete_rule(resource.topic, resource.subscription, resource.name)
        return AtomResponse(200)

    @staticmethod
    def _is_update(request: AtomRequest) -> bool:
        return "if-match" in request.headers

    def _check_match(self, request: AtomRequest, resource: Resource, present: Entity | Rule | None) -> None:
        """Raise AtomRefusal (412) if the request is for another state of the entity."""
        condition = request.headers.get("if-match", "*").strip()
        if present is not None and condition not in ("*", _etag(present)):
            raise AtomRefusal(412, f"'/{url_path(resource)}' was changed since; read it again and repeat the change")

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

    def _describe(self, request: AtomRequest, entity: Entity) -> atom_documents.AtomEntry:
        at: Resource = EntityAt(entity.path)
        title, kind = entity.path, kind_of(entity.settings)
        if isinstance(entity, Subscription):
            at, title = SubscriptionAt(entity.topic.path, entity.name), entity.name
        content = kind.write(entity, self._authority(request), request.version)
        return self._entry(request, at, title, entity.created_at, content, entity.updated_at)

    def _describe_rule(self, request: AtomRequest, at: RuleAt | RuleList, rule: Rule) -> atom_documents.AtomEntry:
        place = RuleAt(at.topic, at.subscription, rule.name)
        return self._entry(request, place, rule.name, rule.created_at, write_rule(rule))

    def _entry(
        self,
        request: AtomRequest,
        at: Resource,
        title: str,
        published: float,
        content: ElementTree.Element,
        updated: float | None = None,
    ) -> atom_documents.AtomEntry:
        return atom_documents.AtomEntry(
            address=self._address(request, at),
            title=title,
            author=self._namespace.name,
            published=published,
            updated=published if updated is None else updated,
            content=content,
        )

    def _address(self, request: AtomRequest, at: Resource) -> str:
        return f"https://{self._authority(request)}/{url_path(at)}"

    def _authority(self, request: AtomRequest) -> str:
        return request.headers.get("host") or self._namespace.name

    _ACTIONS: ClassVar[Mapping[tuple[str, type[Any]], Callable[[ManagementApi, AtomRequest, Any], AtomResponse]]] = {
        ("GET", NamespaceInfoResource): _get_namespace,
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


def _one(entry: atom_documents.AtomEntry, etag: str | None = None, *, status: int = 200) -> AtomResponse:
    headers = {"Content-Type": "application/atom+xml;type=entry;charset=utf-8"}
    return AtomResponse(
        status, atom_documents.entry_document(entry), headers if etag is None else headers | {"ETag": etag}
    )


def _refused(status: int, detail: str) -> AtomResponse:
    return AtomResponse(
        status, atom_documents.error_document(status, detail), {"Content-Type": "application/xml; charset=utf-8"}
    )


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
