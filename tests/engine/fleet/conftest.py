"""Two namespaces whose expiry is lazy, with the boards of a pairing in the second, and documents to post there."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.connection_string import parts_of
from paired_servicebus.core.fleet.fleet_documents import Author, Board, OrderRow, Outcome, Presence, board_path
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, Takes
from paired_servicebus.engine.fleet.board_setup import set_up_boards
from paired_servicebus.engine.fleet.service_bus_board import ServiceBusBoard, open_board
from paired_servicebus.pairing import tls_context
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.management.management_port import AtomAdmin
from paired_servicebus.secret import Secret
from servicebus_sandbox import NamespaceSpec, Sandbox
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Expiry, Right

AUTHOR = Author(
    engine="orders@web-1", boot="b1", host="web-1", pid=1, program="shop", version="1", pairing="orders",
    environment="test", primary="primary", secondary="secondary",
)  # fmt: skip
TRUST = tls_context()
ORDERS, REPORTS = (board_path("primary", board) for board in Board)


def new_id() -> str:
    return f"{random.getrandbits(128):032x}"


def presence(**changes: Any) -> Presence:
    chosen: dict[str, Any] = {
        "id": new_id(), "author": AUTHOR, "started_at": 100.5, "queues": (0, 1), "syphon": "idle",
        "states": ((State.HEALTHY, 2), (State.FAILED_OVER, 1)),
        "not_well": (FleetEntityState(path="payments", state=State.FAILED_OVER, since=99.0),),
        "takes": Takes.SIGNED, "signers": "SHA256:x", "clock_offset": None, "newest_order": 7.5,
        "rows": (OrderRow(order_id="o1", outcome=Outcome.DONE, text="payments is forced"),),
    }  # fmt: skip
    return Presence(**chosen | changes)


@dataclass
class World:
    """The sandbox, and what is closed at the end of a test."""

    sandbox: Sandbox
    stack: AsyncExitStack

    @property
    def node(self) -> Any:
        return self.sandbox["secondary"].node

    @property
    def now(self) -> float:
        return float(self.node.clock())

    def admin(self, *rights: Right, string: str = "") -> AtomAdmin:
        """string: the connection string of another key."""
        string = string or (self.key_with(*rights) if rights else self.sandbox["secondary"].connection_string)
        client = ServiceBusAdministrationClient.from_connection_string(
            string, connection_verify=str(self.sandbox.ca_file)
        )
        self.stack.push_async_callback(client.close)
        return AtomAdmin(client)

    def key_with(self, *rights: Right) -> str:
        """A connection string whose key has these rights alone."""
        one = self.sandbox["secondary"]
        rule = AuthorizationRule(name="+".join(rights), rights=frozenset(rights), primary_key="k", secondary_key="l")
        one.node.authorization.rules = (*one.node.authorization.rules, rule)
        return one.connection_string_for(rule.name, rule.primary_key)

    @property
    def host(self) -> str:
        """The secondary's address."""
        return parts_of(self.sandbox["secondary"].connection_string)["endpoint"].removeprefix("sb://").rstrip("/")

    def client(self) -> ServiceBusClient:
        client = ServiceBusClient.from_connection_string(self.sandbox["secondary"].connection_string, ssl_context=TRUST)
        self.stack.push_async_callback(client.close)
        return client

    def board(self, *, orders: str = "", reports: str = "") -> ServiceBusBoard:
        board = open_board(
            self.client(), primary="primary", posted_by=AUTHOR,
            orders=Secret(orders) if orders else None, reports=Secret(reports) if reports else None,
        )  # fmt: skip
        self.stack.push_async_callback(board.close)
        return board

    def wire(self) -> ReconnectingConnection:
        """An enemy's connection."""
        wire = ReconnectingConnection(Endpoint.of(self.client()))
        self.stack.push_async_callback(wire.close)
        return wire

    def jump(self, seconds: float) -> None:
        """Set the sandbox's clock forward."""
        self.node.clock.advance(seconds)
        self.node.clock_jumped()

    def count(self, path: str) -> int:
        return len(self.node.namespace.queue(path).messages.peek(0, 1_000_000))


@pytest.fixture
async def empty() -> AsyncIterator[World]:
    """A secondary namespace without boards."""
    async with (
        Sandbox.start([NamespaceSpec("primary"), NamespaceSpec("secondary", expiry=Expiry.LAZY)]) as sandbox,
        AsyncExitStack() as stack,
    ):
        yield World(sandbox, stack)


@pytest.fixture
async def world(empty: World) -> World:
    """A secondary namespace with the boards."""
    await set_up_boards(empty.admin(), "primary")
    return empty
