"""When bytes leave: one write for each read of the primary to each client, and one to the primary for many clients.

A write in the loop's next turn costs a lone send a turn each way. So answers leave at the end of the read that brought
them, and a send that is alone leaves at the end of the read that brought it. Others share the next turn's write.
"""

from __future__ import annotations

from typing import Protocol

from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.client_connection import ClientConnection


class Writer(Protocol):
    """A connection of a client."""

    def write(self) -> None: ...


class WriteTurns:
    """The turns of a gateway's writes."""

    def __init__(self) -> None:
        self._primary: ReconnectingConnection | None = None
        self._answered: list[Writer] = []

    def join(self, primary: ReconnectingConnection) -> None:
        """Follow the reads of the primary's connection, the same for all clients."""
        if self._primary is None:
            self._primary = primary
            primary.after_read.append(self._write_answers)

    def leave(self) -> None:
        if self._primary is not None:
            self._primary.after_read.remove(self._write_answers)
            self._primary = None

    def write_after_read(self, client: Writer) -> None:
        """Write to a client when the present read of the primary ends."""
        self._answered.append(client)

    def hold(self) -> ClientConnection | None:
        """Collect writes to the primary until `release`; None without a connection, or if it will write anyway."""
        return None if self._primary is None else self._primary.hold()

    @staticmethod
    def release(held: ClientConnection, *, now: bool) -> None:
        """Write what was collected: now, or in the loop's next turn."""
        if now:
            held.flush()
        else:
            held.will_write = False
            held.touch()

    def _write_answers(self) -> None:
        answered, self._answered = self._answered, []
        for client in answered:
            client.write()
