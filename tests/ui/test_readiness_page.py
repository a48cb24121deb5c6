"""The readiness page: what `paired check` prints, on the screen."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness
from paired_servicebus.ui.screens.pages import DashboardScreen

KEY = "exclamation_mark"


def readiness(made: Any) -> Readiness:
    """One finding of each verdict, the worst last."""
    verdicts = (FindingVerdict.OK, FindingVerdict.UNKNOWN, FindingVerdict.WARN, FindingVerdict.NO)
    return Readiness(
        at=made.AT - 12,
        findings=tuple(
            Finding(
                what=f"finding {number}",
                verdict=verdict,
                evidence=f"what is seen of it \x1b[2J, {'in many words, ' * 6}end-of-{verdict}",
                read_at=made.AT - 75 if verdict is not FindingVerdict.UNKNOWN else None,
                todo="raise backlog_queue_count" if verdict is FindingVerdict.WARN else "",
            )
            for number, verdict in enumerate(verdicts)
        ),
    )


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (140, 40)])
async def test_each_finding_has_verdict_evidence_age_and_remedy(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(made.snapshot(readiness=readiness(made)), size=size) as console:
        await console.press(KEY)
        seen = console.screen()
        for _ in range(10):
            await console.press("down", "down", "down")
            seen += console.screen()
        assert "1 obstacle" in seen
        for number, verdict in enumerate(("ok", "unknown", "warn", "no")):
            assert f"{verdict:<9}finding {number}" in seen
            assert f"end-of-{verdict}" in seen, "nothing is cut"
        assert "ago" in seen
        assert "do: raise" in seen
        assert "not examined" in seen
        assert "\x1b[2J" not in seen


async def test_the_worst_comes_first_and_escape_leads_back(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(readiness=readiness(made))) as console:
        await console.press(KEY)
        screen = console.screen()
        assert screen.index("finding 3") < screen.index("finding 2") < screen.index("finding 1")
        await console.press("escape")
        assert isinstance(console.app.screen, DashboardScreen)
