"""The common part of ARM's handlers: namespaces, parsed requests, answers, pages.

Slashes in names are `%2F` or, by ARM's convention, `~`; ids are written with `~`. Words compare without regard to case.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode

from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.arm.resource_json import Json
from servicebus_sandbox.atom.management_api import AtomRequest
from servicebus_sandbox.serving.http_server import FaultGate
from servicebus_sandbox.specs import NamespaceSpec

PROVIDER = "Microsoft.ServiceBus"
_WITH_SLASHES = ("queues", "topics")


@dataclass(frozen=True, slots=True)
class ArmAddress:
    """The part of an address behind the provider: `words` are collections and operations in lower case.

    `.../namespaces/n/queues/a~b` has the words (namespaces, queues) and the names (n, a/b). `group` is None if the
    address has none.
    """

    subscription: str
    group: str | None
    words: tuple[str, ...]
    names: tuple[str, ...]


def read_address(raw_path: str) -> ArmAddress | None:
    """Return the address in an encoded URL path; None if it is not of this provider."""
    parts = [part for part in raw_path.split("/") if part]
    lower = [part.lower() for part in parts]
    group = None
    if lower[:1] != ["subscriptions"] or len(parts) < 2:
        return None
    at = 2
    if lower[2:3] == ["resourcegroups"] and len(parts) > 3:
        group, at = unquote(parts[3]), 4
    if lower[at : at + 2] != ["providers", PROVIDER.lower()]:
        return None
    words, names = lower[at + 2 :: 2], parts[at + 3 :: 2]
    named = [_name(word, name) for word, name in zip(words, names, strict=False)]
    return ArmAddress(unquote(parts[1]), group, tuple(words), tuple(named))


def entity_path(address: ArmAddress) -> str:
    """Return the path of the queue, topic or subscription at or above the address; empty for a namespace."""
    if address.words[1:2] not in (("queues",), ("topics",)):
        return ""
    below = address.names[1:3] if address.words[2:3] == ("subscriptions",) else address.names[1:2]
    return "/subscriptions/".join(below)


def _name(word: str, raw: str) -> str:
    name = unquote(raw)
    return name.replace("~", "/") if word in _WITH_SLASHES else name


def resource_id(subscription: str, group: str, *path: str) -> str:
    """Return the id of a resource; `path` alternates collections and names as written."""
    parts = "/".join(quote(part.replace("/", "~"), safe="$~") for part in path)
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{PROVIDER}/{parts}"


Item = TypeVar("Item")

MAX_PAGE = 100
DEFAULT_GROUP = "sandbox"
_WORDS = {"authorizationrules": "authorizationRules", "networkrulesets": "networkRuleSets"}


@dataclass(slots=True, kw_only=True)
class ArmNamespace:
    """A namespace in ARM: its server, its address (`127.0.0.1:5671`), and properties that only ARM has."""

    node: NamespaceServer
    authority: str
    group: str = DEFAULT_GROUP
    tags: dict[str, str] = field(default_factory=dict)
    capacity: int = 1
    zone_redundant: bool = False
    gate: FaultGate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = FaultGate(self.node.faults)


class NamespaceOwner(Protocol):
    """The creator and remover of namespaces."""

    async def open(self, spec: NamespaceSpec) -> ArmNamespace:
        """Create a namespace that does not exist; it is reachable immediately."""

    async def end(self, name: str) -> None:
        """End a namespace with its connections and contents."""


class ArmNamespaces:
    """All namespaces by name without regard to case. Without an owner none can be created or deleted."""

    def __init__(self, places: Sequence[ArmNamespace], owner: NamespaceOwner | None) -> None:
        self.owner = owner
        self.changing = asyncio.Lock()
        self._places: dict[str, ArmNamespace] = {}
        for place in places:
            self.add(place)

    def add(self, place: ArmNamespace) -> None:
        self._places[place.node.name.lower()] = place

    def remove(self, place: ArmNamespace) -> None:
        del self._places[place.node.name.lower()]
        place.gate.close()

    def get(self, name: str) -> ArmNamespace | None:
        return self._places.get(name.lower())

    def all(self) -> list[ArmNamespace]:
        return list(self._places.values())


@dataclass(frozen=True, slots=True)
class ArmResponse:
    """An answer; `body` is an object, None if it is empty."""

    status: int
    body: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class ArmRefusal(Exception):
    """An answer with an error: HTTP status, ARM's code, one sentence."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """A request with a valid address."""

    request: AtomRequest
    address: ArmAddress
    places: ArmNamespaces

    @property
    def names(self) -> tuple[str, ...]:
        return self.address.names

    @property
    def words(self) -> tuple[str, ...]:
        return self.address.words

    @property
    def place(self) -> ArmNamespace:
        """Return the namespace of the address. Raises ArmRefusal (404)."""
        place = self.places.get(self.names[0])
        if place is None:
            raise ArmRefusal(404, "ResourceNotFound", f"there is no namespace '{self.names[0]}'")
        return place

    def body(self) -> Json:
        """Return the body. Raises ArmRefusal (400) if it is not a JSON object."""
        try:
            found = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise ArmRefusal(400, "InvalidRequestContent", f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ArmRefusal(400, "InvalidRequestContent", "the body has to be an object")
        return found

    def part_of_body(self, name: str) -> Json:
        """Return an object in the body, empty if it is missing. Raises ArmRefusal (400)."""
        found = self.body().get(name)
        if found is not None and not isinstance(found, dict):
            raise ArmRefusal(400, "InvalidRequestContent", f"'{name}' has to be an object")
        return found or {}

    def resource(self, names: Sequence[str], properties: Json) -> Json:
        """Return a resource below the namespace, with the words of this address; `names` exclude the namespace."""
        place = self.place
        words = [_WORDS.get(word, word) for word in self.words[: len(names) + 1]]
        path = [part for pair in zip(words, (place.node.name, *names), strict=True) for part in pair]
        return {
            "id": resource_id(self.address.subscription, self.address.group or place.group, *path),
            "name": names[-1],
            "type": f"{PROVIDER}/{'/'.join(words)}",
            "location": place.node.region,
            "properties": properties,
        }

    def page(self, items: Sequence[Item], describe: Callable[[Item], Json]) -> ArmResponse:
        """Return a page of a list, with the address of the next one if there is more."""
        skip, top = self._number("$skip", 0), min(self._number("$top", MAX_PAGE), MAX_PAGE)
        found: Json = {"value": [describe(item) for item in items[skip : skip + top]]}
        if top and skip + top < len(items):
            query = urlencode({**self.request.query, "$skip": skip + top, "$top": top}, safe="$")
            found["nextLink"] = f"{self.request.origin}{self.request.path}?{query}"
        return ArmResponse(200, found)

    def _number(self, name: str, default: int) -> int:
        text = self.request.query.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ArmRefusal(400, "BadRequest", f"{name} is '{text}'; it has to be a whole number, 0 or more")
        return int(text)


Action = Callable[[ArmRequest], ArmResponse | Awaitable[ArmResponse]]
Actions = Mapping[tuple[str, tuple[str, ...], int], Action]
"""The handler for a method, the words of an address, and the number of its names."""
