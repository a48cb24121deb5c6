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
from typing import Final, NamedTuple

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

OK, WARN, NO, UNKNOWN = FindingVerdict
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
    too_large: tuple[tuple[str, int], ...] | None = None
    """By entity, its messages that the primary accepted and a backlog queue would not."""
    limit_bytes: int | None = None
    """Maximum bytes of a message in the backlog."""
    ping: PingKind = "message"
    expiry: tuple[tuple[str, bool | None], ...] | None = None
    """By queue or subscription, whether it dead-letters expired messages, which includes pings."""
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
    judged = ((what, rule(evidence)) for what, rule in RULES.items())
    return Readiness(at=evidence.at, findings=tuple(_finding(what, answer) for what, answer in judged))


class _Answer(NamedTuple):
    """What a rule finds; its fields are those of `Finding`."""

    verdict: FindingVerdict
    evidence: str
    read_at: float | None = None
    todo: str = ""


def _finding(what: str, answer: _Answer) -> Finding:
    return Finding(what=what, **answer._asdict())


def unreachable(readiness: Readiness) -> bool:
    """Return whether the secondary could not be contacted at all."""
    return any(finding.what == SECONDARY for finding in readiness.of(NO))


def with_sends(readiness: Readiness, it: PairingCondition) -> Readiness:
    """Return the findings with what the pairing's machine would do with a send now, in place of an earlier answer."""
    others = tuple(finding for finding in readiness.findings if finding.what != SENDS)
    return replace(readiness, findings=(_finding(SENDS, _sends(it)), *others))


def answered(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the findings that `with_sends` makes of it; unchanged while nothing was examined."""
    if snapshot.readiness is None:
        return snapshot
    return replace(snapshot, readiness=with_sends(snapshot.readiness, condition_of(snapshot)))


def _sends(it: PairingCondition) -> _Answer:
    """Return the finding about a send now, by the machine's state: who accepts it, or why it is refused."""
    answers: dict[_SendAnswer, list[str]] = {}
    for one in it.entities:
        answers.setdefault(_answer(it, one), []).append(one.path)
    each = (f"{answer}: {join_names(answers[answer])}" for answer in _SendAnswer if answer in answers)
    seen, verdict, todo = "; ".join(each) or "no entity is known", OK, ""
    if it.queues and not it.open_queues:
        reasons = dict.fromkeys(queue.pulled_reason or "for an unknown reason" for queue in it.queues)
        seen = f"{seen}; all backlog queues refuse sends ({join_names(reasons)})"
        verdict, todo = NO, f"check {it.secondary}, and the reason of each queue on page 3"
    elif _SendAnswer.REFUSED in answers:
        verdict, todo = NO, "see the reasons of the refused calls in paired status"
    elif _SendAnswer.PRIMARY_REFUSES in answers:
        verdict, todo = WARN, "a suspect entity fails over by itself; release a pinned one (U)"
    elif _SendAnswer.HELD in answers:
        verdict, todo = WARN, "check [primary] in pairing.toml, and the network"
    elif _SendAnswer.UNKNOWN in answers or not answers:
        verdict = UNKNOWN
    return _Answer(verdict, seen, it.read_at, todo)


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


def _secondary(evidence: Evidence) -> _Answer:
    tried = [queue for queue in evidence.queues if queue.tried_at is not None]
    reached = sum(not queue.unreachable for queue in tried)
    if reached:
        return _Answer(OK, f"it answered for {reached} of {len(tried)} backlog queues", _oldest(tried))
    if not tried:
        return _Answer(UNKNOWN, "not tried yet")
    seen = f"the secondary namespace does not answer: {tried[0].refusal}"
    return _Answer(NO, seen, _oldest(tried), "check the network, and [secondary] in pairing.toml")


def _send(evidence: Evidence) -> _Answer:
    tried = [queue for queue in evidence.queues if queue.tried_at is not None]
    unsafe = [queue for queue in evidence.queues if queue.unsafe]
    open_ = sum(not queue.refusal and not queue.unsafe for queue in tried)
    seen = f"links opened to {open_} of {evidence.queues_wanted} backlog queues, nothing sent"
    for reason in dict.fromkeys(queue.refusal for queue in tried if queue.refusal):
        seen += f"; {reason}: {join_names(queue.path for queue in tried if queue.refusal == reason)}"
    seen += "".join(f"; {queue.path} gets no messages: {queue.unsafe}" for queue in unsafe[:1])
    if len(unsafe) > 1:
        seen += f" (and {plural(len(unsafe) - 1, 'queue')} more)"
    verdict, todo = OK, ""
    if not tried:
        verdict = UNKNOWN
    elif not open_ and unsafe:
        verdict, todo = NO, "change the settings of the backlog queues"
    elif not open_:
        verdict, todo = NO, "start an engine, which makes missing queues; the credential needs Send"
    elif open_ < evidence.queues_wanted:
        verdict, todo = WARN, "sends use the other queues; check the refusing ones"
    elif open_ == 1:
        verdict, todo = WARN, "a single queue has no fallback: raise backlog_queue_count"
    return _Answer(verdict, seen, _oldest(tried), todo)


def _room(evidence: Evidence) -> _Answer:
    known = [queue for queue in evidence.queues if queue.size_bytes is not None and queue.limit_bytes]
    if not known:
        return _unknown_room(evidence)
    limit = sum(queue.limit_bytes or 0 for queue in known)
    used = sum(queue.size_bytes or 0 for queue in known)
    full = [queue for queue in known if (queue.size_bytes or 0) >= (queue.limit_bytes or 0)]
    verdict, todo = OK, ""
    if len(full) == len(evidence.queues):
        verdict, todo = NO, "run a syphon, or add queues: raise backlog_queue_count"
    elif full or used > FULL_SHARE * limit:
        verdict, todo = WARN, "run a syphon; more queues add space (backlog_queue_count)"
    free = f"{max(0, limit - used) / GB:.1f} of {limit / GB:.0f} GB free in {len(known)} backlog queues"
    parked = f", {sum(queue.messages or 0 for queue in known):,} messages parked"
    named = f"; full: {join_names(queue.path for queue in full)}" if full else ""
    stale = f" (not updated: {evidence.trouble})" if evidence.trouble else ""
    read_at = min((queue.read_at for queue in known if queue.read_at is not None), default=None)
    return _Answer(verdict, free + parked + named + stale, read_at, todo)


def _unknown_room(evidence: Evidence) -> _Answer:
    seen = "backlog queue sizes are unknown"
    if evidence.trouble:
        return _Answer(UNKNOWN, f"{seen}: {evidence.trouble}")
    if not evidence.asked:
        return _Answer(UNKNOWN, f"{seen}: they are read only while a console is attached")
    return _Answer(UNKNOWN, seen, todo="reading them needs Manage on the secondary; sending does not")


def _tokens(evidence: Evidence) -> _Answer:
    judged = {_token(token, evidence.at) for token in evidence.tokens}
    worst = next((answer for answer in _WORST if answer in judged), UNKNOWN)
    seen = "; ".join(map(_validity, evidence.tokens)) or "not looked at"
    todo = "renew the signature, or use a key or an identity" if worst in (WARN, NO) else ""
    return _Answer(worst, seen, evidence.at if judged else None, todo)


def _token(token: TokenEvidence, at: float) -> FindingVerdict:
    if token.trouble:
        return NO
    if token.expires_at is None or token.renewable:
        return OK
    if token.expires_at <= at:
        return NO
    return WARN if token.expires_at - at < EXPIRY_WARNING_SECONDS else OK


def _validity(token: TokenEvidence) -> str:
    if token.trouble:
        return f"{token.namespace}: no token: {token.trouble}"
    if token.expires_at is None:
        return f"{token.namespace}: a key, valid until it is changed"
    kind = "a self-renewing token, now" if token.renewable else "a signature,"
    return f"{token.namespace}: {kind} valid until {clock(token.expires_at)}"


def _syphon(evidence: Evidence) -> _Answer:
    parked = sum(queue.messages for queue in evidence.queues if queue.messages is not None)
    parked_text = f"; {plural(parked, 'message')} parked" if parked else ""
    verdict, seen, todo = _SYPHONS[evidence.syphon]
    if evidence.syphons_elsewhere:
        verdict, seen, todo = OK, f"engine {join_names(evidence.syphons_elsewhere)} runs one", ""
    return _Answer(verdict, seen + parked_text, evidence.at, todo)


def _sizes(evidence: Evidence) -> _Answer:
    if evidence.too_large is None:
        return _Answer(UNKNOWN, "only an engine that sends can count them")
    large = [f"{number:,} to {path}" for path, number in evidence.too_large if number]
    limit = f" (limit {evidence.limit_bytes:,} bytes)" if evidence.limit_bytes else ""
    if not large:
        return _Answer(OK, f"every message this engine sent would have fitted into the backlog{limit}", evidence.at)
    seen = f"messages that would not survive failover{limit}: {join_names(large)}"
    return _Answer(WARN, seen, evidence.at, "send smaller bodies, or pair with a namespace of a larger tier")


def _expiry(evidence: Evidence) -> _Answer:
    if evidence.ping == "link":
        return _Answer(OK, 'pings only attach (ping = "link")')
    if evidence.expiry is None:
        seen = "unknown whether entities dead-letter on expiry: the primary's management did not report it"
        return _Answer(UNKNOWN, seen)
    hit = [path for path, is_kept in evidence.expiry if is_kept]
    blind = [path for path, is_kept in evidence.expiry if is_kept is None]
    seen = f"on expiry dead-lettered by: {join_names(hit)}" if hit else "no examined entity dead-letters on expiry"
    if blind:
        seen += f"; not known: {join_names(blind)}"
    todo = 'each ping goes to that dead-letter queue: set ping = "link", or empty the queue' if hit else ""
    return _Answer(WARN if hit else UNKNOWN if blind else OK, seen, evidence.expiry_at, todo)


def _drill(evidence: Evidence) -> _Answer:
    last = evidence.last_drill
    if not evidence.drills_read:
        return _Answer(UNKNOWN, "unknown: paired check and engines read it, a library's check does not")
    if last is None:
        todo = "rehearse an outage on entities made for it: paired drill"
        return _Answer(UNKNOWN, "never drilled, as far as this machine knows", todo=todo)
    read_at = last.ended or last.began
    if last.outcome is DrillOutcome.HELD:
        return _Answer(OK, last.sentence, read_at)
    todo = "repeat it: paired drill" if last.outcome is not None else "if it was killed: paired drill --clean"
    return _Answer(WARN, last.sentence, read_at, todo)


RULES: Final[dict[str, Callable[[Evidence], _Answer]]] = {
    SECONDARY: _secondary,
    SEND: _send,
    ROOM: _room,
    TOKENS: _tokens,
    SYPHON: _syphon,
    SIZES: _sizes,
    EXPIRY: _expiry,
    DRILL: _drill,
}


_WORST: Final = (NO, WARN, UNKNOWN, OK)
_START: Final = "start an engine with a syphon (enable_syphon = true)"
_SYPHONS: Final[dict[SyphonStatus | None, tuple[FindingVerdict, str, str]]] = {
    None: (WARN, "syphon unknown: no known engine of this pairing runs one", _START),
    SyphonStatus.OFF: (WARN, "syphon unknown: this engine runs none, and none is known here", _START),
    SyphonStatus.PAUSED: (WARN, f"this engine's syphon is {PAUSED_HERE}", "resume it"),
    SyphonStatus.STUCK: (WARN, "syphon stuck", "see its line on the dashboard"),
    SyphonStatus.IDLE: (OK, "this engine's, with nothing to move", ""),
    SyphonStatus.WAITING: (OK, "this engine's, waiting for unavailable destinations", ""),
    SyphonStatus.RUNNING: (OK, "this engine's, moving messages", ""),
}


def _oldest(queues: list[QueueEvidence]) -> float | None:
    return min((queue.tried_at for queue in queues if queue.tried_at is not None), default=None)
