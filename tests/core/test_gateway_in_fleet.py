"""What a report tells other hosts of an engine's gateway: that clients of other languages are steered there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests import fleet_views, gateway_views
from tests.approval import Approve

from paired_servicebus.core.fleet.board.document_bounds import sum_figures
from paired_servicebus.core.model.gateway_view import without_clients
from paired_servicebus.core.model.snapshot import BilledView, Snapshot, SyphonStatus, SyphonView
from paired_servicebus.core.operator.fleet_sentences import fleet_lines, gateways_part


def snapshot(**changes: Any) -> Snapshot:
    base = Snapshot(
        engine="e", boot="b", pid=1, seq=1, at=1.0, pairing="p", environment="", primary="a", secondary="b",
        read_only=False, entities=(), queues=(), syphon=SyphonView(status=SyphonStatus.OFF, text=""),
        billed=BilledView(), times="",
    )  # fmt: skip
    return replace(base, **changes)


@pytest.mark.parametrize(("gateway", "clients"), [(None, None), (gateway_views.many(1000), 1000)])
def test_a_report_has_a_figure_for_its_gateway(gateway: Any, clients: int | None) -> None:
    assert sum_figures(snapshot(gateway=gateway), 1.0).gateway_clients == clients


def test_a_report_has_no_clients_since_its_size_is_limited() -> None:
    bare = without_clients(gateway_views.many(1000))
    assert len(msgspec.json.encode(bare)) < 600
    assert bare.count == 1000


def test_other_hosts_see_where_clients_are_steered(approve: Approve) -> None:
    busy = [fleet_views.engine(number) for number in (1, 2, 3)]
    busy = [
        replace(one, figures=replace(one.figures, gateway_clients=number))  # type: ignore[type-var]
        for one, number in zip(busy, (3, None, 12), strict=True)
    ]
    view = replace(fleet_views.calm(), engines=tuple(busy))
    approve.part(gateways_part(view)[0], "rules", has=("15 clients", "12 at", "web-3", "3 at", "web-1"))
    approve.part(fleet_lines(view, fleet_views.AT), "rules", has=("15 clients", "12 at", "web-3", "3 at", "web-1"))
    assert gateways_part(fleet_views.calm()) == ()
