"""How the work of `--once` is spread over two workers: `python -m tests.bench.spark.stage_times [EVENTS]`.

Prints the longest stages of a run on a loopback cluster, each with its tasks by executor: how many, and their seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

from paired_servicebus.pipeline.spark_processes import PipelineOrder, start_pipeline
from tests.bench.spark.loopback_cluster import SETTINGS, cluster
from tests.bench.spark.synthetic_journal import write_journal

EVENTS: Final = 300_000
LONGEST: Final = 6
LONG: Final = 1800.0
Tasks = dict[tuple[int, str], dict[str, list[float]]]


def main(events: int) -> int:
    with tempfile.TemporaryDirectory(prefix="paired-stages-") as name:
        folder = Path(name)
        for one in ("daemons", "log"):
            (folder / one).mkdir()
        write_journal(folder / "journal", events)
        logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(folder / "log")}
        with cluster(folder / "daemons", workers=2) as standing:
            order = PipelineOrder(
                journals=(folder / "journal",), tables=folder / "tables", once=True, master=standing.master,
                settings={**SETTINGS, **logged},
            )  # fmt: skip
            pipeline = start_pipeline(order)
            try:
                if pipeline.wait(LONG) != 0:
                    raise SystemExit(pipeline.trouble())
            finally:
                pipeline.stop()
        print("\n".join(longest(tasks_of(folder / "log"))))
    return 0


def tasks_of(folder: Path) -> Tasks:
    """The seconds of each stage's tasks, by executor."""
    names: dict[int, str] = {}
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageCompleted":
                names[event["Stage Info"]["Stage ID"]] = event["Stage Info"]["Stage Name"]
            elif event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                took = (info["Finish Time"] - info["Launch Time"]) / 1000
                found[event["Stage ID"]][info["Executor ID"]].append(took)
    return {(stage, names.get(stage, "")): dict(tasks) for stage, tasks in found.items()}


def longest(tasks: Tasks) -> list[str]:
    """The longest stages as lines."""
    order = sorted(tasks.items(), key=lambda one: -sum(map(sum, one[1].values())))
    lines = []
    for (stage, name), by_executor in order[:LONGEST]:
        spread = "; ".join(
            f"executor {one}: {len(took)} tasks, {sum(took):.1f} s, median {median(took):.2f}, longest {max(took):.2f}"
            for one, took in sorted(by_executor.items())
        )
        lines.append(f"stage {stage} {name}: {spread}")
    return lines


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS))
