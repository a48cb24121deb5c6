"""The page of the gateway's clients, in the words that an operator looks for in an outage."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.core.gateway.gateway_sentences import with_gateway
from tests.gateway_views import PRIMARY, client, many, outage


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (140, 40)])
async def test_the_page_answers_who_with_what_failing_since_when_where_and_what_to_do(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    """Issue 21: "a page of clients (SDK and version, key, links, where their sends go, sends and refusals)"."""
    async with open_console(made.outage(gateway=outage()), size=size) as console:
        await console.press("8")
        text = console.screen()
        asked = (".NET 7.20.1", "Java 7.17.8", "billing", "6 clients, 1 failing", "since 14:01:10")
        if size[0] >= 80:
            asked += ("1 backlog, 2 primary", "held", "127.0.0.1:5673", "send smaller messages", "80 sends/s")
        assert [part for part in asked if part not in text] == []
        await console.press("down")
        assert "JavaScript 7.9.5" in console.screen()
        await console.press("down")
        assert "backlog: payments" in console.screen()


async def test_1000_clients_are_counted_and_50_listed(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(gateway=many(1000))) as console:
        await console.press("8", "end")
        text = console.screen()
        assert "1,000 clients" in text
        assert "from 127.0.0.1:52050" in text


async def test_a_strangers_text_is_no_markup(open_console: Any, made: Any) -> None:
    evil = client(1, "[bold red]x\x1b[2J", "[/]", {"orders": PRIMARY}, key="\u202eyek")
    async with open_console(made.outage(gateway=outage(clients=(evil,), count=1))) as console:
        await console.press("8")
        text = console.screen()
    assert "[bold red]" in text
    assert "\x1b[2J" not in text
    assert "\u202e" not in text


async def test_a_selection_follows_its_client(open_console: Any, made: Any) -> None:
    view = outage()
    async with open_console(made.outage(gateway=view)) as console:
        await console.press("8", "down")
        turned = made.outage(gateway=outage(clients=tuple(reversed(view.clients))))
        console.feed.tell(turned)
        await console.pilot.pause()
        assert "JavaScript 7.9.5" in console.screen()


@pytest.mark.parametrize("key", ["1", "2"])
async def test_an_entitys_senders_through_the_gateway_are_counted(open_console: Any, made: Any, key: str) -> None:
    """Asked for: "an entity's senders through the gateway are shown with their count where it fits"."""
    snapshot = with_gateway(
        made.snapshot(made.entity("orders"), made.entity("audit")), outage(senders=(("Orders", 2),))
    )
    async with open_console(snapshot) as console:
        await console.press(*(["enter"] if key == "2" else []))
        text = console.screen()
    assert text.count("gateway sender") == 1, text
    assert "2 gateway senders" in text
