"""An annotations section as a client writes it."""

from __future__ import annotations

from typing import Any

from servicebus_amqp.encoding.codec import Symbol, described, encode


def write_annotations(code: int, annotations: dict[str, Any]) -> bytes:
    """Return an annotations section; its keys are written as symbols."""
    return described(code, encode({Symbol(key): value for key, value in annotations.items()}))
