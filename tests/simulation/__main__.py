"""The shipped rules in a simulated world: `python -m tests.simulation [--fleet]`, from the project's root.

--seeds runs the seeds 1 to that number and searches for every planted bug; --seed replays one seed, with its trace if
it breaks a rule. Exit status: 1 when a rule was broken or a planted bug was not caught, 2 for a wrong option.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.printing import report_error
from tests.simulation.simulate_command import run_simulation


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one campaign; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="the seeds 1 to this number, and every planted bug")
    parser.add_argument("--seed", type=int, help="only this seed, with its trace if it breaks a rule")
    parser.add_argument("--fleet", action="store_true", help="the rules of the fleet: engines, boards, orders")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of sentences")
    given = parser.parse_args(arguments)
    world = "fleet" if given.fleet else "pairing"
    try:
        return run_simulation(world, seeds=given.seeds, seed=given.seed, json_line=given.json)
    except ConfigurationError as error:
        return report_error(str(error))


if __name__ == "__main__":
    sys.exit(main())
