"""The verdict of a report: one value, of which the headline and the table of messages are both made.

The words and numbers are those of the table `verdicts`, by the same statements over the report's messages
(judging/verdict_sql.py). Each fate is a row of FATES, so a number cannot be in the table and missing in the headline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

from paired_servicebus.core.text.number_format import join_names, plural

VerdictWord = Literal[
    "lost", "unknown", "not recorded", "not delivered", "accepted", "open", "nothing lost", "not judged"
]
"""The column `finding` of the table `verdicts`; or "not judged": messages are recorded, and no judgement has them."""
TONES: Final = {"lost": "loss", "not delivered": "loss", "open": "calm", "nothing lost": "calm"}
"""How a verdict looks; any other is a doubt."""
LEADS: Final = {"lost": "MESSAGES WERE LOST", "not delivered": "MESSAGES WERE NOT DELIVERED"}
"""Begins the sentence, and the page's title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of messages, by columns of the table `verdicts`. One may be in several: what is parked was accepted."""

    attempted: int = 0
    accepted: int = 0
    """By the primary, or by a backlog queue."""
    direct: int = 0
    diverted: int = 0
    """Accepted by a backlog queue at some time."""
    home: int = 0
    """Of those, moved by the syphon to their destination."""
    delivered: int = 0
    """Received, by a record of the receiver."""
    unconfirmed: int = 0
    """Accepted by their destination, and of which no receiver keeps a record."""
    in_flight: int = 0
    parked: int = 0
    dead_lettered: int = 0
    expired: int = 0
    in_doubt: int = 0
    refused: int = 0
    missing: int = 0
    lost: int = 0
    unknown: int = 0
    unexpected: int = 0
    unsent: int = 0
    duplicates: int = 0
    out_of_order: int = 0

    @classmethod
    def of(cls, *rows: Mapping[str, object]) -> Counts:
        """Return the sums of rows of the table `verdicts`; messages in doubt that arrived are not in doubt."""
        sums = {one.name: sum(_number(row, one.name) for row in rows) for one in fields(cls)}
        sums["in_doubt"] -= sum(_number(row, "recovered") for row in rows)
        return cls(**sums)

    def __bool__(self) -> bool:
        """Whether there is any message."""
        return self != Counts()


def _number(row: Mapping[str, object], name: str) -> int:
    found = row.get(name)
    return found if isinstance(found, int) else 0


FATES: Final = (
    ("lost", "lost", "lost: accepted, and neither received nor in the backlog"),
    ("missing", "missing", "missing: parked by their receipts, and in no backlog queue"),
    ("expired", "expired", "expired: their time to live ended before they were received"),
    ("dead_lettered", "dead-lettered", "dead-lettered in the backlog"),
    ("unknown", "unknown", "unknown: a journal is not here, or not whole"),
    ("unexpected", "unexpected", "unexpected: received, and by the senders here not accepted"),
    ("unsent", "without a sender here", "received, and no journal here has their sender"),
    ("unconfirmed", "without a receiver's record", "accepted by their destination, whose receivers record nothing"),
    ("in_flight", "in flight", "in flight: accepted, and not received yet"),
    ("parked", "still parked", "still parked in the backlog"),
    ("in_doubt", "in doubt", "in doubt: the last attempt had no answer"),
)  # fmt: skip
"""The fates that are no good end, the worst first: the field, its word in the headline, and that of the table."""
GOOD: Final = (
    ("attempted", "attempted"), ("accepted", "accepted by a namespace"), ("diverted", "parked in the backlog"),
    ("home", "home from the backlog"), ("delivered", "received"), ("refused", "refused to their callers"),
    ("duplicates", "duplicates"), ("out_of_order", "out of order"),
)  # fmt: skip
LOSS: Final = ("lost", "missing")
OPEN: Final = ("unconfirmed", "in_flight", "parked", "in_doubt")
ALWAYS: Final = frozenset({"lost", "missing", "unknown"})
"""Rows of the table that are there with a 0, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Messages of one fate by name."""

    status: str
    total: int
    named: tuple[str, ...]
    """The oldest, each with its entity."""
    oldest_age: float | None = None
    """Seconds."""
    reasons: tuple[str, ...] = ()
    """The most frequent ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on the messages at risk, with its evidence."""

    verdict: VerdictWord
    incident: Counts
    """Messages at risk: first seen in the report's time, or accepted before and not received by then."""
    recorded: Counts
    """All messages that are recorded of these pairings."""
    findings: tuple[Finding, ...]
    receivers: tuple[str, ...]
    """Entities whose receivers report."""
    silent: tuple[str, ...]
    """Entities that are judged by the destinations' answers."""
    rests_on: str
    """The evidence, in sentences: the journals of the report's time, those that are not whole by name."""
    judged_at: float | None
    """Seconds since the epoch; None: not judged."""
    unjudged: int = 0
    """Receipts of the report's time that are newer than the judgement."""
    absent: tuple[str, ...] = ()
    """Expected engines without any record here."""

    @property
    def outside(self) -> Counts:
        """The lost and missing messages that are not at risk in this incident."""
        return outside_of(self.incident, self.recorded)


def outside_of(incident: Counts, recorded: Counts) -> Counts:
    """Return the lost and missing messages of all those recorded that an incident's numbers do not have."""
    return Counts(**{name: max(0, getattr(recorded, name) - getattr(incident, name)) for name in LOSS})


def verdict_word(finding: VerdictWord, outside: Counts, *, is_judged: bool, unjudged: int) -> VerdictWord:
    """Return the verdict: the finding on the messages at risk, unless other messages forbid it.

    Args:
        outside: what is lost in other times.
        is_judged: whether there is a judgement.
        unjudged: receipts of this time that no judgement has.
    """
    if outside:
        return "lost"
    if not is_judged or finding == "not recorded":
        return "not judged" if unjudged else "not recorded"
    return "open" if unjudged and finding == "nothing lost" else finding


def without_engines(judgement: Judgement, absent: tuple[str, ...]) -> Judgement:
    """Return the judgement where the journals of expected engines are not here: nothing comforts then."""
    comforts = judgement.verdict in ("nothing lost", "open", "accepted")
    word: VerdictWord = "unknown" if absent and comforts else judgement.verdict
    return replace(judgement, absent=absent, verdict=word)


# The verdict in sentences, and as rows of a table.

MAX_NAMED: Final = 5
"""Absent engines that a sentence names."""


def verdict_sentence(judgement: Judgement) -> str:
    """Return the verdict with every number that is no good end, and what it rests on."""
    return " ".join((verdict_headline(judgement), *verdict_grounds(judgement)))


def verdict_headline(judgement: Judgement) -> str:
    """Return the verdict with every number that is no good end."""
    numbers = _numbers(judgement.incident)
    beside = f": {numbers}" if numbers else ""
    match judgement.verdict:
        case "not judged":
            return "Whether anything was lost is not judged yet: paired pipeline --once does it."
        case "not recorded":
            return 'No message of this time was recorded one by one, so none is judged (journal = "all" records each).'
        case "lost":
            mine = judgement.incident.lost or judgement.incident.missing
            return f"{LEADS['lost']}{'' if mine else ', none of them known in this report'}{beside}."
        case "not delivered":
            return f"{LEADS['not delivered']}{beside}."
        case "unknown":
            return f"Whether messages were lost is UNKNOWN{beside}."
        case "accepted":
            return f"Accepted, but receipt is NOT CONFIRMED{beside}."
        case word:
            subject = "Nothing" if judgement.incident.direct else "No parked message"
            by = ", by the receivers' records" if judgement.receivers else ""
            return f"{subject} was lost{' so far' if word == 'open' else ''}{by}{beside}."


def _numbers(counts: Counts) -> str:
    return listed(f"{number:,} {word}" for name, word, _ in FATES if (number := getattr(counts, name)))


def listed(words: Iterable[str]) -> str:
    """Join words as in "a, b and c"."""
    found = list(words)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)


def verdict_grounds(judgement: Judgement) -> Iterator[str]:
    """Yield what else is known: losses outside, the evidence, engines without a journal here, receipts not judged."""
    if judgement.verdict in ("not judged", "not recorded"):
        return
    if judgement.outside:
        yield f"Outside of this report: {_numbers(judgement.outside)}."
    if judgement.rests_on:
        yield judgement.rests_on
    if judgement.absent:
        yield f"No journal of these engines is here: {join_names(judgement.absent, MAX_NAMED)}."
    if judgement.unjudged:
        yield f"{plural(judgement.unjudged, 'receipt')} of this time came after the judgement."


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """A line of the table of messages."""

    words: str
    incident: int
    recorded: int
    is_bad: bool


def count_rows(judgement: Judgement) -> list[CountRow]:
    """Return the table of messages: every number of the headline, and those of the good ends."""
    good, bad = [(*row, False) for row in GOOD], [(name, words, name not in OPEN) for name, _, words in FATES]
    return [
        CountRow(words=words, incident=incident, recorded=recorded, is_bad=is_bad)
        for name, words, is_bad in (*good, *bad)
        for incident, recorded in ((getattr(judgement.incident, name), getattr(judgement.recorded, name)),)
        if incident or recorded or name in ALWAYS
    ]
