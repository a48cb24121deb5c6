"""`paired drill`: the question, the drill, its result on disk and on standard output; and `--clean`.

Exit status: 0 every promise held, 1 a promise was broken, 2 bad input or no consent, 3 it could not be carried out,
130 and above after a signal. The entities are deleted in each case.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import Final

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.drill.drill_names import DrillNote, drill_name, run_called
from paired_servicebus.core.drill.drill_plan import DrillPlan
from paired_servicebus.core.drill.drill_report import DrillMeasures, DrillOutcome, broken_promises
from paired_servicebus.core.drill.last_drill import LastDrill
from paired_servicebus.core.drill.leftover_rules import sort_entities
from paired_servicebus.core.errors import ConfigurationError, DrillError
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.drill.drill_lines import as_json, question_lines, report_lines
from paired_servicebus.drill.drill_preflight import Surroundings, look_around, open_namespaces
from paired_servicebus.drill.drill_run import run_drill
from paired_servicebus.drill.leftovers import RECORDS, CleanResult, clean, known_drills, lock_records
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.engine.readiness.drill_file import DrillFile, write_drill
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.temporary_entities.ending_signals import EndedBySignalError, until_signalled
from paired_servicebus.temporary_entities.run_record import RunRecord

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
