"""The ledger's verdict: what it excuses, and each broken promise, planted into a sound history, is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.accounting.ledger import SendOutcome
from tests.stage.course import DEDUP, PLAIN
from tests.stage.ledger import (
    Answered,
    Arrived,
    Attempted,
    Began,
    Fact,
    FactFile,
    FactReader,
    Found,
    Ledger,
    Recovered,
    Remaining,
    Verdict,
    evidence,
)

TIMEOUT = 1.0


def sent(
    name: str, answer: SendOutcome | None = SendOutcome.ACCEPTED, *, at: float = 10.0, takes: float = 0.1
) -> list[Fact]:
    """An attempt and its outcome; None: its sender was killed before it knew."""
    facts: list[Fact] = [Attempted(at=at, entity=PLAIN, ids=[name])]
    if answer is not None:
        facts.append(Answered(at=at + takes, ids=[name], answer=answer))
    return facts


def came(name: str, *numbers: int, at: float = 11.0, entity: str = PLAIN) -> list[Fact]:
    return [Arrived(at=at, entity=entity, id=name, number=number) for number in numbers]


def verdict(*facts: list[Fact], calls_only: bool = False, may_park: bool = False) -> Verdict:
    ledger = Ledger()
    for some in facts:
        ledger.add(some)
    return ledger.judge(send_timeout=TIMEOUT, calls_only=calls_only, dedup=DEDUP, may_park=may_park)


SOUND = [*sent("a"), *came("a", 1), *sent("b"), *came("b", 2)]
LEFT: list[Fact] = [
    Remaining(at=1.0, place="backlog", dead=False, ids=["c"]),
    Remaining(at=1.0, place="backlog", dead=True, ids=["d"]),
]
IN_DOUBT_OF_DEDUP: list[Fact] = [
    Attempted(at=1.0, entity=DEDUP, ids=["c"]),
    Answered(at=1.1, ids=["c"], answer=SendOutcome.IN_DOUBT),
]
CHANGED: list[Fact] = [Arrived(at=1.0, entity=PLAIN, id="c", number=1, changed="subject is None, was 'c'")]


@pytest.mark.parametrize(
    ("facts", "problems"),
    [
        (sent("c"), ["LOST c"]),
        (came("ghost", 9), ["UNEXPECTED ghost"]),
        ([*sent("c", SendOutcome.REFUSED), *came("c", 9)], ["UNEXPECTED c"]),
        (came("a", 3), ["DUPLICATE a: 2 copies, and no window was open"]),
        (
            [*IN_DOUBT_OF_DEDUP, *came("c", 1, 2, entity=DEDUP)],
            ["DUPLICATE c: 2 copies where the destination detects duplicates"],
        ),
        ([*sent("c"), *sent("d"), *LEFT], ["NOT DRAINED c: it is in a backlog queue", "DEAD-LETTERED d"]),
        ([*sent("c"), *CHANGED], ["CHANGED c: subject is None, was 'c'"]),
        ([Found(at=1.0, text="the engine ended by itself")], ["the engine ended by itself"]),
    ],
    ids=["lost", "nobody sent it", "refused", "twice in calm times", "twice in doubt, where duplicates are detected",
         "in a queue at the end", "not as it was sent", "the director saw it"],
)  # fmt: skip
def test_a_broken_promise_is_found(facts: list[Fact], problems: list[str]) -> None:
    found = verdict(SOUND, facts)
    assert list(found.problems) == problems
    assert (found.balance.lost > 0) == (problems == ["LOST c"])


@pytest.mark.parametrize(
    ("facts", "accepted", "recovered", "in_doubt"),
    [
        ([], 2, 0, 0),
        ([*sent("c", SendOutcome.IN_DOUBT), *sent("c", SendOutcome.REFUSED, at=12.0), *came("c", 9)], 2, 1, 1),
        ([*sent("c", None), *came("c", 9)], 2, 1, 1),
        (sent("c", None), 2, 0, 1),
        (came("a", 1, at=30.0), 2, 0, 0),
    ],
    ids=["sound", "refused after a doubt", "its sender was killed", "and it did not arrive", "given out again"],
)
def test_what_is_no_problem(facts: list[Fact], accepted: int, recovered: int, in_doubt: int) -> None:
    found = verdict(SOUND, facts)
    assert (found.problems, found.copies) == ((), {})
    assert (found.balance.accepted, found.balance.recovered, found.balance.in_doubt) == (accepted, recovered, in_doubt)


@pytest.mark.parametrize(
    "window",
    [
        [*sent("c", SendOutcome.IN_DOUBT), *sent("c", at=12.0)],
        sent("c", takes=TIMEOUT),
        [*sent("c"), Began(at=9.0, episode=1, title="", opens=True), Recovered(at=10.5, episode=1)],
        [*sent("c"), Began(at=10.5, episode=1, title="", opens=True)],
    ],
    ids=["in doubt", "an attempt may have timed out", "sent in an episode", "moved in an episode"],
)
def test_a_second_copy_is_in_order_where_a_window_was_open(window: list[Fact]) -> None:
    found = verdict(window, came("c", 1, 2))
    assert (found.problems, found.copies) == ((), {PLAIN: 1})


@pytest.mark.parametrize(
    "shut",
    [
        [Began(at=9.0, episode=1, title="", opens=False)],
        [Began(at=5.0, episode=1, title="", opens=True), Recovered(at=9.0, episode=1)],
        [Began(at=12.0, episode=1, title="", opens=True), Recovered(at=15.0, episode=1)],
    ],
    ids=["it opens none", "it was over", "it came later"],
)
def test_a_second_copy_is_found_beside_an_episode_that_opens_no_window_for_it(shut: list[Fact]) -> None:
    assert verdict(shut, sent("c"), came("c", 1, 2)).suspects == ("c",)


@pytest.mark.parametrize(
    ("at", "takes", "copies"), [(99.0, 0.6, ()), (98.0, 0.5, ("a",)), (102.0, 0.9, ("a",)), (102.0, 1.0, ())],
    ids=["under way as it began", "answered before", "begun later", "it may have timed out"],
)  # fmt: skip
def test_where_only_calls_excuse_a_copy_its_call_was_under_way_as_the_outage_began(
    at: float, takes: float, copies: tuple[str, ...]
) -> None:
    outage: list[Fact] = [Began(at=99.5, episode=1, title="", opens=True), Recovered(at=101.0, episode=1)]
    assert verdict(outage, sent("a", at=at, takes=takes), came("a", 1, 2), calls_only=True).suspects == copies


def test_refusals_are_counted_by_entity_as_their_callers_saw_them() -> None:
    ledger = Ledger()
    for facts in (sent("a"), sent("b", SendOutcome.REFUSED), sent("c", SendOutcome.IN_DOUBT), sent("d", None)):
        ledger.add(facts)
    assert ledger.own_refusals() == {PLAIN: 2}


def test_lists_are_read_as_they_grow_and_a_torn_line_waits(tmp_path: Path) -> None:
    lines, reader = FactFile(tmp_path, "sender-1"), FactReader(tmp_path)
    lines.write(*sent("a", None))
    with (tmp_path / "sender-1.list").open("ab") as torn:
        torn.write(b'{"type":"Arr')
    assert list(reader.new()) == sent("a", None)
    assert list(reader.new()) == []


def test_evidence_is_every_line_that_names_the_message(tmp_path: Path) -> None:
    lines = FactFile(tmp_path, "sender-1")
    for fact in (*sent("a"), *sent("ab")):
        lines.write(fact)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "x.jsonl").write_text('{"message_id":"a"}\n{"message_id":"b"}\n')
    told = list(evidence(tmp_path, ["a"]))
    assert told[0] == "--- a"
    assert [line.split(":")[0] for line in told[1:]] == ["sender-1.list", "sender-1.list", "spool/x.jsonl"]
