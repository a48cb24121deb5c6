"""Output of figures: one JSON object for programs, rows for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

import msgspec

from paired_servicebus.bench.failover_bench import FailoverFigures
from paired_servicebus.bench.rounds import Throughput
from paired_servicebus.bench.sandbox.sandbox_figures import TARGET_SIZE, LoadRate, SandboxFigures
from paired_servicebus.bench.send_bench import SendFigures
from paired_servicebus.bench.syphon.syphon_bench import CPU_TARGET_US, LARGE, SyphonFigures

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
    if figures.memory is not None:
        target, reached = figures.targets["memory_growth_mb"]
        rows.append(
            f"{'growth of our memory':28} {figures.memory.growth_mb:>9.1f} MB in {figures.memory.messages:,} messages, "
            f"at most {target:g}: {'reached' if reached else 'missed'}"
        )
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
    target, reached = figures.targets["added_us"]
    word = "reached" if reached else "missed"
    rows.append(f"{'added to a send, SDK stubbed':28} {figures.added_us:>9.1f} µs  at most {target:g} µs: {word}")
    return join_table(title, rows, band_row(figures.aa_low, figures.aa_high, "plain / plain"))


def failover_table(figures: FailoverFigures) -> str:
    """Return the table of `paired bench failover`."""
    rows = [
        f"{'failure known to accepted by the backlog':42} p50 {figures.p50_ms:7.1f} ms  p99 {figures.p99_ms:7.1f} ms",
        f"{'accepted ping to accepted by the primary':42} p50 {figures.back_p50_ms:7.1f} ms  "
        f"p99 {figures.back_p99_ms:7.1f} ms",
    ]
    target, reached = figures.targets["p99_ms"]
    rows.append(f"p99 at most {target:g} ms: {'reached' if reached else 'missed'}")
    title = f"failing over, {figures.senders} senders, {len(figures.over_ms)} rounds, {figures.latency_ms:g} ms added"
    return join_table(title, rows, "")


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


def sandbox_json(figures: SandboxFigures) -> str:
    """Return one line; each part holds its target."""
    return msgspec.json.encode({"bench": "sandbox", **asdict(figures), "reached": figures.reached}).decode() + "\n"


def sandbox_table(figures: SandboxFigures) -> str:
    """Return the table of `paired bench sandbox`."""
    held, idle, trip, throttled = figures.held, figures.idle, figures.round_trip, figures.throttled
    gigabytes = f"{held.million_bytes / 1e9:.2f} GB{' (projected)' if held.is_projected else ''}"
    rows = [
        _rate("ingest", figures.ingest),
        _rate("moves", figures.move),
        ("a million held", gigabytes, f"at most {held.target / 1e9:g} GB", held.reached, f"{held.messages:,} measured"),
        (
            f"{idle.links:,} idle links",
            f"{100 * idle.cpu_share:.2f} % of a core",
            f"under {100 * idle.target:g} %",
            idle.reached,
            f"over {idle.seconds:g} s",
        ),
        (
            "round trip in a flood",
            f"p99 {trip.p99_ms:.1f} ms",
            f"at most {trip.target:g} ms",
            trip.reached,
            f"p50 {trip.p50_ms:.1f} ms, {trip.flood_per_second:,.0f}/s beside",
        ),
        (
            "with credits",
            f"{throttled.received_per_second:,.0f}/s received",
            f"{throttled.target:,}/s ± 5 %",
            throttled.reached,
            f"{throttled.sent_per_second:,.0f}/s sent",
        ),
    ]
    lines = [
        f"{what:22} {found:26} {target:18} {'reached' if reached else 'missed':8} {more}"
        for what, found, target, reached, more in rows
    ]
    meant = "" if figures.size == TARGET_SIZE else f"; the targets are meant for {TARGET_SIZE:,}"
    return "\n".join([f"the sandbox, bodies of {figures.size:,} bytes{meant}", *lines]) + "\n"


def _rate(what: str, rate: LoadRate) -> tuple[str, str, str, bool, str]:
    share = f"it ran {100 * rate.server_share:.0f} % of the time"
    more = f"CPU a message: {rate.server_us:.1f} µs, client {rate.client_us:.1f} µs; {share}"
    return what, f"{rate.per_second:,.0f}/s", f"at least {rate.target:,.0f}/s", rate.reached, more
