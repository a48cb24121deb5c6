"""Signed orders through the guard: what is refused, what holds already, and the audit before the act."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import (
    Order,
    OrderText,
    Outcome,
    StandingFleetOrder,
    encode_order_text,
    order_id,
)
from paired_servicebus.core.fleet.fleet_events import CarryOut, OrderEnded, Undo
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.engine.commands.guard import StandingOrders, take_up_stored
from paired_servicebus.engine.control.protocol import CommandDone, PostOrder
from tests.approval import Approve

from .conftest import FakePairing, entity
from .test_guard import Site

FORCE = OrderText(
    primary="contoso", secondary="contoso-backup", verb="force", scope="entity", targets=("orders",),
    engines=None, typed="orders", reach=1, why="drill", issued_at=1.0, until=3601.0, seen="",
)  # fmt: skip
ID = order_id(encode_order_text(FORCE))
STANDS = StandingFleetOrder(
    subject=("entity", "entity", "orders"), order_id="o1", label="force failover", since=1.0, until=3601.0,
    command=Command(action_id="force", scope="entity", targets=("orders",), by="operator-a", why="drill"),
)  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(FakePairing(entities={"orders": entity("orders")}), tmp_path)


async def carry_out(site: Site, text: OrderText = FORCE, *, late: str = "") -> OrderEnded:
    order = Order(signed=encode_order_text(text).decode(), signature="s")
    by = "operator-a (SHA256:x)"
    command = Command(action_id=text.verb, scope=text.scope, targets=text.targets, by=by, why=text.why)
    return await site.guard.carry_out(CarryOut(order=order, command=command, late=late))


async def test_the_audit_line_is_on_disk_before_the_act_and_names_the_signer(site: Site, approve: Approve) -> None:
    """ "Then the guard, as for every way in: read-only, require_reason, audit line on disk before the act." """
    ended = await carry_out(site, late="takes effect 3 min late")
    assert (ended.outcome, ended.text) == (Outcome.DONE, "orders is forced now; takes effect 3 min late")
    line, synced, acted, outcome = site.audit.said
    assert isinstance(line, Commanded)
    assert (line.command, line.target, line.by) == ("force", "orders", "operator-a (SHA256:x)")
    approve.part(line.why, "errors of the engine", has=("of the fleet",))
    assert (synced, acted) == ("synced", "acted")
    assert isinstance(outcome, CommandEnded)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"read_only": True}, "this engine is read-only, and force failover changes something"),
        ({"require_reason": True}, "force failover needs a reason here (require_reason is set)"),
    ],
)
async def test_a_refusal_has_its_reason_and_an_audit_line(site: Site, changes: dict[str, bool], sentence: str) -> None:
    site = Site(site.pairing, site.folder, **changes)
    ended = await carry_out(site, replace(FORCE, why=""))
    assert (ended.outcome, ended.text, ended.not_held) == (Outcome.REFUSED, sentence, ("orders",))
    assert site.audit.kinds == [Commanded, CommandEnded]
    assert site.pairing.acts == []


async def test_a_read_only_engine_takes_an_order_that_prolongs_what_holds(site: Site) -> None:
    """Else its end could not be moved without making it writable first."""
    site.pairing.entities["orders"] = entity("orders", State.FORCED)
    site.reach.read_only = True
    assert (await carry_out(site)).outcome is Outcome.DONE
    order = replace(FORCE, verb="read-only", scope="all", targets=())
    ended = await carry_out(site, order)
    assert (ended.outcome, ended.not_held) == (Outcome.DONE, ())


async def test_a_read_only_engine_takes_the_order_that_ends_it(site: Site) -> None:
    site.reach.read_only = True
    order = replace(FORCE, verb="read-write", scope="all", targets=())
    assert (await carry_out(site, order)).outcome is Outcome.DONE
    assert not site.reach.read_only


async def test_what_holds_already_is_done(site: Site) -> None:
    site.pairing.entities["orders"] = entity("orders", State.FORCED)
    ended = await carry_out(site)
    assert (ended.outcome, ended.text, site.pairing.acts) == (Outcome.DONE, "orders is forced already", [])


async def test_an_entity_that_was_never_sent_to_is_forced_before_its_first_send(site: Site) -> None:
    ended = await carry_out(site, replace(FORCE, targets=("payments", "orders")))
    assert ended.outcome is Outcome.DONE
    assert [act[:2] for act in site.pairing.acts] == [("force", "payments"), ("force", "orders")]


async def test_a_release_of_what_is_unknown_here_is_done(site: Site) -> None:
    ended = await carry_out(site, replace(FORCE, verb="release", targets=("payments",)))
    assert (ended.outcome, site.pairing.acts) == (Outcome.DONE, [])


async def test_a_pause_where_no_syphon_runs_is_done(site: Site) -> None:
    site.pairing.syphon = replace(site.pairing.syphon, status=SyphonStatus.OFF)
    ended = await carry_out(site, replace(FORCE, verb="pause-syphon", scope="all", targets=()))
    assert (ended.outcome, ended.text) == (Outcome.DONE, "this engine runs no syphon")


async def test_the_end_of_an_order_releases_also_a_read_only_engine(site: Site) -> None:
    """At the end a release: it is part of the order that counted."""
    site.pairing.entities["orders"] = entity("orders", State.FORCED)
    site.reach.read_only = True
    ended = await site.guard.carry_out(Undo(order=STANDS, text="released at its end"))
    assert (ended.outcome, ended.order_id) == (Outcome.DONE, "")
    assert site.pairing.acts[0][:3] == ("release", "orders", "operator-a (fleet)")


async def test_a_stored_order_is_taken_up(site: Site) -> None:
    assert (await take_up_stored(STANDS, site.reach)).startswith("still stands: force failover orders")
    assert site.pairing.entities["orders"].state is State.FORCED


async def test_it_supersedes_a_local_order_on_disk_too(site: Site, tmp_path: Path) -> None:
    await site.fire("pin", "orders")
    assert [one.command.action_id for one in StandingOrders(tmp_path).read()] == ["pin"]
    await carry_out(site)
    assert StandingOrders(tmp_path).read() == ()


class Poster:
    """Takes every order that is not void."""

    def __init__(self, void: str = "", error: str = "") -> None:
        self._void, self._error = void, error
        self.posted: list[Order] = []

    async def check(self, order: Order) -> str:
        return self._void

    async def post_order(self, order: Order) -> None:
        if self._error:
            raise FleetBoardError(self._error)
        self.posted.append(order)


async def post(site: Site, poster: Poster, *, viewer: bool = False, signed: str = "") -> CommandDone:
    request = PostOrder(id=3, by="ada", signed=signed or encode_order_text(FORCE).decode(), signature="s")
    return await site.guard.post(request, poster, viewer=viewer)


async def test_a_console_posts_with_an_audit_line_of_its_own(site: Site) -> None:
    poster = Poster()
    done = await post(site, poster)
    assert (done.ok, done.text) == (True, f"order {ID} is posted")
    assert [one.id for one in poster.posted] == [ID]
    assert site.pairing.acts == []
    line = site.audit.said[0]
    assert isinstance(line, Commanded)
    assert (line.by, line.why) == ("ada", "drill (posted for the fleet)")


@pytest.mark.parametrize(
    ("poster", "more", "sentence"),
    [
        (Poster(), {"viewer": True}, "refused: this console was opened to look only"),
        (Poster(void="overtaken"), {}, "refused: overtaken"),
        (Poster(), {"signed": "{}"}, "refused: the order has no version"),
        (Poster(error="timeout"), {}, "the order is not known to be on the board: timeout"),
    ],
)
async def test_a_post_is_refused_with_a_reason(site: Site, poster: Poster, more: dict[str, Any], sentence: str) -> None:
    done = await post(site, poster, **more)
    assert (done.ok, done.text) == (False, sentence)
    assert poster.posted == []
