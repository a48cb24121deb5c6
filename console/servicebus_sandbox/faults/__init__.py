"""Faults of a namespace as data, and the verdict on each event of a server.

Not here: the servers of connections, links and requests carry verdicts out.
"""

from servicebus_sandbox.faults.fault_board import CaseKey, FaultBoard
from servicebus_sandbox.faults.fault_terms import (
    UNKNOWN_CALLER,
    Caller,
    ConnectionVerdict,
    Direction,
    Fault,
    FaultError,
    FaultKind,
    FaultTerms,
    FaultVerdict,
    InjectionPoint,
    Operation,
)

__all__ = [
    "UNKNOWN_CALLER",
    "Caller",
    "CaseKey",
    "ConnectionVerdict",
    "Direction",
    "Fault",
    "FaultBoard",
    "FaultError",
    "FaultKind",
    "FaultTerms",
    "FaultVerdict",
    "InjectionPoint",
    "Operation",
]
