"""Every forgery of an order of every verb, beside a genuine one: only that acts, and each forgery gets its reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.fleet.engine_orders import EngineOrders
from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Order,
    OrderRow,
    OrderText,
    Outcome,
    Posted,
    Presence,
    Report,
    order_id,
)
from paired_servicebus.core.fleet.fleet_events import CarryOut
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.fleet.board_codec import read_post, write_post
from paired_servicebus.engine.fleet.order_signatures import CurrentSigners, Signers, read_signers, verify
from paired_servicebus.engine.fleet.service_bus_board import open_board
from paired_servicebus.pairing import tls_context
from tests.engine.fleet.conftest import AUTHOR, presence
from tests.engine.fleet.forgeries import (
    FORGERIES,
    NOT_OVER_FLEET,
    OPERATORS,
    OVER_FLEET,
    Forged,
    Forgery,
    genuine,
    honest,
)
from tests.engine.fleet.test_board_codec import report
from tests.engine.fleet.test_engines_meet import Hosts, shown
from tests.engine.fleet.test_orders_over_the_fleet import Pair, answered, draft, hosts, post, state

__all__ = ["hosts"]
T0 = 1_800_000_000.0
ME = replace(AUTHOR, engine="web-1")


def write_operators(folder: Path, text: str = OPERATORS) -> Path:
    file = folder / "operators"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> Signers:
    found = read_signers(write_operators(tmp_path_factory.mktemp("operators")))
    assert len(found.skipped) == 6, "an authority, a degenerate key and four types of keys"
    return found


def posted(forged: Forged, signers: Signers, number: int, text: OrderText) -> Posted:
    """A post as an engine reads it from the board."""
    order = Order(signed=forged.signed.decode(), signature=forged.signature)
    at = T0 + forged.after
    found = read_post(write_post(order, ttl=3600.0, posted_by=AUTHOR), Board.ORDERS)
    found = replace(found, number=number, enqueued_at=at, ends_at=at + 3600.0)
    if not isinstance(found.document, Order):
        return found
    issued_at = found.document.text.issued_at
    return replace(
        found, signer=verify(found.document.signed.encode(), found.document.signature, signers, at=issued_at)
    )


def judged(*posts: Posted) -> tuple[list[str], tuple[OrderRow, ...]]:
    """Return the orders on which an engine that runs acts, and its answers before that."""
    book = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    book.read_reports((), T0, is_whole=True)
    book.read_orders(posts, is_whole=True)
    book.note_kept(book.version, "")
    return [one.order.id for one in book.step(T0 + 62) if isinstance(one, CarryOut)], book.rows


def beside_a_genuine_one(forgery: Forgery, verb: str, signers: Signers) -> tuple[int, int, str]:
    """Return how often the genuine and another order act, and the reason against the forged one."""
    text, other = genuine(verb, T0), genuine(verb, T0, why="another drill")
    real = honest(other)
    forged = posted(forgery.forge(text), signers, 1, text)
    acts, rows = judged(forged, posted(real, signers, 2, other))
    mine = acts.count(order_id(real.signed))
    assert all(row.outcome is Outcome.REFUSED for row in rows)
    assert bool(rows) != forgery.is_skipped
    return mine, len(acts) - mine, forged.trouble or " ".join(row.text for row in rows)


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda one: one.name)
def test_no_forgery_of_any_verb_acts_and_a_genuine_order_beside_it_does(forgery: Forgery, signers: Signers) -> None:
    found = {verb: beside_a_genuine_one(forgery, verb, signers) for verb in OVER_FLEET}
    assert {verb: acts[:2] for verb, acts in found.items()} == dict.fromkeys(OVER_FLEET, (1, 0))
    assert [why for *_, why in found.values() if forgery.why not in why] == []


@pytest.mark.parametrize("verb", OVER_FLEET)
@pytest.mark.parametrize("after", [2.0, 61.5, 86_400.0])
def test_a_genuine_order_acts_once_whoever_posts_it_again_and_when(verb: str, after: float, signers: Signers) -> None:
    """ "What counts is the signed bytes, whoever posts them and when." """
    text = genuine(verb, T0)
    first, again = honest(text), honest(text, after=after)
    acts, rows = judged(posted(first, signers, 1, text), posted(again, signers, 2, text))
    assert (len(acts), rows) == (1, ())
    acts, _ = judged(posted(again, signers, 2, text))
    assert len(acts) == 1


def in_presence(order: Order) -> Presence:
    return presence(carried=(order,))


def in_report(order: Order) -> Report:
    return replace(report(1), presence=in_presence(order))


async def acts_by_reports(document: Presence | Report, after: float, signers: CurrentSigners) -> list[str]:
    """Return the orders on which a new engine acts that reads one document, and no order on the other board."""
    at = T0 + after
    post = Posted(number=1, enqueued_at=at, ends_at=at + 3600, document=document)
    book = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    book.read_reports(await signers.verify_posts([post]), at, is_whole=True)
    book.read_orders((), is_whole=True)
    book.note_kept(book.version, "")
    return [one.order.id for one in book.step(T0 + 62) if isinstance(one, CarryOut)]


@pytest.mark.parametrize("kind", [in_presence, in_report], ids=["presence", "report"])
async def test_no_forgery_that_a_presence_or_a_report_carries_acts_and_a_genuine_order_does(
    kind: Callable[[Order], Presence | Report], short: Path
) -> None:
    """ "Presences and reports carry the signed bytes …; the engine verifies them itself." """
    signers = CurrentSigners(write_operators(short), warn=lambda *_: None)
    await signers.load()
    for forgery in (*FORGERIES, None):
        for verb in OVER_FLEET:
            text = genuine(verb, T0)
            forged = honest(text) if forgery is None else forgery.forge(text)
            carried = Order(signed=forged.signed.decode(), signature=forged.signature)
            acts = await acts_by_reports(kind(carried), forged.after, signers)
            assert acts == ([order_id(forged.signed)] if forgery is None else []), (forgery and forgery.name, verb)


@pytest.mark.parametrize("verb", NOT_OVER_FLEET)
def test_a_verb_that_is_not_over_the_fleet_does_not_act_though_it_is_genuine(verb: str, signers: Signers) -> None:
    text = genuine(verb, T0)
    acts, (row,) = judged(posted(honest(text), signers, 1, text))
    assert acts == []
    assert row.text == f"this version knows no order {verb!r} over the fleet"


# -- the real engine, the real sandbox --------------------------------------------------------------------------------


async def test_an_engine_under_every_forgery_does_the_genuine_order_alone(hosts: Hosts, short: Path) -> None:
    """Each forgery is of the next verb; the matrix above has all of them."""
    pay, console, view = await Pair(hosts, write_operators(short)).first()
    secondary = draft(view, "force").secondary
    string = hosts.sandbox["secondary"].connection_string
    async with ServiceBusClient.from_connection_string(string, ssl_context=tls_context()) as client:
        enemy = open_board(client, primary="primary", posted_by=AUTHOR, orders=None, reports=None)
        for number, (forgery, verb) in enumerate(zip(FORGERIES, cycle(OVER_FLEET), strict=False)):
            text = genuine(verb, time.time(), seen=f"f{number}", engines=("web-2",), secondary=secondary)
            after = forgery.forge(text).after
            late = replace(text, issued_at=text.issued_at - after, until=text.until - after)
            forged = forgery.forge(text if abs(after) < 60 else late)
            await enemy.write(Order(signed=forged.signed.decode(), signature=forged.signature), 3600.0)
        await enemy.close()
    skipped = sum(one.is_skipped for one in FORGERIES)
    snapshot = await shown(console, lambda fleet: fleet.skipped == skipped)  # the last forgeries are skipped
    assert snapshot.fleet is not None
    assert (snapshot.read_only, snapshot.syphon.status, state(pay)) == (False, "off", State.UNKNOWN)
    assert snapshot.fleet.orders == ()
    await post(console, force := draft(snapshot.fleet, "force"))
    await answered(console, force, lambda one: one.done == ("web-2",))
    assert state(pay) is State.FORCED
