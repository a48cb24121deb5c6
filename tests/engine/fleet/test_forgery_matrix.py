"""Every forgery of an order of every verb, beside a genuine one: only that acts, and each forgery gets its reason."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.fleet.fleet_documents import Board, Order, OrderText, Outcome, Posted
from paired_servicebus.core.fleet.fleet_events import AnswerOrder, CarryOut, FleetEffect
from paired_servicebus.core.fleet.orders.order_book import OrderBook
from paired_servicebus.core.fleet.orders.order_rules import ThisEngine
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.fleet.board_codec import read_post, write_post
from paired_servicebus.engine.fleet.order_signatures import Signers, read_signers, verify
from paired_servicebus.engine.fleet.service_bus_board import open_board
from paired_servicebus.pairing import tls_context
from tests.engine.fleet.conftest import POSTED_BY
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
from tests.engine.fleet.test_engines_meet import Hosts, shown
from tests.engine.fleet.test_orders_over_the_fleet import Pair, answered, draft, hosts, post, state

__all__ = ["hosts"]
T0 = 1_800_000_000.0
ME = ThisEngine(name="web-1", primary="primary", secondary="secondary")


def write_operators(folder: Path, text: str = OPERATORS) -> Path:
    file = folder / "operators"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> Signers:
    found = read_signers(write_operators(tmp_path_factory.mktemp("operators")))
    assert len(found.skipped) == 5, "an authority and four types of keys"
    return found


def posted(forged: Forged, signers: Signers, number: int, text: OrderText) -> Posted:
    """A post as an engine reads it from the board."""
    order = Order(text=text, signed=forged.signed, signature=forged.signature)
    at = T0 + forged.after
    found = read_post(write_post(order, ttl=3600.0, posted_by=POSTED_BY), Board.ORDERS)
    found = replace(found, number=number, enqueued_at=at, ends_at=at + 3600.0)
    if not isinstance(found.document, Order):
        return found
    return replace(found, signer=verify(found.document.signed, found.document.signature, signers, at=at))


def judged(*posts: Posted) -> list[FleetEffect]:
    """What an engine that runs does about new posts."""
    book = OrderBook(engine=ME, verbs=FLEET_VERBS)
    book.read((), T0, is_whole=True)
    return [*book.read(posts, T0 + 62, is_whole=True), *book.step(T0 + 62)]


def beside_a_genuine_one(forgery: Forgery, verb: str, signers: Signers) -> tuple[list[str], list[str], str]:
    """Return the ids of the orders that act and those answered, and the reason against the forged one."""
    text, other = genuine(verb, T0), genuine(verb, T0, id="g1")
    forged = posted(forgery.forge(text), signers, 1, text)
    effects = judged(forged, posted(honest(other), signers, 2, other))
    answers = [one for one in effects if isinstance(one, AnswerOrder)]
    acts = [one.order.id for one in effects if isinstance(one, CarryOut)]
    reason = forged.trouble or " ".join(one.text for one in answers)
    assert len(acts) + len(answers) == len(effects)
    return acts, [one.order_id for one in answers if one.outcome is Outcome.REFUSED], reason


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda one: one.name)
def test_no_forgery_of_any_verb_acts_and_a_genuine_order_beside_it_does(forgery: Forgery, signers: Signers) -> None:
    found = {verb: beside_a_genuine_one(forgery, verb, signers) for verb in OVER_FLEET}
    answered_ = [] if forgery.is_skipped else ["o1"]
    assert {verb: (acts, answers) for verb, (acts, answers, _) in found.items()} == dict.fromkeys(
        OVER_FLEET, (["g1"], answered_)
    )
    assert [why for *_, why in found.values() if forgery.why not in why] == []


@pytest.mark.parametrize("verb", OVER_FLEET)
@pytest.mark.parametrize("after", [2.0, 61.5])
def test_a_genuine_order_acts_once_whoever_posts_it_again(verb: str, after: float, signers: Signers) -> None:
    text = genuine(verb, T0)
    first, again = honest(text), honest(text, after=after)
    effects = judged(posted(first, signers, 1, text), posted(again, signers, 2, text))
    (answer,) = [one.text for one in effects if isinstance(one, AnswerOrder)]
    assert sum(isinstance(one, CarryOut) for one in effects) == 1
    assert answer.startswith("it is already on the board as number 1" if after < 60 else "it was posted 62 s after")


@pytest.mark.parametrize("verb", NOT_OVER_FLEET)
def test_a_verb_that_is_not_over_the_fleet_does_not_act_though_it_is_genuine(verb: str, signers: Signers) -> None:
    text = genuine(verb, T0)
    (answer,) = judged(posted(honest(text), signers, 1, text))
    assert isinstance(answer, AnswerOrder)
    assert answer.text.endswith("is not allowed over the fleet")


# -- the real engine, the real sandbox --------------------------------------------------------------------------------


async def test_an_engine_under_every_forgery_does_the_genuine_order_alone(hosts: Hosts, short: Path) -> None:
    """Each forgery is of the next verb; the matrix above has all of them."""
    pay, console, view = await Pair(hosts, write_operators(short)).first()
    secondary = draft(view, "force").secondary
    string = hosts.sandbox["secondary"].connection_string
    async with ServiceBusClient.from_connection_string(string, ssl_context=tls_context()) as client:
        enemy = open_board(client, primary="primary", posted_by=POSTED_BY, orders=None, reports=None)
        for number, (forgery, verb) in enumerate(zip(FORGERIES, cycle(OVER_FLEET), strict=False)):
            text = genuine(verb, time.time(), id=f"f{number}", engines=("web-2",), secondary=secondary)
            after = forgery.forge(text).after
            forged = forgery.forge(text if abs(after) < 60 else replace(text, issued_at=text.issued_at - after))
            await enemy.write(Order(text=text, signed=forged.signed, signature=forged.signature), 3600.0)
        await enemy.close()
    skipped = sum(one.is_skipped for one in FORGERIES)
    snapshot = await shown(console, lambda fleet: fleet.skipped == skipped)  # the last forgeries are skipped
    assert snapshot.fleet is not None
    assert (snapshot.read_only, snapshot.syphon.status, state(pay)) == (False, "off", State.UNKNOWN)
    assert [one.id for one in snapshot.fleet.orders if not one.void] == []
    await post(console, force := draft(snapshot.fleet, "force"))
    await answered(console, force, lambda one: one.done == ("web-2",))
    assert state(pay) is State.FORCED
