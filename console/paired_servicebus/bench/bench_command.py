"""The output of `paired bench`: a table for people, or one JSON object for programs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol, TypeVar

import msgspec

from paired_servicebus.bench.bench_plans import BenchError, SendPlan, SyphonPlan
from paired_servicebus.bench.rounds import Throughput
from paired_servicebus.bench.send_bench import SendFigures, measure_send
from paired_servicebus.bench.syphon_bench import CPU_TARGET_US, LARGE, Peer, SyphonFigures, measure_syphon
from paired_servicebus.config import PairingConfig

# Output of figures: one JSON object for programs, rows for people.

Targets = Mapping[str, tuple[float, bool]]


class Figures(Protocol):
    """The figures of a bench: a dataclass with targets."""

    @property
    def targets(self) -> dict[str, tuple[float, bool]]:
        """Target of each figure that has one, and whether the figure reaches it."""

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""


def as_json(bench: str, figures: Figures) -> str:
    """Return one line; `targets` holds the target of each figure that has one, and whether it is reached."""
    dataclass: Any = figures
    line: dict[str, Any] = {
        "bench": bench,
        **asdict(dataclass),
        "targets": {
            name: {"target": target, "reached": reached} for name, (target, reached) in figures.targets.items()
        },
        "reached": figures.reached,
    }
    return msgspec.json.encode(line).decode() + "\n"


def syphon_table(figures: SyphonFigures) -> str:
    """Return the table of `paired bench syphon`."""
    paces = [
        ("the syphon, with receipts", figures.ours),
        (f"for {figures.destinations:,} destinations", figures.mixed),
        ("the naive loop on the SDK", figures.naive),
        ("the best loop on the SDK", figures.best_sdk),
        ("a plain copy on our AMQP", figures.raw),
        ("the peer", figures.peer),
    ]
    title = (
        f"moving a backlog, bodies of {figures.size:,} bytes, {figures.latency_ms:g} ms added, {figures.rounds} rounds"
    )
    rows = [pace_row(what, pace) for what, pace in paces if pace is not None]
    ratios = [
        ("ours / naive", "ratio_vs_naive", figures.ratio_vs_naive),
        ("ours / best on the SDK", "ratio_vs_best_sdk", figures.ratio_vs_best_sdk),
        ("ours / plain copy", "ratio_vs_raw", figures.ratio_vs_raw),
        ("ours / peer", "ratio_vs_peer", figures.ratio_vs_peer),
        (f"{figures.destinations:,} destinations / one", "ratio_mixed", figures.ratio_mixed),
    ]
    rows += ratio_rows(ratios, figures.targets)
    if figures.size < LARGE:
        cpu = "reached" if figures.ours.cpu_us <= CPU_TARGET_US else "missed"
        rows.append(f"{'our CPU a message':28} {figures.ours.cpu_us:>9.1f} µs  at most {CPU_TARGET_US:g} µs: {cpu}")
    return join_table(title, rows, band_row(figures.aa_low, figures.aa_high, "copy / copy"))


def send_table(figures: SendFigures) -> str:
    """Return the table of `paired bench send`."""
    title = f"sending while healthy, bodies of {figures.size:,} bytes, {figures.latency_ms:g} ms added"
    rows = [
        pace_row("a paired sender", figures.paired),
        pace_row("a plain sender", figures.plain),
        pace_row(f"{figures.callers} callers, one paired sender", figures.paired_callers),
        pace_row(f"{figures.callers} plain senders", figures.plain_callers),
    ]
    ratios = [
        ("paired / plain", "ratio_vs_sdk", figures.ratio_vs_sdk),
        (f"{figures.callers} callers / plain senders", "ratio_callers", figures.ratio_callers),
    ]
    rows += ratio_rows(ratios, figures.targets)
    return join_table(title, rows, band_row(figures.aa_low, figures.aa_high, "plain / plain"))


def pace_row(what: str, pace: Throughput) -> str:
    """Return the row of a rate."""
    return (
        f"{what:28} {pace.per_second:>9,.0f}/s  from {pace.low:,.0f} to {pace.high:,.0f}, "
        f"client {pace.cpu_us:,.1f} µs a message"
    )


def ratio_rows(ratios: Iterable[tuple[str, str, float | None]], targets: Targets) -> list[str]:
    """Return the rows of ratios: label, name of the target, and value; None: no row."""
    rows = []
    for what, name, found in ratios:
        if found is not None:
            row = f"{what:28} {found:>9.2f}"
            if name in targets:
                target, reached = targets[name]
                row += f"    at least {target:g}: {'reached' if reached else 'missed'}"
            rows.append(row)
    return rows


def band_row(low: float, high: float, what: str) -> str:
    """Return the row of the A/A band."""
    return f"{what:28} {low:>9.2f} to {high:.2f}: the ratio of equals in this run"


def join_table(title: str, rows: Iterable[str], last: str) -> str:
    """Return the text of a table. last: its last row; empty: none."""
    return "\n".join([title, *rows, *([last] if last else [])]) + "\n"


Found = TypeVar("Found")
Measured = TypeVar("Measured", bound=Figures)

MAX_BODY_BYTES: Final = 250_000
"""A message of the standard tier holds 256 KB."""
MAX_LATENCY_MS: Final = 1000.0
MAX_DESTINATIONS: Final = 5000


def run_bench_syphon(
    plan: SyphonPlan, config: PairingConfig | None, *, json_line: bool, peer: Peer | None = None
) -> int:
    """Measure the speed of moving a backlog. The exit status is 0 even if a target is missed.

    config: the namespaces; None: sandboxes. peer: another mover to compare. Raises BenchError.
    """
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    if not 1 <= plan.destinations <= MAX_DESTINATIONS:
        raise BenchError(f"--destinations is {plan.destinations}; it must be between 1 and {MAX_DESTINATIONS:,}")
    figures = run_measurement(measure_syphon(plan, config, peer=peer))
    return write_figures("syphon", figures, syphon_table, json_line)


def run_bench_send(plan: SendPlan, config: PairingConfig | None, *, json_line: bool) -> int:
    """Measure the cost of a healthy send; exit status and `config` as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    figures = run_measurement(measure_send(plan, config))
    return write_figures("send", figures, send_table, json_line)


def run_measurement(work: Coroutine[Any, Any, Found]) -> Found:
    """Run a measurement to its end. SIGTERM cancels it and ends its child processes. Raises BenchError."""

    async def main() -> Found:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError as error:
        raise BenchError("the measurement was ended by SIGTERM") from error


def write_figures(bench: str, figures: Measured, table: Callable[[Measured], str], json_line: bool) -> int:
    """Write the figures on standard output; return the exit status."""
    sys.stdout.write(as_json(bench, figures) if json_line else table(figures))
    return 0


def check_plan(messages: int, size: int, latency_ms: float = 0.0, rounds: int = 1) -> None:
    """Raise BenchError for a number that is out of its range."""
    if messages < 1:
        raise BenchError(f"--messages is {messages}; it must be 1 at least")
    if rounds < 1:
        raise BenchError(f"--rounds is {rounds}; it must be 1 at least")
    if not 0 <= size <= MAX_BODY_BYTES:
        raise BenchError(f"--size is {size}; it must be between 0 and {MAX_BODY_BYTES} bytes")
    if not 0 <= latency_ms <= MAX_LATENCY_MS:
        raise BenchError(f"--latency-ms is {latency_ms:g}; it must be between 0 and {MAX_LATENCY_MS:g}")
