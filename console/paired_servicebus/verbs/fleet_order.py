"""`--fleet` on the verbs of orders: one signed order for the engines of a pairing on every host.

The verb drafts the order from what an engine of this machine knows of the fleet, signs it with the operator's key, and
has that engine post it and a watch, so that all engines look fast. It then waits for the answers.

Exit status: 0 all done; 1 if an engine refused or is silent; 2 nothing was ordered; 3 no engine answered.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from paired_servicebus.core.errors import ConfigurationError, ControlError, PairedError
from paired_servicebus.core.fleet.fleet_documents import Order, OrderText, encode_order_text, is_meant
from paired_servicebus.core.fleet.order_answers import MAX_LISTED, NO_ANSWER, exit_status
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.action_row import typed_right
from paired_servicebus.core.operator.fleet_question import (
    FleetRequest,
    OrderDraft,
    draft_request,
    fleet_entities,
    fleet_facts,
    known_fleet,
)
from paired_servicebus.core.operator.fleet_sentences import order_part
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.control.control_client import ControlClient, user_name
from paired_servicebus.engine.control.discovery import wait_for_depths
from paired_servicebus.engine.fleet.order_signatures import sign
from paired_servicebus.printing import print_lines, report_error
from paired_servicebus.settings import seconds_of
from paired_servicebus.verbs.engine_commands import VerbRequest, require_socket, select_engines
from paired_servicebus.verbs.parameters import DEFAULT_KEY, EngineSelection


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReach:
    """The engines on other hosts that an order addresses."""

    fleet: Annotated[bool, Parameter(help="Order it signed, for the engines of the pairing on every host.")] = False
    on: Annotated[tuple[str, ...], Parameter(help="With --fleet: an engine by its name; repeat it. None: all.")] = ()
    stands_for: Annotated[
        str | None, Parameter(name="--for", help="With --fleet: how long it stands, such as 30m; 4h, at most 72h.")
    ] = None
    partial: Annotated[bool, Parameter(help="With --fleet: although engines are silent.")] = False
    wait: Annotated[str, Parameter(help="With --fleet: how long to wait for the answers.")] = "60s"
    key: Annotated[
        Path, Parameter(env_var="PAIRED_KEY", help="With --fleet: the SSH key that signs; a .pub asks the agent.")
    ] = DEFAULT_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class _Posted:
    id: str
    silent: frozenset[str]
    """Named engines that were silent before; the verb does not wait for them, nor for those without a name."""
    is_flooded: bool
    """Whether claims flood the board: then nobody is waited for by name."""


def order_over_fleet(request: VerbRequest, reach: FleetReach, engines: EngineSelection) -> int:
    """Give an order over the fleet; return the exit status."""
    wait, stands_for = _seconds("--wait", reach.wait), None
    if reach.stands_for is not None:
        stands_for = _seconds("--for", reach.stands_for)
    socket = require_socket(select_engines(engines)[0])
    return asyncio.run(_order(socket, request, reach, stands_for, wait))


def _seconds(option: str, text: str) -> float:
    seconds = seconds_of(text)
    if seconds is None:
        raise ConfigurationError(f"{option} is {repeated(text)!r}; it is a time such as 30s, 45m or 4h")
    return seconds


async def _order(socket: Path, request: VerbRequest, reach: FleetReach, stands_for: float | None, wait: float) -> int:
    client = await ControlClient.connect(socket, watches=False, fleet=True)
    try:
        snapshot = await wait_for_depths(client, fleet=True)
        if snapshot is None:
            raise ControlError("the engine ended before it reported the fleet")
        view = known_fleet(snapshot)
        asked = _asked(snapshot, request, reach, stands_for)
        draft = draft_request(snapshot, asked, now=time.time())
        if draft.needs_partial and not reach.partial:
            return report_error(f"nothing was ordered: {draft.needs_partial}")
        if draft.to_type and not typed_right(request.typed, draft.to_type):
            return _preview(request, snapshot, asked, draft)
        print_lines([f"note: {text}" for text in draft.takes])
        posted = await _post(client, request, view, draft.confirm(request.typed if draft.to_type else ""), reach)
        return await _follow(client, posted, wait)
    except (ControlError, ConfigurationError) as error:
        return report_error(str(error))
    finally:
        await client.close()


def _asked(snapshot: Snapshot, request: VerbRequest, reach: FleetReach, stands_for: float | None) -> FleetRequest:
    command = request.command
    if command.scope == Scope.ENTITY:
        command = replace(command, targets=fleet_entities(snapshot, command.targets, request.matching))
    else:
        command = request.aimed(snapshot)
    return FleetRequest(command=command, engines=reach.on or None, stands_for=stands_for)


def _preview(request: VerbRequest, snapshot: Snapshot, asked: FleetRequest, draft: OrderDraft) -> int:
    """Print whom the order would reach; return the exit status."""
    what = ", ".join(draft.text.targets) or request.action.whole
    expected = draft.expected
    engines = [f"{one.engine} ({one.state})" for one in expected.present]
    engines += [f"{name} (never heard)" for name in expected.never_heard]
    names = ", ".join(engines[:MAX_LISTED]) + (f" and {len(engines) - MAX_LISTED} more" if engines[MAX_LISTED:] else "")
    facts = fleet_facts(snapshot, asked, draft, now=time.time())
    print_lines(
        [
            f"{request.action.label.capitalize()} over the fleet: {what}",
            f"{'Engines':<13}{repeated(names) or 'none'}",
            *(f"{label:<13}{text}" for label, text in facts),
        ]
    )
    needed = draft.to_type.removesuffix(request.action.confirms).strip()
    if request.action.confirms and not request.confirmed:
        needed += f" and --{request.action.confirms.replace(' ', '-')}"
    return report_error(f"nothing was ordered: {request.action.label} over the fleet needs --yes {needed}")


async def _post(
    client: ControlClient, request: VerbRequest, view: FleetView, text: OrderText, reach: FleetReach
) -> _Posted:
    signed = encode_order_text(text)
    order = Order(signed=signed.decode(), signature=await sign(signed, reach.key.expanduser()))
    await client.post_order(order, by=user_name())
    reporting = {one.engine for one in view.engines if one.status is FleetStatus.REPORTING}
    silent = {one.engine for one in view.engines if one.status is FleetStatus.SILENT}
    addressed = sum(is_meant(text.engines, one) for one in reporting)
    print_lines(
        [
            f"the order is posted; of those it means, {plural(addressed, 'engine')} reported; "
            f"each looks within {view.look_seconds:.0f} s",
            f"waiting for the answers, {reach.wait} at most (Ctrl-C leaves; the order stays)",
        ]
    )
    return _Posted(id=order.id, silent=frozenset(view.missing) | silent, is_flooded=view.is_flooded)


# -- the answers -----------------------------------------------------------------------------------------------------


class _Answers:
    """The answers to a posted order as they come, with a line for each change."""

    def __init__(self, posted: _Posted) -> None:
        self.latest: FleetOrder | None = None
        self._posted = posted
        self._heard: dict[tuple[str, str], float] = {}
        """When each engine was heard before it could know the watch."""
        self._is_fast = self._is_behind = False
        self._shown = 0

    def read(self, view: FleetView) -> None:
        """Take the fleet as it is now."""
        self.latest = next((one for one in view.orders if one.id == self._posted.id), self.latest)
        self._note_unread(view)
        self._note_fast(view)
        if self.latest is not None:
            self._note_answers(self.latest)

    @property
    def is_whole(self) -> bool:
        """Return whether nobody is waited for: all answered but the engines that were silent before."""
        order = self.latest
        if order is None or self._posted.is_flooded:
            return False
        return {name for name, _ in order.silent} <= self._posted.silent

    def _note_fast(self, view: FleetView) -> None:
        reporting = [one for one in view.engines if one.status is FleetStatus.REPORTING]
        for one in reporting:
            self._heard.setdefault((one.engine, one.boot), one.heard_at)
        fast = [one for one in reporting if one.figures and one.heard_at > self._heard[one.engine, one.boot]]
        if reporting and len(fast) == len(reporting) and not self._is_fast:
            self._is_fast = True
            print_lines([f"all {len(fast)} reporting engines look fast now"])

    def _note_unread(self, view: FleetView) -> None:
        if view.unread and not self._is_behind:
            print_lines([f"orders unread behind {plural(view.unread, 'message')}: engines may read it later"])
        self._is_behind = view.unread > 0

    def _note_answers(self, order: FleetOrder) -> None:
        answered = order.done_count + order.refused_count
        if answered > self._shown and not self.is_whole:
            print_lines([f"{answered} of {answered + order.silent_count} answered"])
        self._shown = max(self._shown, answered)


async def _follow(client: ControlClient, posted: _Posted, wait: float) -> int:
    """Wait until every addressed engine answered, or the time is over; print the answers."""
    answers = _Answers(posted)
    try:
        async with asyncio.timeout(wait):
            async for update in client.updates():
                if isinstance(update, Snapshot) and update.fleet is not None:
                    answers.read(update.fleet)
                if answers.is_whole:
                    break
    except TimeoutError:
        pass
    return _print(answers.latest)


def _print(order: FleetOrder | None) -> int:
    if order is None:
        report_error("no answer: the order is posted, and this engine has not read it yet; see paired fleet")
        return NO_ANSWER
    print_lines([order_part(order, time.time())[0]])
    return exit_status(order)


def check_alone(reach: FleetReach) -> None:
    """Refuse the options of --fleet without it. Raises PairedError."""
    given = {"--on": reach.on, "--for": reach.stands_for, "--partial": reach.partial}
    if not reach.fleet and any(given.values()):
        names = " and ".join(name for name, value in given.items() if value)
        raise PairedError(f"{names} is for an order over the fleet: add --fleet")
