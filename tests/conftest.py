"""What holds for all tests: a busy machine is no failure, so hypothesis judges no speed; signals mean what they mean to
a person's processes, though whoever started the tests ignores them, as nohup and a shell's background do.

PAIRED_EXAMPLES=N has hypothesis try N examples of everything, which `.ci/run` does among the slower proofs.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("PAIRED_EXAMPLES", "60")),
)
settings.load_profile("any machine")
os.environ.pop("SUDO_USER", None)  # the audit would name whoever started the tests

for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
