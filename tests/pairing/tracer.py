"""A tracer for azure-core that keeps its spans: the current one is a context variable, as in OpenTelemetry."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, ClassVar, Self

from azure.core.settings import settings

_current: ContextVar[RecordedSpan | None] = ContextVar("the current span", default=None)


class RecordedSpan:
    """A span of `azure.core.tracing.AbstractSpan`. trace, number: hexadecimal. error: that ended it."""

    kept: ClassVar[list[RecordedSpan]] = []

    def __init__(self, span: object = None, name: str = "", *, kind: object = None, links: Any = (), **_: Any) -> None:
        self.parent = _current.get()
        self.trace = self.parent.trace if self.parent is not None else secrets.token_hex(16)
        self.number = secrets.token_hex(8)
        self.name = name
        self.kind = kind
        self.links = [link.headers.get("traceparent", "") for link in links or ()]
        self.attributes: dict[str, Any] = {}
        self.error: type[BaseException] | None = None
        self.is_finished = False
        self._token: Token[RecordedSpan | None] | None = None

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.number}-01"

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        assert self._token is not None
        _current.reset(self._token)  # raises in another context than the one it was entered in
        self.error, self.is_finished = kind, True
        self.kept.append(self)

    def add_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def to_header(self) -> dict[str, str]:
        span = _current.get()
        return {} if span is None else {"traceparent": span.traceparent}

    @classmethod
    def named(cls, name: str) -> list[RecordedSpan]:
        """The finished spans of this name."""
        return [span for span in cls.kept if span.name == name]


@contextmanager
def tracing(tracer: Any) -> Iterator[None]:
    """Have Azure's SDKs use a tracer."""
    settings.tracing_implementation.set_value(tracer)
    try:
        yield
    finally:
        settings.tracing_implementation.unset_value()
        RecordedSpan.kept.clear()
