"""What every link of the server has in common: its entity, what it may, and how faults and idleness end it.

Links that carry messages are in `links`, those to nodes that answer in `request_links`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.encoding.delivery_states import Error, Rejected
from servicebus_amqp.protocol.link import Link
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived, LinkEnd
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.grants import Grants
from servicebus_sandbox.access.proven_access import ProvenAccess
from servicebus_sandbox.amqp_server.delay_line import DelayLine
from servicebus_sandbox.broker.authorization_rules import Right
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import CaseKey, Direction, FaultBoard, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import AmqpRefusal, detached, refusal_by
from servicebus_sandbox.serving.lobby import Lobby
from servicebus_sandbox.serving.refusal_log import RefusalLog

SETTLING: Final = frozenset({Operation.SETTLE})


def error_of(refusal: AmqpRefusal) -> Error:
    return Error(condition=refusal.condition, description=refusal.description)


def rejected(refusal: AmqpRefusal) -> Rejected:
    return Rejected(error=error_of(refusal))


class NamespaceOwner(Protocol):
    """A connection's view of the server of its namespace."""

    name: str
    clock: Callable[[], float]
    time_of_day: Callable[[], float]
    namespace: BrokerNamespace
    authorization: Authorization
    faults: FaultBoard
    complaints: RefusalLog
    lobby: Lobby
    connections: set[Any]
    read_buffer: memoryview
    woken_at: float

    def flush_soon(self, connection: LinkOwner) -> None:
        """Have the connection write at the end of this turn."""

    def wake(self) -> None:
        """Let the broker do what is due and possible, then write."""


class LinkOwner(Protocol):
    """A link's view of its connection."""

    @property
    def node(self) -> NamespaceOwner: ...

    links: dict[LinkEnd, ServedLink]
    grants: Grants
    read_at: float
    is_holding: bool

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

    `path` is its entity's, `resource` what its token has to cover, `right` what the token has to give; any if None.
    `operations` are what faults call its business, `used_at` is when something last passed, by the namespace's clock;
    links that do not end by being idle have None.
    """

    right: ClassVar[Right | None] = None
    operations: ClassVar[frozenset[Operation]] = frozenset()

    def __init__(self, server: LinkOwner, link: Link, path: str, resource: str) -> None:
        self.server = server
        self.link = link
        self.path = path
        self.resource = resource
        self.used_at: float | None = None
        self.is_slow = False
        self.is_untouched = False  # by faults: the healthy path asks for nothing else
        self._stands_still = False
        self._met: dict[CaseKey, FaultVerdict] = {}
        self._lines: dict[Direction, DelayLine] = {}

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A message came in; only links into the server get any."""

    def on_flow(self, event: FlowReceived) -> None:
        """The peer granted credit."""

    def on_disposition(self, event: DispositionReceived) -> None:
        """The peer settled, or wants to settle, a message it was given."""

    def gone(self) -> None:
        """The link is detached or its connection lost."""
        for line in self._lines.values():
            line.clear()

    def pause(self) -> None:
        """Give out nothing until `resume`."""

    def resume(self) -> None:
        """Undo `pause`."""

    def detach(self, refusal: AmqpRefusal) -> None:
        """End the link from our side, with a reason."""
        self.gone()
        self.link.detach(error=error_of(refusal))
        self.server.forget(self)

    # ------------------------------------------------------------------ faults

    def verdict(self, moment: InjectionPoint) -> FaultVerdict:
        """What faults make of an occasion on this link."""
        faults = self.server.node.faults
        return FaultVerdict.SERVE if faults.is_quiet else faults.verdict(moment, self.path, self.operations)

    def is_cut_by(self, verdict: FaultVerdict) -> bool:
        """Cut the link or its connection if the verdict says so; True if it did."""
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
        """The link is in service: what is wrong already, it was told when it was attached."""
        self._follow(is_new=True)

    def follow_faults(self) -> None:
        """Act on faults that have begun or ended: detach, stand still, go on, become slow."""
        if self.path:  # the token node is nobody's entity
            self._follow(is_new=False)

    def _follow(self, *, is_new: bool) -> None:
        faults = self.server.node.faults
        self.is_untouched = False
        for verdict in faults.met_by_link(self._met, self.path, self.operations, is_new=is_new):
            refusal = detached(self.path) if verdict is FaultVerdict.REFUSE else refusal_by(verdict, self.path)
            if refusal is not None:
                self.detach(refusal)
            if refusal is not None or self.is_cut_by(verdict):
                return
        self.is_slow = faults.slows(self.path, self.operations | SETTLING) or any(self._lines.values())
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
        """Have something happen as late as faults say, behind what waits already in this direction.

        `operations` are its own, if they are not the link's.
        """
        line = self._lines.get(direction)
        if line is None:
            line = self._lines[direction] = DelayLine(self.server.stir)
        line.put(act, self.server.node.faults.latency(self.path, operations or self.operations, direction))

    def hurry(self) -> None:
        """The peer ends the link: what it had sent before counts."""
        line = self._lines.get(Direction.IN)
        if line is not None:
            line.hurry()
