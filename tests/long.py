"""The proofs that take too long for every change: `python -m tests.long [NAME ...]`; `--list` names them.

Each is a command of its own, run as it stands here, one after the other. Prints what each printed last and how long it
took. Exit status: 0 when all passed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from typing import Final

PROOFS: Final[dict[str, str]] = {
    "audits": "-m pytest -q -n 2 tests/pipeline/test_demo_audit.py",
    "chaos": "-m tests.stage chaos --minutes 20",
    "cluster-drain": "-m pytest -q -n 0 tests/pipeline/test_cluster_drain.py",
    "cluster-pipeline": "-m pytest -q -n 0 tests/pipeline/test_cluster_pipeline.py",
    "cluster-rehearsal": "-m pytest -q -n 0 tests/pipeline/test_cluster_rehearsal.py",
    "conformance": "-m tests.conformance",
    "conformance-gateway": "-m tests.conformance --gateway",
    "drill": "-m tests.stage drill-kills --minutes 10",
    "fleet": "-m tests.stage fleet",
    "fleet-simulation": "-m tests.simulation --fleet --seeds 20000",
    "frameworks": "-m tests.conformance.frameworks",
    "fuzz": "-m pytest -q -n 0 tests/sandbox/test_fuzz.py",
    "gateway": "-m tests.stage languages",
    "gateway-chaos": "-m tests.stage gateway-chaos --minutes 30",
    "gateway-fuzz": "-m pytest -q -n 0 tests/engine/gateway/test_gateway_fuzz.py",
    "gateway-go": "-m tests.conformance.go --gateway all",
    "gateway-java": "-m tests.conformance.java --gateway all",
    "gateway-javascript": "-m tests.conformance.rhea --gateway",
    "connect": "-m pytest -q -n 0 tests/pipeline/test_connect.py",
    "delta": "-m pytest -q -n 0 tests/pipeline/test_session_delta.py",
    "installed-size": "-m tests.installed_size",
    "cases": "-m pytest -q -n 4 -m long",
    "journal-fuzz": "-m pytest -q -n 0 tests/pipeline/test_journal_lines.py",
    "pipeline-kills": "-m pytest -q -n 0 tests/pipeline/test_pipeline_kills.py",
    "poison": "-m tests.stage fuzz-poison --minutes 10",
    "python-versions": "-m tests.conformance.python_versions",
    "rehearsed": "-m tests.pipeline.rehearsed",
    "s3-store": "-m pytest -q -n 0 tests/pipeline/test_s3_store.py",
    "samples": "-m tests.conformance.samples",
    "runbooks": "-m tests.stage runbook",
    "shipping": "-m pytest -q -n 0 tests/pipeline/test_shipping.py",
    "slow-receivers": "-m pytest -q -n 0 tests/pipeline/test_slow_receivers.py",
    "two-engines": "-m tests.stage two-engines --runs 3",
    "verify": "-m tests.stage verify-kills --minutes 8",
}
"""By name: what Python runs."""
SETTINGS: Final = {"PAIRED_FUZZ_SECONDS": "600", "PAIRED_SEEDS": "50", "PAIRED_SPARK": "all"}
LAST: Final = 5
"""Lines of each of a proof's outputs that are repeated at its end."""


def main(names: list[str]) -> int:
    if names == ["--list"]:
        print("\n".join(f"{name}: python {command}" for name, command in PROOFS.items()))
        return 0
    unknown = [name for name in names if name not in PROOFS]
    if unknown:
        print(f"there is no proof {unknown[0]!r}; there are {', '.join(PROOFS)}", file=sys.stderr)
        return 2
    failed = [name for name in names or PROOFS if not prove(name)]
    print(f"{len(names or PROOFS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def prove(name: str) -> bool:
    """Run one; whether it passed."""
    began = time.monotonic()
    command = [sys.executable, *shlex.split(PROOFS[name])]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **SETTINGS})
    verdict = "passed" if ran.returncode == 0 else f"FAILED with status {ran.returncode}"
    print(f"{name} {verdict} after {time.monotonic() - began:.0f} s")
    for line in (*ran.stdout.splitlines()[-LAST:], *ran.stderr.splitlines()[-LAST:]):
        print(f"    {line}", flush=True)
    return ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
