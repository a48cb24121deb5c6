"""The engine's own process: `python -m paired_servicebus.engine.service.main CONFIG LOG REPORT_FD [read-only]`.

launcher.py starts it. Standard output and error go into its log. It reports readiness, or a failure in one sentence, to
its starter, and ends if the starter has gone. SIGTERM and SIGINT end it cleanly; it ignores SIGHUP. Under a process
manager the arguments are `CONFIG foreground [read-only]`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from paired_servicebus.config import PairingConfig, load_config, refuse_foreign_command
from paired_servicebus.core.errors import EngineRunningError, EngineStartError, PairedError
from paired_servicebus.core.model.namespace_info import NamespaceInfo, remarks
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.operator.alarms import REPORTED_BY_EVENTS, alarms, degrading
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.clients.client_factory import CredentialReloader, NamespaceClients, open_clients
from paired_servicebus.engine.clients.namespace_requests import NamespaceRequests
from paired_servicebus.engine.clients.start_checks import CONNECT_TIMEOUT, StartChecks, read_primary_info
from paired_servicebus.engine.commands.drain_process import DrainProcess
from paired_servicebus.engine.gateway.gateway_listener import GatewayPairingOptions, open_gateway
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.group_access import open_to_group
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.lock import StateFolder
from paired_servicebus.engine.instance.logs import log_as_json, log_to, log_to_file
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.engine.readiness.readiness_check import LocalEvidence
from paired_servicebus.engine.service.engine_host import EngineHost, nobody
from paired_servicebus.engine.service.hook import Hook
from paired_servicebus.engine.service.launcher import (
    FOREGROUND,
    READ_ONLY,
    Failed,
    Outcome,
    Ready,
    Step,
    notify_systemd,
    report,
)
from paired_servicebus.engine.service.probes import ProbePort
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.printing import report_error
from servicebus_amqp.server.admission import return_free_memory

CHECK_SECONDS: Final = 3.0
"""Seconds that a start waits for the first look at namespaces and entities, those of pairing included; it goes on
beside the serving engine."""
CLOSE_TIMEOUT: Final = 40.0
"""Seconds that sends in flight, pumps and links may take to end."""
LAST_RESORT: Final = 20.0
"""Further seconds until the process ends anyway; its log then shows the blocked call."""

_GC_THRESHOLDS: Final = (5_000, 20, 10)
"""Messages are many small objects without cycles: Python's own thresholds walk through those in hand all the time."""
START_SECONDS: Final = 45.0
"""Seconds after which a start has ended: its checks, and the clients of its first readings."""

Say = Callable[[Outcome], None]

log = logging.getLogger("paired_servicebus.engine.service.main")  # __name__ is "__main__" here


def run_here(config_path: Path, *, read_only: bool = False) -> int:
    """Run the engine in this process under a process manager (systemd, a container); return the exit status.

    The log goes to standard error; systemd is notified of readiness.
    """

    def say(outcome: Outcome) -> None:
        if isinstance(outcome, Ready):
            notify_systemd("READY=1")
        elif isinstance(outcome, Failed):
            report_error(outcome.text)

    return main(config_path, "on standard error", say, read_only=read_only)


def main(config_path: Path, log_path: str, say: Say, *, log_file: Path | None = None, read_only: bool = False) -> int:
    """Run the engine to its end; return the exit status.

    Args:
        config_path: its pairing.toml.
        log_path: the path of its log, for the operator.
        log_file: the file to log to; None: standard error, which its reader bounds.
        say: receives the steps of the start, then one report: readiness or failure.
        read_only: start read-only, overriding the file.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if log_file is None:
        log_to(sys.stderr)
    else:
        log_to_file(log_file)
    faulthandler.enable()
    allow_open_files()
    starting = _Starting(say)
    try:
        _run(config_path, log_path, starting, read_only=read_only)
    except PairedError as error:
        if starting.over or log_file is not None:  # else the report is where the log is
            log.critical("the engine did not end cleanly: %s", error)
        starting.failed(_explain(error, log_path))
        return 2
    except (Exception, asyncio.CancelledError) as error:
        log.exception("the engine did not end cleanly")
        starting.failed(_explain(error, log_path))
        return 2
    log.info("the engine has ended")
    return 0


def allow_open_files() -> None:
    """Raise the limit of open files to its maximum: sockets, backlog queues and the journal need descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # a system may allow less than it names
        log.warning("the limit of open files stays %d: %s", soft, error)
        return
    if soft != hard:
        log.info("the limit of open files is raised from %d to %d", soft, hard)


def tune_collector() -> None:
    """Exempt the present objects, such as modules, from collection: a walk through them takes 20 ms and more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def return_start_memory(after: float = START_SECONDS) -> None:
    """Return the memory that a start left free to the system, once: 4 MB. After `after` seconds."""
    await asyncio.sleep(after)
    gc.collect()
    return_free_memory()


def _run(config_path: Path, log_path: str, starting: _Starting, *, read_only: bool) -> None:
    config = load_config(config_path)
    if config.log == "json":
        log_as_json()
    refuse_foreign_command(config)
    starting.step("pairing.toml", str(config_path), is_over=True)
    places = engine_paths(config.name)
    folder = StateFolder(places, log=log_path)
    for what, prepare in (("state folder", folder.open), ("folder of the control socket", places.prepare_socket)):
        try:
            prepare()
        except OSError as error:
            starting.step(what, f"{error.strerror or error}: {error.filename}", is_over=True, is_good=False)
    group = open_to_group(config.control_group, places) if config.control_group else None
    try:
        asyncio.run(
            _serve(config, places, folder, starting, log_path, read_only=config.read_only or read_only, group=group)
        )
    except BaseException:
        if not starting.over:  # it never served
            folder.mark_clean_exit()
        raise
    folder.mark_clean_exit()


def _explain(error: BaseException, log_path: str) -> Failed:
    """Return the report for the starter."""
    match error:
        case PairedError():
            return Failed(text=masked(str(error)), running=isinstance(error, EngineRunningError))
        case asyncio.CancelledError():
            return Failed(text="the engine was ended before it was ready")
        case OSError():
            return Failed(text=masked(f"the engine cannot start: {error}; its log is {log_path}"))
    return Failed(text=f"the engine failed while starting ({type(error).__name__}); see its log {log_path}")


class _Starting:
    """The starter, which receives the steps of the start, then one report."""

    def __init__(self, say: Say) -> None:
        self._tell: Say | None = say

    @property
    def over(self) -> bool:
        """Whether the report was given."""
        return self._tell is None

    def step(self, name: str, text: str, *, is_over: bool = False, is_good: bool = True) -> None:
        """Tell a step to the person who waits; it is logged once it is over."""
        if is_over:
            log.info("start: %s: %s", name, text)
        with suppress(BrokenPipeError):  # `ready` finds that the starter has gone
            if self._tell is not None:
                self._tell(Step(name=name, text=text, is_over=is_over, is_good=is_good))

    async def timed(self, name: str, asked: Awaitable[str]) -> str:
        """Return why a namespace does not answer, or ""; tell what is waited for, and what came of it."""
        begun = time.monotonic()
        self.step(name, f"no answer yet (timeout after {CONNECT_TIMEOUT:g} s)")
        trouble = await asked
        text = f"no answer: {trouble}" if trouble else f"reached in {time.monotonic() - begun:.1f} s"
        self.step(name, masked(text), is_over=True, is_good=not trouble)
        return trouble

    def ready(self, outcome: Ready) -> None:
        """Report readiness. Raises EngineStartError: the starter has gone."""
        try:
            self._say(outcome)
        except BrokenPipeError as error:
            raise EngineStartError("the process that started the engine has gone before it was ready") from error

    def failed(self, outcome: Failed) -> None:
        """Report a failure unless a report was given."""
        try:
            self._say(outcome)
        except BrokenPipeError:
            log.info("the starter has gone and does not get the reason")

    def _say(self, outcome: Ready | Failed) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(outcome)


async def _serve(
    config: PairingConfig,
    places: EnginePaths,
    folder: StateFolder,
    starting: _Starting,
    log_path: str,
    *,
    read_only: bool,
    group: int | None,
) -> None:
    identity = _identity(config, read_only=read_only)
    _end_by_cancelling()

    def warn_of(part: str) -> Callable[[str], None]:
        return lambda text: host.warn(part, text)

    draining = DrainProcess(config.path.absolute(), pairing=config.name, spool=places.spool, say=warn_of("drain"))
    hook = Hook(config.on_change, folder=config.path.parent, identity=identity) if config.on_change else None
    gateway = open_gateway(
        config.gateway, places, primary=config.primary.host, entities=config.entities, warn=warn_of("gateway")
    )
    host = EngineHost(
        identity,
        spool=places.spool,
        socket=places.socket,
        policy=config.policy,
        surroundings=LocalEvidence(config, places).add,
        draining=draining,
        keep=config.journal_mb * 1024**2,
        group=group,
        fleet=config.fleet,
        complete=gateway.add_to,
        found=lambda: (*checks.troubles, *gateway.troubles, *probes.troubles),
        prepare_spool=folder.open_again,
        prepare_socket=places.prepare_socket,
        note=hook.note if hook is not None else nobody,
    )
    probes = ProbePort(config.metrics, latest=host.latest, scraped=host.scraped, warn=warn_of("metrics"))
    async with host, gateway, open_clients(config) as clients:
        primary = await read_primary_info(config.primary, places)
        checks = StartChecks(config, places, primary, timed=starting.timed)
        renewal = _open_renewal(config, clients, host)
        crew = _start_tasks(host, renewal, hook, probes)
        crew.start(checks.run(clients.primary), name="the checks of the start")
        paired: PairedServiceBusClient | None = None
        try:
            until = asyncio.get_running_loop().time() + CHECK_SECONDS
            paired = await _pair(config, clients, primary, host, renewal, starting)
            await checks.wait(until)
            await host.adopt(paired)
            await gateway.serve(paired, NamespaceRequests(config.primary, clients.primary_credentials))
            crew.start(_settle_memory(config), name="the memory of the start")
            _on_end(lambda: host.stop("ended by a signal"))
            starting.ready(_ready(places, log_path, paired.backlog_queue_count, host))
            log.info("serving as %s, boot %s", identity.engine, identity.boot)
            log.info("ending: %s", await host.ended())
            notify_systemd("STOPPING=1")
        finally:
            await gateway.close(_limit_close(config))
            await _close(crew, draining, paired)


def _end_by_cancelling() -> None:
    """Have a signal cancel the present task, until the engine serves."""
    this = asyncio.current_task()
    assert this is not None
    _on_end(this.cancel)


def _ready(places: EnginePaths, log_path: str, backlog_queues: int, host: EngineHost) -> Ready:
    snapshot = host.latest()
    found = degrading(alarms(condition_of(snapshot))) if snapshot is not None else ()
    texts = tuple(masked(str(alarm)) for alarm in found if alarm.name not in REPORTED_BY_EVENTS)
    return Ready(pid=os.getpid(), socket=str(places.socket), log=log_path, backlog_queues=backlog_queues, alarms=texts)


def _identity(config: PairingConfig, *, read_only: bool) -> EngineIdentity:
    return EngineIdentity.of(
        config.name,
        environment=config.environment,
        read_only=read_only,
        require_reason=config.require_reason,
        hides_bodies=config.hides_bodies,
    )


def _open_renewal(config: PairingConfig, clients: NamespaceClients, host: EngineHost) -> CredentialReloader:
    """Return what keeps the credentials new, and warn of what the file's own are short of."""
    for remark in config.remarks:
        if not remark.endswith(config.policy.remarks):  # the pairing reports those
            host.warn("credentials", remark)
    return CredentialReloader(
        config,
        clients.primary_credentials,
        clients.secondary_credentials,
        lambda text: host.warn("credentials", text),
    )


def _start_tasks(host: EngineHost, renewal: CredentialReloader, hook: Hook | None, probes: ProbePort) -> TaskSupervisor:
    """Start the background tasks that the file configures."""
    crew = TaskSupervisor()
    crew.start(probes.run(), name="the probes")
    crew.start(renewal.run(), name="the renewal of keys")
    if hook is not None:
        crew.start(hook.run(lambda text: host.warn("on_change", text)), name="the operator's command")
    return crew


def _on_end(act: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, act)


async def _settle_memory(config: PairingConfig) -> None:
    if config.gateway is not None or config.metrics is not None:  # else nobody waits for a collection
        tune_collector()
    await return_start_memory()


async def _pair(
    config: PairingConfig,
    clients: NamespaceClients,
    primary: NamespaceInfo,
    host: EngineHost,
    renewal: CredentialReloader,
    starting: _Starting,
) -> PairedServiceBusClient:
    """Pair, whatever is away, and take up the standing orders."""
    chosen: dict[str, Any] = {field.name: getattr(config.policy, field.name) for field in fields(Policy)}
    kind = SendAvailabilityPairedNamespaceOptions if config.gateway is None else GatewayPairingOptions
    options = kind(
        secondary_admin=clients.secondary_admin,
        secondary_client=clients.secondary,
        primary_name=primary.name,
        **chosen,
    )
    wanted = config.policy.backlog_queue_count
    starting.step("backlog queues", f"listing {wanted} on {config.secondary.host}")
    paired = await pair_namespaces(
        clients.primary, options, on_event=host.record, judge=renewal.judging(), must_start=True
    )
    found = f"{paired.backlog_queue_count} of {wanted} on {config.secondary.host}"
    starting.step("backlog queues", found, is_over=True, is_good=paired.backlog_queue_count == wanted)
    await host.take_up(paired)
    for text in remarks(primary, paired.secondary_info):
        host.warn("namespaces", text)
    probed = {path.casefold() for path in config.probe}
    for path in config.entities:
        paired.watch(path, probe=path.casefold() in probed)
    return paired


def _limit_close(config: PairingConfig) -> float:
    """End the process if closing hangs, and return the seconds that the gateway's clients have."""
    grace = config.policy.close_grace if config.gateway is not None else 0.0
    faulthandler.dump_traceback_later(grace + CLOSE_TIMEOUT + LAST_RESORT, exit=True)
    return grace


async def _close(crew: TaskSupervisor, draining: DrainProcess, paired: PairedServiceBusClient | None) -> None:
    await crew.close()
    await draining.close()
    if paired is None:
        return
    try:
        await bounded(paired.close(), CLOSE_TIMEOUT, "closing the pairing")
    except TimeoutError as error:
        log.warning("%s; the process ends anyway", error)


if __name__ == "__main__":
    read_only = READ_ONLY in sys.argv[3:]
    if sys.argv[2] == FOREGROUND:
        sys.exit(run_here(Path(sys.argv[1]), read_only=read_only))
    config, log_name, say = Path(sys.argv[1]), sys.argv[2], partial(report, int(sys.argv[3]))
    sys.exit(main(config, log_name, say, log_file=Path(log_name), read_only=read_only))
