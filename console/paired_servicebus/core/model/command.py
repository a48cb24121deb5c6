"""A command of an operator: what is to be done about which targets, by whom and why.

The same value goes from the key, the verb, the control socket or a signed order to its handler.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An operator's command. Without targets in a scope that has some, nothing is selected.

    action_id: an id of paired_servicebus.core.operator.actions.
    scope: the kind of the targets, a value of Scope; empty: the action's first one.
    by: the operator's name for the audit.
    why: the operator's reason; empty: none.
    """

    action_id: str
    scope: str = ""
    targets: tuple[str, ...] = ()
    by: str = ""
    why: str = ""

    @property
    def target(self) -> str:
        """Return the only target; empty: the scope has none."""
        return self.targets[0] if self.targets else ""
