"""What a namespace's faults do to a request of management over HTTP: the same for Atom and for ARM.

A request is held back, refused, swallowed, or its connection reset; a fault that ends lets go of what it held. How an
answer or a refusal is written belongs to those who serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from aiohttp import web

from servicebus_sandbox.faults import ConnectionVerdict, Direction, FaultBoard, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import refusal_by

Answer = TypeVar("Answer")

_MANAGING: Final = frozenset({Operation.MANAGE})
_TAKING: Final = (FaultVerdict.SERVE, FaultVerdict.TAKE_SILENTLY, FaultVerdict.TAKE_AND_RESET)


class FaultGate:
    """Every request passes here. It watches `faults`, the namespace's, until it is closed; then it holds nothing.

    `connections` gives those that live: they are dead when the namespace's connections become half-open.
    """

    def __init__(self, faults: FaultBoard, *, connections: Callable[[], Iterable[object]] = tuple) -> None:
        self._faults = faults
        self._connections = connections
        self._dead: dict[str, frozenset[object]] = {}
        self._changed = asyncio.Event()
        self._closed = False
        faults.watch(self._let_go)

    def close(self) -> None:
        self._closed = True
        self._let_go()

    async def loses_connection(self, connection: object = None) -> bool:
        """Whether a fault takes the connection: at once, or after it has swallowed the request for a while."""
        verdict = self._verdict(connection)
        if verdict is ConnectionVerdict.SERVE:
            return False
        while verdict is ConnectionVerdict.SWALLOW and not self._closed:
            await self._changed.wait()
            verdict = self._verdict(connection)
        return True

    async def pass_through(
        self,
        path: str,
        serve: Callable[[], Awaitable[Answer]],
        refuse: Callable[[FaultVerdict, str, int], Answer],
    ) -> Answer | None:
        """What leaves; None for a connection that is to be reset, at once or when the fault that holds it changes.

        `path` is the entity's, with whatever lies below it. `refuse` makes an answer of a verdict, one sentence and the
        status that Atom gives it.
        """
        faults = self._faults
        if faults.is_quiet:
            return await serve()
        if await self.loses_connection():
            return None
        verdict = faults.verdict(InjectionPoint.HTTP, path)
        for direction in Direction:
            await asyncio.sleep(faults.latency(path, _MANAGING, direction) + faults.connection_latency(direction))
        refusal = None if verdict is FaultVerdict.REFUSE else refusal_by(verdict, path)
        if refusal is not None:
            return refuse(verdict, refusal.description, refusal.status)
        answer = await serve() if verdict in _TAKING else None
        if verdict in (FaultVerdict.SWALLOW, FaultVerdict.TAKE_SILENTLY) and not self._closed:
            await self._changed.wait()
        return answer if verdict is FaultVerdict.SERVE else None

    def _verdict(self, connection: object) -> ConnectionVerdict:
        is_dead = any(connection in those for those in self._dead.values())
        return ConnectionVerdict.SWALLOW if is_dead else self._faults.connection_verdict()

    def _let_go(self) -> None:
        begun = (fault_id for fault_id in self._faults.half_open if fault_id not in self._dead)
        living = {fault_id: frozenset(self._connections()) for fault_id in begun}
        self._dead = {key: those for key, those in (self._dead | living).items() if key in self._faults.half_open}
        self._changed.set()
        self._changed = asyncio.Event()


def reset(request: web.BaseRequest) -> web.Response:
    """Cut the request's connection; the response, which a handler has to return, never leaves."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
