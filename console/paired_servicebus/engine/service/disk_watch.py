"""The engine's reaction to journal disk failures: one warning, and the syphon pauses (SPEC.md section 11).

Receipts precede settlements, so no message may be moved without a journal. Sends continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

log = logging.getLogger(__name__)


class DiskWatch:
    """Looks at a journal each time it is asked to.

    Args:
        keep: bytes of the journal that are kept.
        warn: takes a sentence for the timeline.
    """

    def __init__(self, journal: Journal, *, keep: int, warn: Callable[[str], object]) -> None:
        self._journal = journal
        self._keep = keep
        self._warn = warn
        self._was_healthy = True
        self._deletion_said = False
        self._paused_by_us = False

    @property
    def alarm(self) -> str:
        """The current alarm; empty: none."""
        if self._journal.healthy:
            return ""
        return f"the journal is not written ({self._journal.trouble}): {self._journal.lost} events are missing"

    def look(self, paired: PairedServiceBusClient) -> None:
        """Report changes, and pause or resume the syphon of `paired`."""
        self._warn_of_deletion()
        journal, was_healthy = self._journal, self._was_healthy
        self._was_healthy = journal.healthy
        if journal.healthy and not was_healthy:
            self._warn(f"the journal is written again; {journal.lost} events are missing from it")
            if self._paused_by_us:
                self._steer(paired.resume_syphon, "the journal is written again")
            self._paused_by_us = False
        elif not journal.healthy and was_healthy:
            self._warn(f"the journal is not written: {journal.trouble}; sends go on, the syphon waits")
        if not journal.healthy and paired.syphon_view().status not in (SyphonStatus.OFF, SyphonStatus.PAUSED):
            # also if it was resumed meanwhile
            self._paused_by_us = self._steer(paired.pause_syphon, "the journal is not written")

    def _warn_of_deletion(self) -> None:
        """Warn once a boot that old files are deleted, so that the operator can keep more or copy them."""
        if self._journal.deleted and not self._deletion_said:
            self._deletion_said = True
            self._warn(
                f"more than {self._keep:,} bytes: its oldest files are deleted from now on (journal_mb keeps more)"
            )

    def _steer(self, act: Callable[..., str], why: str) -> bool:
        try:
            act(by="the engine", why=why)
        except PairedError as error:  # an operator was faster
            log.info("the syphon is as it was: %s", error)
            return False
        return True
