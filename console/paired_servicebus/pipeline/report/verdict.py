"""The verdict of a report: one value, of which the headline and the table of messages are both made.

Each fate is a row of FATES, with the words of both. So a number cannot be in the table and missing in the headline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal

from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import day_and_clock

VerdictWord = Literal["lost", "unknown", "not delivered", "open", "nothing lost", "not judged", "not recorded"]
TONES: Final = {"lost": "loss", "not delivered": "loss", "open": "calm", "nothing lost": "calm"}
"""How a verdict looks; any other is a doubt."""
LEADS: Final = {"lost": "MESSAGES WERE LOST", "not delivered": "MESSAGES WERE NOT DELIVERED"}
"""Begins the sentence, and the page's title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of messages. One may be in several: a parked one that is home was delivered, too."""

    attempted: int = 0
    accepted: int = 0
    """By the primary, or by a backlog queue."""
    direct: int = 0
    diverted: int = 0
    """Accepted by a backlog queue at some time."""
    home: int = 0
    """Of those, moved by the syphon to their destination."""
    delivered: int = 0
    """Received; where no receiver records, accepted by the destination."""
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
    def of(cls, row: Mapping[str, object]) -> Counts:
        """Return the counts in a row of a table; columns of another name are left out."""
        known = {field.name: row.get(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in known.items() if isinstance(value, int)})

    def __bool__(self) -> bool:
        """Whether there is any message."""
        return any(getattr(self, field.name) for field in fields(self))


FATES: Final = (
    ("lost", "lost", "lost: accepted, and neither received nor in the backlog"),
    ("missing", "missing", "missing: parked by their receipts, and in no backlog queue"),
    ("expired", "expired", "expired: their time to live ended before they were received"),
    ("dead_lettered", "dead-lettered", "dead-lettered in the backlog"),
    ("unknown", "unknown", "unknown: a journal is not here, or not whole"),
    ("unexpected", "unexpected", "unexpected: received, and by the senders here not accepted"),
    ("unsent", "without a sender here", "received, and no journal here has their sender"),
    ("in_flight", "in flight", "in flight: accepted, and not received yet"),
    ("parked", "still parked", "still parked in the backlog"),
    ("in_doubt", "in doubt", "in doubt: the last attempt had no answer"),
)  # fmt: skip
"""The fates that are no good end, the worst first: the field, its word in the headline, and that of the table."""
GOOD: Final = (
    ("attempted", "attempted"), ("accepted", "accepted by a namespace"), ("diverted", "parked in the backlog"),
    ("home", "home from the backlog"), ("delivered", "delivered"), ("refused", "refused to their callers"),
    ("duplicates", "duplicates"), ("out_of_order", "out of order"),
)  # fmt: skip
LOSS: Final = ("lost", "missing")
DOUBT: Final = ("unknown", "unexpected", "unsent")
UNDELIVERED: Final = ("expired", "dead_lettered")
OPEN: Final = ("in_flight", "parked", "in_doubt")
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

    incident: Counts
    """Messages at risk: first seen in the report's time, or accepted before and not received by then."""
    recorded: Counts
    """All messages that are recorded of these pairings: the sums of table verdicts."""
    findings: tuple[Finding, ...]
    receivers: tuple[str, ...]
    """Entities whose receivers report."""
    silent: tuple[str, ...]
    """Entities that are judged by the destinations' answers."""
    rests_on: tuple[str, ...]
    """A sentence a pairing."""
    journals: int
    journals_complete: int
    complete_to: float | None
    """Seconds since the epoch; so is `judged_at`, None: not judged."""
    judged_at: float | None
    syphon_known: bool
    """Whether a journal of an engine with a syphon, or of a drain, is here. Others do not show which messages left."""
    unjudged: int = 0
    """Receipts of the report's time that are newer than the judgement."""
    verdict: VerdictWord = "not judged"

    @property
    def outside(self) -> Counts:
        """The lost and missing messages that are not at risk in this incident."""
        rest = {name: max(0, getattr(self.recorded, name) - getattr(self.incident, name)) for name in LOSS}
        return Counts(**rest)

    @property
    def is_followed(self) -> bool:
        """Whether the journals would show that a parked message left the backlog."""
        return self.syphon_known or not self.incident.parked

    @property
    def is_complete(self) -> bool:
        """Whether every known journal is here whole."""
        return self.journals_complete >= self.journals


def verdict_word(judgement: Judgement, *, has_receipts: bool) -> VerdictWord:
    """Return the verdict in a word. has_receipts: messages were recorded one by one, judged or not."""
    counts = judgement.incident

    def some(names: tuple[str, ...]) -> bool:
        return any(getattr(counts, name) for name in names)

    if some(LOSS) or judgement.outside:
        return "lost"
    if not counts:
        return "not judged" if judgement.judged_at is None and has_receipts else "not recorded"
    if some(DOUBT) or not judgement.is_followed or not judgement.is_complete:
        return "unknown"
    if some(UNDELIVERED):
        return "not delivered"
    return "open" if some(OPEN) or judgement.unjudged else "nothing lost"


# The verdict in sentences, and as rows of a table.


def verdict_sentence(judgement: Judgement) -> str:
    """Return the verdict with every number that is no good end."""
    numbers = _numbers(judgement.incident)
    match judgement.verdict:
        case "not judged":
            return "Whether anything was lost is not judged yet: paired pipeline --once does it."
        case "not recorded":
            return 'No message of this time was recorded one by one, so none is judged (journal = "all" records each).'
        case "lost":
            mine = judgement.incident.lost or judgement.incident.missing
            where = "" if mine else ", none of them known in this report"
            sentence = f"{LEADS['lost']}{where}{f': {numbers}' if numbers else ''}."
        case "not delivered":
            sentence = f"{LEADS['not delivered']}: {numbers}."
        case "unknown":
            sentence = f"Whether messages were lost is UNKNOWN{f': {numbers}' if numbers else ''}."
        case word:
            subject = "Nothing" if judgement.incident.direct else "No parked message"
            so_far = " so far" if word == "open" else ""
            sentence = f"{subject} was lost{so_far}, by {_basis(judgement)}{f': {numbers}' if numbers else ''}."
    return " ".join([sentence, *_grounds(judgement)])


def _numbers(counts: Counts) -> str:
    found = [f"{number:,} {word}" for name, word, _ in FATES if (number := getattr(counts, name))]
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)


def _grounds(judgement: Judgement) -> Iterator[str]:
    """Yield the limits of the verdict: losses outside, journals that are not here, sends without a record."""
    if judgement.outside:
        yield f"Outside of this report: {_numbers(judgement.outside)}."
    if not judgement.is_complete:
        yield f"{journals_sentence(judgement)}."
    if not judgement.is_followed:
        yield "No journal of an engine with a syphon is here, so parked messages are not followed."
    if TONES.get(judgement.verdict) == "calm" and not judgement.receivers:
        yield "No receiver records what it gets."
    if judgement.unjudged:
        yield f"{plural(judgement.unjudged, 'receipt')} of this time came after the judgement."
    if not judgement.incident.direct and judgement.incident:
        yield "Direct sends are not recorded one by one."


def _basis(judgement: Judgement) -> str:
    receivers, entities = len(judgement.receivers), len(judgement.receivers) + len(judgement.silent)
    if not receivers:
        return "the namespaces' answers"
    if receivers == entities:
        return "the receivers' records"
    return f"the receivers' records at {receivers:,} of {entities:,} entities and the namespaces' answers at the others"


def journals_sentence(judgement: Judgement) -> str:
    """Return how many journals are complete, and to which time."""
    to = f", to {day_and_clock(judgement.complete_to)} UTC" if judgement.complete_to is not None else ""
    are = "is" if judgement.journals_complete == 1 else "are"
    return f"{judgement.journals_complete:,} of {plural(judgement.journals, 'journal')} {are} complete{to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """A line of the table of messages."""

    words: str
    incident: int
    recorded: int | None
    """None: the sums do not have it."""
    is_bad: bool


def count_rows(judgement: Judgement) -> list[CountRow]:
    """Return the table of messages: every number of the headline, and those of the good ends."""
    good, bad = [(*row, False) for row in GOOD], [(name, words, name not in OPEN) for name, _, words in FATES]
    return [
        CountRow(
            words=words,
            incident=getattr(judgement.incident, name),
            recorded=None if name in ("diverted", "home") else getattr(judgement.recorded, name),
            is_bad=is_bad,
        )
        for name, words, is_bad in (*good, *bad)
        if getattr(judgement.incident, name) or getattr(judgement.recorded, name) or name in ALWAYS
    ]
