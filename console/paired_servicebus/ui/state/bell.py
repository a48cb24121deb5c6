"""When the terminal's bell rings: for notifications (core.operator.notifications), and when the engine is lost.

Only two views are compared, so that a replayed history rings for nothing.
"""

from __future__ import annotations

from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.notifications import begun, turned
from paired_servicebus.ui.state.view import EngineLink, View


def should_ring(before: View, after: View) -> bool:
    """Return whether the operator needs to be alerted to the difference."""
    if after.link is EngineLink.UNREACHABLE and before.link in (EngineLink.LIVE, EngineLink.SILENT):
        return True
    was, now = before.snapshot, after.snapshot
    return was is not None and now is not None and was is not now and _calls(was, now)


def _calls(was: Snapshot, now: Snapshot) -> bool:
    states = {entity.path: entity.state for entity in was.entities}
    return (
        any(turned(states.get(entity.path, entity.state), entity.state) for entity in now.entities)
        or bool(begun(was.alarms, now.alarms))
        or bool(begun(now.alarms, was.alarms))
    )
