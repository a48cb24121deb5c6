"""The fleet scenario: what its result demands, and its network that is cut. test_demo.py plays it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.demo.captions import LONGEST_CAPTION

from paired_servicebus.core.model.fleet_view import FleetOrder
from paired_servicebus.demo.fleet.fleet_player import (
    LOOPBACK,
    FleetTally,
    NetworkLink,
    answers_caption,
    taken_up_caption,
)
from paired_servicebus.demo.result import (
    CUT_OFF,
    HOSTS,
    READ_ONLY,
    DemoResult,
    FleetResult,
    HostAccount,
    MessageCounts,
    PingCounts,
    SyphonResult,
    as_lines,
)

MEANT = HOSTS[:6]
CUT_AT, BACK_AT = 100.0, 200.0
REFUSAL = "this engine is read-only, and force failover changes something"


def order(**changes: Any) -> FleetOrder:
    chosen: dict[str, Any] = {"done": MEANT, "refused": ((READ_ONLY, REFUSAL),), "silent": ((CUT_OFF, 99.0),)}
    return FleetOrder(
        id="o1", number=1, verb="force", targets=("orders",), by="operator", at=150.0, until=None, **chosen | changes
    )


def account(name: str, **changes: Any) -> HostAccount:
    forced = {CUT_OFF: 203.0, READ_ONLY: None}.get(name, 152.0)
    chosen: dict[str, Any] = {"answers": {f"{name}-1": "accepted"}, "forced_at": forced, "diverted": 5}
    return HostAccount(accepted=9, **chosen | changes)


def tally(**changes: Any) -> FleetTally:
    back = order(done=(*MEANT, CUT_OFF), silent=())
    chosen: dict[str, Any] = {"forced": order(), "taken_up": back, "released": order(done=HOSTS, refused=(), silent=())}
    return FleetTally(cut_at=CUT_AT, back_at=BACK_AT, **chosen | changes)


def fleet(*, hosts: dict[str, HostAccount] | None = None, **changes: Any) -> FleetResult:
    return tally(**changes).fleet_result({name: account(name) for name in HOSTS} | (hosts or {}))


def test_the_play_as_it_has_to_be() -> None:
    result = fleet()
    assert result.broken == []
    assert result.taken_up == {CUT_OFF: 203.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"forced": order(done=MEANT[:5]), "taken_up": order(done=(*MEANT[:5], CUT_OFF))},
            "the order was done by web-1, web-2, web-3, web-4, web-5 and had to be by",
        ),
        ({"forced": order(refused=())}, "the order was refused by none and had to be by web-8 (read-only)"),
        ({"forced": order(refused=((READ_ONLY, "look only"),))}, "refused by web-8 (look only) and had to be"),
        ({"forced": order(silent=())}, "no answer came from none and had to be missing from web-7"),
        ({"taken_up": order()}, "the order was taken up by none and had to be by web-7"),
        ({"released": order()}, "web-5, web-6 and had to be by web-1, web-2, web-3, web-4, web-5, web-6, web-7, web-8"),
    ],
)
def test_answers_that_did_not_come_are_said(changes: dict[str, Any], sentence: str) -> None:
    broken = fleet(**changes).broken
    assert [sentence in one for one in broken] == [True], broken


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("web-3", {"answers": {}}, "web-3 sent nothing"),
        ("web-3", {"is_forced": True}, "web-3 is still forced"),
        ("web-3", {"diverted": 0}, "web-3 diverted no message"),
        ("web-3", {"forced_at": None}, "web-3 never carried the order out"),
        ("web-3", {"forced_at": 99.0}, "web-3 carried the order out at 00:01:39; the network was back at 00:03:20"),
        (CUT_OFF, {"forced_at": 152.0}, "web-7 carried the order out at 00:02:32; the network was back at 00:03:20"),
        (READ_ONLY, {"forced_at": 152.0}, "web-8 is read-only, and carried the order out at 00:02:32"),
    ],
)
def test_an_account_that_differs_from_the_answers_is_said(name: str, changes: dict[str, Any], sentence: str) -> None:
    assert fleet(hosts={name: account(name, **changes)}).broken == [sentence]


def outcome(result: FleetResult) -> DemoResult:
    return DemoResult(
        scenario="fleet", seed=1, messages=MessageCounts(**dict.fromkeys(MessageCounts.__struct_fields__, 0)),
        entities={}, pings=PingCounts(sent=0, accepted=0), syphon=SyphonResult(moved=0), billed_operations=0,
        verdict="balanced", fleet=result, broken=result.broken,
    )  # fmt: skip


def test_the_result_says_who_did_it_who_refused_and_who_took_it_up() -> None:
    lines = as_lines(outcome(fleet()))
    assert f"6 done, 1 refused (web-8: {REFUSAL}), 1 taken up after it came back (web-7 at 00:03:23)" in lines
    assert "the release: 8 done, all 8 released" in lines


def test_only_a_play_in_which_everything_held_ends_with_status_0() -> None:
    assert outcome(fleet()).holds
    broken = outcome(fleet(forced=order(refused=())))
    assert broken.balanced
    assert not broken.holds


def test_captions_have_the_figures_and_fit() -> None:
    answers = answers_caption(order())
    taken_up = taken_up_caption(order(), order(done=(*MEANT, CUT_OFF)), 203.0)
    assert answers == "6 done · 1 refused (web-8) · 1 silent (web-7)"
    assert taken_up == "web-7 took the order up, by itself: 00:03:23"
    assert taken_up_caption(order(), order(), 203.0).startswith("no engine took the order up")
    assert max(len(answers), len(taken_up)) <= LONGEST_CAPTION


# -- the network -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """The port of a server that sends every byte back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_link_that_is_cut_holds_every_byte_back_until_it_is_mended(echo: int) -> None:
    async with asyncio.timeout(60), NetworkLink() as link:
        port = await link.forward(echo)
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"1")
        assert await reader.readexactly(1) == b"1"
        link.cut()
        writer.write(b"2")
        late_reader, late_writer = await asyncio.open_connection(LOOPBACK, port)
        late_writer.write(b"3")
        waits = [asyncio.create_task(one.readexactly(1)) for one in (reader, late_reader)]
        done, _ = await asyncio.wait(waits, timeout=0.2)
        assert not done
        link.mend()
        assert await asyncio.gather(*waits) == [b"2", b"3"]
        writer.write_eof()
        assert await reader.read() == b""
        late_writer.close()
        writer.close()


async def test_a_link_that_ends_closes_its_connections(echo: int) -> None:
    async with asyncio.timeout(60):
        async with NetworkLink() as link:
            reader, writer = await asyncio.open_connection(LOOPBACK, await link.forward(echo))
            writer.write(b"1")
            assert await reader.readexactly(1) == b"1"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
