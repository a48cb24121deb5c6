"""A command of an operator: what is to be done about which targets, by whom and why.

The same value goes from the key, the verb, the control socket or a signed order to its handler.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An operator's command.

    action_id: an id of paired_servicebus.core.operator.actions.
    scope: the kind of the targets, a value of Scope.
    by: the operator's name for the audit.
    why: his reason, in his own words; empty: none.
    """

    action_id: str
    scope: str
    targets: tuple[str, ...] = ()
    by: str = ""
    why: str = ""
