"""The readiness for a failover: evidence in, findings out.

Each row of RULES makes one finding. Without evidence a finding is UNKNOWN, never OK. NO means that sends would fail, or
that parked messages would stay; the rest warns. paired_servicebus.pairing.monitoring.backlog_inspection and
paired_servicebus.engine.readiness.readiness_check gather the evidence.

What a send would do now is no reading: the pairing's own state answers it, in each snapshot anew (`with_sends`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import FULL_SHARE
from paired_servicebus.core.drill.drill_plan import DrillOutcome, LastDrill
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_condition import PairingCondition, condition_of
from paired_servicebus.core.model.policy import PingKind
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Finding,
    FindingVerdict,
    Readiness,
    Snapshot,
    SyphonStatus,
)
from paired_servicebus.core.operator.targets import PAUSED_HERE
from paired_servicebus.core.text.number_format import join_names, plural
from paired_servicebus.core.text.time_format import clock

GB: Final = 1024**3
EXPIRY_WARNING_SECONDS: Final = 3600.0
"""Seconds; a signature that ends within them and cannot be renewed warns."""

SENDS: Final = "a send now"
SECONDARY: Final = "secondary reachable"
SEND: Final = "send to the backlog"
ROOM: Final = "room in the backlog"
TOKENS: Final = "credentials"
SYPHON: Final = "a syphon runs"
SIZES: Final = "messages fit"
EXPIRY: Final = "pings leave nothing"
DRILL: Final = "last drill"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEvidence:
    """One backlog queue. None: unknown."""

    path: str
    tried_at: float | None = None
    """Time at which a link to it was opened or refused."""
    refusal: str = ""
    """Why a link could not be opened; empty if it was opened."""
    unsafe: str = ""
    """Why its settings can lose messages, so that nothing is sent to it; empty if they cannot, or are unknown."""
    unreachable: bool = False
    """Whether network or namespace caused the refusal, not this queue or the credential."""
    messages: int | None = None
    size_bytes: int | None = None
    limit_bytes: int | None = None
    read_at: float | None = None
    """Time of the reading of messages and size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvidence:
    """The validity of one namespace's credential."""

    namespace: str
    expires_at: float | None = None
    """None: a key, which signs again each time."""
    renewable: bool = True
    """False: a ready signature, which cannot be extended."""
    trouble: str = ""
    """Why there is no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLarge:
    """Messages of one entity that the primary accepted and a backlog queue would not."""

    entity: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryEvidence:
    """Whether an entity, or a subscription of it, dead-letters expired messages, which includes pings."""

    path: str
    dead_letters: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence at `at`; evidence that was not gathered keeps its default."""

    at: float
    primary: str
    secondary: str
    """The namespaces' names."""
    queues: tuple[QueueEvidence, ...]
    queues_wanted: int
    tokens: tuple[TokenEvidence, ...] = ()
    syphon: SyphonStatus | None = None
    """This engine's syphon; None: no engine was asked."""
    syphons_elsewhere: tuple[str, ...] = ()
    """Other engines with a syphon for the same namespaces."""
    too_large: tuple[TooLarge, ...] | None = None
    limit_bytes: int | None = None
    """Maximum bytes of a message in the backlog."""
    ping: PingKind = "message"
    expiry: tuple[ExpiryEvidence, ...] | None = None
    expiry_at: float | None = None
    last_drill: LastDrill | None = None
    """None: never drilled, as far as the files of this machine know, or unknown."""
    drills_read: bool = False
    """Whether these files were read."""
    trouble: str = ""
    """Why management did not return the queues' counts; empty if it did."""
    asked: bool = True
    """Whether management was asked; an engine asks only while a console is attached (SPEC.md section 12)."""


def judge(evidence: Evidence) -> Readiness:
    """Return the findings, in the order of an operator's checks."""
    return Readiness(at=evidence.at, findings=tuple(rule(evidence) for rule in RULES))


def unreachable(readiness: Readiness) -> bool:
    """Return whether the secondary could not be contacted at all."""
    return any(finding.what == SECONDARY for finding in readiness.of(FindingVerdict.NO))


def with_sends(readiness: Readiness, it: PairingCondition) -> Readiness:
    """Return the findings with what the pairing's machine would do with a send now, in place of an earlier answer."""
    others = tuple(finding for finding in readiness.findings if finding.what != SENDS)
    return replace(readiness, findings=(_sends(it), *others))


def answered(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the findings that `with_sends` makes of it; unchanged while nothing was examined."""
    if snapshot.readiness is None:
        return snapshot
    return replace(snapshot, readiness=with_sends(snapshot.readiness, condition_of(snapshot)))


def _sends(it: PairingCondition) -> Finding:
    """Return the finding about a send now, by the machine's state: who accepts it, or why it is refused."""
    answers: dict[_SendAnswer, list[str]] = {}
    for one in it.entities:
        answers.setdefault(_answer(it, one), []).append(one.path)
    seen = "; ".join(f"{answer}: {join_names(answers[answer])}" for answer in _SendAnswer if answer in answers)
    verdict, todo = FindingVerdict.OK, ""
    if it.queues and not it.open_queues:
        reasons = dict.fromkeys(queue.pulled_reason or "for an unknown reason" for queue in it.queues)
        seen = f"{seen or 'no entity is known'}; all backlog queues refuse sends ({join_names(reasons)})"
        verdict, todo = FindingVerdict.NO, f"check {it.secondary}, and the reason of each queue on page 3"
    elif _SendAnswer.REFUSED in answers:
        verdict, todo = FindingVerdict.NO, "see the reasons of the refused calls in paired status"
    elif _SendAnswer.PRIMARY_REFUSES in answers:
        verdict, todo = FindingVerdict.WARN, "a suspect entity fails over by itself; release a pinned one (U)"
    elif _SendAnswer.HELD in answers:
        verdict, todo = FindingVerdict.WARN, "check [primary] in pairing.toml, and the network"
    elif _SendAnswer.UNKNOWN in answers or not answers:
        verdict = FindingVerdict.UNKNOWN
    return Finding(what=SENDS, verdict=verdict, evidence=seen or "no entity is known", read_at=it.read_at, todo=todo)


class _SendAnswer(StrEnum):
    """What becomes of a send now, the worst first."""

    REFUSED = "refused by both namespaces"
    PRIMARY_REFUSES = "refused by the primary, and not diverted yet"
    HELD = "held while the primary is away, then accepted by a backlog queue"
    BACKLOG = "accepted by a backlog queue"
    UNKNOWN = "unknown, as nothing was sent"
    PRIMARY = "accepted by the primary"


def _answer(it: PairingCondition, entity: EntityView) -> _SendAnswer:
    fails = entity.refused_per_second > 0 and entity.sends_per_second == 0
    if it.has_no_route(entity) or (fails and entity.state in DIVERTING):
        return _SendAnswer.REFUSED
    if entity.state in DIVERTING:
        return _SendAnswer.BACKLOG
    if entity.refused_per_second > 0 and entity.state in (State.SUSPECT, State.PINNED):
        return _SendAnswer.PRIMARY_REFUSES
    if entity.state is State.UNKNOWN:
        return _SendAnswer.HELD if it.is_primary_away else _SendAnswer.UNKNOWN
    return _SendAnswer.PRIMARY


def _secondary(evidence: Evidence) -> Finding:
    tried = [queue for queue in evidence.queues if queue.tried_at is not None]
    reached = [queue for queue in tried if not queue.unreachable]
    if reached or not tried:
        verdict = FindingVerdict.OK if reached else FindingVerdict.UNKNOWN
        seen = f"it answered for {len(reached)} of {len(tried)} backlog queues" if reached else "not tried yet"
        return Finding(what=SECONDARY, verdict=verdict, evidence=seen, read_at=_oldest(tried))
    return Finding(
        what=SECONDARY,
        verdict=FindingVerdict.NO,
        evidence=f"the secondary namespace does not answer: {tried[0].refusal}",
        read_at=_oldest(tried),
        todo="check the network, and [secondary] in pairing.toml",
    )


def _send(evidence: Evidence) -> Finding:
    tried = [queue for queue in evidence.queues if queue.tried_at is not None]
    refused = [queue for queue in tried if queue.refusal]
    unsafe = [queue for queue in evidence.queues if queue.unsafe]
    open_ = len([queue for queue in tried if not queue.refusal and not queue.unsafe])
    seen = f"links opened to {open_} of {evidence.queues_wanted} backlog queues, nothing sent"
    if refused:
        reasons = dict.fromkeys(queue.refusal for queue in refused)
        seen += "".join(
            f"; {reason}: {join_names(queue.path for queue in refused if queue.refusal == reason)}"
            for reason in reasons
        )
    seen += "".join(f"; {queue.path} gets no messages: {queue.unsafe}" for queue in unsafe[:1])
    if len(unsafe) > 1:
        seen += f" (and {plural(len(unsafe) - 1, 'queue')} more)"
    if tried and not open_ and unsafe:
        verdict, todo = FindingVerdict.NO, "change the settings of the backlog queues"
    elif tried and not open_:
        verdict, todo = FindingVerdict.NO, "start an engine, which makes missing queues; the credential needs Send"
    elif not tried:
        verdict, todo = FindingVerdict.UNKNOWN, ""
    elif open_ < evidence.queues_wanted:
        verdict, todo = FindingVerdict.WARN, "sends use the other queues; check the refusing ones"
    elif open_ == 1:
        verdict, todo = (
            FindingVerdict.WARN,
            "a single queue has no fallback: raise backlog_queue_count",
        )
    else:
        verdict, todo = FindingVerdict.OK, ""
    return Finding(what=SEND, verdict=verdict, evidence=seen, read_at=_oldest(tried), todo=todo)


def _room(evidence: Evidence) -> Finding:
    known = [queue for queue in evidence.queues if queue.size_bytes is not None and queue.limit_bytes]
    if not known:
        if not evidence.asked and not evidence.trouble:
            seen = "backlog queue sizes are unknown: they are read only while a console is attached"
            return Finding(what=ROOM, verdict=FindingVerdict.UNKNOWN, evidence=seen)
        why = f": {evidence.trouble}" if evidence.trouble else ""
        return Finding(
            what=ROOM,
            verdict=FindingVerdict.UNKNOWN,
            evidence=f"backlog queue sizes are unknown{why}",
            todo="" if evidence.trouble else "reading them needs Manage on the secondary; sending does not",
        )
    limit = sum(queue.limit_bytes or 0 for queue in known)
    used = sum(queue.size_bytes or 0 for queue in known)
    full = [queue for queue in known if (queue.size_bytes or 0) >= (queue.limit_bytes or 0)]
    verdict, todo = FindingVerdict.OK, ""
    if len(full) == len(evidence.queues):
        verdict, todo = FindingVerdict.NO, "run a syphon, or add queues: raise backlog_queue_count"
    elif full or used > FULL_SHARE * limit:
        verdict, todo = FindingVerdict.WARN, "run a syphon; more queues add space (backlog_queue_count)"
    free = f"{max(0, limit - used) / GB:.1f} of {limit / GB:.0f} GB free in {len(known)} backlog queues"
    parked = f", {sum(queue.messages or 0 for queue in known):,} messages parked"
    named = f"; full: {join_names(queue.path for queue in full)}" if full else ""
    stale = f" (not updated: {evidence.trouble})" if evidence.trouble else ""
    return Finding(
        what=ROOM,
        verdict=verdict,
        evidence=free + parked + named + stale,
        read_at=min((queue.read_at for queue in known if queue.read_at is not None), default=None),
        todo=todo,
    )


def _tokens(evidence: Evidence) -> Finding:
    judged = [(_token(token, evidence.at), token) for token in evidence.tokens]
    worst = next((answer for answer in _WORST if any(one == answer for one, _ in judged)), FindingVerdict.UNKNOWN)
    todo = (
        "renew the signature, or use a key or an identity" if worst in (FindingVerdict.WARN, FindingVerdict.NO) else ""
    )
    return Finding(
        what=TOKENS,
        verdict=worst,
        evidence="; ".join(_validity(token) for _, token in judged) or "not looked at",
        read_at=evidence.at if judged else None,
        todo=todo,
    )


def _token(token: TokenEvidence, at: float) -> FindingVerdict:
    if token.trouble:
        return FindingVerdict.NO
    if token.expires_at is None or token.renewable:
        return FindingVerdict.OK
    if token.expires_at <= at:
        return FindingVerdict.NO
    return FindingVerdict.WARN if token.expires_at - at < EXPIRY_WARNING_SECONDS else FindingVerdict.OK


def _validity(token: TokenEvidence) -> str:
    if token.trouble:
        return f"{token.namespace}: no token: {token.trouble}"
    if token.expires_at is None:
        return f"{token.namespace}: a key, valid until it is changed"
    kind = "a self-renewing token, now" if token.renewable else "a signature,"
    return f"{token.namespace}: {kind} valid until {clock(token.expires_at)}"


def _syphon(evidence: Evidence) -> Finding:
    counted = [queue.messages for queue in evidence.queues if queue.messages is not None]
    parked = sum(counted)
    parked_text = f"; {plural(parked, 'message')} parked" if parked else ""
    if evidence.syphons_elsewhere:
        verdict, seen, todo = FindingVerdict.OK, f"engine {join_names(evidence.syphons_elsewhere)} runs one", ""
    else:
        verdict, seen, todo = _SYPHONS[evidence.syphon]
    return Finding(what=SYPHON, verdict=verdict, evidence=seen + parked_text, read_at=evidence.at, todo=todo)


def _sizes(evidence: Evidence) -> Finding:
    if evidence.too_large is None:
        return Finding(what=SIZES, verdict=FindingVerdict.UNKNOWN, evidence="only an engine that sends can count them")
    large = [f"{one.messages:,} to {one.entity}" for one in evidence.too_large if one.messages]
    limit = f" (limit {evidence.limit_bytes:,} bytes)" if evidence.limit_bytes else ""
    if not large:
        seen = f"every message this engine sent would have fitted into the backlog{limit}"
        return Finding(what=SIZES, verdict=FindingVerdict.OK, evidence=seen, read_at=evidence.at)
    return Finding(
        what=SIZES,
        verdict=FindingVerdict.WARN,
        evidence=f"messages that would not survive failover{limit}: {join_names(large)}",
        read_at=evidence.at,
        todo="send smaller bodies, or pair with a namespace of a larger tier",
    )


def _expiry(evidence: Evidence) -> Finding:
    if evidence.ping == "link":
        return Finding(what=EXPIRY, verdict=FindingVerdict.OK, evidence='pings only attach (ping = "link")')
    if evidence.expiry is None:
        seen = "unknown whether entities dead-letter on expiry: the primary's management did not report it"
        return Finding(what=EXPIRY, verdict=FindingVerdict.UNKNOWN, evidence=seen)
    hit = [one.path for one in evidence.expiry if one.dead_letters]
    blind = [one.path for one in evidence.expiry if one.dead_letters is None]
    verdict = FindingVerdict.WARN if hit else FindingVerdict.UNKNOWN if blind else FindingVerdict.OK
    seen = f"on expiry dead-lettered by: {join_names(hit)}" if hit else "no examined entity dead-letters on expiry"
    if blind:
        seen += f"; not known: {join_names(blind)}"
    return Finding(
        what=EXPIRY,
        verdict=verdict,
        evidence=seen,
        read_at=evidence.expiry_at,
        todo='each ping goes to that dead-letter queue: set ping = "link", or empty the queue' if hit else "",
    )


def _drill(evidence: Evidence) -> Finding:
    last = evidence.last_drill
    if not evidence.drills_read:
        seen = "unknown: paired check and engines read it, a library's check does not"
        return Finding(what=DRILL, verdict=FindingVerdict.UNKNOWN, evidence=seen)
    if last is None:
        return Finding(
            what=DRILL,
            verdict=FindingVerdict.UNKNOWN,
            evidence="never drilled, as far as this machine knows",
            todo="rehearse an outage on entities made for it: paired drill",
        )
    is_good = last.outcome is DrillOutcome.HELD
    todo = "repeat it: paired drill" if last.outcome is not None else "if it was killed: paired drill --clean"
    return Finding(
        what=DRILL,
        verdict=FindingVerdict.OK if is_good else FindingVerdict.WARN,
        evidence=last.sentence,
        read_at=last.ended or last.began,
        todo="" if is_good else todo,
    )


RULES: Final[tuple[Callable[[Evidence], Finding], ...]] = (
    _secondary,
    _send,
    _room,
    _tokens,
    _syphon,
    _sizes,
    _expiry,
    _drill,
)


_WORST: Final = (FindingVerdict.NO, FindingVerdict.WARN, FindingVerdict.UNKNOWN, FindingVerdict.OK)
_START: Final = "start an engine with a syphon (enable_syphon = true)"
_SYPHONS: Final[dict[SyphonStatus | None, tuple[FindingVerdict, str, str]]] = {
    None: (FindingVerdict.WARN, "syphon unknown: no known engine of this pairing runs one", _START),
    SyphonStatus.OFF: (FindingVerdict.WARN, "syphon unknown: this engine runs none, and none is known here", _START),
    SyphonStatus.PAUSED: (FindingVerdict.WARN, f"this engine's syphon is {PAUSED_HERE}", "resume it"),
    SyphonStatus.STUCK: (FindingVerdict.WARN, "syphon stuck", "see its line on the dashboard"),
    SyphonStatus.IDLE: (FindingVerdict.OK, "this engine's, with nothing to move", ""),
    SyphonStatus.WAITING: (FindingVerdict.OK, "this engine's, waiting for unavailable destinations", ""),
    SyphonStatus.RUNNING: (FindingVerdict.OK, "this engine's, moving messages", ""),
}


def _oldest(queues: list[QueueEvidence]) -> float | None:
    return min((queue.tried_at for queue in queues if queue.tried_at is not None), default=None)
