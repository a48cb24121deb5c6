"""Writes messages into a new file: JSON lines, bodies as stored. A file that was not finished is removed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.model.message_view import MessageContent, MessageKind
from paired_servicebus.core.text.number_format import plural

Look = Callable[..., Awaitable[MessageContent]]
"""Returns a message by its sequence number, the body from `from_byte` on."""


def export_name(at: float) -> str:
    """Return a file name that sorts by time."""
    return f"paired-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}-messages.jsonl"


async def export_messages(path: Path, *, numbers: Sequence[int], look: Look, queue: str, kind: MessageKind) -> str:
    """Write the messages with these sequence numbers, and return how many are in the file, and what is missing.

    Raises:
        OSError: the file exists, or the disk did not take it; there is no file then.
        ControlError: the engine showed none of them; there is no file then.
    """
    path = await asyncio.to_thread(lambda: path.expanduser().absolute())
    hidden, reasons = 0, list[str]()
    async with _new_file(path) as file:
        for number in numbers:
            try:
                content, body = await _whole(look, number)
            except CommandRefusedError as error:
                reasons.append(str(error))
                if len(reasons) == len(numbers):
                    raise
                continue
            line = json.dumps(_as_json(content, body, queue, kind)) + "\n"
            await asyncio.to_thread(file.write, line.encode())
            hidden += len(body) < content.body_size
    missing = f"; {len(reasons):,} missing: {reasons[0]}" if reasons else ""
    without = f"; {plural(hidden, 'body', 'bodies')} hidden by the engine" if hidden else ""
    return f"{plural(len(numbers) - len(reasons), 'message')} written to {path}{without}{missing}"


@contextlib.asynccontextmanager
async def _new_file(path: Path) -> AsyncIterator[BinaryIO]:
    """Yield a new file for its owner, which is removed if it is not finished."""
    file = await asyncio.to_thread(open, path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
    try:
        yield file
        await asyncio.to_thread(file.close)
    except BaseException:
        with contextlib.suppress(OSError):  # the disk that took no line takes no end either
            file.close()
        await asyncio.to_thread(path.unlink)
        raise


async def _whole(look: Look, number: int) -> tuple[MessageContent, bytes]:
    """Return a message and its body, which comes in parts; a hidden one is empty."""
    content = await look(number)
    body = content.body
    while body and len(body) < content.body_size:
        more = (await look(number, from_byte=len(body))).body
        if not more:
            break
        body += more
    return content, body


def _as_json(content: MessageContent, body: bytes, queue: str, kind: MessageKind) -> dict[str, Any]:
    row = content.row
    at = datetime.fromtimestamp(row.enqueued_at, UTC).isoformat() if row.enqueued_at is not None else None
    line: dict[str, Any] = {
        "queue": queue,
        "part": kind.value,
        "sequence_number": row.number,
        "message_id": row.message_id,
        "destination": row.destination,
        "session": row.session,
        "enqueued_at": at,
        "deliveries": row.deliveries,
        "reason": row.reason,
        "properties": dict(content.properties),
        "body_size": content.body_size,
    }
    if content.body_note:
        line["body_note"] = content.body_note
    try:
        line["body"] = body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(body).decode()
    return line
