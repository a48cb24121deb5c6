"""The beginning and end of a pairing's alarms and warnings, as remarks in the timeline."""

from __future__ import annotations

from collections.abc import Callable

from paired_servicebus.core.operator.notifications import ALARM, begun


class AlarmChanges:
    """Records changes of the pairing's alarms. The engine's own are recorded at their source."""

    def __init__(self, warn: Callable[[str, str], object]) -> None:
        self._warn = warn
        self._warnings: tuple[str, ...] = ()
        self._alarms: tuple[str, ...] = ()

    def note(self, warnings: tuple[str, ...], alarms: tuple[str, ...]) -> None:
        """Take the current ones; record those that began, and alarms that ended."""
        before, self._warnings = self._warnings, warnings
        for warning in begun(before, warnings):
            self._warn("syphon", warning)
        before, self._alarms = self._alarms, alarms
        for alarm in begun(before, alarms):
            self._warn(ALARM, alarm)
        for alarm in begun(alarms, before):
            self._warn(ALARM, f"over: {alarm}")
