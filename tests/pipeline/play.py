"""A demo scenario under any policy, with its journal kept: what rehearsals are held against."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from paired_servicebus.core.model.policy import Policy
from paired_servicebus.demo.player import Player, pair_on
from paired_servicebus.demo.result import DemoResult
from paired_servicebus.demo.scenarios import ENTITIES, scenario_named
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.sandbox_process import sandbox_process


async def play(name: str, folder: Path, *, duration: float, seed: int, policy: Policy | None = None) -> DemoResult:
    """Play `name` for `duration` seconds; its journal is in `folder`/journal afterwards."""
    scenario = scenario_named(name)
    scenario = replace(scenario, policy=policy or scenario.policy)
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(sandbox_process(folder / "sandbox.log"))
        host = EngineHost(
            EngineIdentity(engine="demo", boot=uuid.uuid4().hex[:12], pairing="demo", environment="demo"),
            spool=folder / "journal",
            socket=folder / "engine.sock",
            policy=scenario.policy,
        )
        await stack.enter_async_context(host)
        paired = await stack.enter_async_context(await pair_on(sandbox, scenario.policy, on_event=host.record))
        for entity in ENTITIES:
            paired.watch(entity)
        await host.adopt(paired)
        return await Player(scenario, sandbox, paired, seed=seed, say=lambda _: None).play(duration)
