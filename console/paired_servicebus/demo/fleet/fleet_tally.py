"""The fleet scenario's evidence, collected while it is played, and the result made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from paired_servicebus.core.accounting.ledger import SendOutcome, balance
from paired_servicebus.core.model.fleet_view import FleetOrder
from paired_servicebus.demo.fleet.fleet_engine import FleetHost
from paired_servicebus.demo.fleet_result import FleetResult, HostAccount, HostResult, what_fleet_broke
from paired_servicebus.demo.player import left_behind
from paired_servicebus.demo.result import (
    DemoResult,
    EntityResult,
    MessageCounts,
    PingCounts,
    SyphonResult,
)
from paired_servicebus.demo.scenario_model import ORDERS
from paired_servicebus.demo.scenarios import FLEET
from paired_servicebus.sandbox_process import SandboxProcess
from paired_servicebus.workload.workload import Workload


@dataclass(slots=True)
class FleetTally:
    """The times of the steps, and the answers to the orders at three times."""

    cut_at: float = 0.0
    back_at: float = 0.0
    forced: FleetOrder | None = None
    """The order while one host was cut off."""
    taken_up: FleetOrder | None = None
    """The same order after the network was back."""
    released: FleetOrder | None = None

    def note_sent(self, application: Workload, accounts: Iterable[HostAccount]) -> None:
        """Add the other hosts' messages to the application that receives them."""
        for account in accounts:
            application.lists.answers |= {name: SendOutcome(answer) for name, answer in account.answers.items()}

    async def result(
        self, sandbox: SandboxProcess, mine: FleetHost, hosts: Mapping[str, HostAccount], *, seed: int
    ) -> DemoResult:
        """Return the result. `hosts`: each host's account, by name."""
        lists = mine.application.lists
        parked, dead = await left_behind(sandbox, mine.paired)
        ledger = balance(answers=lists.answers, arrivals=lists.arrivals, parked=parked, dead_lettered=dead)
        fleet = self.fleet_result(hosts)
        messages = MessageCounts.of(ledger)
        stays = [f"{messages.parked} messages are still parked"] if messages.parked else []
        accounts = hosts.values()
        return DemoResult(
            scenario=FLEET.name,
            seed=seed,
            messages=messages,
            entities={
                ORDERS: EntityResult(
                    failovers=sum(one.failovers for one in accounts),
                    failbacks=sum(one.failbacks for one in accounts),
                    seconds_failed_over=round(sum(one.seconds_failed_over for one in accounts), 3),
                )
            },
            pings=PingCounts(
                sent=sum(one.pings_sent for one in accounts), accepted=sum(one.pings_accepted for one in accounts)
            ),
            syphon=SyphonResult(moved=sum(one.moved for one in accounts)),
            billed_operations=sum(one.billed for one in accounts),
            verdict=ledger.verdict,
            lost_ids=list(ledger.lost_ids),
            unexpected_ids=list(ledger.unexpected_ids),
            broken=[*fleet.broken, *stays],
            fleet=fleet,
        )

    def fleet_result(self, hosts: Mapping[str, HostAccount]) -> FleetResult:
        """Return the figures of the order, with what did not hold."""
        done = self.forced.done if self.forced is not None else ()
        later = [name for name in (self.taken_up.done if self.taken_up is not None else ()) if name not in done]
        result = FleetResult(
            done=sorted(done),
            refused=dict(self.forced.refused) if self.forced is not None else {},
            silent=[name for name, _ in self.forced.silent] if self.forced is not None else [],
            taken_up={name: (hosts[name].forced_at or 0.0) if name in hosts else 0.0 for name in later},
            released=sorted(self.released.done) if self.released is not None else [],
            cut_at=self.cut_at,
            back_at=self.back_at,
            hosts={
                name: HostResult(
                    sent=len(one.answers), diverted=one.diverted, forced_at=one.forced_at, is_forced=one.is_forced
                )
                for name, one in hosts.items()
            },
        )
        return msgspec.structs.replace(result, broken=what_fleet_broke(result))
