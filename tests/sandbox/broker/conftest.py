"""A namespace on a clock that only the test moves, and a receiver that keeps what it gets."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.broker.message import Message, StoredMessage
from servicebus_sandbox.broker.queues.message_queue import Consumer, MessageQueue
from servicebus_sandbox.broker.queues.session_queue import SessionQueue
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """One namespace, moved on by `pass_time`."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.namespace = BrokerNamespace("contoso", clock=self.clock, **settings)

    def pass_time(self, duration: float | timedelta) -> None:
        self.clock.now += duration.total_seconds() if isinstance(duration, timedelta) else duration
        self.namespace.run()

    def receiver(self, queue: MessageQueue, **options: bool) -> "Receiver":
        return Receiver(self, queue, **options)


class Receiver:
    """A consumer that gathers messages; `receive` grants credit and returns what came."""

    def __init__(
        self,
        world: World,
        queue: MessageQueue,
        *,
        settles_on_delivery: bool = False,
        session: str | None = None,
        attach: bool = True,
    ) -> None:
        self.world, self.queue = world, queue
        self.got: list[StoredMessage] = []
        self.ended: list[BrokerError] = []
        self.consumer = Consumer(self.got.append, self.ended.append, settles_on_delivery=settles_on_delivery)
        if session is not None:
            assert isinstance(queue, SessionQueue)
            queue.attach_to_session(self.consumer, session)
        elif attach:
            queue.attach(self.consumer)

    def receive(self, credit: int = 100) -> list[StoredMessage]:
        before = len(self.got)
        self.queue.grant(self.consumer, credit)
        self.world.namespace.run()
        self.queue.grant(self.consumer, 0)
        return self.got[before:]

    def receive_one(self) -> StoredMessage:
        (stored,) = self.receive(1)
        return stored


def make_message(name: str = "", **fields: object) -> Message:
    return Message(name, fields.pop("size", 10), **fields)  # type: ignore[arg-type]


def token_of(stored: StoredMessage) -> bytes:
    assert stored.lock_token is not None
    return stored.lock_token


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def message() -> Callable[..., Message]:
    return make_message


@pytest.fixture
def token() -> Callable[[StoredMessage], bytes]:
    return token_of
