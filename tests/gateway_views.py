"""Made-up gateways for the tests of screens, metrics and verbs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paired_servicebus.core.model.gateway_view import (
    GatewayClient,
    GatewayLink,
    GatewayRefusal,
    GatewayView,
    LinkDirection,
    SendsGo,
    TurnedAway,
    TurnedAwayView,
)
from tests.fleet_views import at

PRIMARY, BACKLOG, HELD = SendsGo.PRIMARY, SendsGo.BACKLOG, SendsGo.HELD


def client(number: int, sdk: str, version: str, links: dict[str, SendsGo], **changes: Any) -> GatewayClient:
    """A client that sends to these entities."""
    base = GatewayClient(
        id=number, sdk=sdk, version=version, key="web", address=f"127.0.0.1:{52000 + number}", since=at("09:30:00"),
        links=tuple(GatewayLink(entity=path, direction=LinkDirection.SENDS, goes=goes) for path, goes in links.items()),
        link_count=len(links), accepted=120_312, accepted_per_second=38.0,
    )  # fmt: skip
    return replace(base, **changes)


def outage(**changes: Any) -> GatewayView:
    """Clients of five languages; payments is failed over, and one client sends what the backlog cannot take."""
    large = "the message has 300,112 bytes; the backlog takes 262,144"
    failing = client(
        7, ".NET", "7.20.1", {"payments": BACKLOG}, key="billing", refused=12, refused_per_second=0.4,
        refused_since=at("14:01:10"), last_refused_at=at("14:02:05"), accepted_per_second=0.0,
        last_condition="amqp:link:message-size-exceeded", last_refusal=large,
    )  # fmt: skip
    held = client(4, "JavaScript", "7.9.5", {"invoices": HELD}, bytes_in_hand=48_000, accepted_per_second=0.0)
    java = client(2, "Java", "7.17.8", {"payments": BACKLOG, "orders": PRIMARY, "audit": PRIMARY}, bytes_in_hand=1_200)
    go = client(9, "Go", "1.7.1", {"orders": PRIMARY}, since=at("14:00:00"), accepted=412)
    python = client(11, "Python", "7.14.3", {"audit": PRIMARY}, key="reports", accepted_per_second=4.1)
    nameless = client(12, "", "", {}, key="", since=at("14:02:08"), accepted=0, accepted_per_second=0.0)
    base = GatewayView(
        address="127.0.0.1", port=5673, since=at("09:12:40"), count=6,
        clients=(failing, held, java, go, python, nameless), failing=1,
        senders=(("payments", 2), ("orders", 2), ("audit", 2), ("invoices", 1)), accepted=361_348, refused=14,
        accepted_per_second=80.1, refused_per_second=0.4, bytes_in_hand=49_200, bytes_limit=64 * 1024**2,
        refusals=(
            GatewayRefusal(entity="payments", key="billing", sdk=".NET", version="7.20.1", count=12,
                           condition=failing.last_condition, sentence=large, last_at=at("14:02:05")),
            GatewayRefusal(entity="orders", key="reports", sdk="Python", version="7.14.3", count=2,
                           condition="com.microsoft:argument-error", last_at=at("13:40:11"),
                           sentence="the application property x-ms-path is reserved"),
        ),
    )  # fmt: skip
    return replace(base, **changes)


def many(number: int) -> GatewayView:
    """More clients than a view lists."""
    clients = tuple(client(one, "Go", "1.7.1", {"orders": PRIMARY}) for one in range(1, min(number, 50) + 1))
    return outage(clients=clients, count=number, failing=0, senders=(("orders", number),), refusals=())


def wrong_key() -> TurnedAwayView:
    """Clients with an old key."""
    text = "InvalidSignature: The signature was not made with the gateway's key 'web'."
    return TurnedAwayView(why=TurnedAway.WRONG_KEY, count=3, last_at=at("14:02:00"), last_text=text)
