"""The words about the gateway and its clients: where sends go, alarms, verdicts and remedies. Pure tables and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.gateway_view import (
    GatewayClient,
    GatewayView,
    LinkDirection,
    SendsGo,
    TurnedAway,
    TurnedAwayView,
)
from paired_servicebus.core.model.snapshot import NOWHERE, EntityView, Snapshot
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import plural, rate, size
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.core.text.untrusted_text import one_line

# The SDK of a client, by the properties of its open frame.
#
# Every official SDK sends a `user-agent` such as `azsdk-js-azureservicebus/7.9.5 ...`; an application's own text may
# come before it. All of it is a stranger's text.

MAX_NAME: Final = 40
MAX_VERSION: Final = 20
MAX_CONTAINER: Final = 60
MAX_SENTENCE: Final = 160
_READ: Final = 400
"""Characters of a property that are read at all."""
_LANGUAGES: Final = {"python": "Python", "js": "JavaScript", "java": "Java", "go": "Go", "net": ".NET"}
_SDK: Final = re.compile(r"azsdk-(python|js|java|go|net)-[\w.-]+/v?([\w.+-]+)", re.ASCII)


class ClientName(NamedTuple):
    """sdk: its language, or another product's name; empty: it named none."""

    sdk: str
    version: str
    container: str


NAMELESS: Final = ClientName("", "", "")


def foreign(text: object, most: int) -> str:
    """Return a client's text as one short, harmless line without secrets; empty if it is no text."""
    return one_line(masked(text[:_READ]), most=most) if isinstance(text, str) else ""


def client_name(container_id: object, properties: Mapping[Any, Any] | None) -> ClientName:
    """Return the name of a client by its open frame."""
    known = {str(name): value for name, value in (properties or {}).items() if str(name) in _PROPERTIES}
    container, agent = foreign(container_id, MAX_CONTAINER), known.get("user-agent")
    found = _SDK.search(agent[:_READ]) if isinstance(agent, str) else None
    if found is not None:
        return ClientName(_LANGUAGES[found[1]], _version(found[2])[:MAX_VERSION], container)
    product = foreign(known.get("product"), MAX_NAME)
    return ClientName(product, foreign(known.get("version"), MAX_VERSION) if product else "", container)


def _version(text: str) -> str:
    """Return a version as its package has it: .NET sends its assembly's, 7.2100.26.47403 for 7.21.0."""
    found = _ASSEMBLY.fullmatch(text)
    return f"{found[1]}.{int(found[2])}.{int(found[3])}" if found is not None else text


_ASSEMBLY: Final = re.compile(r"(\d+)\.(\d{1,2})(\d\d)\.\d+\.\d+", re.ASCII)
"""Major, then minor and patch in one number, build and revision."""
_PROPERTIES: Final = frozenset({"user-agent", "product", "version"})


RECENT_SECONDS: Final = 300.0
"""Seconds for which a client that was turned away is an alarm."""
NO_GATEWAY: Final = (
    "no gateway: this engine carries no sends of other languages",
    "",
    "to get one: add a section [gateway] to pairing.toml and restart the engine",
    "then: paired gateway prints the string for Java, JavaScript, Go, .NET, Python",
)
NO_CLIENTS: Final = (
    "no client is connected",
    "",
    "paired gateway prints the connection string for applications",
)


def where_sends_go(entity: EntityView | None) -> SendsGo:
    """Return where a client's sends to an entity go now."""
    if entity is None:
        return SendsGo.UNKNOWN
    if entity.route == NOWHERE or (entity.state in DIVERTING and entity.refused_since is not None):
        return SendsGo.REFUSED
    if entity.state in DIVERTING:
        return SendsGo.BACKLOG
    return SendsGo.HELD if entity.state is State.SUSPECT else SendsGo.PRIMARY


def with_gateway(snapshot: Snapshot, view: GatewayView) -> Snapshot:
    """Return an engine's snapshot with its gateway, and with each entity's senders."""
    senders = {path.casefold(): number for path, number in view.senders}
    entities = tuple(
        replace(one, gateway_senders=number) if (number := senders.get(one.path.casefold(), 0)) else one
        for one in snapshot.entities
    )
    return replace(snapshot, gateway=view, entities=entities)


def senders_text(entity: EntityView) -> str:
    """Return how many senders an entity has through the gateway; empty: none."""
    return plural(entity.gateway_senders, "gateway sender") if entity.gateway_senders else ""


def turned_away(view: GatewayView, now: float) -> Iterator[tuple[str, str, str]]:
    """Yield the clients that were turned away lately: for what reason, a sentence, and what to do."""
    for one in view.turned_away:
        if one.why in _ALARMING and now - one.last_at < RECENT_SECONDS:
            event, remedy = _ALARMING[one.why]
            what = event.format(clients=plural(one.count, "client"))
            text = one.last_text.rstrip(".")
            yield one.why, f"{what}{_times(one)}, the latest at {clock(one.last_at)}: {text}", remedy


def _times(one: TurnedAwayView) -> str:
    return f", {one.times:,} times" if one.times > one.count else ""


_TURNED: Final = "the gateway turned {clients} away"
_ALARMING: Final = {
    TurnedAway.WRONG_KEY: (_TURNED, "give it the string that paired gateway prints"),
    TurnedAway.BAD_TOKEN: (_TURNED, "check the clock of its machine"),
    TurnedAway.MISSING_RIGHT: (_TURNED, "give it a key with that right"),
    TurnedAway.ENGINE_REFUSED: (
        "the primary refuses the engine's own credential for {clients} of the gateway",
        "replace it in pairing.toml or its file; the clients' keys are good",
    ),
    TurnedAway.UNKNOWN_ERROR: ("requests of {clients} failed inside the gateway", "report it, with the engine's log"),
}
"""What happened, and what to do about it. A client of another protocol is no fault of a gateway: it has its hint in the
log and a count in the metrics."""


def client_title(client: GatewayClient) -> str:
    """Return its SDK and version."""
    return f"{client.sdk or 'unnamed client'} {client.version}".rstrip()


def gateway_figures(view: GatewayView) -> tuple[str, ...]:
    """Return the gateway in one line of figures, longest wording first."""
    sends = f"{rate(view.accepted_per_second)} sends/s"
    refused = f"{rate(view.refused_per_second)} refused/s"
    hand = f"{size(view.bytes_in_hand)} of {size(view.bytes_limit)} in hand"
    total = f"{view.accepted:,} accepted, {view.refused:,} refused"
    return (f"{sends}, {refused} · {hand} · {total} in all", f"{sends}, {refused} · {hand}", f"{sends}, {refused}")


def status_lines(view: GatewayView | None) -> list[str]:
    """Return the gateway for `paired status`; empty without one."""
    if view is None:
        return []
    if not view.listens:
        return [f"gateway   does not listen: {view.trouble or 'not started'}"]
    failing = f", {view.failing:,} failing" if view.failing else ""
    return [
        f"gateway   {view.address}:{view.port}, {plural(view.count, 'client')}{failing}, {gateway_figures(view)[-1]}"
    ]


def where_text(client: GatewayClient) -> str:
    """Return where its sends go, in a word or two: "primary", "2 backlog, 1 primary"."""
    counts: dict[SendsGo, int] = {}
    for link in client.links:
        if link.direction is LinkDirection.SENDS:
            counts[link.goes] = counts.get(link.goes, 0) + 1
    if not counts:
        return "sends nothing"
    if len(counts) == 1:
        return next(iter(counts)).value
    return ", ".join(f"{counts[way]} {way}" for way in _WORST_FIRST if way in counts)


_WORST_FIRST: Final = (SendsGo.REFUSED, SendsGo.HELD, SendsGo.BACKLOG, SendsGo.UNKNOWN, SendsGo.PRIMARY)


def is_troubled(client: GatewayClient) -> bool:
    """Return whether an operator should look at it."""
    return client.failing or client.paused or bool(client.goes & {SendsGo.REFUSED, SendsGo.HELD})


def verdict(client: GatewayClient, now: float) -> str:
    """Return whether its sends fail, and since when."""
    if client.refused_since is not None:
        return f"sends fail since {clock(client.refused_since)} ({age(now - client.refused_since)})"
    if SendsGo.HELD in client.goes:
        return "sends wait, none fails: the primary does not answer for an entity"
    if client.last_refused_at is not None:
        return f"sends are accepted; the latest refusal was at {clock(client.last_refused_at)}"
    if not client.accepted:
        return "nothing sent yet, nothing refused"
    return "sends are accepted, none refused"


def todo(client: GatewayClient) -> str:
    """Return what the operator should do about a client."""
    is_out = not any(link.links for link in client.links if link.direction is LinkDirection.SENDS)
    if (client.failing or is_out) and client.last_condition in _TODO:
        return _TODO[client.last_condition]
    if client.paused:
        return "it is not read until a namespace takes what is in hand; see page 1"
    for way in _WORST_FIRST:
        if way in client.goes and way in _TODO_OF_WAY:
            return _TODO_OF_WAY[way]
    if not client.key:
        return "it has not proven a key yet; it is closed 60 s after it connected"
    return "nothing to do"


_TODO: Final = {
    "com.microsoft:timeout": "nothing here: its SDK sends again; see page 1 for why no namespace answers",
    "com.microsoft:server-busy": "nothing here: its SDK sends again; the namespace throttles",
    "com.microsoft:argument-error": "change the application: the message itself is not possible",
    "amqp:link:message-size-exceeded": "send smaller messages: while failed over the backlog's limit counts",
    "amqp:unauthorized-access": "check the engine's own credential: paired check",
    "amqp:not-found": "check the entity's name: the primary has none of that name",
    "amqp:not-implemented": "give this application the namespace's own connection string",
}
_TODO_OF_WAY: Final = {
    SendsGo.REFUSED: "both namespaces refuse; see page 1",
    SendsGo.HELD: "wait for the primary's answer or the failover, or force it on page 1",
    SendsGo.BACKLOG: "nothing: they are parked and return by themselves",
}
