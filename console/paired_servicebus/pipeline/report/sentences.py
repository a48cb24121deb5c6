"""A report in sentences: the impact first, for a reader who was not there. Texts are not escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Final

from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import DAY, day_and_clock, is_possible, written
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.report_values import OPEN, Fate, Finding, Judgement, Range, Report

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
    """Writes times of one report: the time of day in UTC, with the date if the report has several days."""

    since: float
    until: float

    def __call__(self, at: float | None, *, exact: bool = False) -> str:
        """Return HH:MM:SS, with the date before it or milliseconds behind it where needed; a dash for None."""
        if at is None:
            return DASH
        form = "%H:%M:%S" if self.since // DAY == self.until // DAY else "%m-%d %H:%M:%S"
        return written(at, f"{form}.%f")[:-3] if exact and is_possible(at) else written(at, form)

    def span(self, times: Range | None) -> str:
        """Return the earliest and the latest time, or the only one."""
        if times is None:
            return DASH
        first, last = self(times[0]), self(times[1])
        return first if first == last else f"{first}–{last}"


def seconds(value: float | None) -> str:
    """Return a duration: tenths below a minute, whole minutes and seconds below an hour, then hours and minutes."""
    if value is None or not isfinite(value):
        return DASH
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole % 3600 // 60, whole % 60
    if days:
        return f"{days} d {hours:02d} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def seconds_span(times: Range | None) -> str:
    """Return the shortest and the longest duration, or the only one."""
    if times is None:
        return DASH
    first, last = seconds(times[0]), seconds(times[1])
    return first if first == last else f"{first} to {last}"


def percent(share: float | None) -> str:
    """Never rounded up to all."""
    if share is None:
        return DASH
    return "100 %" if share >= 1.0 else f"{min(share, 0.9999):.2%}".replace("%", " %")


def listed(words: Iterable[str]) -> str:
    """Join words as in "a, b and c"."""
    found = list(words)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)


def few(names: Sequence[str], most: int = FEW, *, room: int = ROOM) -> str:
    """List at most `most` names, as many as `room` characters have space for, and the number of the others."""
    shown = [one_line(name, most=MAX_NAME) for name in names]
    fitting = max(1, sum(1 for end in accumulate(len(name) + 2 for name in shown) if end <= room + 2))
    if len(shown) <= min(most, fitting):
        return listed(shown)
    kept = max(1, min(most - 1, fitting))
    return f"{', '.join(shown[:kept])} and {len(shown) - kept:,} more"


def times(count: int) -> str:
    """Return how often."""
    return "once" if count == 1 else f"{count:,} times"


def count_span(numbers: tuple[int, int]) -> str:
    """Return the fewest and the most, or the only number."""
    return f"{numbers[0]:,}" if numbers[0] == numbers[1] else f"{numbers[0]:,} to {numbers[1]:,}"


STATUS_WORDS: Final = {
    "lost": "lost: accepted, and neither received nor in the backlog",
    "missing": "missing: parked, and no longer in the backlog",
    "unknown": "unknown for lack of a journal",
    "in flight": "in flight: accepted, and not received yet",
    "unexpected": "unexpected: received, though no sender of these journals was told that it was accepted",
    "dead-lettered": "dead-lettered in the backlog",
    "parked": "still parked",
    "in doubt": "in doubt: the last attempt had no answer",
}
NAMED: Final = 3
"""Journals that are named."""


def headline(report: Report) -> str:
    """Return the subject of the report as one line."""
    if not report.fates:
        return f"Nothing failed over from {day_and_clock(report.since)} to {day_and_clock(report.until)} UTC"
    began = min(one.began_at for one in report.episodes)
    still = ", not over" if report.open else ""
    return f"Incident of {day_and_clock(began)} UTC{still}: {few(report.entities, 4, room=60)} failed over"


def source_sentence(report: Report) -> str:
    """Return the state of the tables that the report is made from."""
    source = report.source
    folders = [one_line(folder) for folder in source.folders]
    if source.kind == "journal":
        more = [f"{len(folders) - NAMED:,} more"] if len(folders) > NAMED else []
        return (
            f"Made from the journals in {listed([*folders[:NAMED], *more])} by this package alone, without Spark, "
            f"at {day_and_clock(source.read_at)} UTC."
        )
    return (
        f"Made from batch {source.batch:,} of the tables in {folders[0]}, "
        f"written {day_and_clock(source.written_at)}, read {day_and_clock(source.read_at)} UTC."
    )


def impact(report: Report) -> Iterator[str]:
    """Yield the impact: the entities, the time, what callers met, the parked messages, and the verdict."""
    yield _reach(report)
    yield from _met(report)
    yield from _parked(report)
    yield verdict(report.judgement)


def _reach(report: Report) -> str:
    clock = Clock(report.since, report.until)
    pairing = f" of pairing {few(report.pairings)}" if report.pairings else ""
    if not report.fates:
        again = f", though an entity was suspect {report.recovered:,} times" if report.recovered else ""
        return (
            f"No entity{pairing} failed over from {day_and_clock(report.since)} to {day_and_clock(report.until)} "
            f"UTC{again}."
        )
    began = min(one.began_at for one in report.episodes)
    engines = tuple(dict.fromkeys(one.engine for one in report.episodes))
    where = f" at {len(engines)} engines" if len(engines) > 1 else ""
    subject = f"senders to {few(report.entities)}{pairing} {_diversion(report)}{where}"
    backs = [one.failed_back_at for one in report.episodes if one.failed_back_at is not None]
    if report.open or not backs:
        end = "It is not over." if report.open else f"How it ended: {_endings(report)}."
        return f"From {day_and_clock(began)} UTC on, {subject}. {end}"
    often = max(fate.times[1] for fate in report.fates)
    flaps = f", {often:,} failovers" if often > 1 else ""
    return f"From {day_and_clock(began)} to {clock(max(backs))} UTC ({seconds(max(backs) - began)}{flaps}), {subject}."


def _diversion(report: Report) -> str:
    primary = few(tuple(dict.fromkeys(one.primary for one in report.engines if one.primary)), 2)
    namespace = f"the primary namespace {primary}" if primary else "the primary"
    forced, number = sum(one.forced for one in report.episodes), len(report.episodes)
    if forced == number:
        return f"were diverted from {namespace} by an operator"
    by_operators = f" ({forced:,} of {number:,} failovers were forced by an operator)" if forced else ""
    return f"could not reach {namespace}{by_operators}"


def _endings(report: Report) -> str:
    return listed(dict.fromkeys(reason for fate in report.fates for reason in fate.end_reasons or (fate.outcome,)))


def _met(report: Report) -> Iterator[str]:
    met = [one for one in report.callers if not one.stayed] or report.callers
    if not met:
        yield "What callers met is unknown: no sends were counted."
        return
    failed = sum(one.failed for one in met)
    if not failed:
        yield "No attempt to send failed."
        return
    blocked = max(one.blocked for one in met)
    refused = sum(one.refused or 0 for one in met)
    known = all(one.refused is not None for one in met)
    callers = f"; {plural(refused, 'message')} refused" if known else ""
    slow = f"Callers were refused or slow for {seconds(blocked)} at most" if blocked else "No caller was blocked"
    yield f"{slow}; {plural(failed, 'attempt')} failed{callers}."


def _parked(report: Report) -> Iterator[str]:
    figures = report.judgement.incident
    judged = [fate.parked for fate in report.fates if fate.parked is not None]
    parked = figures.get("diverted") or sum(judged)
    if not report.fates and not parked:
        return
    if not figures and not judged:
        yield "How many messages were parked is not judged yet."
        return
    secondary = few(tuple(dict.fromkeys(one.secondary for one in report.engines if one.secondary)), 2)
    backlog = f" in the backlog of {secondary}" if secondary else " in the backlog"
    yield f"{plural(parked, 'message')} were parked{backlog}{_home(report, parked)}."


def _home(report: Report, parked: int) -> str:
    if not parked:
        return ""
    figures, home = report.judgement.incident, report.judgement.incident.get("home", 0)
    if home >= parked:
        emptied = [one.backlog_empty_at for one in report.episodes if one.backlog_empty_at is not None]
        since = f" since {Clock(report.since, report.until)(max(emptied))} UTC" if emptied else ""
        return f"; all of them are home{since}"
    parked_word = "still parked" if report.judgement.syphon_known else "parked and not followed"
    words = (("parked", parked_word), ("dead_lettered", "dead-lettered"), ("missing", "missing"))
    rest = [f"{figures[name]:,} {word}" for name, word in words if figures.get(name)]
    return f"; {home:,} of them are home{', ' + listed(rest) if rest else ''}"


def verdict(judgement: Judgement) -> str:
    """Return the verdict in a sentence."""
    figures = judgement.incident
    if judgement.verdict == "not judged":
        return "Whether anything was lost is not judged yet: paired pipeline --once does it."
    if judgement.verdict == "not recorded":
        return 'No message of this time was recorded one by one, so none is judged (journal = "all" records each).'
    incomplete = judgement.journals - judgement.journals_complete
    missing = f" {_journals(judgement)}." if incomplete > 0 else ""
    if judgement.verdict == "lost":
        found = [f"{figures[name]:,} {name}" for name in ("lost", "missing") if figures.get(name)]
        more = f", and {figures['unknown']:,} unknown" if figures.get("unknown") else ""
        return f"MESSAGES WERE LOST: {listed(found)}{more}.{missing}"
    if judgement.verdict == "unknown":
        return f"{' '.join(_unknown(judgement))}{missing}"
    if incomplete > 0:
        return f"No loss is known, but not every journal is here.{missing}"
    away = [f"{figures[name]:,} {word}" for name, word in _AWAY if figures.get(name)]
    none = "Nothing was lost" if figures.get("direct") else "No parked message was lost"
    direct = "" if figures.get("direct") else " Direct sends are not recorded one by one."
    so_far = " so far" if away else ""
    return f"{none}{so_far}, by {_basis(judgement)}{': ' + listed(away) if away else ''}.{direct}"


def _unknown(judgement: Judgement) -> Iterator[str]:
    figures = judgement.incident
    if figures.get("unknown"):
        yield f"Whether anything was lost is unknown for {plural(figures['unknown'], 'message')}."
    if figures.get("parked") and not judgement.syphon_known:
        yield (
            f"The fate of {plural(figures['parked'], 'parked message')} is unknown: "
            "no journal of an engine with a syphon is known."
        )


def _basis(judgement: Judgement) -> str:
    receivers, entities = len(judgement.receivers), len(judgement.receivers) + len(judgement.silent)
    if not receivers:
        return "the namespaces' answers"
    if receivers == entities:
        return "the receivers' records"
    return f"the receivers' records at {receivers:,} of {entities:,} entities and the namespaces' answers at the others"


_AWAY: Final = (("in_flight", "in flight"), ("parked", "still parked"), ("in_doubt", "in doubt"))


def _journals(judgement: Judgement) -> str:
    to = f", to {day_and_clock(judgement.complete_to)} UTC" if judgement.complete_to is not None else ""
    return f"{judgement.journals_complete:,} of {judgement.journals:,} journals are complete{to}"


def evidence(judgement: Judgement) -> Iterator[str]:
    """Yield the facts that the verdict rests on."""
    yield from judgement.rests_on
    if judgement.journals and not judgement.rests_on:
        yield f"{_journals(judgement)}."
    if judgement.receivers:
        yield f"Receivers report the messages of {few(judgement.receivers)}: there, delivered means received."
    if judgement.silent:
        yield (
            f"No receiver reports the messages of {few(judgement.silent)}: there, delivered means that the "
            "destination accepted it."
        )
    if judgement.judged_at is not None:
        yield f"Judged at {day_and_clock(judgement.judged_at)} UTC."


def explanations(judgement: Judgement) -> Iterator[str]:
    """Yield why some figures are no loss."""
    figures = judgement.incident
    if figures.get("out_of_order"):
        yield (
            f"{plural(figures['out_of_order'], 'message')} out of order, which is no loss: while messages wait in the "
            "backlog, newer ones overtake them on the direct path. Each of them arrived."
        )
    if figures.get("duplicates"):
        yield (
            f"{plural(figures['duplicates'], 'duplicate')}: an attempt without an answer is sent again, and the copy "
            "keeps its message id. Destinations that detect duplicates drop it."
        )


def finding_sentence(finding: Finding) -> str:
    """Return the messages of a status by name."""
    rest = finding.total - len(finding.named)
    more = f" and {rest:,} more" if rest > 0 else ""
    age = f", the oldest for {seconds(finding.oldest_age)}" if finding.status == "in flight" else ""
    words = STATUS_WORDS.get(finding.status, finding.status)
    names = ", ".join(one_line(name, most=400) for name in finding.named)
    reasons = "; ".join(one_line(reason, most=200) for reason in finding.reasons)
    return f"{finding.total:,} {words}{age}{f' ({reasons})' if reasons else ''}: {names}{more}"


def fate_sentence(fate: Fate, clock: Clock, *, several_engines: bool = False) -> str:
    """Return the story of entities that shared a fate. `several_engines`: the incident has more than one."""
    engines = f" at {few(fate.engines)}" if several_engines else ""
    if len(fate.engines) > 1:
        engines = f" at {len(fate.engines)} engines ({few(fate.engines, 4)})"
    cause = "an operator forced it" if fate.forced else _cause(fate)
    since = f", {seconds_span(fate.to_divert)} after the first failure" if fate.to_divert else ""
    often = f", the first of {count_span(fate.times)} times" if fate.times[1] > 1 else ""
    parked = "" if fate.parked is None else f" {plural(fate.parked, 'message')} parked."
    back = _return(fate, clock)
    return (
        f"failed over{engines} at {clock.span(fate.failed_over_at)}{since}{often}: {cause}. "
        f"{back[:1].upper()}{back[1:]}.{parked}"
    )


def _cause(fate: Fate) -> str:
    if not fate.causes:
        return "cause not recorded"
    more = f", and {len(fate.causes) - 1:,} other reasons" if len(fate.causes) > 1 else ""
    return f"{one_line(fate.causes[0], most=160)}{more}"


def _return(fate: Fate, clock: Clock) -> str:
    if fate.outcome == OPEN:
        return "not back on the primary yet"
    reason = f" ({one_line(fate.end_reasons[0], most=160)})" if fate.end_reasons else ""
    if fate.failed_back_at is None:
        return f"{fate.outcome}{reason}"
    drained = f", backlog empty at {clock.span(fate.backlog_empty_at)}" if fate.backlog_empty_at else ""
    back = "back on the primary" if fate.outcome != "pinned" else "pinned to the primary"
    return f"{back} at {clock.span(fate.failed_back_at)}{reason if fate.outcome == 'pinned' else ''}{drained}"
