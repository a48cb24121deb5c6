"""An engine's metrics for Prometheus, from a snapshot.

An unknown value has no sample, and is never zero. Each reading has a metric with its time. Names are only added. Each
sample carries `pairing`, so one rule serves many engines. Counters count from the engine's start.

Not here: the HTTP port (probes.py), the alarms (core/operator/alarms.py), and alerting rules (deploy has them).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from paired_servicebus.core.backlog.backlog_totals import stranded_messages
from paired_servicebus.core.failover.send_router import GiveUp
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.gateway_view import GatewayView, TurnedAway
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_fold import PairingView, pairing_of
from paired_servicebus.core.model.snapshot import MOVING_STATUSES, EntityView, FindingVerdict, Snapshot, SyphonStatus
from paired_servicebus.core.operator.alarms import ROWS, alarms
from paired_servicebus.core.operator.fleet_sentences import STATES, engine_counts, entity_counts
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.engine.instance.identity import program_version

MAX_LABEL_CHARS: Final = 300
"""Characters of a label: the path of an entity has 260 at most."""

Rows = Iterable[tuple[tuple[str, ...], float | None]]
"""Label values behind the pairing's, and the figure; None has no sample."""


class SnapshotCollector(Collector):
    """Makes the families of one snapshot, the newest, at each scrape."""

    def __init__(self, latest: Callable[[], Snapshot | None]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; none before the first snapshot."""
        snapshot = self._latest()
        if snapshot is not None:
            yield from families(snapshot, time.time())


def families(of: Snapshot, now: float | None = None) -> Iterator[Metric]:
    """Yield every metric family, including those without a sample. now: None: the time of the snapshot."""
    yield from _engine(of)
    yield from _entities(of)
    yield from _backlog(of)
    yield from _syphon(of)
    yield from _trouble(of, now)
    if of.gateway is not None:
        yield from _gateway(of, of.gateway)
    if of.fleet is not None:
        yield from _fleet(of, pairing_of(of), of.fleet)


def _engine(of: Snapshot) -> Iterator[Metric]:
    info = InfoMetricFamily("paired_engine", "The engine that answers.", labels=["pairing"])
    about = {"engine": of.engine, "environment": of.environment, "primary": of.primary, "secondary": of.secondary}
    about |= {"version": program_version(), "boot": of.boot}
    info.add_metric([_label(of.pairing)], {name: _label(text) for name, text in about.items()})
    yield info
    yield _gauge(of, "paired_snapshot_timestamp_seconds", "When these figures were put together.", (), [((), of.at)])
    yield _gauge(of, "paired_start_time_seconds", "When the engine started.", (), [((), of.started_at)])
    billed = of.billed
    causes = ("sends", "parked", "pings", "receives", "moves", "settlements")
    rows = [((cause,), float(getattr(billed, cause))) for cause in causes]
    yield _counter(of, "paired_billed_operations", "Operations by cause.", ("cause",), rows)
    counted = {
        "sends": billed.sent_bytes,
        "parked": billed.parked_bytes,
        "receives": billed.received_bytes,
        "moves": billed.moved_bytes,
    }
    sizes = [((cause,), float(size)) for cause, size in counted.items()]
    yield _counter(of, "paired_billed_bytes", "Bytes of bodies by cause.", ("cause",), sizes)


def _entities(of: Snapshot) -> Iterator[Metric]:
    every = of.entities
    states = [((each.path, state), float(each.state is state)) for each in every for state in State]
    yield _gauge(of, "paired_entity_state", "1 for the state that the entity is in.", ("entity", "state"), states)
    since = [((each.path,), each.since) for each in every]
    yield _gauge(of, "paired_entity_state_timestamp_seconds", "When it came into its state.", ("entity",), since)
    sends = [
        ((each.path, sent.route, outcome), float(number))
        for each in every
        for sent in each.sends
        for outcome, number in (("accepted", sent.accepted), ("failed", sent.failed))
    ]
    labels = ("entity", "route", "outcome")
    yield _counter(of, "paired_sends", "Messages sent, by route: primary or backlog/N.", labels, sends)
    text = "Messages of calls that ended in an error at their caller."
    yield _counter(of, "paired_refused_messages", text, ("entity", "reason"), _refused(every))
    for name, text, field in _COUNTED:
        yield _counter(of, name, text, ("entity",), [((each.path,), getattr(each, field)) for each in every])


def _refused(entities: Iterable[EntityView]) -> Rows:
    """Yield counts by reason. One has a sample from the start, because a rate ignores a new counter's first value."""
    for each in entities:
        counts = {str(GiveUp.NO_BACKLOG): 0} | dict(each.refusals)
        yield from (((each.path, reason), float(count)) for reason, count in counts.items())


_COUNTED: Final = (
    ("paired_pings_sent", "Pings and probes that left for the primary.", "pings_sent"),
    ("paired_pings_accepted", "Those that the primary accepted.", "pings_accepted"),
    ("paired_failovers", "Times the entity left the primary.", "failovers"),
    ("paired_failbacks", "Times it came back.", "failbacks"),
    ("paired_failed_over_seconds", "Time away from the primary.", "seconds_failed_over"),
    ("paired_too_large_messages", "Accepted by the primary, too large for a backlog queue.", "too_large"),
)


def _backlog(of: Snapshot) -> Iterator[Metric]:
    yield from _parked(of)
    for name, text, field in _READ:
        yield _gauge(of, name, text, ("queue",), [((str(each.index),), getattr(each, field)) for each in of.queues])
    rotation = [((str(each.index),), float(each.in_rotation)) for each in of.queues]
    yield _gauge(of, "paired_backlog_in_rotation", "1 where senders may pick the queue.", ("queue",), rotation)
    oldest = [((str(each.index),), each.oldest.enqueued_at) for each in of.queues]
    text = "When the message that waits longest came into the queue, by the latest peek."
    yield _gauge(of, "paired_backlog_oldest_timestamp_seconds", text, ("queue",), oldest)
    reasons = [((str(each.index), why), float(count)) for each in of.queues for why, count in each.dead_letters.reasons]
    text = "Why dead letters are dead: the most frequent reasons of the first ones, by the latest peek."
    yield _gauge(of, "paired_backlog_dead_letter_reasons", text, ("queue", "reason"), reasons)
    moved = [((str(each.index),), float(each.moved)) for each in of.queues]
    yield _counter(of, "paired_backlog_moved_messages", "Moved out of the queue by this engine.", ("queue",), moved)


def _parked(of: Snapshot) -> Iterator[Metric]:
    """Return the number of parked messages, as screens show it; no sample if unknown."""
    parked = of.parked
    text = "Parked in all queues now: the readings, corrected by this engine's diverted and moved messages."
    number = float(parked.messages) if parked is not None else None
    yield _gauge(of, "paired_parked_messages", text, (), [((), number)])
    read_at = parked.read_at if parked is not None else None
    yield _gauge(of, "paired_parked_read_timestamp_seconds", "The oldest of those readings.", (), [((), read_at)])
    listed = of.unused.read_at
    stranded = float(sum(stranded_messages(of.unused).values())) if listed is not None else None
    text = "Messages and dead letters in backlog queues that no engine known here uses, when they were last listed."
    yield _gauge(of, "paired_stranded_messages", text, (), [((), stranded)])
    yield _gauge(of, "paired_stranded_read_timestamp_seconds", "When they were listed.", (), [((), listed)])


_READ: Final = (
    ("paired_backlog_messages", "Parked messages when last read.", "depth"),
    ("paired_backlog_dead_lettered_messages", "Dead-lettered messages when last read.", "dead_lettered"),
    ("paired_backlog_size_bytes", "Size when last read.", "size_bytes"),
    ("paired_backlog_limit_bytes", "The queue's size limit.", "limit_bytes"),
    ("paired_backlog_read_timestamp_seconds", "When the queue was last read.", "read_at"),
    ("paired_backlog_read_interval_seconds", "Between two readings just now.", "read_every"),
)


def _syphon(of: Snapshot) -> Iterator[Metric]:
    syphon = of.syphon
    status = [((status.value,), float(syphon.status is status)) for status in SyphonStatus]
    known = float((syphon.status in MOVING_STATUSES) + len(syphon.elsewhere))
    is_unknown = syphon.status is SyphonStatus.OFF and not syphon.elsewhere
    status.append((("unknown",), float(is_unknown)))
    text = "1 for the status of this engine's syphon; unknown: it runs none, and knows of none elsewhere."
    yield _gauge(of, "paired_syphon_status", text, ("status",), status)
    text = "Syphons known that would move parked messages: here, and of other engines on this machine."
    yield _gauge(of, "paired_syphons_known", text, (), [((), known)])
    yield _counter(of, "paired_syphon_moved_messages", "Moved to destinations.", (), [((), float(syphon.moved))])
    dead = [((), float(syphon.dead_lettered))]
    yield _counter(of, "paired_syphon_dead_lettered_messages", "Dead-lettered by the syphon.", (), dead)


def _trouble(of: Snapshot, now: float | None) -> Iterator[Metric]:
    raised = Counter(alarm.name for alarm in alarms(condition_of(of, now)))
    named = [((row.name, row.severity.value), float(bool(raised[row.name]))) for row in ROWS]
    text = "1 while the alarm is raised; notices degrade nothing. paired status has its sentence and what to do."
    yield _gauge(of, "paired_alarm", text, ("name", "severity"), named)
    ready, journal = of.readiness, of.journal
    would = [((), float(ready.ready))] if ready is not None else []
    yield _gauge(of, "paired_ready", "Whether a failover would work.", (), would)
    looked = [((), ready.at)] if ready is not None else []
    yield _gauge(of, "paired_ready_timestamp_seconds", "When that was looked at.", (), looked)
    found = ready.findings if ready is not None else ()
    rows = [((one.what, answer.value), float(one.verdict is answer)) for one in found for answer in FindingVerdict]
    text = "1 for the finding about a precondition of a failover."
    yield _gauge(of, "paired_readiness", text, ("what", "verdict"), rows)
    healthy = [((), float(not journal.trouble))] if journal is not None else []
    yield _gauge(of, "paired_journal_written", "1 while the journal's disk takes it.", (), healthy)
    lines = [((), float(journal.lines))] if journal is not None else []
    yield _counter(of, "paired_journal_events", "Events appended, the missing ones too.", (), lines)
    lost = [((), float(journal.lost))] if journal is not None else []
    yield _counter(of, "paired_journal_missing_events", "Events that the disk did not take.", (), lost)


def _fleet(of: Snapshot, pairing: PairingView, view: FleetView) -> Iterator[Metric]:
    """Yield the pairing over all engines; figures have the time of their reading, so that an alert can ask for it."""
    known, read = dict(engine_counts(pairing.fleet or view)), view.read_at is not None
    engines = [((state,), float(known.get(state, 0))) for state in STATES] if read else []
    text = "Engines of the pairing on all hosts, by the worst state of their entities; silent: not heard."
    yield _gauge(of, "paired_fleet_engines", text, ("state",), engines)
    entities = [((one.path, state), float(count)) for one in pairing.totals for state, count in entity_counts(one)]
    text = "Engines by their state of an entity, on all hosts."
    yield _gauge(of, "paired_fleet_entity_engines", text, ("entity", "state"), entities if read else [])
    refused = [((one.path,), one.refused_per_second) for one in pairing.totals]
    text = "Messages a second of calls that end in an error at their caller, at all engines."
    yield _gauge(of, "paired_fleet_refused_messages_per_second", text, ("entity",), refused if read else [])
    began = [((one.path,), one.first_failure_at) for one in pairing.totals]
    text = "When the present episode of an entity began, at the engine where it began first."
    yield _gauge(of, "paired_fleet_first_failure_timestamp_seconds", text, ("entity",), began if read else [])
    expected = float(view.expected) if view.expected is not None else None
    yield _gauge(of, "paired_fleet_engines_expected", "Engines that pairing.toml expects.", (), [((), expected)])
    text = "When the reports were last read: the fleet's figures are of then."
    yield _gauge(of, "paired_fleet_read_timestamp_seconds", text, (), [((), view.read_at)])
    text = "1 while the boards can be read and written."
    yield _gauge(of, "paired_fleet_reached", text, (), [((), float(read and not view.trouble))])


def _gateway(of: Snapshot, view: GatewayView) -> Iterator[Metric]:
    """Yield sums over all clients: a client is no label, since their number has no bound."""
    yield _gauge(of, "paired_gateway_listens", "1 while clients can connect.", (), [((), float(view.listens))])
    yield _gauge(of, "paired_gateway_clients", "Connections of clients.", (), [((), float(view.count))])
    text = "Clients whose latest send was refused."
    yield _gauge(of, "paired_gateway_failing_clients", text, (), [((), float(view.failing))])
    sends = [(("accepted",), float(view.accepted)), (("refused",), float(view.refused))]
    yield _counter(of, "paired_gateway_sends", "Messages of clients, by what they were told.", ("outcome",), sends)
    text = "Bytes of clients' sends under way."
    yield _gauge(of, "paired_gateway_bytes_in_hand", text, (), [((), float(view.bytes_in_hand))])
    limit = [((), float(view.bytes_limit))]
    yield _gauge(of, "paired_gateway_bytes_limit", "From this many on, clients are not read.", (), limit)
    yield _gauge(of, "paired_gateway_paused_clients", "Clients not read now.", (), [((), float(view.paused))])
    counts = {one.why: max(one.times, one.count) for one in view.turned_away}
    turned = [((why.value,), float(counts.get(why, 0))) for why in TurnedAway]
    yield _counter(
        of,
        "paired_gateway_turned_away",
        "Clients not let in, and requests that failed, by reason.",
        ("reason",),
        turned,
    )


def _gauge(of: Snapshot, name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    return _fill(GaugeMetricFamily(name, text, labels=["pairing", *labels]), of, rows)


def _counter(of: Snapshot, name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    return _fill(CounterMetricFamily(name, text, labels=["pairing", *labels]), of, rows)


def _fill(family: GaugeMetricFamily | CounterMetricFamily, of: Snapshot, rows: Rows) -> Metric:
    for values, figure in rows:
        if figure is not None:
            family.add_metric([_label(value) for value in (of.pairing, *values)], figure)
    return family


def _label(value: str) -> str:
    """Return a label's value without control characters: curl prints it to a terminal."""
    return harmless(value[:MAX_LABEL_CHARS])
