"""The readiness page: what `paired check` prints, on the screen."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.readiness_screen import ReadinessScreen

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
        assert "✗ no, 1 obstacle, 1 warning, 2 unknown · checked" in seen
        for number, verdict in enumerate(("ok", "unknown", "warn", "no")):
            assert f"{verdict:<9}finding {number}" in seen
            assert f"end-of-{verdict}" in seen, "nothing is cut"
        assert "ago" in seen
        assert "do: raise backlog_queue_count" in seen
        assert "finding 1 · not examined" in seen
        assert "last drill · not examined" in seen
        assert "this engine is too old to report it" in seen
        assert "\x1b[2J" not in seen


async def test_the_worst_comes_first_and_escape_leads_back(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(readiness=readiness(made))) as console:
        await console.press(KEY)
        screen = console.screen()
        assert screen.index("finding 3") < screen.index("finding 2") < screen.index("finding 1")
        await console.press("escape")
        assert isinstance(console.app.screen, DashboardScreen)


async def test_what_was_not_checked_is_unknown(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(readiness=None)) as console:
        await console.press(KEY)
        assert isinstance(console.app.screen, ReadinessScreen)
        assert "unknown: this engine has not checked it" in console.screen()


async def test_old_findings_of_a_lost_engine_are_said_to_be_old(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(readiness=readiness(made))) as console:
        console.feed.lose()
        await console.press(KEY)
        assert "the engine is unreachable since" in console.screen()
        assert "these findings are old" in console.screen()
