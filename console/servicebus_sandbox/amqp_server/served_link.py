"""The common part of the server's links: entity, rights, and their end by faults and idleness.

Links that carry messages are in `message_links`, those of nodes in `request_links`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.nodes.request_ends import AmqpRefusal, error_of
from servicebus_amqp.protocol.link import Link
from servicebus_amqp.protocol.protocol_events import (
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    FlowReceived,
    LinkEnd,
)
from servicebus_amqp.server.admission import Admission
from servicebus_amqp.server.key_budgets import KeyBudgets
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.token_issuer import Grants, ProvenAccess
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import Caller, CaseKey, Direction, FaultBoard, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import RefusalLog, detached, refusal_by

Act = Callable[[], None]


class DelayLine:
    """A first-in, first-out queue of calls with one timer; `afterwards` runs after each batch of calls."""

    __slots__ = ("_acts", "_afterwards", "_timer")

    def __init__(self, afterwards: Act) -> None:
        self._acts: deque[tuple[float, Act]] = deque()
        self._afterwards = afterwards
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._acts)

    def put(self, act: Act, delay: float) -> None:
        """Call `act` in `delay` seconds, but not before the calls that were put earlier."""
        due = asyncio.get_running_loop().time() + delay
        if self._acts:
            due = max(due, self._acts[-1][0])
        self._acts.append((due, act))
        self._set_timer()

    def hurry(self) -> None:
        """Make all calls now."""
        while self._acts:
            self._acts.popleft()[1]()

    def clear(self) -> None:
        """Cancel all calls."""
        self._acts.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._acts:
            self._timer = asyncio.get_running_loop().call_at(self._acts[0][0], self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._acts and self._acts[0][0] <= now:
            self._acts.popleft()[1]()
        self._afterwards()
        self._set_timer()


SETTLING: Final = frozenset({Operation.SETTLE})


class ServedNamespace(Protocol):
    """A connection's view of the server of its namespace."""

    name: str
    clock: Callable[[], float]
    time_of_day: Callable[[], float]
    namespace: BrokerNamespace
    authorization: Authorization
    faults: FaultBoard
    complaints: RefusalLog
    admission: Admission
    budgets: KeyBudgets
    connections: set[Any]
    read_buffer: memoryview
    woken_at: float

    def flush_soon(self, connection: ServedLinkOwner) -> None:
        """Have the connection write at the end of this turn."""

    def wake(self) -> None:
        """Let the broker do what is due and possible, then write."""


class ServedLinkOwner(Protocol):
    """A link's view of its connection."""

    @property
    def node(self) -> ServedNamespace: ...

    links: dict[LinkEnd, ServedLink]
    grants: Grants
    read_at: float
    is_holding: bool
    largest: int

    @property
    def container_id(self) -> str | None:
        """Return the client's container id; None before its open."""

    def caller(self, resource: str, right: Right | None) -> Caller:
        """Return the client, with the keys that give this right on the resource."""

    def abort(self) -> None: ...
    def disconnect(self, path: str | None) -> None: ...
    def flush(self) -> None: ...
    def forget(self, link: ServedLink) -> None: ...
    def stir(self) -> None: ...
    def serve(self, link: ServedLink) -> None: ...
    def used(self, name: object) -> None: ...
    def grant(self, access: ProvenAccess) -> None: ...
    def count_outgoing(self, size: int) -> None: ...


class ServedLink:
    """A link in service.

    `path` is its entity's, `resource` the audience that its token has to cover, `right` the required right (None: any).
    Faults find it by `operations`. `used_at` is its last use by the namespace's clock, None for links without idle end.
    """

    right: ClassVar[Right | None] = None
    operations: ClassVar[frozenset[Operation]] = frozenset()

    def __init__(self, server: ServedLinkOwner, link: Link, path: str, resource: str) -> None:
        self.server = server
        self.link = link
        self.path = path
        self.resource = resource
        self.used_at: float | None = None
        self.is_slow = False
        self.is_untouched = False  # by faults: the healthy path checks only this
        self._stands_still = False
        self._met: dict[CaseKey, FaultVerdict] = {}
        self._lines: dict[Direction, DelayLine] = {}

    def on_delivery(self, event: DeliveryReceived) -> None:
        """Handle a message; only links into the server get one."""

    def on_flow(self, event: FlowReceived) -> None:
        """Handle a grant of credit."""

    def on_disposition(self, event: DispositionReceived) -> None:
        """Handle an outcome that the peer set or proposes."""

    def on_too_large(self, event: DeliveryTooLarge) -> None:
        """Handle a message above the link's limit, which is rejected already."""

    def on_end(self) -> None:
        """Handle the end of the link, after the peer's earlier messages."""
        self.hurry()
        self.gone()

    def gone(self) -> None:
        """Clean up after the link's detach or the connection's loss."""
        for line in self._lines.values():
            line.clear()

    def pause(self) -> None:
        """Deliver nothing until `resume`."""

    def resume(self) -> None:
        """Undo `pause`."""

    def detach(self, refusal: AmqpRefusal) -> None:
        """Detach from our side with an error."""
        self.gone()
        self.link.detach(error=error_of(refusal))
        self.server.forget(self)

    # ------------------------------------------------------------------ faults

    def verdict(self, moment: InjectionPoint) -> FaultVerdict:
        """Return the faults' verdict on an event of this link."""
        faults = self.server.node.faults
        if faults.is_quiet:
            return FaultVerdict.SERVE
        return faults.verdict(moment, self.path, self.operations, self.caller)

    @property
    def caller(self) -> Caller:
        """Return the client, for faults."""
        return self.server.caller(self.resource, self.right)

    def is_cut_by(self, verdict: FaultVerdict) -> bool:
        """Cut the link or its connection if the verdict demands it; return whether it did."""
        match verdict:
            case FaultVerdict.DETACH:
                self.detach(detached(self.path))
            case FaultVerdict.DISCONNECT:
                self.server.disconnect(self.path)
            case FaultVerdict.RESET:
                self.server.abort()
            case _:
                return False
        return True

    def begin(self) -> None:
        """Put the link in service; active faults were applied at the attach."""
        self._follow(is_new=True)

    def follow_faults(self) -> None:
        """Apply faults that have begun or ended: detach, pause, resume, slow down."""
        if self.path:  # the token node belongs to no entity
            self._follow(is_new=False)

    def _follow(self, *, is_new: bool) -> None:
        faults = self.server.node.faults
        self.is_untouched = False
        for verdict in faults.met_by_link(self._met, self.path, self.operations, self.caller, is_new=is_new):
            refusal = detached(self.path) if verdict is FaultVerdict.REFUSE else refusal_by(verdict, self.path)
            if refusal is not None:
                self.detach(refusal)
            if refusal is not None or self.is_cut_by(verdict):
                return
        self.is_slow = faults.slows(self.path, self.operations | SETTLING, self.caller) or any(self._lines.values())
        self.is_untouched = faults.is_quiet and not self.is_slow
        stands_still = FaultVerdict.SWALLOW in self._met.values()
        if stands_still and not self._stands_still:
            self.pause()
        was_still, self._stands_still = self._stands_still, stands_still
        if was_still and not stands_still:
            self.resume()

    # ------------------------------------------------------------------ latency

    def later(
        self, act: Callable[[], None], direction: Direction, operations: frozenset[Operation] | None = None
    ) -> None:
        """Call `act` after the latency of faults, behind the earlier calls in this direction.

        `operations` replace the link's own.
        """
        line = self._lines.get(direction)
        if line is None:
            line = self._lines[direction] = DelayLine(self.server.stir)
        faults = self.server.node.faults
        line.put(act, faults.latency(self.path, operations or self.operations, direction, self.caller))

    def hurry(self) -> None:
        """Process the peer's earlier messages before its detach."""
        line = self._lines.get(Direction.IN)
        if line is not None:
            line.hurry()
