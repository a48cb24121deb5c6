"""Answers to consoles that look at messages: rows for anyone, a body with a line in the audit.

A look changes nothing, so read-only consoles may look, and no arming is needed. A body leaves the engine only after the
look is in the audit on disk, and never if the engine hides bodies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.pairing_events import BodyShown
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.commands.guard import MAX_ERROR_CHARS, AuditLog
from paired_servicebus.engine.control.protocol import (
    CommandDone,
    Look,
    LookAtMessage,
    LookAtMessages,
    MessageFound,
    MessagesFound,
)
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

DEAD_LETTERS: Final = "/$DeadLetterQueue"
HIDDEN: Final = 'hidden: pairing.toml has [console] bodies = "hidden"'


class MessageRequests:
    """Answers looks. Args: as Guard's. hides_bodies: whether no body leaves the engine."""

    def __init__(
        self,
        paired: PairedServiceBusClient,
        audit: AuditLog,
        *,
        hides_bodies: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._paired = paired
        self._audit = audit
        self._hides_bodies = hides_bodies
        self._clock = clock

    async def answer(self, look: Look) -> MessagesFound | MessageFound | CommandDone:
        """Look, or refuse with a reason. Never raises for a namespace's failure."""
        try:
            kind = MessageKind(look.kind)
        except ValueError:
            return _refusal(
                look, f"{repeated(look.kind)!r} is no kind of messages; the kinds are {', '.join(MessageKind)}"
            )
        try:
            if isinstance(look, LookAtMessages):
                return await self._rows(look, kind)
            return await self._message(look, kind)
        except (PairedError, AzureError, OSError) as error:
            return _refusal(look, masked(str(error))[:MAX_ERROR_CHARS])

    async def _rows(self, look: LookAtMessages, kind: MessageKind) -> MessagesFound:
        if not look.queue:
            await self._paired.list_unused()
            return MessagesFound(id=look.id, page=MessagePage(queue="", kind=kind))
        page = await self._paired.look_at_messages(look.queue).page(
            look.queue,
            kind,
            from_number=look.from_number,
            count=look.count,
            wanted=look.wanted,
            reads_bodies=not self._hides_bodies,
        )
        return MessagesFound(id=look.id, page=page)

    async def _message(self, look: LookAtMessage, kind: MessageKind) -> MessageFound:
        looks = self._paired.look_at_messages(look.queue)
        content = await looks.message(look.queue, kind, look.number, from_byte=look.from_byte)
        if self._hides_bodies:
            return MessageFound(id=look.id, content=_without_body(content, HIDDEN))
        row = content.row
        self._audit.record(
            BodyShown(
                at=self._clock(),
                by=look.by,
                target=look.queue + (DEAD_LETTERS if kind is MessageKind.DEAD else ""),
                number=row.number,
                message_id=row.message_id,
            )
        )
        if not await self._audit.sync():
            reason = f"not shown: the audit of this look cannot be written: {self._audit.trouble}"
            return MessageFound(id=look.id, content=_without_body(content, reason))
        return MessageFound(id=look.id, content=content)


def _without_body(content: MessageContent, reason: str) -> MessageContent:
    return replace(content, body=b"", body_note=reason)


def _refusal(look: Look, text: str) -> CommandDone:
    return CommandDone(id=look.id, ok=False, text=text)
