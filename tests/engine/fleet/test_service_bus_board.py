"""The boards over the sandbox: posts are peeked by all, rights suffice, an enemy's posts cost little, the old go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.board_reader import BoardReader, NamespaceClock
from paired_servicebus.core.fleet.fleet_documents import Board, Posted, Watch
from paired_servicebus.core.fleet.fleet_events import BoardRead, Clean, ReadBoard
from paired_servicebus.engine.fleet import service_bus_board
from paired_servicebus.engine.fleet.board_codec import CONTENT_TYPE, write_post
from paired_servicebus.engine.fleet.service_bus_board import ServiceBusBoard
from servicebus_amqp.encoding.message_sections import (
    BATCH_FORMAT,
    Properties,
    Sections,
    write_data,
    write_properties,
)
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.faults import FaultTerms

from .conftest import AUTHOR, ORDERS, REPORTS, World, presence


def watch(number: int = 1) -> Watch:
    return Watch(id=f"w{number}", by="op", look=5.0, report=15.0)


async def flood(world: World, path: str, messages: list[bytes]) -> None:
    """Post an enemy's messages, in batches."""
    loop = asyncio.get_running_loop()
    outcomes: asyncio.Queue[Any] = asyncio.Queue()
    link = await world.wire().sender(path, on_outcome=outcomes.put_nowait, on_lost=outcomes.put_nowait)
    batches, size = [[]], 0  # type: list[list[bytes]], int
    for message in messages:
        if size + len(message) > 200_000:
            batches.append([])
            size = 0
        batches[-1].append(write_data(message))
        size += len(message)
    began = loop.time()
    for number, batch in enumerate(batches):
        link.send(b"".join(batch), number.to_bytes(4, "big"), message_format=BATCH_FORMAT)
    for _ in batches:
        await asyncio.wait_for(outcomes.get(), 10.0 - (loop.time() - began))


async def test_posts_are_read_by_everybody_and_stay(world: World) -> None:
    board, other = world.board(), world.board()
    posted = [presence(), presence(queues=()), presence()]
    for one in posted:
        await board.write(one, 600.0)
    await board.write(watch(), 120.0)
    for reader in (board, other, board):
        posts, is_end = await reader.read(Board.REPORTS, 1, 250)
        assert [post.document for post in posts] == posted
        assert not is_end
        assert abs(posts[0].ends_at - posts[0].enqueued_at - 600.0) < 0.01
        assert await reader.read(Board.REPORTS, posts[-1].number + 1, 250) == ((), True)
    assert [post.document for post in (await other.read(Board.ORDERS, 0, 250))[0]] == [watch()]
    assert [post.document for post in (await other.read(Board.REPORTS, posts[1].number, 1))[0]] == [posted[1]]


async def test_one_connection_serves_both_boards_unless_they_have_keys_of_their_own(world: World) -> None:
    shared, split = world.board(), world.board(reports=world.key_with(Right.SEND))
    assert shared._wires[Board.ORDERS] is shared._wires[Board.REPORTS]
    assert split._wires[Board.ORDERS] is not split._wires[Board.REPORTS]


async def test_an_expired_post_is_still_shown_and_its_end_is_known(world: World) -> None:
    board = world.board()
    await board.write(presence(), 60.0)
    world.jump(700.0)
    (post,), _ = await board.read(Board.REPORTS, 1, 250)
    assert post.ends_at < world.now


async def test_an_engine_needs_listen_on_the_orders_and_send_on_the_reports(world: World) -> None:
    board = world.board(orders=world.key_with(Right.LISTEN), reports=world.key_with(Right.SEND))
    assert await board.read(Board.ORDERS, 1, 250) == ((), True)
    await board.write(presence(), 60.0)
    with pytest.raises(FleetBoardError, match=r"x-paired-fleet/orders refused the key: writing it needs Send"):
        await board.write(watch(), 60.0)
    with pytest.raises(FleetBoardError, match=r"x-paired-fleet/reports refused the key: reading it needs Listen"):
        await board.read(Board.REPORTS, 1, 250)
    with pytest.raises(FleetBoardError, match="cleaning it needs Listen"):
        await board.clean(Clean(board=Board.REPORTS, before=world.now))


async def test_a_deleted_board_is_missing_a_disabled_one_and_a_busy_namespace_have_a_sentence(world: World) -> None:
    board = world.board()
    await board.write(presence(), 60.0)
    world.node.namespace.delete(ORDERS)
    with pytest.raises(FleetBoardError, match=r"orders is missing: create it with paired fleet setup") as missing:
        await board.read(Board.ORDERS, 1, 250)
    assert missing.value.is_missing
    assert not missing.value.is_busy
    begun = world.node.faults.add("disabled", entity=REPORTS)
    with pytest.raises(FleetBoardError, match="reports is disabled"):
        await board.write(presence(), 60.0)
    world.node.faults.remove(begun.id)
    world.node.faults.add("busy", entity=REPORTS)
    with pytest.raises(FleetBoardError, match="throttles the board") as busy:
        await board.read(Board.REPORTS, 1, 250)
    assert busy.value.is_busy


async def test_a_detached_link_is_no_failure_of_the_board(world: World) -> None:
    board = world.board()
    await board.write(presence(), 60.0)
    world.node.faults.add("detached", entity=REPORTS, terms=FaultTerms(count=1))
    await board.write(presence(), 60.0)
    assert len((await board.read(Board.REPORTS, 1, 250))[0]) == 2


async def test_a_lost_connection_is_made_again(world: World) -> None:
    board = world.board()
    await board.write(presence(), 60.0)
    for wire in set(board._wires.values()):
        wire._line.drop(ConnectionError("cut"))  # type: ignore[union-attr,arg-type]
        wire._not_before = 0.0
    await board.write(presence(), 60.0)
    assert len((await board.read(Board.REPORTS, 1, 250))[0]) == 2


# -- an enemy ------------------------------------------------------------------------------------------------------


def junk(body: bytes, subject: str = "report") -> bytes:
    properties = Properties(message_id="x", subject=subject, content_type=CONTENT_TYPE)
    return Sections(properties=write_properties(properties), body=write_data(body)).join()


async def test_ten_thousand_junk_messages_cost_each_reading_bounded_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    await flood(world, ORDERS, [junk(b"[" * 50, "watch")] * 10_000)
    board = world.board()
    await board.write(watch(), 600.0)
    since, seen, is_end, slowest, last = 1, 0, False, 0.0, ()
    while not is_end:
        began = loop.time()
        posts, is_end = await board.read(Board.ORDERS, since, 250)
        slowest = max(slowest, loop.time() - began)
        seen += len(posts)
        since = posts[-1].number + 1 if posts else since
        last = posts or last
    assert seen == 10_001
    assert last[-1].document == watch()
    assert slowest < 1.0
    world.jump(700.0)
    monkeypatch.setattr(service_bus_board, "MAX_ROUNDS", 2)
    assert await board.clean(Clean(board=Board.ORDERS, before=world.now)) == 2
    assert world.count(ORDERS) == 9_001, "a call deletes a bounded number"


async def test_a_body_of_a_megabyte_is_skipped(world: World) -> None:
    loop = asyncio.get_running_loop()
    wire, done = world.wire(), loop.create_future()
    link = await wire.sender(ORDERS, on_outcome=done.set_result, on_lost=done.set_exception)
    link.send(junk(b"x" * (link.max_message_size - 1000)), b"t")
    await asyncio.wait_for(done, 60.0)
    board = world.board()
    await board.write(watch(), 600.0)
    found = []
    while posts := (await board.read(Board.ORDERS, found[-1].number + 1 if found else 1, 250))[0]:
        found += posts
    assert [post.document for post in found] == [None, watch()]
    assert "bytes; a board takes" in found[0].trouble


# -- cleaning ------------------------------------------------------------------------------------------------------


async def posts_of(board: ServiceBusBoard) -> list[Posted]:
    """Return all posts of the reports board."""
    posts: list[Posted] = []
    while page := (await board.read(Board.REPORTS, posts[-1].number + 1 if posts else 1, 250))[0]:
        posts += page
    return posts


async def test_nothing_goes_that_was_enqueued_at_the_given_time_or_later(world: World) -> None:
    board = world.board()
    for _ in range(3):
        await board.write(presence(), 60.0)
    world.jump(100.0)
    kept = presence()
    await board.write(kept, 600.0)
    oldest = (await posts_of(board))[-1].enqueued_at
    for _ in range(2):
        assert await board.clean(Clean(board=Board.REPORTS, before=oldest, now=world.now)) == 1
    assert [post.document for post in await posts_of(board)] == [kept]


async def test_dead_posts_behind_one_that_counts_are_received_and_what_is_no_document(world: World) -> None:
    """ "Receive from the head, complete what is over or no document, release the rest." """
    board = world.board()
    await board.write(presence(), 3 * 3600.0)
    dead = [write_post(presence(), ttl=60.0, posted_by=AUTHOR) for _ in range(150)]
    await flood(world, REPORTS, [*dead, *[junk(b"x")] * 100])
    await board.write(presence(), 3600.0)
    world.jump(100.0)
    wanted = Clean(board=Board.REPORTS, before=(await posts_of(board))[0].enqueued_at, now=world.now)
    await board.clean(wanted)
    assert world.count(REPORTS) == 252
    await board.clean(replace(wanted, dead=250))
    assert [post.number for post in await posts_of(board)] == [1, 252]
    assert [one for one in world.node.namespace.queue(REPORTS).messages.peek(0, 10_000) if one.lock_token] == []


@pytest.mark.parametrize("batch_delete", [service_bus_board.BATCH_DELETE, "com.microsoft:no-such-operation"])
async def test_a_flooded_board_is_flushed_of_all_that_is_older_than_now(
    world: World, monkeypatch: pytest.MonkeyPatch, batch_delete: str
) -> None:
    """ "Batch delete of all that is older than now; where the namespace does not know that, receive and complete." """
    monkeypatch.setattr(service_bus_board, "BATCH_DELETE", batch_delete)
    monkeypatch.setattr(service_bus_board, "RECEIVED_A_SECOND", 10_000)
    board, reader = world.board(), BoardReader(Board.ORDERS, NamespaceClock())
    await flood(world, ORDERS, [junk(b"j" * 40, "order")] * 6_000)
    reading: ReadBoard | None = reader.look(world.now)
    while reading is not None:
        page, is_end = await board.read(reading.board, reading.since, reading.most)
        event = BoardRead(at=world.now, board=reading.board, since=reading.since, posts=page, is_end=is_end)
        reading = reader.read(event).more
    wanted = reader.flushing(world.now + 1.0)
    assert wanted is not None
    await board.clean(replace(wanted, before=world.now + 1.0))
    assert world.count(ORDERS) == 0


async def test_each_post_that_counts_is_peeked_after_a_cleaning(world: World) -> None:
    board, member = world.board(), BoardReader(Board.REPORTS, NamespaceClock())
    authors = [replace(AUTHOR, engine=f"web-{n}", boot=f"b{n}") for n in range(8)]
    await board.write(presence(author=replace(AUTHOR, boot="killed")), 10_800.0)
    for _ in range(8):
        posts = [write_post(presence(author=author), ttl=60.0, posted_by=AUTHOR) for author in authors * 20]
        posts += [write_post(presence(author=author), ttl=10_800.0, posted_by=AUTHOR) for author in authors]
        await flood(world, REPORTS, posts)
        world.jump(600.0)
    before = await posts_of(board)
    reading: ReadBoard | None = member.look(world.now)
    while reading is not None:
        page, is_end = await board.read(reading.board, reading.since, reading.most)
        event = BoardRead(at=world.now, board=reading.board, since=reading.since, posts=page, is_end=is_end)
        reading = member.read(event).more
    wanted = member.cleaning(world.now)
    assert wanted.dead > 1_000
    await board.clean(wanted)
    left = {post.number for post in await posts_of(board)}
    assert {1, *(post.number for post in before[-8:])} <= left
    assert len(left) < len(before) - 1_000
    assert [one for one in world.node.namespace.queue(REPORTS).messages.peek(0, 10_000) if one.lock_token] == []


async def test_a_namespace_without_batch_delete_is_cleaned_by_receiving(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_bus_board, "BATCH_DELETE", "com.microsoft:no-such-operation")
    board = world.board()
    posts = [write_post(presence(), ttl=ttl, posted_by=AUTHOR) for ttl in [60.0] * 20 + [6000.0] * 5]
    await flood(world, REPORTS, posts)
    world.jump(100.0)
    wanted = Clean(board=Board.REPORTS, before=0.0, now=world.now)
    await board.clean(wanted)
    assert await board.clean(wanted) == 1, "a peek: the first message counts"
    assert len(await posts_of(board)) == 5
    locked = [one for one in world.node.namespace.queue(REPORTS).messages.peek(0, 10) if one.lock_token]
    assert locked == []
