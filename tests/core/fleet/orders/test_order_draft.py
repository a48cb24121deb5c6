"""A new order before it is signed: who may refuse it, and what no engine would read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.approval import Approve
from tests.fleet_views import AT, engine

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import MAX_BYTES, MAX_SIGNED_BYTES, Order
from paired_servicebus.core.fleet.orders.order_draft import OrderDraft, draft_order
from paired_servicebus.core.fleet.orders.order_text import decode_order_text, encode_order_text
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetView, Takes
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.control.protocol import MAX_CLIENT_LINE_BYTES, PostOrder, encode
from paired_servicebus.engine.fleet.board_codec import write_body


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


def test_files_are_compared_with_the_posting_engines_and_only_of_engines_addressed(approve: Approve) -> None:
    fleet = [engine(1, signers="mine"), engine(2), engine(3)]
    approve.part(draft(fleet).takes, "rules of orders", has=("web-2", "web-3"))
    assert draft(fleet, engines=("web-1",)).takes == ()


NAMES = tuple(f"payments/service-{number:03}" for number in range(500))


@pytest.mark.parametrize(
    ("engines", "changes", "counts"),
    [
        (
            [engine(1)],
            {"targets": tuple(f"{name}-{copy}" for name in NAMES for copy in "abcd")},
            "2,000 targets and 1 engine,",
        ),
        (
            [engine(1)],
            {"engines": tuple(f"{name}-{copy}" for name in NAMES for copy in "abcd")},
            "1 target and 2,000 engines,",
        ),
        (
            [engine(number, engine="orders@shop-web-7d9f8b6c5-" + f"{number}" * 8) for number in range(1000, 1500)],
            {"targets": NAMES},
            "500 targets and 500 engines,",
        ),
    ],
)
def test_an_order_that_no_engine_would_read_is_refused_before_it_is_signed(
    engines: list[FleetEngine], changes: dict[str, Any], counts: str
) -> None:
    with pytest.raises(ConfigurationError, match="bytes with") as raised:
        draft(engines, **changes)
    assert counts in str(raised.value)
    assert str(raised.value).endswith("give it in parts, with fewer targets or fewer named engines each")


def test_the_confirmation_is_part_of_the_size(approve: Approve) -> None:
    """What passes here is read by every engine."""
    found = draft([engine(1)], targets=("p" * (MAX_SIGNED_BYTES // 3),))
    assert decode_order_text(encode_order_text(found.confirm(found.to_type))).typed == "p" * (MAX_SIGNED_BYTES // 3)
    with pytest.raises(ConfigurationError) as refused:
        draft([engine(1)], targets=("p" * (MAX_SIGNED_BYTES // 2),))
    approve.part(refused.value, "rules of orders", has=("1 target", "1 engine"))


def test_a_part_of_the_targets_passes() -> None:
    found = draft([replace(engine(number), boot=f"b{number}") for number in range(1, 21)], targets=NAMES[:250])
    assert len(encode_order_text(found.confirm(found.to_type))) > 6000


def test_an_order_to_all_of_500_engines_in_an_outage_fits_its_message_and_a_line_of_the_socket() -> None:
    """To be reached: 500 engines, here with names of pods."""
    names = (f"orders@shop-web-7d9f8b6c5-{number:05x}" for number in range(70_000, 70_500))
    fleet = [engine(1), *(engine(number, State.FAILED_OVER, engine=name) for number, name in enumerate(names, 2))]
    found = draft(fleet)
    text = found.confirm(found.to_type)
    signed = encode_order_text(text)
    order = Order(text=text, signed=signed, signature="s" * 300)
    assert len(signed) > 16 * 1024
    assert len(write_body(order)[0]) < MAX_BYTES / 3
    line = encode(PostOrder(id=1, action_id="force", by="ada", signed=signed.decode(), signature="s" * 300))
    assert len(line) < MAX_CLIENT_LINE_BYTES * 2 / 3
