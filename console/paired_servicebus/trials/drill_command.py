"""`paired drill`: the question, the drill, its result on disk and on standard output; and `--clean`.

Exit status: 0 every promise held, 1 a promise was broken, 2 bad input or no consent, 3 it could not be carried out,
130 and above after a signal. The entities are deleted in each case.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.backlog.queue_settings import differences
from paired_servicebus.core.drill.drill_plan import (
    MARKER,
    PREFIX,
    DrillKnowledge,
    DrillMeasures,
    DrillNote,
    DrillOutcome,
    DrillPlan,
    FoundEntity,
    LastDrill,
    Leftovers,
    TimeRow,
    broken_promises,
    drill_name,
    marker_path,
    run_called,
    run_of,
    sort_entities,
    time_rows,
)
from paired_servicebus.core.errors import ConfigurationError, DrillError
from paired_servicebus.core.model.namespace_info import ServiceTier, first_label
from paired_servicebus.core.model.policy import times_line
from paired_servicebus.core.text.number_format import duration, plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.clients.start_checks import look_up_name
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.engine.readiness.readiness_check import DrillFile, write_drill
from paired_servicebus.pairing.management.backlog_queues import first_line, told
from paired_servicebus.pairing.management.management_port import is_refusal
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.trials.drill_run import lacks_manage, run_drill
from paired_servicebus.trials.temporary_entities import (
    MANAGING,
    EndedBySignalError,
    ManagedNamespace,
    RecordKind,
    RunRecord,
    Side,
    known_runs,
    past_records,
    until_signalled,
)

# The look at both namespaces before a drill: rights, tiers, names, and the entities of earlier drills.


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The namespaces' names and the primary's tier; found: the entities that are called like a drill's, by side."""

    primary: str
    secondary: str
    tier: ServiceTier
    found: Mapping[Side, tuple[FoundEntity, ...]]


@asynccontextmanager
async def open_namespaces(config: PairingConfig) -> AsyncIterator[dict[Side, ManagedNamespace]]:
    """Open clients for the management of both namespaces. Raises ConfigurationError."""
    try:
        async with open_admin(config.primary) as primary, open_admin(config.secondary) as secondary:
            yield {
                Side.PRIMARY: ManagedNamespace(Side.PRIMARY, config.primary.host, primary),
                Side.SECONDARY: ManagedNamespace(Side.SECONDARY, config.secondary.host, secondary),
            }
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{config.path}: the SDK does not accept these settings: {error}") from error


async def look_around(config: PairingConfig, places: EnginePaths) -> Surroundings:
    """Look at both namespaces. Raises ConfigurationError, DrillError."""
    async with open_namespaces(config) as namespaces:
        found = {side: await find_entities(namespace) for side, namespace in namespaces.items()}
        info = {side: await told(namespace.admin) for side, namespace in namespaces.items()}
    return Surroundings(
        primary=await look_up_name(config.primary, places),
        secondary=info[Side.SECONDARY].name or first_label(config.secondary.host),
        tier=info[Side.PRIMARY].tier,
        found=found,
    )


async def find_entities(namespace: ManagedNamespace) -> tuple[FoundEntity, ...]:
    """Return the entities of a namespace whose names begin as a drill's. Raises DrillError."""
    try:
        queues = await bounded(namespace.admin.queues(PREFIX), MANAGING, "listing queues")
        topics = []
        if namespace.side is Side.PRIMARY and (await told(namespace.admin)).has_topics:
            topics = await bounded(namespace.admin.topics(PREFIX), MANAGING, "listing topics")
    except (AzureError, OSError, TimeoutError) as error:
        if isinstance(error, AzureError) and is_refusal(error):
            raise DrillError(lacks_manage(namespace.side)) from error
        raise DrillError(
            f"the {namespace.side} namespace {namespace.host} does not answer its management: {first_line(error)}"
        ) from error
    return (
        *(FoundEntity(path=one.path, metadata=one.metadata, differences=tuple(differences(one))) for one in queues),
        *(FoundEntity(path=one.path, metadata=one.metadata, is_topic=True) for one in topics),
    )


# A drill in words: the question before it, the table after it, and its JSON.

WIDTH: Final = 80
LABEL: Final = 11
PRODUCTION: Final = "production"


def question_lines(
    plan: DrillPlan, *, pairing: str, environment: str, primary: str, secondary: str, left: str = ""
) -> list[str]:
    """Return the preview: contents, place, cost and length. primary, secondary: names with hosts."""
    is_production = environment.casefold() == PRODUCTION
    where = f" in {environment.upper() if is_production else environment}" if environment else ""
    policy = plan.policy
    made = ", ".join(f"{part.role} ({part.kind})" for part in plan.parts)
    facts = [
        ("where", f"primary {primary}; secondary {secondary}"),
        ("makes", f"in the primary {PREFIX}ID/…: {made}; in the secondary a {MARKER} queue and "
         f"{plural(policy.backlog_queue_count, 'backlog queue')}; ID is random. All are deleted at the end"),
        ("breaks", "the first is set to SendDisabled, the second is deleted and made again; "
         "the third has to stay healthy"),
        ("spares", "your own entities and messages: nothing of theirs is sent, received or changed. Other engines "
         "do not take part"),
        ("times", f"{times_line(policy)} ({_whose(plan)})"),
        ("takes", f"about {duration(plan.expected_seconds)}, and at most {duration(plan.most_seconds)}"),
        ("costs", f"about {plan.expected_operations:,} billed operations, on both namespaces together; "
         "requests of management are not billed"),
    ]  # fmt: skip
    if plan.left_out:
        facts.append(("leaves out", plan.left_out))
    if left:
        facts.append(("earlier", left))
    head = f"drill of {pairing}{where}: a rehearsed outage"
    warning = ["This is PRODUCTION: both namespaces carry the drill's traffic beside yours."] if is_production else []
    return [head, *warning, *(line for label, text in facts for line in _fact(label, text))]


def _whose(plan: DrillPlan) -> str:
    return "the pairing's own" if plan.configured else "short ones of the drill; --as-configured uses the pairing's own"


def _fact(label: str, text: str) -> list[str]:
    return wrap(f"{label:<{LABEL}}{text}", WIDTH, subsequent_indent=" " * LABEL, break_on_hyphens=False)


def report_lines(plan: DrillPlan, measures: DrillMeasures, broken: tuple[str, ...]) -> list[str]:
    """Return the times beside the promises, the balance, and the verdict."""
    ledger = measures.ledger
    counts = [
        f"{ledger.attempted} sent", f"{ledger.accepted} accepted", f"{measures.diverted} of them by the backlog",
        f"{ledger.delivered} delivered", f"{ledger.lost} lost", f"{ledger.unexpected} unexpected",
        plural(ledger.duplicates, "duplicate"), f"{ledger.out_of_order} out of order",
    ]  # fmt: skip
    pings = [
        f"{one.part.role} {one.pings_refused} refused, {one.pings_accepted} accepted"
        for one in measures.parts
        if one.part.fails
    ]
    return [
        f"{'':<{LABEL}}{'entity':<12}{'took':>8}   promised by SPEC.md section 3",
        *(_time_line(row) for row in time_rows(plan, measures)),
        *_fact("pings", "; ".join(pings)),
        *_fact("messages", ", ".join(counts)),
        *_fact("operations", f"{measures.operations:,} billed, {plan.expected_operations:,} estimated"),
        *_fact("verdict", _verdict(measures, broken)),
        *(line for text in broken for line in _fact("", f"- {text}")),
    ]


def _time_line(row: TimeRow) -> str:
    took = "never" if row.took is None else f"{row.took:.1f} s"
    promise = "no time: as long as the backlog is deep" if row.promise is None else f"within {row.promise:g} s"
    return f"{row.phase:<{LABEL}}{row.role or 'all':<12}{took:>8}   {promise}{'' if row.is_kept else '  BROKEN'}"


def _verdict(measures: DrillMeasures, broken: tuple[str, ...]) -> str:
    kept = f"{plural(len(broken), 'promise')} broken" if broken else "every promise held"
    return f"{measures.ledger.verdict}; {kept}; the drill took {duration(measures.seconds)}"


def as_json(
    run: str,
    plan: DrillPlan,
    outcome: DrillOutcome,
    *,
    pairing: str,
    text: str,
    status: int,
    measures: DrillMeasures | None,
    broken: tuple[str, ...] = (),
) -> str:
    """Return the result as one JSON object; keys are added to and never renamed. Times are seconds."""
    document: dict[str, Any] = {
        "pairing": pairing,
        "drill": drill_name(run),
        "outcome": str(outcome),
        "text": text,
        "exit": status,
        "as_configured": plan.configured,
        "estimated_operations": plan.expected_operations,
    }
    if measures is not None:
        document |= dict(_measured(plan, measures, broken))
    return json.dumps(document)


def _measured(plan: DrillPlan, measures: DrillMeasures, broken: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    ledger = measures.ledger
    names = (
        "attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "dead_lettered", "parked", "lost",
        "unexpected", "duplicates", "out_of_order",
    )  # fmt: skip
    yield "seconds", round(measures.seconds, 1)
    yield "operations", measures.operations
    yield "diverted", measures.diverted
    yield "verdict", ledger.verdict
    yield "broken", list(broken)
    yield "messages", {name: getattr(ledger, name) for name in names}
    yield "lost_ids", list(ledger.lost_ids)
    yield "unexpected_ids", list(ledger.unexpected_ids)
    yield (
        "times",
        [
            {
                "phase": str(row.phase),
                "entity": str(row.role) if row.role is not None else None,
                "took": round(row.took, 3) if row.took is not None else None,
                "promise": row.promise,
                "kept": row.is_kept,
            }
            for row in time_rows(plan, measures)
        ],
    )
    yield (
        "pings",
        {
            str(one.part.role): {"refused": one.pings_refused, "accepted": one.pings_accepted}
            for one in measures.parts
            if one.part.fails
        },
    )


# The entities that ended drills left in both namespaces: found by name, note and age, and deleted.

RECORDS: Final = RecordKind(folder="drill", prefix=PREFIX, run_of=run_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """deleted: entities. remains: a sentence for each that should be deleted. notes: about others, that stay."""

    deleted: int
    remains: tuple[str, ...]
    notes: tuple[str, ...]


def known_drills(
    state: Path, *, ended: Iterable[RunRecord], named: str = "", begun: Iterable[str] = ()
) -> DrillKnowledge:
    """Return this machine's knowledge about drills; call it after the listing, because a record precedes its entities.

    Args:
        ended: locked records of ended drills.
        named: the id of a drill that the operator declares as ended.
        begun: ids with a record before the listing: such a drill may have ended since, and deleted what was listed.
    """
    over = {record.run for record in ended}
    running = known_runs(RECORDS, state).union(begun) - over
    return DrillKnowledge(now=time.time(), running=running, ended=over, named=named)


@contextmanager
def lock_records(state: Path) -> Iterator[list[RunRecord]]:
    """Yield the records of ended drills on this machine, locked."""
    with ExitStack() as stack:
        records = list(past_records(RECORDS, state))
        for record in records:
            stack.callback(record.end)
        yield records


async def clean(namespaces: Mapping[Side, ManagedNamespace], state: Path, *, named: str = "") -> CleanResult:
    """Delete what ended drills left. named: a drill that the operator declares as ended. Raises DrillError."""
    with lock_records(state) as records:
        begun = known_runs(RECORDS, state)
        listed = {side: await find_entities(namespace) for side, namespace in namespaces.items()}
        known = known_drills(state, ended=records, named=named, begun=begun)
        found = {side: sort_entities(entities, known) for side, entities in listed.items()}
        deleted, remains = 0, []
        for side, namespace in namespaces.items():
            gone, left = await _delete(namespace, found[side])
            deleted += gone
            remains += left
        remains += [text for record in records for text in _settle(namespaces, record, remains)]
    young = dict.fromkeys(text for one in found.values() for text in one.young)
    running = dict.fromkeys(run for one in found.values() for run in one.running)
    notes = [f"{drill_name(run)} runs on this machine: it stays" for run in running]
    notes += [f"{side} namespace: {text}" for side, one in found.items() for text in one.foreign]
    return CleanResult(deleted=deleted, remains=(*remains, *young), notes=tuple(notes))


async def _delete(namespace: ManagedNamespace, found: Leftovers) -> tuple[int, list[str]]:
    """Delete in the given order; keep the marker queue of a drill whose backlog queues remain."""
    deleted, remains = 0, []
    stuck: set[str] = set()
    for one in found.leftover:
        run = run_of(one.path)
        is_needed = one.path == marker_path(run) and run in stuck
        if not is_needed and await namespace.delete(one.path, is_topic=one.is_topic):
            deleted += 1
        else:
            stuck.add(run)
            remains.append(f"{one.path} in the {namespace.side} namespace cannot be deleted")
    return deleted, remains


def _settle(namespaces: Mapping[Side, ManagedNamespace], record: RunRecord, remains: list[str]) -> list[str]:
    """Remove the deleted entities from a record; return a sentence if the rest is in other namespaces."""
    if any(drill_name(record.run) in text for text in remains):
        return []
    elsewhere = 0
    for entity in record.entities:
        if entity.side in {*Side} and namespaces[Side(entity.side)].host == entity.host:
            record.forget(entity.path)
        else:
            elsewhere += 1
    name = drill_name(record.run)
    return [f"{name} left entities in another namespace than pairing.toml has now"] if elsewhere else []


HELD, BROKEN, NOT_DONE = 0, 1, 3
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_LOGS: Final = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRequest:
    """The command line. yes: the name that stands for the typed one."""

    yes: str | None
    json_line: bool
    as_configured: bool


def drill(config: PairingConfig, places: EnginePaths, request: DrillRequest) -> int:
    """Ask, carry out the drill and report it; return the exit status. Raises ConfigurationError."""
    try:
        around = asyncio.run(look_around(config, places))
    except DrillError as error:
        return _report_not_done(str(error))
    plan = DrillPlan.of(config.policy, around.tier, as_configured=request.as_configured)
    print_lines(
        question_lines(
            plan,
            pairing=config.name,
            environment=config.environment,
            primary=_named(around.primary, config.primary.host),
            secondary=_named(around.secondary, config.secondary.host),
            left=_left(around, places),
        )
    )
    refusal = _refusal(config.name, request.yes)
    if refusal:
        return report_error(f"nothing was made: {refusal}")
    return _DrillCommand(config, places, plan, around, request).run()


def clean_up(config: PairingConfig, places: EnginePaths, *, yes: str | None) -> int:
    """Delete what ended drills left; return 0 if nothing of theirs remains, else 1. Raises ConfigurationError.

    Args:
        yes: the name of a drill that has ended, though its age leaves it open.
    """
    named = run_called(yes) if yes is not None else ""
    if yes is not None and not named:
        raise ConfigurationError(f"--clean --yes takes the name of a drill, such as {drill_name('0' * 12)}, not {yes}")
    try:
        found = asyncio.run(_clean(config, places, named))
    except DrillError as error:
        return _report_not_done(str(error))
    deleted = plural(found.deleted, "entity", "entities")
    print_lines([f"{deleted} of earlier drills deleted, {len(found.remains)} remain", *found.remains, *found.notes])
    return int(bool(found.remains))


async def _clean(config: PairingConfig, places: EnginePaths, named: str) -> CleanResult:
    async with open_namespaces(config) as namespaces:
        return await clean(namespaces, places.state, named=named)


def _named(name: str, host: str) -> str:
    return host if host.partition(".")[0].casefold() == name.casefold() else f"{name} ({host})"


def _left(around: Surroundings, places: EnginePaths) -> str:
    """Return the sentence about other drills' entities; "" if there are none."""
    with lock_records(places.state) as records:
        known = known_drills(places.state, ended=records)
    found = [sort_entities(entities, known) for entities in around.found.values()]
    runs = len({text for one in found for text in (*one.young, *one.running)})
    left = sum(len(one.leftover) for one in found)
    said = [f"{plural(left, 'entity', 'entities')} of ended drills: paired drill --clean"] if left else []
    if runs:
        said.append(f"{plural(runs, 'other drill')} may run now, and is left alone: paired drill --clean names it")
    return "; ".join(said)


def _refusal(name: str, yes: str | None) -> str:
    """Return why there is no consent; "" if the operator consents, by `--yes` or on the terminal."""
    if yes is not None:
        return "" if yes == name else f"the pairing is called {name}, not {yes}"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return f"a drill needs consent; without a terminal, give --yes {name}"
    try:
        typed = input(f"type {name} to begin: ").strip()
    except EOFError:
        typed = ""
    return "" if typed == name else f"the pairing is called {name}, not {typed or 'nothing'}"


def _report_not_done(text: str) -> int:
    report_error(f"the drill was not carried out: {text}")
    return NOT_DONE


class _DrillCommand:
    """One drill with consent: from its record to its result."""

    def __init__(
        self,
        config: PairingConfig,
        places: EnginePaths,
        plan: DrillPlan,
        around: Surroundings,
        request: DrillRequest,
    ) -> None:
        self._config = config
        self._places = places
        self._plan = plan
        self._around = around
        self._request = request
        self._record = RunRecord.begin(RECORDS, places.state)
        self._began = LastDrill(began=time.time(), configured=plan.configured)

    def run(self) -> int:
        """Carry it out; return the exit status."""
        self._log()
        self._keep(self._began)
        try:
            measures = asyncio.run(until_signalled(self._carry_out(), SIGNALS))
        except DrillError as error:
            _report_not_done(str(error))
            return self._end(DrillOutcome.NOT_DONE, str(error), NOT_DONE)
        except EndedBySignalError as error:
            return self._end(DrillOutcome.INTERRUPTED, str(error), error.status)
        except Exception as error:
            self._keep(self._ended(DrillOutcome.NOT_DONE, f"an internal error ({type(error).__name__})"))
            raise
        finally:
            self._record.end()
        broken = broken_promises(self._plan, measures)
        if self._record.entities:
            broken = (*broken, "not all of its entities could be deleted; later: paired drill --clean")
        _say_lines(report_lines(self._plan, measures, broken))
        text = "; ".join((measures.ledger.verdict, *broken))
        outcome, status = (DrillOutcome.BROKEN, BROKEN) if broken else (DrillOutcome.HELD, HELD)
        return self._end(outcome, text, status, measures, broken)

    async def _carry_out(self) -> DrillMeasures:
        note = DrillNote(self._record.run, self._began.began, self._began.began + self._plan.most_seconds)
        async with open_namespaces(self._config) as namespaces:
            return await run_drill(self._config, namespaces, self._plan, note, self._record, _say)

    def _end(
        self,
        outcome: DrillOutcome,
        text: str,
        status: int,
        measures: DrillMeasures | None = None,
        broken: tuple[str, ...] = (),
    ) -> int:
        """Keep the result, and print it as JSON if wished."""
        self._keep(self._ended(outcome, text))
        if self._request.json_line:
            result = as_json(
                self._record.run,
                self._plan,
                outcome,
                pairing=self._config.name,
                text=text,
                status=status,
                measures=measures,
                broken=broken,
            )
            print_object(result)
        return status

    def _ended(self, outcome: DrillOutcome, text: str) -> LastDrill:
        return replace(self._began, ended=time.time(), outcome=outcome, text=text)

    def _keep(self, drill: LastDrill) -> None:
        """Write the drill into the pairing's state folder; a failure is said, and ends nothing."""
        names = {"primary": self._around.primary, "secondary": self._around.secondary}
        try:
            write_drill(self._places, DrillFile(run=self._record.run, drill=drill, **names))
        except OSError as error:
            _say(f"the result cannot be kept in {self._places.drill}: {error.strerror or error}")

    def _log(self) -> None:
        """Send the log of this process to a file of its own; remove older ones."""
        folder = self._places.state / RECORDS.folder
        try:
            for old in sorted(folder.glob("*.log"), key=lambda file: file.stat().st_mtime)[: 1 - MAX_LOGS]:
                old.unlink()
            log_to((folder / f"{self._record.run}.log").open("w", encoding="utf-8"))
        except OSError as error:
            _say(f"the log cannot be written: {error.strerror or error}")


def _say(text: str) -> None:
    _say_lines([f"{clock(time.time())}  {text}"])


def _say_lines(lines: list[str]) -> None:
    """Write lines; a terminal that has gone must not keep the entities from being deleted."""
    try:
        print_lines(lines)
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        log.warning("a line was not written: %s", error)
