"""The life of a link, common to both ends: attach, refuse, detach.

Rules: a peer's link waits for `accept_attach` or `refuse`. A refusal is an attach with null termini, then a detach with
the error: clients read the error in no other form.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.encoding.messaging_types import Coordinator, Error, Source, Target
from servicebus_amqp.encoding.performatives import Attach, Detach, Flow, Performative
from servicebus_amqp.protocol.connection_settings import ConnectionSettings, LinkRole
from servicebus_amqp.protocol.protocol_events import Attached, Detached, Event
from servicebus_amqp.protocol_errors import StateError

MASK: Final = 0xFFFFFFFF


def advance(number: int, steps: int) -> int:
    return (number + steps) & MASK


def distance(start: int, end: int) -> int:
    """Return how far `end` is ahead of `start`, from -2**31 to 2**31 - 1; negative if it is behind."""
    return ((end - start + 0x80000000) & MASK) - 0x80000000


class LinkState(Enum):
    REQUESTED = "requested by the peer, not answered yet"
    ATTACHING = "requested by us, not answered yet"
    ATTACHED = "attached"
    DETACHING = "detached by us, not answered yet"
    DETACHED = "detached"


class LinkOwner(Protocol):
    """The session of a link, as every link uses it."""

    settings: ConnectionSettings
    channel: int

    def emit(self, event: Event) -> None: ...
    def write(self, performative: Performative) -> None: ...
    def write_flow(self, **link: Any) -> None: ...
    def release_handle(self, link: Link) -> None: ...
    def forget_deliveries(self, link: Link) -> None: ...
    def holds(self, link: Link, delivery_id: int) -> bool: ...
    def flush_dispositions(self) -> None: ...


class Link:
    """One end of a link, made only by a session.

    remote: the peer's attach; None before it.
    max_message_size: of the peer for a sender, of ours for a receiver; None for any.
    """

    __slots__ = ("handle", "max_message_size", "name", "remote", "session", "state")  # a session may have thousands
    role: ClassVar[LinkRole]

    def __init__(self, session: LinkOwner, name: str, handle: int, state: LinkState) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.state = state
        self.remote: Attach | None = None
        self.max_message_size: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle {self.handle}, {self.state.value}>"

    @property
    def is_requested(self) -> bool:
        """Return whether the peer's attach is still unanswered."""
        return self.state is LinkState.REQUESTED

    @property
    def is_attached(self) -> bool:
        return self.state is LinkState.ATTACHED

    def accept_attach(
        self,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        *,
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        **passed_on: Any,
    ) -> None:
        """Answer an AttachRequested; omitted termini are echoed. Does nothing if the link has ended.

        max_message_size: bytes; default: that of the settings. initial_delivery_count: senders only. passed_on: as of
        `Session.attach_sender`, with settle_modes: those that were negotiated; default: the peer's.

        Raises:
            StateError: the link was answered before, or is our own.
        """
        if self.state in (LinkState.DETACHING, LinkState.DETACHED):
            return
        if self.state is not LinkState.REQUESTED or self.remote is None:
            raise StateError(f"{self!r} has no pending attach")
        self.state = LinkState.ATTACHED
        self._announce(
            source or self.remote.source,
            target or self.remote.target,
            properties=properties,
            max_message_size=max_message_size,
            initial_delivery_count=initial_delivery_count,
            **{"settle_modes": (self.remote.snd_settle_mode, self.remote.rcv_settle_mode)} | passed_on,
        )

    def refuse(self, error: Error) -> None:
        """Refuse an AttachRequested. Does nothing if the link has ended.

        Raises:
            StateError: the link was answered before, or is our own.
        """
        if self.state in (LinkState.DETACHING, LinkState.DETACHED):
            return
        if self.state is not LinkState.REQUESTED:
            raise StateError(f"{self!r} has no pending attach")
        self._announce(None, None)
        self._leave(closed=True, error=error)

    def detach(self, *, closed: bool = True, error: Error | None = None) -> None:
        """Detach; a Detached event follows the peer's answer. Does nothing if a detach is under way."""
        if self.state is LinkState.REQUESTED:
            self._announce(None, None)
        if self.state not in (LinkState.DETACHING, LinkState.DETACHED):
            self._leave(closed=closed, error=error)

    def holds(self, delivery_id: int) -> bool:
        """Return whether a delivery of this link is still unsettled."""
        return self.session.holds(self, delivery_id)

    # called by the session

    def request(self, source: Source | None, target: Target | Coordinator | None, **attach: Any) -> None:
        """Send our own attach."""
        self._announce(source, target, **attach)

    def on_attach(self, attach: Attach) -> None:
        """Handle the peer's attach, a request or an answer."""
        self.remote = attach
        if self.state is LinkState.ATTACHING:
            self.state = LinkState.ATTACHED
            self.session.emit(Attached(self, attach))

    def on_detach(self, detach: Detach) -> None:
        """Handle the peer's detach; answer it unless it answers ours."""
        silent = self.state is LinkState.DETACHED
        if self.state is LinkState.REQUESTED:
            self._announce(None, None)
        if self.state not in (LinkState.DETACHING, LinkState.DETACHED):
            self.session.write(Detach(handle=self.handle, closed=detach.closed))
        self.session.release_handle(self)
        if not silent:
            self.forget()
            self.session.emit(Detached(self, detach.closed, detach.error))

    def on_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Mark the link as ended and drop its state."""
        self.state = LinkState.DETACHED

    def fail(self, condition: str, description: str) -> None:
        """Detach because the peer broke a rule of the link; its answer only frees the handle."""
        error = Error(condition=condition, description=description)
        self._leave(closed=True, error=error)
        self.forget()
        self.session.emit(Detached(self, closed=True, error=error))

    def _leave(self, *, closed: bool, error: Error | None) -> None:
        self.session.flush_dispositions()
        self.state = LinkState.DETACHING
        self.session.write(Detach(handle=self.handle, closed=closed, error=error))

    def _announce(
        self,
        source: Source | None,
        target: Target | Coordinator | None,
        *,
        settle_modes: tuple[int, int] = (2, 0),
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        unsettled: dict[Any, Any] | None = None,
        incomplete_unsettled: bool = False,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
    ) -> None:
        if max_message_size is None:
            max_message_size = self.session.settings.max_message_size
        is_sender = self.role is LinkRole.SENDER
        if not is_sender:
            self.max_message_size = max_message_size
        self.session.write(
            Attach(
                name=self.name,
                handle=self.handle,
                role=not is_sender,
                snd_settle_mode=settle_modes[0],
                rcv_settle_mode=settle_modes[1],
                source=source,
                target=target,
                unsettled=unsettled,
                incomplete_unsettled=incomplete_unsettled,
                initial_delivery_count=initial_delivery_count if is_sender else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
