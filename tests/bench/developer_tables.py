"""Tables of the developers' benches, for people."""

from __future__ import annotations

from typing import Final

from paired_servicebus.bench.bench_command import band_row, join_table, ratio_rows
from tests.bench.added_time import AddedTime
from tests.bench.engine_bench import EngineFigures
from tests.bench.failover_bench import FailoverFigures
from tests.bench.flapping_memory import FlappingMemory
from tests.bench.memory_growth import MemoryGrowth
from tests.bench.screen.byte_bench import ByteFigures
from tests.bench.screen.key_bench import ScreenFigures
from tests.bench.spark.drain_bench import DrainFigures
from tests.bench.spark.pipeline_bench import Once, PipelineFigures

_NO_MB: Final = frozenset({"at", "sites", "python_arenas", "python_blocks"})


def drain_table(figures: DrainFigures) -> str:
    """For people."""
    title = (
        f"draining, bodies of {figures.size:,} bytes, {figures.latency_ms:g} ms added, {figures.in_hand} messages of "
        f"each task in hand, {figures.rounds} rounds"
    )
    ratios = [(f"{one.tasks} tasks, of linear", f"of_linear_{one.tasks}", one.of_linear) for one in figures.tasks]
    rows = [f"{f'{one.tasks} tasks':28} {one.per_second:>9,.0f} /s" for one in figures.tasks]
    return "\n".join([title, *rows, *ratio_rows(ratios, figures.targets)]) + "\n"


def engine_table(figures: EngineFigures) -> str:
    """For people."""
    rows = [
        f"{name:>2} consoles   pings late p95 {figures.lateness_p95_ms[name]:6.1f} ms, at most "
        f"{figures.lateness_max_ms[name]:6.1f} ms   sends p50 {figures.send_p50_ms[name]:6.2f} ms  "
        f"p95 {figures.send_p95_ms[name]:6.2f} ms{_times(figures.send_ratio.get(name))}"
        for name in figures.lateness_p95_ms
    ]
    for name, (target, reached) in figures.targets.items():
        rows.append(f"{name:16} at most {target:g}: {'reached' if reached else 'missed'}")
    title = (
        f"an engine with {figures.entities} entities that ping each second, laps of {figures.seconds:g} s, "
        "one of five consoles reads nothing"
    )
    return join_table(title, rows, band_row(figures.aa_low, figures.aa_high, "none / none"))


def screen_table(figures: ScreenFigures) -> str:
    """For people."""
    rows = [
        f"{'first screen':14} {1000 * figures.first_s:7.0f} ms  of its CPU {1000 * figures.first_cpu_s:.0f} ms  "
        f"{figures.first_bytes:,} bytes",
        *(
            f"{name:14} p50 {figures.keys_p50_ms[name]:7.1f} ms  p95 {late:7.1f} ms  "
            f"of its CPU p95 {figures.keys_cpu_p95_ms[name]:6.1f} ms"
            for name, late in figures.keys_p95_ms.items()
        ),
        f"{'for the first time:':20}",
        *(
            f"{name:20}     {late:7.1f} ms                   of its CPU     {figures.firsts_cpu_ms[name]:6.1f} ms"
            for name, late in figures.firsts_ms.items()
        ),
        f"{'loop blocked':14} {figures.loop_own_ms:7.1f} ms by itself, {figures.loop_wall_ms:.1f} ms with the machine, "
        f"at most; longest step {figures.loop_step_ms:.1f} ms, {figures.loop_step}",
        f"{'without keys':14} {figures.bytes_per_second:7.0f} bytes a second",
    ]
    for name, (target, reached) in figures.targets.items():
        rows.append(f"{name:14} at most {target:g}: {'reached' if reached else 'missed'}")
    return join_table(f"the dashboard over an engine with {figures.entities:,} entities, 140x40", rows, "")


def bytes_table(figures: ByteFigures) -> str:
    """For people."""
    rows = [f"{'first paint':22} " + "  ".join(f"{name} {number:,}" for name, number in figures.first_bytes.items())]
    rows += [
        f"{situation:22} " + "  ".join(f"{name} {number:,.0f}/s" for name, number in rates.items())
        for situation, rates in figures.per_second.items()
    ]
    for name, (target, reached) in figures.targets.items():
        rows.append(f"{name:32} at most {target:,g}: {'reached' if reached else 'missed'}")
    title = f"bytes over an engine with {figures.entities} entities, 140x40, each situation for {figures.seconds:g} s"
    return join_table(title, rows, "")


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"  {ratio:.2f} times those without"


def pipeline_table(figures: PipelineFigures) -> str:
    """For people."""

    def row(what: str, found: Once) -> str:
        return (
            f"{what:28} {found.per_second:>9,.0f}/s  {found.events:,} events in {found.tables_s:.1f} s, "
            f"after {found.start_s:.1f} s until Spark stood"
        )

    named = {
        "all tables, --once": figures.large,
        "a tenth of it": figures.small,
        "a tenth, on two executors": figures.cluster,
    }
    rows = [row(what, found) for what, found in named.items() if found is not None]
    if figures.growth is not None:
        rows.append(f"{'an event, large by small':28} {figures.growth:>9.2f}")
    if figures.plain_s is not None and figures.large is not None:
        times = figures.large.tables_s / figures.plain_s
        rows.append(
            f"{'Spark alone':28} {figures.plain_s:>9.1f} s to read it and group it once: {times:.2f} times that"
        )
    if (live := figures.live) is not None:
        rows.append(
            f"{'followed live':28} {live.lag_max_s:>9.1f} s behind at most, {live.lag_median_s:.1f} s usually, "
            f"{live.cores:.2f} cores at {live.events_per_second:,}/s"
        )
    for name, (target, reached) in figures.targets.items():
        rows.append(f"{name:28} {target:>9,g} {'reached' if reached else 'missed'}")
    return "\n".join([f"the pipeline; load of the machine before: {figures.load_average:g}", *rows]) + "\n"


def memory_table(figures: MemoryGrowth) -> str:
    """For people."""
    target, reached = figures.targets["growth_mb"]
    return (
        f"{'growth of our memory':28} {figures.growth_mb:>9.1f} MB in {figures.messages:,} messages, "
        f"at most {target:g}: {'reached' if reached else 'missed'}\n"
    )


def flapping_table(figures: FlappingMemory) -> str:
    """For people: the memory of each engine over time, then the lines that hold most more than when it was warm."""
    idle, is_small = figures.targets["idle_mb"]
    most, is_flat = figures.targets["traced_growth_mb_an_hour"]
    rows = [
        f"{'idle engine':28} {figures.idle_mb:>9.1f} MB, at most {idle:g}: {'reached' if is_small else 'missed'} "
        f"({figures.idle_pss_mb:g} MB proportional; {figures.foreground_mb:g} MB in the foreground)",
        f"{'flapping, resident':28} {figures.flapping_growth_mb_an_hour:>9.2f} MB an hour more, "
        f"{figures.flaps} outages",
        f"{'flapping, objects of Python':28} {figures.traced_growth_mb_an_hour:>9.2f} MB an hour more, "
        f"at most {most:g}: {'reached' if is_flat else 'missed'}",
    ]
    for name, readings in figures.readings.items():
        for one in readings:
            parts = [f"{figure} {value / 1e6:.2f}" for figure, value in one.items() if figure not in _NO_MB]
            rows.append(f"  {name:10} {one['at'] / 60:5.1f} min  {', '.join(parts)} MB")
    sites = figures.readings["traced"][-1].get("sites", ())
    rows += [f"  {one['bytes']:>+9,} bytes, {one['blocks']:>+6,} blocks: {' < '.join(one['at'])}" for one in sites]
    return "\n".join(rows) + "\n"


def added_table(figures: AddedTime) -> str:
    """For people."""
    target, reached = figures.targets["added_us"]
    word = "reached" if reached else "missed"
    return f"{'added to a send, SDK stubbed':28} {figures.added_us:>9.1f} µs  at most {target:g} µs: {word}\n"


def failover_table(figures: FailoverFigures) -> str:
    """For people."""
    rows = [
        f"{'failure known to accepted by the backlog':42} p50 {figures.p50_ms:7.1f} ms  p99 {figures.p99_ms:7.1f} ms",
        f"{'accepted ping to accepted by the primary':42} p50 {figures.back_p50_ms:7.1f} ms  "
        f"p99 {figures.back_p99_ms:7.1f} ms",
    ]
    target, reached = figures.targets["p99_ms"]
    rows.append(f"p99 at most {target:g} ms: {'reached' if reached else 'missed'}")
    title = f"failing over, {figures.senders} senders, {len(figures.over_ms)} rounds, {figures.latency_ms:g} ms added"
    return join_table(title, rows, "")
