"""Grounds for a drain: two sandbox namespaces in this loop, a pairing.toml for them, messages in backlog queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.core.model.pairing_events import DeadLettered, Diverted, Moved, Record
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.journal.records import encode
from paired_servicebus.engine.journal.spool import SpoolFile, prepare
from paired_servicebus.pipeline.drain.drain_files import DrainOrder, write
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import StoredMessage
from tests.journal_files import read_records
from tests.pairing.backlogs import parked, queue_path

QUEUES = 2


@dataclass
class Grounds:
    """Everything a drain needs but a cluster."""

    sandbox: Sandbox
    config: PairingConfig
    places: EnginePaths

    def fill(self, count: int, *, queues: int = QUEUES, destination: str = "orders", start: int = 0) -> None:
        """Messages into the backlog queues in turn: m0, m1, …"""
        node = self.sandbox["secondary"].node
        for index in range(queues):
            intake = node.namespace.send_target(queue_path(index)).intake
            for name in range(start + index, start + count, queues):
                intake.send([read_message(parked(destination, f"m{name}"))])  # a batch would be too long
        node.wake()

    def sent_by(self, engine: str, names: Iterable[str], destination: str) -> None:
        """An engine's journal of having parked these messages."""
        prepare(self.places.spool)
        file = SpoolFile(self.places.spool, f"{engine}-0000000000001-000000000001.jsonl")
        for seq, name in enumerate(names, start=1):
            event = Diverted(at=1_700_000_000.0, entity=destination, message_id=name, queue=0)
            file.append(encode(Record(engine=engine, boot="b", seq=seq, event=event)))
        file.finish()

    def lying(self, path: str, namespace: str = "primary") -> list[StoredMessage]:
        return self.sandbox[namespace].node.namespace.message_queue(path).peek(0, 1_000_000)

    def arrived(self, path: str = "orders") -> Counter[str]:
        """How often each message is in a queue of the primary."""
        return Counter(str(stored.message.message_id) for stored in self.lying(path))

    def left(self) -> int:
        """What still lies in the backlog queues."""
        return sum(len(self.lying(queue_path(index), "secondary")) for index in range(QUEUES))

    def order(self, **changes: object) -> DrainOrder:
        """An order for a run whose folder is ready."""
        prepare(self.places.spool)
        chosen: dict[str, object] = {
            "run": "run",
            "pairing": self.config.name,
            "config": str(self.config.path),
            "spool": str(self.places.spool),
            "queues": [queue_path(index) for index in range(QUEUES)],
            "master": "local[2,4]",
            "parallelism": 2,
        }
        order = DrainOrder(**chosen | changes)  # type: ignore[arg-type] # by their names
        order.folder.mkdir(parents=True, exist_ok=True)
        write(order.folder / "order.json", order)
        return order

    def records(self) -> list[Record]:
        return list(read_records(self.places.spool))

    def receipts(self) -> Counter[str]:
        """How often the journal says that a message was moved."""
        return Counter(record.event.message_id for record in self.records() if isinstance(record.event, Moved))

    def buried(self) -> int:
        return sum(isinstance(record.event, DeadLettered) for record in self.records())


@asynccontextmanager
async def grounds(folder: Path, *, lock: timedelta = timedelta(minutes=1)) -> AsyncIterator[Grounds]:
    """`folder` holds pairing.toml; the state folder is as the environment says. The queue orders detects duplicates,
    audit does not. lock: of the backlog queues."""
    large = {"max_size_mb": 5120}
    orders, audit = QueueSettings(requires_duplicate_detection=True, **large), QueueSettings(**large)
    backlog = QueueSettings(lock_duration=lock, max_delivery_count=2**31 - 1, **large)
    specs = [
        NamespaceSpec("primary", queues=[QueueSpec("orders", orders), QueueSpec("audit", audit)]),
        NamespaceSpec("secondary", queues=[QueueSpec(queue_path(index), backlog) for index in range(QUEUES)]),
    ]
    async with Sandbox.start(specs) as sandbox:
        config = folder / "pairing.toml"
        config.write_text(
            f'[pairing]\nname = "drained"\nbacklog_queue_count = {QUEUES}\nsend_timeout = "2s"\n'
            + "".join(
                f'[{name}]\nname = "{name}"\nca_file = "{sandbox.ca_file}"\n'
                f'connection_string = "{sandbox[name].connection_string}"\n'
                for name in ("primary", "secondary")
            )
        )
        places = engine_paths("drained")
        places.prepare()
        yield Grounds(sandbox, load_config(config), places)


async def until(what: object, patience: float = 60.0) -> None:
    """Wait until `what()` is true."""
    async with asyncio.timeout(patience):
        while not what():  # type: ignore[operator]
            await asyncio.sleep(0.05)
