"""The boards are created once, checked afterwards, and refused in one sentence where they cannot be boards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from paired_servicebus.core.backlog.queue_settings import MAX_DELIVERIES, AccessRule, QueueWanted
from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import Board
from paired_servicebus.core.model.snapshot import Finding, FindingVerdict
from paired_servicebus.engine.fleet.board_setup import (
    OPENS,
    _judge_namespace,
    check_rights,
    differences,
    set_up_boards,
    set_up_rules,
)
from paired_servicebus.engine.fleet.service_bus_board import find_missing_right
from servicebus_sandbox.broker.entity_settings import Right

from .conftest import ORDERS, REPORTS, World


async def test_the_boards_are_created_with_their_settings_and_found_again(empty: World) -> None:
    admin = empty.admin()
    assert (await set_up_boards(admin, "primary")).created == (ORDERS, REPORTS)
    again = await set_up_boards(admin, "primary")
    assert (again.created, again.existing, again.remarks) == ((), (ORDERS, REPORTS), ())
    (facts, other) = await admin.queues("primary/x-paired-fleet/")
    assert replace(facts, path=other.path) == other
    assert (facts.max_size_mb, facts.max_deliveries, facts.metadata) == (1024, MAX_DELIVERIES, "paired fleet 1")
    assert facts.lock == timedelta(seconds=30)
    assert (facts.sessions, facts.duplicates, facts.partitioned, facts.dead_letters_expired) == (False,) * 4


async def test_each_setting_that_differs_has_a_sentence(empty: World) -> None:
    admin = empty.admin()
    await admin.create_queue(ORDERS, QueueWanted(lock=timedelta(seconds=60), max_deliveries=3))
    found = await set_up_boards(admin, "primary")
    assert (found.created, found.existing) == ((REPORTS,), (ORDERS,))
    assert f"the board {ORDERS} has MaxDeliveryCount 3 instead of {MAX_DELIVERIES}" in found.remarks
    assert f"the board {ORDERS} has UserMetadata empty instead of paired fleet 1" in found.remarks
    assert any("LockDuration 0:01:00 instead of 0:00:30" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (QueueWanted(sessions=True), "requires sessions"),
        (QueueWanted(duplicate_window=timedelta(minutes=1)), "detects duplicates"),
    ],
)
async def test_a_queue_that_cannot_be_a_board_is_refused(empty: World, wanted: QueueWanted, sentence: str) -> None:
    admin = empty.admin()
    await admin.create_queue(REPORTS, wanted)
    with pytest.raises(FleetBoardError, match=sentence):
        await set_up_boards(admin, "primary")


async def test_a_partitioned_queue_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = world.admin()
    listed = [replace(queue, partitioned=True) for queue in await admin.queues("primary/x-paired-fleet/")]

    async def queues(prefix: str) -> list[object]:
        return list(listed)

    monkeypatch.setattr(admin, "queues", queues)
    with pytest.raises(FleetBoardError, match="is partitioned, so its numbers are not one sequence"):
        await set_up_boards(admin, "primary")


async def test_a_disabled_board_has_a_sentence(world: World) -> None:
    (facts, _) = await world.admin().queues("primary/x-paired-fleet/")
    assert differences(replace(facts, status="Disabled"), ORDERS) == [
        f"the board {ORDERS} has Status Disabled instead of Active"
    ]


async def test_a_key_without_manage_is_told_the_verb(empty: World) -> None:
    with pytest.raises(FleetBoardError, match=r"run paired fleet setup once with a key or role that has Manage"):
        await set_up_boards(empty.admin(Right.LISTEN, Right.SEND), "primary")


# -- rights -----------------------------------------------------------------------------------------------------------


async def checked(world: World, **used: str) -> dict[str, Finding]:
    keys = {board: used.get(board.value, "") for board in Board}
    return {one.what: one for one in await check_rights(world.admin(), "primary", keys)}


async def test_rules_that_are_missing_right_and_too_wide_are_named(world: World) -> None:
    """ "`fleet check` says which rights are too wide"."""
    admin = world.admin()
    before = await checked(world)
    assert before["orders: paired-engines"].verdict is FindingVerdict.NO
    await set_up_rules(admin, "primary", partial(find_missing_right, world.client()))
    after = await checked(world, orders="paired-engines")
    assert {after[f"{board}: paired-engines"].verdict for board in Board} == {FindingVerdict.OK}
    assert after["this engine's key on orders"].verdict is FindingVerdict.OK
    assert after["this engine's key on reports"].verdict is FindingVerdict.WARN
    assert after["the namespace's rules"].verdict is FindingVerdict.UNKNOWN
    await admin.put_rule(ORDERS, AccessRule(name="paired-engines", rights=frozenset({"Send", "Listen"})))
    await admin.put_rule(ORDERS, AccessRule(name="mine", rights=frozenset({"Listen"}), key="k"))
    wide = await checked(world)
    assert (wide["orders: paired-engines"].verdict, wide["orders: paired-engines"].evidence) == (
        FindingVerdict.WARN,
        f"gives Send beside Listen: {OPENS}",
    )
    assert wide["orders: mine"].verdict is FindingVerdict.WARN
    assert "takes them from the board" in wide["orders: mine"].evidence


def test_a_rule_of_the_namespace_that_sends_reaches_both_boards() -> None:
    sender, reader = (AccessRule(name=right, rights=frozenset({right})) for right in ("Send", "Listen"))
    (found,) = _judge_namespace((sender, reader))
    assert (found.what, found.verdict) == ("the namespace: Send", FindingVerdict.WARN)
    assert _judge_namespace((reader,))[0].verdict is FindingVerdict.OK


async def test_a_right_that_was_given_by_hand_is_not_withdrawn(world: World) -> None:
    admin = world.admin()
    wide = AccessRule(name="paired-engines", rights=frozenset({"Send", "Listen", "Manage"}), key="k")
    await admin.put_rule(REPORTS, wide)
    made = await set_up_rules(admin, "primary", partial(find_missing_right, world.client()))
    assert [rule.rights for rule in made.rules[Board.REPORTS]] == [wide.rights]


async def test_rules_need_manage(world: World) -> None:
    admin = world.admin(Right.LISTEN, Right.SEND)
    with pytest.raises(FleetBoardError, match=r"run paired fleet setup once with a key or role that has Manage"):
        await set_up_rules(admin, "primary", partial(find_missing_right, world.client()))
    with pytest.raises(FleetBoardError, match="reading the rules of"):
        await check_rights(admin, "primary", {})


async def test_a_check_without_boards_names_the_setup(empty: World) -> None:
    with pytest.raises(FleetBoardError, match=r"orders failed, the board is missing: run paired fleet setup"):
        await check_rights(empty.admin(), "primary", {})
