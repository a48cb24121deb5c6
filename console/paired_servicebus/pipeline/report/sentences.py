"""A report in sentences: the impact first, for a reader from outside. Texts are not escaped: templates do that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import accumulate
from math import isfinite
from typing import Final

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.text import number_format
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import DAY, day_and_clock, is_possible, written
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.report_values import OPEN, Failover, IncidentCost, Report
from paired_servicebus.pipeline.report.verdict import Finding, Judgement, listed, verdict_sentence

# The words of a report for times, durations, shares and lists.

DASH: Final = "–"
MAX_NAME: Final = 160
"""Characters of a name in a sentence."""
FEW: Final = 6
"""Names that a sentence lists."""
ROOM: Final = 120
"""Characters of a list of names."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Writes the times of one report: in UTC, and in brackets in the reader's zone where that differs."""

    since: float
    until: float
    zone: tzinfo | None = UTC
    """None: this machine's."""

    def __call__(self, at: float | None) -> str:
        """Return HH:MM:SS, with the date before it where the report has several days; a dash for None."""
        if at is None:
            return DASH
        local = self._local(at, self._form)
        return f"{written(at, self._form)} ({local})" if local else written(at, self._form)

    def moment(self, at: float) -> str:
        """Return date and time with the names of the zones."""
        local = self._local(at, self._day(at) + " %Z")
        return f"{day_and_clock(at)} UTC" + (f" ({local})" if local else "")

    def period(self, since: float, until: float) -> str:
        """Return two times, the date once if it is one."""
        end = written(until, "%H:%M:%S") if since // DAY == until // DAY else day_and_clock(until)
        first, last = self._local(since, self._day(since)), self._local(until, self._day(until) + " %Z")
        return f"{day_and_clock(since)} to {end} UTC" + (f" ({first} to {last})" if first and last else "")

    @property
    def _form(self) -> str:
        return "%H:%M:%S" if self.since // DAY == self.until // DAY else "%m-%d %H:%M:%S"

    def _day(self, at: float) -> str:
        """Return the form of a local time: with its date, if that is another one than UTC's."""
        here, there = written(at, "%d"), self._local(at, "%d")
        return "%H:%M:%S" if there in ("", here) else "%Y-%m-%d %H:%M:%S"

    def _local(self, at: float, form: str) -> str:
        """Return a time in the reader's zone; empty where that is UTC's, or no zone can have it."""
        if not is_possible(at) or written(at, "%Y") == "9999":
            return ""
        there = datetime.fromtimestamp(at, UTC).astimezone(self.zone)
        return there.strftime(form) if there.utcoffset() != timedelta(0) else ""


def duration(value: float | None) -> str:
    """Return a length of time in its two largest units; a dash for None."""
    return DASH if value is None or not isfinite(value) else number_format.duration(value)


def percent(share: float | None) -> str:
    """Never rounded up to all."""
    if share is None:
        return DASH
    return "100 %" if share >= 1.0 else f"{min(share, 0.9999):.2%}".replace("%", " %")


def few(names: Sequence[str], most: int = FEW, *, room: int = ROOM) -> str:
    """List at most `most` names, as many as `room` characters have space for, and the number of the others."""
    shown = [one_line(name, most=MAX_NAME) for name in names]
    fitting = max(1, sum(1 for end in accumulate(len(name) + 2 for name in shown) if end <= room + 2))
    if len(shown) <= min(most, fitting):
        return listed(shown)
    kept = max(1, min(most - 1, fitting))
    return f"{', '.join(shown[:kept])} and {len(shown) - kept:,} more"


# The headline and the impact.


def headline(report: Report) -> str:
    """Return the subject of the report as one line."""
    if not report.episodes:
        return f"Nothing failed over from {day_and_clock(report.since)} to {day_and_clock(report.until)} UTC"
    still = ", not over" if report.open else ""
    return f"Incident of {day_and_clock(report.began)} UTC{still}: {few(report.failed_over, 4, room=60)} failed over"


def source_sentence(report: Report, clock: Clock) -> str:
    """Return the state of the tables that the report is made from."""
    source = report.source
    if source.kind == "journal":
        return f"the journals in {few(source.folders, 4)}, without Spark, read {clock.moment(source.read_at)}"
    return f"batch {source.batch:,} of the tables in {source.folders[0]}, written {clock.moment(source.written_at)}"


def impact(report: Report, clock: Clock | None = None) -> Iterator[str]:
    """Yield the impact: the entities, the time, failed and refused sends, the parked messages, and the verdict."""
    yield _reach(report, clock or Clock(report.since, report.until))
    yield from _met(report)
    yield from _parked(report)
    yield verdict_sentence(report.judgement)


def _reach(report: Report, clock: Clock) -> str:
    pairing = f" of pairing {few(report.pairings)}" if report.pairings else ""
    if not report.episodes:
        again = f", though an entity was suspect {plural(report.recovered, 'time')}" if report.recovered else ""
        return f"No entity{pairing} failed over from {clock.period(report.since, report.until)}{again}."
    engines = len({one.engine for one in report.episodes})
    where = f" at {engines} engines" if engines > 1 else ""
    subject = f"senders to {few(report.failed_over)}{pairing} {_diversion(report)}{where}"
    if report.ended is None:
        end = "It is not over." if report.open else f"How it ended: {_endings(report)}."
        return f"From {clock.moment(report.began)} on, {subject}. {end}"
    often = max(one.times for one in report.failovers)
    flaps = f", {often:,} failovers" if often > 1 else ""
    lasted = duration(report.ended - report.began)
    return f"From {clock.period(report.began, report.ended)}, for {lasted}{flaps}, {subject}."


def _diversion(report: Report) -> str:
    primary = few(report.namespaces("primary"), 2)
    namespace = f"the primary namespace {primary}" if primary else "the primary"
    forced, number = sum(one.forced for one in report.episodes), len(report.episodes)
    if forced == number:
        return f"were diverted from {namespace} by an operator"
    by_operators = f" ({forced:,} of {number:,} failovers were forced by an operator)" if forced else ""
    return f"could not reach {namespace}{by_operators}"


def _endings(report: Report) -> str:
    return listed(dict.fromkeys(reason for one in report.failovers for reason in one.end_reasons or (one.outcome,)))


def _met(report: Report) -> Iterator[str]:
    met = [one for one in report.entities if one.failover is not None] or report.entities
    failed, refused = sum(one.failed for one in met), [one.refused for one in met if one.refused is not None]
    if not any(one.share is not None for one in met):
        yield "Failures at callers are unknown: no sends were counted."
        return
    if not failed and not sum(refused):
        yield "No attempt to send failed."
        return
    blocked = max((one.blocked or 0.0 for one in met), default=0.0)
    slow = f"; callers were refused or slow for {duration(blocked)} at most" if blocked else ""
    callers = "; refused messages are not recorded"
    if refused:
        callers = f"; {plural(sum(refused), 'message')} refused" if sum(refused) else "; no message was refused"
    yield f"{plural(failed, 'attempt')} failed{slow}{callers}."


def _parked(report: Report) -> Iterator[str]:
    counts = report.judgement.incident
    judged = [one.parked for one in report.episodes if one.parked is not None]
    parked = counts.diverted or sum(judged)
    if not report.episodes and not parked:
        return
    if not counts and not judged:
        yield "How many messages were parked is not judged yet."
        return
    secondary = few(report.namespaces("secondary"), 2)
    were = "was" if parked == 1 else "were"
    backlog = f" in the backlog of {secondary}" if secondary else " in the backlog"
    yield f"{plural(parked, 'message')} {were} parked{backlog}{_home(report, parked)}."


def _home(report: Report, parked: int) -> str:
    if not parked:
        return ""
    counts = report.judgement.incident
    if counts.home < parked:
        return f"; {counts.home:,} of them are home"
    emptied = [one.backlog_empty_at for one in report.episodes if one.backlog_empty_at is not None]
    since = f" since {written(max(emptied), '%H:%M:%S')} UTC" if emptied else ""
    return f"; all of them are home{since}"


def evidence(judgement: Judgement) -> Iterator[str]:
    """Yield whose receivers record, and why some figures are no loss."""
    counts = judgement.incident
    if judgement.receivers:
        yield f"Receivers record the messages of {few(judgement.receivers)}."
    if judgement.silent:
        yield f"No receiver records the messages of {few(judgement.silent)}: whether they were received is not known."
    if counts.out_of_order:
        yield (
            f"{plural(counts.out_of_order, 'message')} out of order, which is no loss: while messages wait in the "
            "backlog, newer ones overtake them on the direct path."
        )
    if counts.duplicates:
        yield (
            f"{plural(counts.duplicates, 'duplicate')}: an attempt without an answer is sent again, and the copy "
            "keeps its message id. Destinations that detect duplicates drop it."
        )


def finding_sentence(finding: Finding) -> str:
    """Return the messages of a fate by name."""
    rest = finding.total - len(finding.named)
    more = f" and {rest:,} more" if rest > 0 else ""
    reasons = "; ".join(one_line(reason, most=200) for reason in finding.reasons)
    age = f", the oldest for {duration(finding.oldest_age)}" if finding.oldest_age is not None else ""
    names = ", ".join(one_line(name, most=400) for name in finding.named)
    return f"{finding.total:,} {finding.status}{age}{f' ({reasons})' if reasons else ''}: {names}{more}"


def failover_sentences(report: Report, clock: Clock) -> Iterator[str]:
    """Yield the story of each entity's failovers; entities with the same one share a sentence."""
    stories: dict[str, list[str]] = {}
    several = len({one.engine for one in report.episodes}) > 1
    for one in report.failovers:
        stories.setdefault(_story(one, clock, several=several), []).append(one.entity)
    for story, names in stories.items():
        yield f"{few(names, 12, room=200)} {story}"


def _story(one: Failover, clock: Clock, *, several: bool) -> str:
    engines = f" at {few(one.engines)}" if several else ""
    cause = "an operator forced it" if one.forced else listed(one_line(cause, most=160) for cause in one.causes[:2])
    since = f", {duration(one.to_divert)} after the first failure" if one.to_divert else ""
    often = f", the first of {plural(one.times, 'time')}" if one.times > 1 else ""
    parked = "" if one.parked is None else f" {plural(one.parked, 'message')} parked."
    return (
        f"failed over{engines} at {clock(one.failed_over_at)}{since}{often}: {cause or 'cause not recorded'}. "
        f"{_return(one, clock)}.{parked}"
    )


def _return(one: Failover, clock: Clock) -> str:
    if one.outcome == OPEN:
        return "Not back on the primary yet"
    reason = f" ({one_line(one.end_reasons[0], most=160)})" if one.end_reasons else ""
    if one.failed_back_at is None:
        return f"{one.outcome[:1].upper()}{one.outcome[1:]}{reason}"
    drained = f", backlog empty at {clock(one.backlog_empty_at)}" if one.backlog_empty_at else ""
    back = f"Pinned to the primary{reason}" if one.outcome == "pinned" else "Back on the primary"
    return f"{back} at {clock(one.failed_back_at)}{drained}"


# The cost, the orders and the timeline.

MAX_LINES: Final = 150
"""Of the timeline."""


def cost_sentence(cost: IncidentCost, price: Price | None) -> str:
    """Return the operations, their bytes and their price."""
    size = number_format.size(sum(one.bytes for one in cost.causes))
    money = "their price is not set (console.toml, prices)"
    if price is not None:
        money = f"{price.of(cost.operations):,.4f} {price.currency}"
    return f"{plural(cost.operations, 'billed operation')} and {size}: {money}"


def base_sentence(cost: IncidentCost) -> str:
    """Return the rate that the cost is beyond."""
    length = f"In {plural(cost.minutes, 'minute')}"
    if not cost.base_minutes:
        return f"{length}. No time before it is recorded or counted, so nothing is subtracted."
    return (
        f"{length}, beyond the rate of the {plural(cost.base_minutes, 'minute')} before. Sends to the primary are not "
        "counted as caused: the application makes them anyway."
    )


def failures(kinds: dict[str, int]) -> str:
    """Return the failed attempts by kind."""
    return listed(f"{count:,} {one_line(kind, most=80)}" for kind, count in kinds.items())


def timeline(report: Report, clock: Clock, *, orders: bool = False) -> Iterator[str]:
    """Yield the lines of the timeline. orders: only those of operators."""
    everywhere = len({engine for entry in report.timeline for engine in entry.engines})
    entries = [entry for entry in report.timeline if entry.is_order or not orders]
    for entry in entries[:MAX_LINES]:
        until = f"–{clock(entry.until)}" if clock(entry.until) != clock(entry.at) else ""
        about = f"{few(entry.about)} " if entry.about else ""
        again = f" ({entry.times:,} times)" if entry.times > max(1, len(entry.about)) * len(entry.engines) else ""
        engines = few(entry.engines, 3) if len(entry.engines) < everywhere else f"all {everywhere} engines"
        yield f"{clock(entry.at)}{until} {about}{entry.text}{again}{f' – at {engines}' if everywhere > 1 else ''}"
    if len(entries) > MAX_LINES:
        yield f"and {len(entries) - MAX_LINES:,} more lines; --format json has them"


# For customers: the time, the late messages, and whether any is lost; no word of this house.


def customer_sentences(report: Report, clock: Clock) -> tuple[str, str, str]:
    """Return the three sentences of the version for customers."""
    return _disturbance(report, clock), _delay(report), _outcome(report.judgement)


def _disturbance(report: Report, clock: Clock) -> str:
    if not report.episodes:
        return f"From {clock.period(report.since, report.until)}, messages took their usual way."
    names = few(report.failed_over)
    if report.ended is None:
        return f"Since {clock.moment(report.began)}, messages for {names} have not taken their usual way."
    lasted = duration(report.ended - report.began)
    return f"From {clock.period(report.began, report.ended)}, for {lasted}, messages for {names} were disturbed."


def _delay(report: Report) -> str:
    late = sum(one.parked for one in report.entities)
    longest = max((one.longest for one in report.entities if one.longest is not None), default=None)
    refused = [one.refused for one in report.entities if one.refused is not None]
    by = f", the latest by {duration(longest)}" if longest is not None else ""
    if not report.judgement.incident:
        delayed = "How many messages were late is not known"
    else:
        delayed = f"{plural(late, 'message')} {'was' if late == 1 else 'were'} late{by}" if late else "None was late"
    turned_away = f", and {plural(sum(refused), 'message')} could not be sent at once" if sum(refused) else ""
    return f"{delayed}{turned_away}."


def _outcome(judgement: Judgement) -> str:
    counts = judgement.incident
    lost, undelivered = counts.lost + counts.missing, counts.expired + counts.dead_lettered
    under_way = counts.in_flight + counts.parked
    more = [
        f"{number:,} {words}"
        for number, words in (
            (undelivered, "were not delivered"), (under_way, "are still on their way"),
            (counts.unknown + counts.unexpected + counts.unsent, "are being looked into"),
        )
        if number
    ]  # fmt: skip
    beside = f"; {listed(more)}" if more else ""
    match judgement.verdict:
        case "lost":
            return f"MESSAGES WERE LOST: {lost:,}{beside}." if lost else f"MESSAGES WERE LOST at other times{beside}."
        case "not delivered":
            return f"MESSAGES WERE NOT DELIVERED: {listed(more)}."
        case "nothing lost":
            return "No message was lost." if counts.direct else "None of the late messages was lost."
        case "open":
            return f"No message is known to be lost{beside}."
        case "accepted":
            return f"All messages were accepted; whether they were received is NOT CONFIRMED{beside}."
        case _:
            return f"It is NOT YET KNOWN whether messages were lost{beside}."
