"""Each rule of an engine's part in the fleet: pace, cursor, roster, and the facts for other rules."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.approval import Approve
from tests.core.fleet.fleet_world import START, FleetWorld, author, engine_orders, fleet_member, snapshot
from tests.core.fleet.made_orders import made_order

from paired_servicebus.core.fleet import pace
from paired_servicebus.core.fleet.board_reader import (
    FLOODED_FROM,
    BoardReader,
    CountingPosts,
    NamespaceClock,
    bound_snapshot,
)
from paired_servicebus.core.fleet.engine_orders import SeenOrder
from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Goodbye,
    OrderRow,
    Outcome,
    Posted,
    Presence,
    Report,
    Signer,
    Watch,
)
from paired_servicebus.core.fleet.fleet_events import (
    BoardRead,
    Clean,
    Ending,
    OwnState,
    ReadBoard,
    ReadFailed,
    Ticked,
    Watched,
    Write,
    WriteFailed,
)
from paired_servicebus.core.fleet.fleet_member import FleetMember, OwnDocuments
from paired_servicebus.core.fleet.order_answers import addressed_engines, order_views
from paired_servicebus.core.fleet.roster import MAX_ENGINES, Roster, syphons_elsewhere, usage_from
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import DestinationView, EntityView, SyphonStatus
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.fleet_sentences import answers_part, odd_cases

FAST = pace.WatchPace(look=5.0, report=15.0)


def presence(engine: str, boot: str = "boot-1", **changes: object) -> Presence:
    documents = OwnDocuments(author(engine, boot), engine_orders(engine))
    return replace(documents.presence(snapshot(engine), None), **changes)  # type: ignore[arg-type]


def report(engine: str, boot: str = "boot-1", **entities: State) -> Report:
    documents = OwnDocuments(author(engine, boot), engine_orders(engine))
    return documents.report(snapshot(engine, entities=entities or None), None, 15.0)


def posted(number: int, document: object, at: float | None = None, ttl: float = 10_800.0) -> Posted:
    at = START + number if at is None else at
    return Posted(number=number, enqueued_at=at, ends_at=at + ttl, document=document)  # type: ignore[arg-type]


def roster(*posts: Posted) -> Roster:
    read = Roster(author("me", secondary="SHOP-WE"))
    for post in posts:
        read.read(post, START)
    return read


@pytest.mark.parametrize(
    ("well", "watch", "spent", "seconds"),
    [
        (True, None, 0, 60.0),
        (False, None, 0, 10.0),
        (True, FAST, 0, 5.0),
        (False, pace.WatchPace(look=30.0, report=15.0), 0, 10.0),
        (True, FAST, pace.WATCH_OPERATIONS_A_DAY, 60.0),
    ],
)
def test_seconds_between_two_looks(well: bool, watch: pace.WatchPace | None, spent: int, seconds: float) -> None:
    assert pace.look_interval(well=well, watch=watch, spent=spent) == seconds


def test_pace_by_number_of_engines_and_bounds_of_a_watch() -> None:
    assert [pace.look_for(n) for n in (1, 20, 250, 500)] == [5, 5, 5, 10]
    assert [pace.report_for(n) for n in (1, 20, 120, 500)] == [15, 15, 15, 62.5]
    hostile = Watch(id="w", by="enemy", look=0.001, report=float("nan"))
    assert pace.watch_pace([hostile]) == pace.WatchPace(look=5.0, report=300.0)
    assert pace.watch_pace([]) is None
    assert pace.report_interval(watch=None, spent=0) is None
    assert pace.report_interval(watch=FAST, spent=pace.WATCH_OPERATIONS_A_DAY) == pace.CAPPED_REPORT


def read_page(reader: BoardReader, reading: ReadBoard, at: float, *posts: Posted, is_end: bool = True) -> object:
    return reader.read(BoardRead(at=at, board=reading.board, since=reading.since, posts=posts, is_end=is_end))


def test_cursor_pages_filters_and_ignores_duplicates() -> None:
    reader = BoardReader(Board.REPORTS, NamespaceClock())
    first = reader.look(START + 100)
    over, live = posted(1, presence("a"), START, ttl=10), posted(2, presence("b"), START + 50)
    found = read_page(reader, first, START + 100, over, live, live, posted(3, None), is_end=False)
    assert [post.number for post in found.posts] == [2]
    assert (found.skipped, found.is_whole) == (1, False)
    assert found.more == ReadBoard(board=Board.REPORTS, since=4, most=250)
    assert read_page(reader, first, START + 101, live).posts == (), "an answer that was not asked for"
    assert read_page(reader, found.more, START + 101).is_whole


def test_contradicting_evidence_moves_the_estimate_of_a_clock_no_further_than_it_must() -> None:
    clock = NamespaceClock()
    clock.bound(enqueued_at=START, after=START + 63, before=START + 107)
    assert clock.offset == 63.0
    clock.bound(enqueued_at=START + 200, after=START, before=START + 260)
    assert clock.offset == 60.0


def test_a_report_that_is_over_says_nothing_of_its_engine_and_its_orders_are_read() -> None:
    """ "What counts is the signed bytes, whoever posts them and when": a new engine knows what is revoked."""
    engine = member()
    carried = (made_order("release", at=START), Signer(by="ada", fingerprint="SHA256:x"))
    over = replace(posted(1, report("pay-1"), START, ttl=120.0), carried=(carried,))
    live = posted(2, presence("pay-2"), START + 190)
    effects = engine.step(OwnState(at=START + 200, snapshot=snapshot("me")))
    engine.want_reports(START + 200)
    effects += engine.step(Ticked(at=START + 200))
    assert any(isinstance(one, ReadBoard) and one.board is Board.REPORTS for one in effects)
    engine.step(BoardRead(at=START + 200, board=Board.REPORTS, since=1, posts=(over, live), is_end=True))
    assert [one.engine for one in engine.view().engines if one.engine != "me"] == ["pay-2"]
    assert [one.text.verb for one in engine.orders.register.orders] == ["release"]


def test_tenth_look_finds_a_queue_that_was_created_again() -> None:
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    watch = Watch(id="w", by="x", look=5, report=15)
    read_page(reader, reader.look(START), START, posted(400, watch, START))
    for _ in range(8):
        assert read_page(reader, reader.look(START), START).more is None
    check = read_page(reader, reader.look(START + 60), START + 60).more
    assert (check.since, check.most) == (1, 1)
    found = read_page(reader, check, START + 61, posted(1, watch, START + 50))
    assert found.was_reset
    assert [one.number for one in read_page(reader, found.more, START + 61, posted(1, watch, START + 50)).posts] == [1]


def check_queue(reader: BoardReader, at: float, *posts: Posted) -> object:
    """Look until the first message is read too; return the result of that."""
    for look in range(10):
        reading = reader.look(at + look)
        found = read_page(reader, reading, at + look, *(post for post in posts if post.number >= reading.since))
        if found.more is not None:
            break
    assert found.more == ReadBoard(board=Board.ORDERS, since=1, most=1)
    return read_page(reader, found.more, at + 11, *posts[:1])


def test_a_queue_created_again_is_found_also_if_it_has_outgrown_the_cursor() -> None:
    """Else its first orders are never read, and a cleaning deletes them."""
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    watch = Watch(id="w", by="x", look=5.0, report=15.0)
    read_page(reader, reader.look(START), START, posted(1, watch, at=START - 10))
    new = [posted(number, watch, at=START + 1 + number) for number in (1, 2, 3)]
    found = check_queue(reader, START + 5, *new)
    assert found.was_reset
    read_page(reader, found.more, START + 20, *new)
    assert not check_queue(reader, START + 21, *new).was_reset


def test_an_empty_queue_is_read_from_its_first_number() -> None:
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    read_page(reader, reader.look(START), START, posted(7, Watch(id="w", by="x", look=5.0, report=15.0), at=START - 10))
    found = check_queue(reader, START)
    assert found.was_reset
    assert found.more.since == 1


def test_a_namespace_that_answers_a_check_otherwise_is_read_again_once_a_look() -> None:
    """Each reading is billed, and such a namespace would be read without a wait."""
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    watch = posted(7, Watch(id="w", by="x", look=5.0, report=15.0), at=START - 10)
    for look in range(10):
        found = read_page(reader, reader.look(START + look), START + look, watch)
    found = read_page(reader, found.more, START + 11)
    assert found.was_reset
    assert read_page(reader, found.more, START + 12, watch).more is None


def test_cleaning_spares_the_oldest_message_that_counts() -> None:
    reader = BoardReader(Board.REPORTS, NamespaceClock())
    assert reader.cleaning(START).before < START - 72 * 3600
    read_page(
        reader, reader.look(START), START + 1, posted(1, presence("a"), START), posted(2, report("a"), START, 120)
    )
    read_page(reader, reader.look(START + 600), START + 601, posted(3, report("a"), START + 600, ttl=120))
    for at in range(1000, 4500, 500):
        read_page(reader, reader.look(START + at), START + at + 1)
    assert reader.cleaning(START + 5000).before == START - 61, "since the first look, another queue may be there"
    check = read_page(reader, reader.look(START + 5500), START + 5501).more
    read_page(reader, check, START + 5502, posted(1, presence("a"), START))
    assert reader.cleaning(START + 5600) == Clean(board=Board.REPORTS, before=START, now=START + 5599)
    read_page(reader, reader.look(START + 5700), START + 5701, posted(4, presence("a"), START + 5700))
    assert reader.cleaning(START + 9100).before == START + 5501 - 61


def test_junk_behind_a_post_that_counts_is_received_when_that_is_worth_it() -> None:
    """Nobody's junk stays on a board for longer than its cleaning."""
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    watch = posted(1, Watch(id="w", by="x", look=5.0, report=15.0), START)
    read_page(reader, reader.look(START), START + 1, watch, *(posted(number, None, START) for number in range(2, 1001)))
    assert reader.cleaning(START + 2).dead == 0
    read_page(reader, reader.look(START + 3), START + 3, posted(1001, None, START + 2))
    assert reader.cleaning(START + 4).dead == 1_000
    reader.cleaned(is_flush=False)
    assert reader.cleaning(START + 5).dead == 0


def test_a_board_is_read_to_its_end_at_a_bounded_share_of_the_credits() -> None:
    """ "While the end of a board is not reached an engine reads on without waiting for its next look." """
    reader, at = BoardReader(Board.ORDERS, NamespaceClock()), START
    count = 2_500 + 900
    posts = [posted(number, None, START) for number in range(1, count + 1)]
    reading, began = reader.look(at), None
    while not (found := read_page(reader, reading, at, *page(posts, reading), is_end=is_last(posts, reading))).is_whole:
        began = at if reader.unread_since is not None and began is None else began
        at = at if found.more is not None else reader.resumes_at
        reading = found.more or reader.look(at)
    assert (began, reader.unread_since, reader.behind) == (START, None, 0)
    assert at - START == pytest.approx(900 / 10, rel=0.3)
    assert reader.flushing(at) is None


def test_a_flooded_board_is_said_and_flushed() -> None:
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    posts = [posted(number, None, START) for number in range(1, 60_001)]
    reading: ReadBoard | None = reader.look(START + 1)
    while reading is not None:
        reading = read_page(reader, reading, START + 1, *page(posts, reading), is_end=is_last(posts, reading)).more
    assert reader.unread_since == START + 1
    assert reader.behind > 20_000 > FLOODED_FROM[Board.ORDERS]
    assert reader.flushing(START + 2) == Clean(board=Board.ORDERS, before=START + 1, now=START + 1, is_flush=True)
    reader.cleaned(is_flush=True)
    assert reader.resumes_at < START
    assert read_page(reader, reader.look(START + 3), START + 3).is_whole
    assert reader.flushing(START + 4) is None


def page(posts: list[Posted], reading: ReadBoard) -> list[Posted]:
    return posts[max(0, reading.since - 1) :][: reading.most]


def is_last(posts: list[Posted], reading: ReadBoard) -> bool:
    return reading.since - 1 + reading.most >= len(posts)


def test_an_order_whose_message_vanished_is_found_by_the_engine_that_guards_it() -> None:
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    order = posted(3, made_order("force"), START)
    reader.guarded = frozenset({order.document.id})  # type: ignore[union-attr]
    proof = read_page(reader, reader.look(START), START + 1, order).more
    assert (proof.since, proof.most) == (3, 1)
    assert read_page(reader, proof, START + 1, order).vanished == ""
    again = read_page(reader, reader.look(START + 5), START + 5).more
    assert read_page(reader, again, START + 5, posted(9, None, START)).vanished == order.document.id  # type: ignore[union-attr]
    assert reader.missing(order.document.id)  # type: ignore[union-attr]


BOOTS = st.sampled_from([author("a"), author("a", "boot-2"), author("A"), author("b"), author("b", primary="other")])
TTLS = st.sampled_from([5.0, 120.0, 900.0, 10_800.0, 200_000.0])


@st.composite
def logs(draw: st.DrawFn) -> list[Posted]:
    """Any log of a board, with its enqueued times rising."""
    at, log = START, []
    for number in range(1, draw(st.integers(0, 40)) + 1):
        at += draw(st.sampled_from([0.0, 0.5, 30.0, 700.0, 4000.0]))
        boot = draw(BOOTS)
        some = presence("a")
        document = draw(st.sampled_from([
            replace(some, author=boot), replace(report("a"), presence=replace(some, author=boot)),
            Goodbye(id="g", author=boot, reason=""), Watch(id="w", by=boot.engine, look=5, report=15), None,
        ]))  # fmt: skip
        log.append(posted(number, document, at, draw(TTLS)))
    return log


def must_stay(log: list[Posted], board: Board, now: float) -> set[int]:
    """The posts that count, by the words of the design: each is compared with each."""

    def boot(post: Posted) -> object:
        head = post.document.presence.author if isinstance(post.document, Report) else post.document.author  # type: ignore[union-attr]
        return head.engine.casefold(), head.boot, head.primary

    def supersedes(newer: Posted, post: Posted) -> bool:
        one, other = post.document, newer.document
        if isinstance(one, Watch):
            return isinstance(other, Watch) and other.by == one.by
        if not isinstance(one, Presence | Report | Goodbye) or not isinstance(other, Presence | Report | Goodbye):
            return False
        return boot(post) == boot(newer) and (type(one) is type(other) or isinstance(other, Goodbye))

    kinds = (Watch,) if board is Board.ORDERS else (Presence, Report, Goodbye)
    lives = {Watch: 120.0, Presence: 10_800.0, Report: 10_800.0, Goodbye: 10_800.0}
    return {
        post.number for place, post in enumerate(log)
        if isinstance(post.document, kinds) and post.ends_at > now
        and post.enqueued_at + lives[type(post.document)] > now
        and not any(supersedes(newer, post) for newer in log[place + 1 :])
    }  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(Board), logs(), st.sampled_from([0.0, 90.0, 1000.0, 20_000.0]), st.integers(1, 12), st.data())
def test_no_message_that_counts_is_deleted(
    board: Board, log: list[Posted], wait: float, most: int, data: object
) -> None:
    skew = data.draw(st.sampled_from([0.0, 3000.0, -3000.0]))  # type: ignore[attr-defined]
    end = log[-1].enqueued_at if log else START
    reader, at = BoardReader(board, NamespaceClock()), (log[0].enqueued_at if log else START) + skew
    while at <= end + skew + wait:
        there = [post for post in log if post.enqueued_at + skew <= at]
        reading = reader.look(at)
        while reading is not None:
            page = tuple(post for post in there if post.number >= reading.since)[:most]
            whole = len(page) < most
            reading = read_page(reader, reading, at, *page, is_end=whole).more
        at += data.draw(st.sampled_from([5.0, 60.0, 3600.0]))  # type: ignore[attr-defined]
        now = at - skew
        log_now = [post for post in log if post.enqueued_at <= now]
        wanted, spared = reader.cleaning(at), must_stay(log_now, board, now)
        assert wanted.now <= now
        oldest = min((post.enqueued_at for post in log_now if post.number in spared), default=float("inf"))
        assert wanted.before <= oldest or not spared


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(Board), logs(), st.sampled_from([0.0, 1.0, 100.0, 4000.0]), st.randoms())
def test_in_any_order_the_same_messages_count(board: Board, log: list[Posted], wait: float, any_order: Random) -> None:
    now = (log[-1].enqueued_at if log else START) + wait
    mixed = log[:]
    any_order.shuffle(mixed)
    counting = CountingPosts(board)
    for post in mixed:
        counting.add(post)
    spared = must_stay(log, board, now)
    assert counting.oldest(now, frozenset()) == min(
        (post.enqueued_at for post in log if post.number in spared), default=float("inf")
    )
    assert counting.dead == len(log) - len(spared)


def test_a_queue_created_again_is_not_cleaned_by_what_the_old_one_held() -> None:
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    watch = Watch(id="w", by="x", look=5, report=15)
    read_page(reader, reader.look(START), START, posted(400, watch, START - 1))
    for at in range(60, 540, 60):
        read_page(reader, reader.look(START + at), START + at)
    assert reader.cleaning(START + 540).before < START


LOG = (
    posted(1, presence("a")), posted(2, report("a", orders=State.FAILED_OVER)), posted(3, presence("b")),
    posted(4, Goodbye(id="g", author=author("b"), reason="stopped")), posted(5, presence("b", "boot-2")),
    posted(6, report("c", ORDERS=State.HEALTHY, invoices=State.FORCED)), posted(7, presence("a")),
    posted(8, presence("c", "boot-9")), posted(9, report("c", orders=State.SUSPECT)),
)  # fmt: skip
ENEMY = (
    posted(10, replace(presence("a"), author=author("a", primary="other"))),
    posted(11, Watch(id="w", by="x", look=1, report=1)),
    posted(12, None),
)


@settings(max_examples=60, deadline=None)
@given(st.permutations(LOG + LOG[:4]), st.permutations(ENEMY))
def test_any_order_duplication_and_enemy_gives_the_same_roster(log: list[Posted], enemy: list[Posted]) -> None:
    expected, found = roster(*LOG).engines(START + 20), roster(*enemy, *log, *enemy)
    assert found.engines(START + 20).engines == expected.engines
    assert found.engines(START + 20).entities() == expected.entities()
    assert found.skipped == 2 * len(ENEMY)


def test_how_an_engine_differs_is_harmless_and_bounded() -> None:
    how = "released here by operator-b: force failover payments"
    evil = "\x1b[2J" + "x" * 10_000
    seen = roster(posted(1, replace(presence("a"), differs=(how, *[evil] * 20)))).engines(START + 20)
    assert seen.engines[0].differs[0] == how
    assert len(seen.engines[0].differs) == 10
    assert all(len(text) <= 160 and "\x1b" not in text for text in seen.engines[0].differs)


def test_roster_of_the_log(approve: Approve) -> None:
    seen = roster(*LOG).engines(START + 20)
    assert [(one.engine, one.boot, one.namesakes) for one in seen.engines] == [
        ("a", "boot-1", 0), ("b", "boot-2", 0), ("c", "boot-1", 1), ("c", "boot-9", 1),
    ]  # fmt: skip
    approve.part(" ".join(seen.remarks()), "rules of orders")
    orders = seen.entities()[0]
    assert orders.path.casefold() == "orders"
    assert orders.disagrees or orders.silent == 0
    approve.part(seen.missing(("A", "pay-3")), "rules of orders", has=("pay-3",))


@pytest.mark.parametrize(
    ("seconds", "watched_since", "status"),
    [
        (100, None, FleetStatus.REPORTING),
        (3600 + 299, None, FleetStatus.REPORTING),
        (3600 + 301, None, FleetStatus.SILENT),
        (104, START, FleetStatus.REPORTING),
        (106, START, FleetStatus.SILENT),
        (4000, START + 3990, FleetStatus.SILENT),
        (3800, START + 3790, FleetStatus.REPORTING),
    ],
)
def test_silence(seconds: float, watched_since: float | None, status: FleetStatus) -> None:
    (engine,) = roster(posted(1, presence("a"), START)).engines(START + seconds, watched_since=watched_since).engines
    assert engine.status is status


def test_a_silent_engine_stays_silent_when_the_watch_ends_until_it_is_heard() -> None:
    """What cannot be known is "unknown", never "healthy": the end of a watch is no sign of life."""
    seen = roster(posted(1, presence("a"), START))
    (watched,) = seen.engines(START + 200, watched_since=START).engines
    (unwatched,) = seen.engines(START + 210).engines
    assert (watched.status, unwatched.status) == (FleetStatus.SILENT, FleetStatus.SILENT)
    seen.read(posted(2, presence("a"), START + 220), START + 220)
    (heard,) = seen.engines(START + 230).engines
    assert heard.status is FleetStatus.REPORTING


def test_an_engine_is_gone_after_three_hours() -> None:
    assert roster(posted(1, presence("a"), START)).engines(START + 10_801).engines == ()


def test_an_engine_that_ended_is_shown_by_its_goodbye_alone() -> None:
    goodbye = Goodbye(id="g", author=author("b"), reason="stopped")
    (ended,) = roster(posted(4, goodbye)).engines(START + 20).engines
    assert (ended.status, ended.reason, ended.host) == (FleetStatus.ENDED, "stopped", "host-b")
    (running,) = roster(posted(1, presence("b", "boot-2"), START), posted(4, goodbye)).engines(START + 20).engines
    assert (running.boot, running.status) == ("boot-2", FleetStatus.REPORTING)


def test_a_report_carries_what_other_engines_show_of_an_entity_and_no_sentence() -> None:
    """ "reports carry callers, routes, parked by destination, episodes": what one fold over all engines needs."""
    shown = EntityView(
        path="payments", state=State.FAILED_OVER, since=START - 30, why="", route="backlog/3", sends_per_second=2.0,
        accepted=1, diverted=9, failed=3, last_ping_at=START - 4, last_ping_good=False, next_ping_at=START + 56,
        pings=2, refused=5, refused_per_second=0.5, refused_since=START - 3, refused_in_outage=4, refused_at=START - 1,
        first_failure_at=START - 31, first_failure_kind="timeout", carried=True, throttled=1, throttled_since=START - 2,
    )  # fmt: skip
    own = replace(shown, why="black hole", recent_pings=(None,), refusals=(("timeout", 5),), p99=1.0)
    parked = (DestinationView(path="payments", set_aside=7, moved=2),)
    whole = snapshot("a")
    whole = replace(whole, entities=(own,), times="…", syphon=replace(whole.syphon, destinations=parked))
    documents = OwnDocuments(author("a"), engine_orders("a"))
    sent = documents.report(whole, None, 15.0)
    (found,) = roster(posted(1, sent)).engines(START + 20).reports
    assert (sent.snapshot.entities, found.entities, found.destinations) == ((shown,), (shown,), parked)
    (named,) = sent.presence.not_well
    assert (named.first_failure_at, named.first_failure_kind) == (START - 31, "timeout")


def test_a_report_of_many_entities_keeps_those_that_are_not_well_and_those_with_sends() -> None:
    many = snapshot("a", entities={f"e{number}": State.HEALTHY for number in range(3_000)})
    bad = replace(many.entities[-1], state=State.FAILED_OVER, sends_per_second=0.0)
    busy = replace(many.entities[-2], sends_per_second=9.0)
    found = bound_snapshot(replace(many, entities=(*many.entities[:-2], busy, bad))).entities
    assert (len(found), found[0].path, found[1].path) == (1000, "e2999", "e2998")


def test_hostile_documents_are_bounded() -> None:
    rows = (OrderRow(order_id="x" * 10**5, outcome=Outcome.DONE, text="x" * 10**5),) * 1000
    evil = replace(presence("a"), queues=tuple(range(10**4)), rows=rows, started_at=1e300)
    evil = replace(evil, author=author("\x1b[2Jroot" + "x" * 10**5))
    seen = roster(posted(1, evil)).engines(START + 10)
    (engine,) = seen.engines
    assert "\x1b" not in engine.engine
    assert len(engine.engine) <= 80
    assert (len(engine.queues), engine.started_at) == (100, 0.0)
    (answers,) = seen.answers.values()
    assert len(answers) == 50
    assert all(len(row.text) <= 160 and len(row.order_id) <= 80 for row in answers)
    many = roster(*(posted(n, presence(f"e{n}")) for n in range(1, MAX_ENGINES + 50)))
    assert (len(many.engines(START + 10).engines), many.skipped, many.is_flooded(START + 600)) == (
        MAX_ENGINES,
        49,
        True,
    )


def test_expected_and_known_engines_stay_in_a_flood_and_no_claim_drives_them_out() -> None:
    """ "Presences are claims … ranked (expected and long-known first)." """
    read = Roster(author("me"), expected=("web-1", "Web-2"))
    for number, name in enumerate(("web-1", "pay-1", "pay-1"), 1):
        read.read(posted(number, presence(name), START + 20 * number), START)
    flood = range(100, 100 + 2 * MAX_ENGINES)
    for number in flood:
        read.read(posted(number, presence(f"ghost-{number}"), START + 70), START)
    read.read_own(presence("me"), START + 70)
    assert read.read(posted(9_998, presence("web-2"), START + 71), START)
    assert read.read(posted(9_999, presence("pay-2"), START + 71), START)
    names = {one.engine for one in read.engines(START + 600).engines}
    assert {"web-1", "web-2", "pay-1", "pay-2", "me", f"ghost-{flood[-1]}"} <= names
    assert (len(names), "ghost-100" in names, read.is_flooded(START + 600)) == (MAX_ENGINES, False, True)


def test_in_a_flood_the_answers_count_no_claim_and_name_the_flood() -> None:
    """ "Of whom was heard once then, and is not expected, no answer is awaited, and the answers name their number." """
    read = Roster(author("me"), expected=("web-1",))
    posts = [*(posted(n, presence("pay-1"), START + 20 * n) for n in (1, 2)), posted(3, presence("web-1"))]
    posts += [posted(n, presence(f"ghost-{n}"), START + 70) for n in range(10, 20 + MAX_ENGINES)]
    for post in posts:
        read.read(post, START)
    read.read_own(presence("me"), START + 70)
    order = made_order("force")
    seen = SeenOrder(order=order, by="ada", fingerprint="", first_at=START)
    done = {("me", "boot-1"): (OrderRow(order_id=order.id, outcome=Outcome.DONE),)}
    (view,) = order_views((seen,), FLEET_VERBS, read.engines(START + 75).engines, done)
    assert (view.done, view.silent_count, view.claimed) == (("me",), 2, MAX_ENGINES - 3)
    assert answers_part(view, START)[-1] == f"1 done · {MAX_ENGINES - 3} only claimed, in a flood · 2 silent"
    named = addressed_engines((f"ghost-{MAX_ENGINES}",), read.engines(START + 75).engines)
    assert ([one.engine for one in named.present], named.claimed) == ([f"ghost-{MAX_ENGINES}"], 0)


def test_in_a_flood_no_entity_of_an_engine_that_was_heard_once_is_shown() -> None:
    """A claim makes no alarm by itself: the flood is the alarm."""
    read = Roster(author("me"))
    lost = (FleetEntityState(path="ghostly", state=State.FAILED_OVER, since=START),)
    for number in (1, 2):
        own = report("pay-1", orders=State.FAILED_OVER)
        own = replace(own, presence=replace(own.presence, signers="SHA256:ours"))
        read.read(posted(number, own, START + 20 * number), START)
    few = [posted(number, presence(f"ghost-{number}", not_well=lost), START + 70) for number in range(100, 103)]
    for post in few:
        read.read(post, START)
    assert {one.path for one in read.engines(START + 75).entities()} == {"orders", "ghostly"}
    for number in range(200, 200 + MAX_ENGINES):
        ghost = presence(f"ghost-{number}", not_well=lost, signers="SHA256:theirs")
        read.read(posted(number, ghost, START + 71), START)
    flooded = read.engines(START + 75)
    assert {one.path for one in flooded.entities()} == {"orders"}
    assert flooded.remarks() == ()


def test_an_engine_whose_clock_is_ahead_shows_its_own_newest_document() -> None:
    """Its clock dates what it posted, the namespace dates what it reads: an older copy of its own is never newer."""
    read = Roster(author("me"))
    read.read_own(report("me", orders=State.FAILED_OVER), START + 240)
    read.read(posted(1, report("me", orders=State.SUSPECT), START + 300), START + 240)
    read.read_own(report("me", orders=State.HEALTHY), START + 10)
    (found,) = read.engines(START + 10).reports
    assert [(one.path, one.state) for one in found.entities] == [("orders", State.HEALTHY)]


def test_nobody_else_ends_this_engine_in_its_own_view() -> None:
    read = Roster(author("me"))
    read.read_own(presence("me"), START)
    read.read(posted(9, Goodbye(id="g", author=author("me"), reason="forged")), START)
    (found,) = read.engines(START + 20).engines
    assert found.status is FleetStatus.REPORTING


def member(**options: object) -> FleetMember:
    return fleet_member("me", **options)


def test_busy_silences_every_duty_for_ten_seconds(approve: Approve) -> None:
    engine = member()
    engine.step(OwnState(at=START, snapshot=snapshot("me")))
    engine.step(ReadFailed(at=START + 1, board=Board.ORDERS, reason="server busy", is_busy=True))
    engine.step(Watched(at=START + 2, is_watched=True))
    assert engine.step(Ticked(at=START + 10)) == []
    assert engine.next_deadline >= START + 11
    approve.part(engine.view().trouble, "rules of orders")
    assert any(isinstance(one, ReadBoard) for one in engine.step(Ticked(at=START + 12)))


def test_an_engine_that_may_only_read_the_orders_is_in_no_trouble_and_says_why_nobody_reports_fast() -> None:
    """ "An engine that may not post on `orders` reads them and reports all the same." """
    engine = member()
    engine.step(OwnState(at=START, snapshot=snapshot("me")))
    effects = engine.step(Watched(at=START + 1, is_watched=True)) + engine.step(Ticked(at=START + 5))
    (watch,) = [one.document for one in effects if isinstance(one, Write) and isinstance(one.document, Watch)]
    engine.step(WriteFailed(at=START + 6, document=watch, reason="needs Send", is_refused=True))
    view = engine.view()
    assert (view.trouble, "may not post a watch" in view.unwatched) == ("", True)
    assert not list(odd_cases(view, START))
    again = [engine.step(Ticked(at=START + 6 + second)) for second in range(0, 590, 30)]
    assert not [one for step in again for one in step if isinstance(one, Write) and isinstance(one.document, Watch)]


def test_goodbye_is_the_last_word_and_an_answer_that_was_not_asked_for_changes_nothing() -> None:
    engine = member(expect=("me", "pay-3"))
    stray = BoardRead(at=START, board=Board.ORDERS, since=77, posts=(posted(77, None),), is_end=True)
    engine.step(stray)
    assert engine.view().skipped == 0
    (goodbye,) = engine.step(Ending(at=START + 1, reason="stopped"))
    assert isinstance(goodbye, Write)
    assert isinstance(goodbye.document, Goodbye)
    assert engine.step(Ticked(at=START + 9000)) == []
    assert engine.view().missing == ("me", "pay-3")


def test_other_rules_get_unknown_never_none() -> None:
    assert usage_from(None) is None
    assert syphons_elsewhere(FleetView(me="me")) is None
    world = FleetWorld(3, syphons=3)
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(200)
    assert syphons_elsewhere(world.members[0].view()) == ("app-1", "app-2")
    world.alive[2] = False
    world.run(100)
    view = world.members[0].view()
    assert syphons_elsewhere(view) == ("app-1",)
    usage = usage_from(view)
    assert usage is not None
    assert usage.used == frozenset({0, 1, 2})
    assert view.engines[1].syphon == SyphonStatus.IDLE


def test_a_hostile_watch_costs_an_engine_a_bounded_number_of_operations_a_day() -> None:
    world = FleetWorld(1)
    for minute in range(0, 600, 50):
        world.run(50)
        hostile = Watch(id=f"w{minute}", by=f"enemy-{minute}", look=0.0, report=0.0)
        world.boards[Board.ORDERS].write(hostile, 10.0**9, world.now)
    assert world.operations["write"] <= 2 + 600 / 15
    assert world.operations["read"] <= 10 + 1.2 * 600 / 5 + 12
    engine = world.members[0]
    engine._watches._spent = pace.WATCH_OPERATIONS_A_DAY
    assert engine.look_seconds == 60.0
