"""Orders of a fleet, made for tests of the rules: their signatures are not real."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paired_servicebus.core.fleet.fleet_documents import (
    Order,
    OrderText,
    Posted,
    Signer,
    Unverified,
    encode_order_text,
)
from paired_servicebus.core.fleet.order_rules import MAX_STANDING_SECONDS, to_type
from paired_servicebus.core.operator.actions import FLEET_VERBS

T0 = 1_800_000_000.0
SIGNER = Signer(by="operator-a", fingerprint="SHA256:x")


def made_text(
    verb: str = "force", *targets: str, at: float = T0, lasts: float | None = None, **changes: Any
) -> OrderText:
    """Return the text of an order about `payments`, or about the targets, issued at a time."""
    row = FLEET_VERBS.get(verb, FLEET_VERBS["force"])
    is_entity = row.scopes[0] == "entity"
    text = OrderText(
        primary="shop-ne", secondary="shop-we", verb=verb, scope=row.scopes[0],
        targets=(targets or ("payments",)) if is_entity else targets, engines=None, typed="", reach=2, why="drill",
        issued_at=at, until=at + (lasts or (3600.0 if row.stands else MAX_STANDING_SECONDS)), seen="",
    )  # fmt: skip
    text = replace(text, **changes)
    return text if "typed" in changes else replace(text, typed=to_type(text, row))


def made_order(verb: str = "force", *targets: str, **changes: Any) -> Order:
    """Return an order; made_text has the arguments."""
    return Order(signed=encode_order_text(made_text(verb, *targets, **changes)).decode(), signature="s")


def post_of(order: Order, number: int = 1, *, at: float | None = None, signer: Signer | Unverified = SIGNER) -> Posted:
    """Return an order as an engine reads it from the board."""
    at = order.text.issued_at if at is None else at
    return Posted(number=number, enqueued_at=at, ends_at=at + 3e5, document=order, signer=signer)
