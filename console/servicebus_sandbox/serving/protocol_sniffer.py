"""Protocol detection on a new connection, and the protocols in use until then.

`detect_protocol` is pure. `Sniffer` waits for the bytes it needs and hands the connection over with them. `Swallower`
reads and answers nothing. Not here: namespaces, ports and faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import cast

from servicebus_sandbox.serving.lobby import Lobby, Stay

_AMQP = b"AMQP"
_VERBS = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")


class PeerProtocol(Enum):
    """The protocol of a connection; the value is its display name. TLS is recognized before the sniffer."""

    AMQP = "AMQP"
    HTTP = "HTTP"
    TLS = "TLS"
    GARBAGE = "neither AMQP nor HTTP"
    UNDECIDED = "nothing"


def detect_protocol(seen: bytes) -> PeerProtocol:
    """Return the protocol that `seen` begins, UNDECIDED while it is ambiguous. Eight bytes always decide."""
    if seen.startswith(_AMQP):
        return PeerProtocol.AMQP
    if seen.startswith(_VERBS):
        return PeerProtocol.HTTP
    if any(opening.startswith(seen) for opening in (_AMQP, *_VERBS)):
        return PeerProtocol.UNDECIDED
    return PeerProtocol.GARBAGE


class _StandIn(asyncio.Protocol):
    """A temporary protocol whose transport is in its owner's set, so that the owner can end it, and in the lobby."""

    def __init__(self, owned: set[asyncio.Transport], lobby: Lobby) -> None:
        self._owned = owned
        self._lobby = lobby
        self._stay: Stay | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owned.add(self._transport)
        self._stay = self._lobby.enter(self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._transport = None

    def _let_go(self) -> None:
        if self._transport is not None:
            self._owned.discard(self._transport)
        if self._stay is not None:
            self._stay.leave()


class Swallower(_StandIn):
    """A protocol that reads every byte and answers nothing, like a network that drops packets."""

    def eof_received(self) -> bool:
        return True  # the peer's end stays unanswered too


class Sniffer(_StandIn):
    """A protocol that waits up to `patience` seconds for the first bytes, then calls `choose`.

    `choose` gets the detected protocol (UNDECIDED for a silent peer) and the transport. It returns the protocol that
    takes over, or None if it has handled the transport itself.
    """

    def __init__(
        self,
        owned: set[asyncio.Transport],
        lobby: Lobby,
        choose: Callable[[PeerProtocol, asyncio.Transport], asyncio.Protocol | None],
        *,
        patience: float,
    ) -> None:
        super().__init__(owned, lobby)
        self._choose = choose
        self._patience = patience
        self._timer: asyncio.TimerHandle | None = None
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = asyncio.get_running_loop().call_later(self._patience, self._decide, PeerProtocol.UNDECIDED)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        self._seen += data
        speech = detect_protocol(self._seen)
        if speech is not PeerProtocol.UNDECIDED:
            self._decide(speech)

    def _decide(self, speech: PeerProtocol) -> None:
        self._stop_timer()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        protocol = self._choose(speech, transport)
        if protocol is None:
            return
        self._let_go()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._seen)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
