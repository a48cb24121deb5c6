"""A new order before it is signed: who may refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fleet_views import AT, engine

from paired_servicebus.core.fleet.orders.order_draft import OrderDraft, draft_order
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetView, Takes
from paired_servicebus.core.operator.actions import FLEET_VERBS


def draft(fleet: list[FleetEngine], /, **changes: Any) -> OrderDraft:
    view = FleetView(me="web-1", my_boot="b1", engines=tuple(fleet), read_at=AT)
    chosen: dict[str, Any] = {
        "order_id": "0" * 32, "primary": "shop-ne", "secondary": "shop-we", "scope": "entity",
        "targets": ("payments",), "engines": None, "why": "drill", "stands_for": None, "now": AT,
    }  # fmt: skip
    return draft_order(view, FLEET_VERBS["force"], **chosen | changes)


@pytest.mark.parametrize(
    ("changes", "remarks"),
    [
        ({}, ()),
        ({"signers": "other"}, ("may refuse (another file of signers): web-2",)),
        ({"signers": "", "takes": Takes.LOOK_ONLY}, ("will refuse (look only): web-2",)),
        ({"signers": "other", "takes": Takes.READ_ONLY}, ("will refuse (read-only): web-2",)),
    ],
)
def test_who_may_refuse_is_known_before_the_order_is_given(changes: dict[str, Any], remarks: tuple[str, ...]) -> None:
    """Signers files differ: presence carries the hash; said before the order is given."""
    assert draft([engine(1), engine(2, **changes)]).takes == remarks


def test_files_are_compared_with_the_posting_engines_and_only_of_engines_addressed() -> None:
    fleet = [engine(1, signers="mine"), engine(2), engine(3)]
    assert draft(fleet).takes == ("may refuse (another file of signers): web-2, web-3",)
    assert draft(fleet, engines=("web-1",)).takes == ()
