"""Verdicts on worlds whose truth is known (SPEC.md section 11): a table of them, and random ones.

"A sentence of comfort or blame needs its evidence; whatever has none is *unknown*, and says why."
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.report.report_queries import report_since
from paired_servicebus.pipeline.report.verdict import FATES, Counts, Judgement, verdict_sentence
from tests.pipeline.batches import MINUTES_OF_SPARK, write_file
from tests.pipeline.judged import Judged, Row, judge
from tests.pipeline.test_spark_judges import compare
from tests.pipeline.worlds import Kill, World, random_world, some

RANDOM: Final = int(os.environ.get("PAIRED_WORLDS", "100"))
AT_ONCE: Final = 100
"""Worlds of one judgement, each a pairing of its own."""
COMFORT: Final = ("nothing lost", "open")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the verdict has to be. numbers: those of the fates that are no good end; the others are 0.

    because: a part of a reason, or of what the verdict rests on.
    """

    world: World
    finding: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    because: str = ""


def expect(finding: str, because: str = "", /, numbers: Mapping[str, int] | None = None, **more: Any) -> Expected:
    return Expected(world=World(**more), finding=finding, numbers=numbers or {}, because=because)


BLOCK = some(range(20, 26))
GONE: Final = {"senders": 2, "gone": {"send1": 20}}
SCRAPPED: Final = {**GONE, "retired": frozenset({"send1"})}
TABLE: Final = {
    # nothing happens
    "all is well": expect("nothing lost"),
    "several engines": expect("nothing lost", senders=3, receivers=3),
    "engines that run": expect("nothing lost", running=True),
    "diverted and moved": expect("nothing lost", diverted=BLOCK),
    "in doubt and received": expect("nothing lost", in_doubt=some(7)),
    "refused": expect("nothing lost", refused=some(7)),
    "a lock ended": expect("nothing lost", again=some(7, 9)),
    "receivers were down and caught up": expect("nothing lost", down=(20, 40)),
    "slow receivers": expect("nothing lost", slow=30.0),
    "sent twice and received twice": expect("nothing lost", both=some(3, 4)),
    # losses
    "two lost": expect("lost", numbers={"lost": 2}, lost=some(20, 21)),
    "one lost": expect("lost", numbers={"lost": 1}, lost=some(20)),
    "two lost far apart": expect("lost", numbers={"lost": 2}, lost=some(10, 50)),
    "many lost at once, before an outage": expect(
        "lost", numbers={"lost": 26}, lost=some(range(10, 36)), diverted=some(range(36, 46))
    ),
    "lost after the backlog": expect("lost", numbers={"lost": 2}, diverted=BLOCK, lost=some(20, 21)),
    "lost of one of three senders": expect("lost", numbers={"lost": 1}, senders=3, receivers=2, lost=some(30)),
    "lost while engines run": expect("lost", numbers={"lost": 3}, running=True, lost=some(20, 21, 22)),
    "lost beside a restart": expect("lost", numbers={"lost": 1}, kills={"receive0": Kill(before=40)}, lost=some(20)),
    "lost before a gap ended": expect(
        "unknown", "lacks 5 records", numbers={"unknown": 6}, gaps={"receive0": range(60, 65)}, lost=some(20)
    ),
    "destroyed in the backlog": expect("lost", numbers={"missing": 6}, destroyed=BLOCK),
    "the newest are in flight": expect("open", numbers={"in_flight": 2}, lost=some(97, 98), messages=60),
    # neither lost nor delivered
    "parked": expect("open", numbers={"parked": 6}, parked=BLOCK),
    "all dead-lettered": expect(
        "not delivered", numbers={"dead_lettered": 60}, dead=some(range(60))
    ),
    "some dead-lettered": expect("not delivered", numbers={"dead_lettered": 6}, dead=BLOCK),
    "dead-lettered, and another lost": expect(
        "lost", numbers={"dead_lettered": 6, "lost": 1}, dead=BLOCK, lost=some(40)
    ),
    # time to live
    "expired while receivers were down": expect(
        "not delivered", "it had 30 s to live", numbers={"expired": 20},
        ttl=dict.fromkeys(range(20, 40), 30.0), down=(20, 40),
    ),
    "a time to live that was enough": expect("nothing lost", ttl=dict.fromkeys(range(60), 3600.0)),
    "lost with a time to live, and later ones received within it": expect(
        "unknown", "lost, or expired: it had 600 s to live", numbers={"unknown": 2},
        ttl=dict.fromkeys((20, 21), 600.0), lost=some(20, 21),
    ),
    "lost with a time to live that is not over": expect(
        "lost", numbers={"lost": 1}, ttl={20: 1e6}, lost=some(20)
    ),
    "one expired": expect("not delivered", numbers={"expired": 1}, ttl={20: 30.0}, down=(20, 21)),
    # which journals are here
    "the receivers' journal is not here": expect(
        "accepted", "No receiver records", numbers={"unconfirmed": 100}, absent=frozenset({"receive0"})
    ),
    "no receiver records": expect("accepted", numbers={"unconfirmed": 100}, records_received=False),
    "no receiver records, and some are parked": expect(
        "accepted", numbers={"unconfirmed": 94, "parked": 6}, records_received=False, parked=BLOCK
    ),
    "the sender's journal is not here": expect(
        "unknown", "have no sender", numbers={"unsent": 100}, absent=frozenset({"send0"})
    ),
    "one of two senders' journals is not here": expect(
        "unknown", numbers={"unexpected": 50}, senders=2, absent=frozenset({"send1"})
    ),
    "one of two receivers' journals is not here": expect(
        "unknown", "receivers seem to record only a share", receivers=2, absent=frozenset({"receive1"}),
        numbers={"unknown": 42, "in_flight": 7},
    ),
    "direct sends are not recorded": expect(
        "unknown", numbers={"unsent": 94}, journal_all=False, diverted=BLOCK
    ),
    # cut and late journals
    "a killed receiver, whole": expect("nothing lost", kills={"receive0": Kill(before=30)}),
    "a killed sender, whole": expect("nothing lost", kills={"send0": Kill(before=30)}),
    "a killed receiver, whose end nobody knows": expect(
        "unknown", "was killed after", kills={"receive0": Kill(before=30, named=False)}
    ),
    "a killed receiver, whose last records never came": expect(
        "unknown", "lacks 20 records", numbers={"unknown": 17}, kills={"receive0": Kill(before=30, cut=20)}
    ),
    "the same, and nobody knows its end": expect(
        "unknown", "was killed after", numbers={"unknown": 17}, kills={"receive0": Kill(before=30, named=False, cut=20)}
    ),
    "a killed sender, whose last records never came": expect(
        "unknown", "lacks 10 records", numbers={"unexpected": 0, "unsent": 9},
        kills={"send0": Kill(before=30, cut=10)},
    ),
    "the same, and some of them are lost": expect(
        "unknown", "lacks 10 records", numbers={"unsent": 6},
        kills={"send0": Kill(before=30, cut=10)}, lost=some(26, 27, 28),
    ),
    "a loss long after a restart that nobody knows the end of": expect(
        "lost", numbers={"lost": 1}, kills={"receive0": Kill(before=10, named=False)}, lost=some(40)
    ),
    "a receiver's journal is an hour late": expect(
        "unknown", "recorded nothing after", numbers={"unknown": 52}, running=True, late={"receive0": 62}
    ),
    "a receiver's journal is minutes late": expect(
        "open", numbers={"in_flight": 8}, running=True, late={"receive0": 9}
    ),
    "a sender's journal is an hour late": expect(
        "unknown", "recorded nothing after", numbers={"unsent": 52}, running=True, late={"send0": 62}
    ),
    "records of a sender are destroyed": expect(
        "unknown", "lacks 9 records", numbers={"unsent": 7}, gaps={"send0": range(30, 39)}
    ),
    "records of a receiver are destroyed": expect(
        "unknown", "lacks 9 records", numbers={"unknown": 7}, gaps={"receive0": range(30, 39)}
    ),
    "the first records of a receiver are gone": expect(
        "unknown", "not here: w50@receive0 lacks records before", numbers={"unknown": 7}, gaps={"receive0": range(9)}
    ),
    # engines that are gone
    "a sender is gone without a word": expect("unknown", "recorded nothing after", **GONE),
    "the same, and a loss": expect("unknown", numbers={"unknown": 1}, **GONE, lost=some(40)),
    "a sender was declared gone": expect("nothing lost", "was declared gone for good", **SCRAPPED),
    "the same, and a loss after it": expect("lost", numbers={"lost": 1}, **SCRAPPED, lost=some(40)),
    "a receiver was declared gone": expect(
        "nothing lost", "was declared gone for good", receivers=2, gone={"receive1": 100},
        retired=frozenset({"receive1"}),
    ),
    # clocks
    "a job an hour behind": expect(
        "unknown", "its clock cannot be compared", numbers={"unknown": 10}, job=10, skew={"job": -3600}
    ),
    "a job an hour ahead": expect("open", numbers={"in_flight": 10}, job=10, skew={"job": 3600}),
    "a job in time": expect("open", numbers={"in_flight": 10}, job=10),
    "a sender ten minutes behind": expect(
        "nothing lost", "10 minutes behind", senders=2, skew={"send1": -600}
    ),
    "a sender ten minutes ahead": expect("nothing lost", "10 minutes ahead", senders=2, skew={"send1": 600}),
    "a sender an hour behind, and a loss": expect(
        "open", "60 minutes behind", numbers={"in_flight": 1}, senders=2, skew={"send1": -3600}, lost=some(10)
    ),
    "a receiver a minute behind": expect("nothing lost", skew={"receive0": -60}),
    # shared entities and strangers
    "a receiver that records nothing gets half": expect(
        "unknown", "receivers seem to record only a share", numbers={"unknown": 42, "in_flight": 7}, silent_receivers=1
    ),
    "a receiver that records nothing gets a third": expect(
        "unknown", "receivers seem to record only a share", numbers={"unknown": 28, "in_flight": 5},
        receivers=2, silent_receivers=1,
    ),
    "strangers' messages": expect("unknown", numbers={"unexpected": 5}, strangers=5),
    "strangers' messages beside deleted ones": expect(
        "unknown", "received with another id", numbers={"unexpected": 5, "unknown": 5}, strangers=5,
        lost=some(range(20, 25)),
    ),
    # topics
    "two subscriptions": expect("nothing lost", subscriptions={"billing": some(), "shipping": some()}),
    "a subscription that missed some": expect(
        "unknown", "not received by the subscription shipping", numbers={"unknown": 6},
        subscriptions={"billing": some(), "shipping": BLOCK},
    ),
    "a topic's message that no subscription got": expect(
        "unknown", "not received by the subscription billing, shipping", numbers={"unknown": 2},
        subscriptions={"billing": some(), "shipping": some()}, lost=some(20, 21),
    ),
    # ids, sessions, schedules
    "ids accepted twice and received once": expect(
        "unknown", "accepted 2 times and received 1 times", numbers={"unknown": 6}, twice=BLOCK
    ),
    "sessions": expect("nothing lost", has_sessions=True),
    "a session that waits": expect(
        "unknown", "its session may wait", numbers={"unknown": 1}, has_sessions=True, lost=some(20)
    ),
    "scheduled messages": expect("nothing lost", scheduled=some(20, 21)),
    "scheduled messages that are not received": expect(
        "unknown", "it was scheduled for a later time", numbers={"unknown": 1}, scheduled=some(20), lost=some(20)
    ),
}  # fmt: skip


SOME: Final = tuple({one.finding: name for name, one in TABLE.items()}.values())
"""A world of each finding."""


def judged(worlds: Mapping[str, World]) -> Judged:
    """Judge some worlds at once, each as a pairing."""
    return judge([record for name, world in worlds.items() for record in world.journals(name)])


@cache
def of_table() -> tuple[Judged, dict[str, Row]]:
    found = judged({_pairing(name): one.world for name, one in TABLE.items()})
    return found, _verdicts(found.verdicts)


def _pairing(name: str) -> str:
    return f"w{[*TABLE].index(name):02}"


def _verdicts(rows: list[Row]) -> dict[str, Row]:
    return {row["pairing"]: row for row in rows if row["pairing"] and not row["entity"]}


def test_there_are_sixty_worlds() -> None:
    assert len(TABLE) >= 60


@pytest.mark.parametrize("name", TABLE)
def test_a_world_has_its_verdict_headline_and_numbers(name: str) -> None:
    expected, (found, verdicts) = TABLE[name], of_table()
    row = verdicts[_pairing(name)]
    numbers = {fate: row[fate] for fate, *_ in FATES if fate != "in_doubt" and row[fate]}
    assert (row["finding"], numbers) == (expected.finding, {k: n for k, n in expected.numbers.items() if n})
    reasons = [one["reason"] for one in found.audit if one["pairing"] == _pairing(name) and one["reason"]]
    assert expected.because in " ".join([row["rests_on"], *reasons])
    assert_headline(row)


def assert_headline(row: Row) -> None:
    """The report's headline is of the same finding, and has every number."""
    counts = Counts.of(row)
    sentence = verdict_sentence(
        Judgement(
            verdict=row["finding"], incident=counts, recorded=counts, findings=(), receivers=("orders",), silent=(),
            rests_on=row["rests_on"], judged_at=1.0,
        )
    )  # fmt: skip
    assert all(f"{number:,} {words}" in sentence for fate, words, _ in FATES if (number := getattr(counts, fate)))
    assert ("othing was lost" in sentence or "o parked message was lost" in sentence) == (row["finding"] in COMFORT)


@pytest.mark.parametrize("worlds", [SOME, pytest.param([*TABLE], marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_report_of_a_world_says_the_same_as_its_tables(tmp_path: Path, worlds: Sequence[str]) -> None:
    """One verdict, one word: the report judges by the same statements."""
    journal = write_worlds(tmp_path / "journal", {_pairing(name): TABLE[name].world for name in worlds})
    with JournalTables.open([journal]) as tables:
        for row in tables.verdicts():
            report = report_since(tables, 0.0, pairing=row["pairing"])
            assert report.judgement.verdict == row["finding"], row
            assert report.judgement.incident == report.judgement.recorded == Counts.of(row)
            assert report.judgement.rests_on == row["rests_on"]


# -- random worlds -------------------------------------------------------------------------------------------------


def batches() -> Iterator[dict[str, World]]:
    """The random worlds, some at once."""
    for first in range(0, RANDOM, AT_ONCE):
        yield {f"w{seed}": random_world(Random(seed)) for seed in range(first, min(first + AT_ONCE, RANDOM))}


def test_random_worlds_are_neither_comforted_nor_accused_wrongly() -> None:
    """PAIRED_WORLDS=2000 judges two thousand of them."""
    accused, comforted, whole = [], [], Counter[str]()
    for worlds in batches():
        found = judged(worlds)
        verdicts, fates = _verdicts(found.verdicts), _fates(found)
        for name, world in worlds.items():
            mine = fates.get(name, {})
            finding = verdicts[name]["finding"] if name in verdicts else "not recorded"
            blamed = {one for one, status in mine.items() if status in ("lost", "missing")}
            open_ones = {one for one, status in mine.items() if status in ("in flight", "parked")}
            accused += [(name, world, one) for one in blamed - world.truth]
            comforted += [(name, world, one) for one in world.truth - open_ones if finding in COMFORT]
            whole[finding] += world.is_whole
    assert (accused, comforted) == ([], [])
    assert whole["unknown"] <= whole.total() / 10, whole


def _fates(found: Judged) -> dict[str, dict[str, str]]:
    fates: dict[str, dict[str, str]] = {}
    for row in found.audit:
        fates.setdefault(row["pairing"], {})[row["message_id"]] = row["status"]
    return fates


# -- Spark ---------------------------------------------------------------------------------------------------------


def write_worlds(folder: Path, worlds: Mapping[str, World]) -> Path:
    """Journal files of some worlds."""
    for name, world in worlds.items():
        write_file(folder / name / "events" / f"{name}-0000000000001-000000000001.jsonl", world.journals(name))
    return folder


@MINUTES_OF_SPARK
@pytest.mark.timeout(900)
def test_spark_makes_the_same_tables_of_the_table_s_worlds(spark: Any, tmp_path: Path) -> None:
    worlds = {_pairing(name): one.world for name, one in TABLE.items()}
    journal = write_worlds(tmp_path / "journal", worlds)
    compare(spark, tmp_path, journal)
    with JournalTables.open([journal]) as tables:
        found = _verdicts(tables.rows("select * from verdicts"))
    assert {name: found[_pairing(name)]["finding"] for name in TABLE} == {n: one.finding for n, one in TABLE.items()}


@MINUTES_OF_SPARK
@pytest.mark.timeout(900)
def test_spark_makes_the_same_tables_of_random_journals_with_damage(spark: Any, tmp_path: Path) -> None:
    worlds = {f"w{seed}": random_world(Random(seed)) for seed in range(50)}
    journal, rng = write_worlds(tmp_path / "journal", worlds), Random(1)
    for path in sorted(journal.rglob("*.jsonl")):
        lines = path.read_bytes().split(b"\n")
        place = rng.randrange(1, len(lines) - 1)
        damage = (lines[place][:-9], b"\xff\xfe", b"null", b"[1]", b'{"v":1}', lines[place].replace(b'"v":1', b'"v":9'))
        lines[place] = rng.choice(damage)
        lines.insert(rng.randrange(len(lines)), lines[rng.randrange(len(lines) - 1)])
        path.write_bytes(b"\n".join(lines))
    compare(spark, tmp_path, journal)
