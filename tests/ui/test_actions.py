"""One table of actions, with reasons for what is not possible now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator import actions as orders
from paired_servicebus.ui.commands.action_table import (
    CONSOLE_ACTIONS,
    CONSOLE_BY_ID,
    KEY_LINE,
    ConsoleAction,
    by_key,
    for_key,
    in_key_line,
)
from paired_servicebus.ui.state.view import Page, Unreachable, View, apply_news

ORDERS = [action for action in CONSOLE_ACTIONS if action.order]


def view_of(snapshot: Any) -> View:
    return apply_news(View(pairing="orders"), snapshot)


def test_ids_are_unique_and_everything_is_explained() -> None:
    assert len(CONSOLE_BY_ID) == len(CONSOLE_ACTIONS)
    assert all(action.help and action.label for action in CONSOLE_ACTIONS)


def test_every_row_of_the_table_of_orders_that_has_a_key_is_here() -> None:
    assert [action.order for action in ORDERS] == [order for order in orders.ACTIONS if order.key]


def test_what_is_dangerous_has_its_consequences_written_down() -> None:
    assert {action.id for action in CONSOLE_ACTIONS if action.dangerous} == {
        order.id for order in orders.ACTIONS if order.facts
    }


def test_actions_that_share_a_key_are_never_possible_at_once(made: Any) -> None:
    for status in SyphonStatus:
        view = view_of(made.snapshot(syphon=made.syphon(status)))
        for key in {key for action in CONSOLE_ACTIONS for key in action.keys}:
            possible = [action.id for action in CONSOLE_ACTIONS if key in action.keys and not action.why_not(view)]
            assert len(possible) <= 1, (status, key)


@pytest.mark.parametrize(
    "action", [action for action in ORDERS if action.id != "read-write"], ids=lambda action: action.id
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda view: replace(view, viewer=True), "read-only"),
        (lambda view: apply_news(view, replace(view.snapshot, read_only=True)), "read-only"),
        (lambda view: apply_news(view, Unreachable(0.0, "gone")), "unreachable"),
        (lambda view: replace(view, snapshot=None), "state is unknown"),
        (lambda view: replace(view, legible=False), "too small"),
        (lambda view: replace(view, waiting_for="release payments"), "waiting for the engine's answer"),
    ],
)
def test_no_order_is_possible(made: Any, action: ConsoleAction, change: Callable[[View], View], reason: str) -> None:
    assert reason in action.why_not(change(view_of(made.outage())))


@pytest.mark.parametrize(
    ("state", "force", "release"),
    [
        (State.UNKNOWN, "", "orders is unknown: nothing to release"),
        (State.HEALTHY, "", "orders is healthy: nothing to release"),
        (State.SUSPECT, "", "orders is suspect: nothing to release"),
        (State.FAILED_OVER, "", ""),
        (State.FORCED, "orders is forced already", ""),
        (State.PINNED, "", ""),
    ],
)
def test_what_a_state_allows(made: Any, state: State, force: str, release: str) -> None:
    view = view_of(made.snapshot(made.entity("orders", state)))
    assert CONSOLE_BY_ID["force"].why_not(view) == force
    assert CONSOLE_BY_ID["release"].why_not(view) == release


def test_an_entity_that_vanished_is_no_target(made: Any) -> None:
    view = replace(view_of(made.snapshot()), selected="gone")
    assert CONSOLE_BY_ID["force"].why_not(view).count("'gone'") == 1


@pytest.mark.parametrize(
    ("status", "pause", "resume"),
    [
        (SyphonStatus.RUNNING, "", "the syphon is not paused"),
        (SyphonStatus.IDLE, "", "the syphon is not paused"),
        (SyphonStatus.STUCK, "", "the syphon is not paused"),
        (SyphonStatus.PAUSED, "the syphon is paused already", ""),
        (SyphonStatus.OFF, "this engine runs no syphon", "this engine runs no syphon"),
    ],
)
def test_what_the_syphon_allows(made: Any, status: SyphonStatus, pause: str, resume: str) -> None:
    view = view_of(made.snapshot(syphon=made.syphon(status)))
    assert CONSOLE_BY_ID["pause-syphon"].why_not(view) == pause
    assert CONSOLE_BY_ID["resume-syphon"].why_not(view) == resume


def test_the_key_S_pauses_or_resumes(made: Any) -> None:
    assert for_key("S", view_of(made.snapshot())).id == "pause-syphon"
    paused = view_of(made.snapshot(syphon=made.syphon(SyphonStatus.PAUSED)))
    assert for_key("S", paused).id == "resume-syphon"
    keys = [action.key(paused.keys) for action in by_key(paused)]
    assert len(keys) == len(set(keys)), "one action a key"
    assert {"F", "U", "S", "↑ k", "↓ j", "g", "?", "q"} <= set(keys)


def test_looking_is_always_possible() -> None:
    view = View(pairing="orders", viewer=True)
    looking = ("help", "quit", "filter", "sort", "palette", "next-theme", *(page.value for page in Page))
    assert not any(CONSOLE_BY_ID[name].why_not(view) for name in looking)


@pytest.mark.parametrize("page", Page)
@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_key_line_names_what_its_page_is_for_and_always_the_way_out(page: Page, width: int) -> None:
    named = in_key_line(View(pairing="orders", page=page), width)
    assert {"help", "quit"} <= set(named)
    assert set(KEY_LINE[page]) <= CONSOLE_BY_ID.keys(), "every name is an action's"


async def test_a_key_for_a_queue_in_use_has_no_target_while_an_unused_one_is_highlighted(
    open_console: Any, made: Any
) -> None:
    async with open_console(made.outage()) as console:
        await console.press("3", "G")
        assert console.app.view.on_unused
        assert CONSOLE_BY_ID["redrive"].why_not(console.app.view) == "no queue is selected"
