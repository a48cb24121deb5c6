"""What is broken in a namespace, as data, and the verdict on each moment that somebody serves.

    table   what each kind does at which moment
    terms   one fault: its kind, whom it concerns, how far it goes
    board   the faults in force, and who asks them
    orders  faults as JSON, for the control URL

Nothing here acts: carrying a verdict out belongs to those who serve connections, links and requests.
"""

from servicebus_sandbox.faults.fault_board import CaseKey, FaultBoard
from servicebus_sandbox.faults.fault_table import (
    ConnectionVerdict,
    Direction,
    FaultKind,
    FaultVerdict,
    InjectionPoint,
    Operation,
)
from servicebus_sandbox.faults.fault_terms import Fault, FaultError, FaultTerms

__all__ = [
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
