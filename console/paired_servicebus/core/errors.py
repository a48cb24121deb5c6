"""The one tree of errors. Each text names the event, its place and the remedy; each error is raised `from` its cause.

    PairedError
    ├── ConfigurationError (ValueError)      an invalid pairing.toml or option
    │   └── ConfigurationMissingError        no pairing.toml was named or found
    ├── UnreadableError (ValueError)         foreign bytes in an unexpected form
    │   └── NewerVersionError                a document of a later version than this release reads
    ├── PairingError                         pairing two namespaces failed
    │   ├── SameNamespaceError (ValueError)  primary and secondary are one namespace
    │   ├── BacklogQueueError                no backlog queue could be found or created
    │   ├── NamespaceUnreachableError        a namespace did not answer, or refused the credential
    │   ├── PairedClientError                one client was closed or faulted without its partner
    │   ├── PairingClosedError (ValueError)  the pairing, or the sender, was closed
    │   └── ForeignLoopError (RuntimeError)  the pairing was created in another event loop
    ├── SendError                            the caller still owns its message
    │   ├── BacklogUnavailableError          failed over, and no backlog queue accepted the message
    │   ├── BacklogMessageSizeError (ValueError)  larger than a backlog queue accepts
    │   ├── ImpossibleMessageError (ValueError)   no namespace accepts it
    │   ├── ReservedPropertyError (ValueError)    uses a property of the envelope
    │   └── ScheduledInBacklogError          a sequence number unknown to the primary
    ├── EnvelopeError                        a backlog message with invalid envelope properties
    ├── WireError                            our own AMQP connection failed; carries the AMQP condition
    │   ├── WireUnavailableError             our own AMQP does not support this namespace or client
    │   ├── WireTimeoutError (TimeoutError)  no answer within our own deadline
    │   ├── WireConnectionError              not connected, or disconnected
    │   ├── WireAuthenticationError          no token, or a refused one
    │   ├── WireLinkError                    a link refused or detached
    │   ├── WireOutcomeError                 a message not accepted
    │   └── WireRequestError                 a request refused
    ├── CleanUpError                         an unused backlog queue was not deleted
    ├── RedriveError                         a re-drive of dead letters ended early
    ├── FleetBoardError                      a board of the fleet could not be read, written or created
    ├── MessagesUnknownError                 the messages of a backlog queue cannot be shown
    ├── DrainError                           a drain cannot begin or continue
    ├── DrillError                           a drill cannot be carried out
    ├── PipelineError                        the journal's tables and the programs around them
    │   ├── SparkMissingError                the extra `spark` is not installed
    │   ├── JavaNotFoundError                no Java for Spark
    │   ├── SparkFailedError                 Spark did not start, or failed
    │   ├── PipelineRunningError             another pipeline writes these tables
    │   └── NoTablesError                    no readable tables
    │       └── DamagedTablesError           a damaged manifest: its tables are never overwritten
    ├── IllegalEventError                    an impossible event; the state is unchanged
    └── ControlError                         contacting an engine failed
        ├── EngineNotRunningError            no engine answers there
        ├── EngineRunningError               an engine for this pairing runs already
        ├── EngineStartError                 the engine ended before it was ready
        └── CommandRefusedError              the guard refused a command

Errors of the Service Bus SDK reach the caller unchanged if the caller caused them (SPEC.md section 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PairedError(Exception):
    """The base of every error that this package raises. It pickles with its attributes and notes, without its cause."""

    def __reduce__(self) -> tuple[Callable[..., PairedError], tuple[Any, ...]]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[PairedError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> PairedError:
    """Return a pickled error; its class may want other arguments than the text they became."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class ConfigurationError(PairedError, ValueError):
    """An invalid setting; the text names the setting, its value and the valid values."""


class ConfigurationMissingError(ConfigurationError):
    """No pairing.toml was named or found; the text names the places searched."""


class UnreadableError(PairedError, ValueError):
    """Bytes from a disk or a peer in an unexpected form; the text has the reason and no raw bytes."""


class NewerVersionError(UnreadableError):
    """A document of a later version than this release reads."""


class PairingError(PairedError):
    """Two namespaces could not be paired, or their pairing has ended."""


class SameNamespaceError(PairingError, ValueError):
    """The primary and the secondary are one namespace (SPEC.md section 1)."""


class BacklogQueueError(PairingError):
    """No backlog queue could be found or created (SPEC.md section 4.4)."""


class NamespaceUnreachableError(PairingError):
    """A namespace did not answer in time, or refused the credential, during pairing.

    `is_outage`: it may answer later. Otherwise it refused, or the address or certificate is wrong.
    """

    def __init__(self, text: str, *, is_outage: bool = False) -> None:
        super().__init__(text)
        self.is_outage = is_outage


class PairedClientError(PairingError):
    """One client of the pairing was closed or faulted without its partner (SPEC.md section 9)."""


class PairingClosedError(PairingError, ValueError):
    """The pairing or the sender was closed (SPEC.md section 9). A ValueError, like the SDK's for a closed sender.

    `in_doubt`: the send was under way and may have arrived; otherwise nothing was sent.
    """

    def __init__(self, text: str, *, in_doubt: bool = False) -> None:
        super().__init__(text)
        self.in_doubt = in_doubt


class ForeignLoopError(PairingError, RuntimeError):
    """A paired client or sender was used in another event loop than its own; nothing was sent."""


class SendError(PairedError):
    """A message was not accepted; the caller still owns it."""


class BacklogUnavailableError(SendError):
    """The entity is failed over and no backlog queue took the message in time (SPEC.md section 7.1)."""


class BacklogMessageSizeError(SendError, ValueError):
    """The message in its envelope is larger than a backlog queue accepts (SPEC.md section 7.4)."""

    def __init__(self, *, size: int, limit: int, message_id: str) -> None:
        super().__init__(
            f"message {message_id!r} takes {size} bytes in its backlog envelope, and the backlog queues of the "
            f"secondary namespace accept {limit}: send a smaller body, or pair with a namespace of a larger tier"
        )
        self.size = size
        self.limit = limit


class ImpossibleMessageError(SendError, ValueError):
    """No namespace accepts the message, now or later: change it (SPEC.md section 5)."""

    def __init__(self, *, message_id: str, fault: str) -> None:
        super().__init__(f"message {message_id!r} cannot be delivered: {fault}")
        self.fault = fault


class ReservedPropertyError(SendError, ValueError):
    """The message already carries an application property that the envelope uses (SPEC.md section 7.2)."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the application property {name!r} is reserved for messages parked in a backlog queue: rename it"
        )
        self.name = name


class ScheduledInBacklogError(SendError):
    """A scheduled message is parked in the backlog and cannot be cancelled by number (SPEC.md section 7.5)."""


class EnvelopeError(PairedError):
    """A backlog message with invalid envelope properties; the text names the property and the reason."""


class WireError(PairedError):
    """Our own connection to a namespace, or an operation on it, failed.

    condition: the peer's AMQP condition, which determines the verdict (SPEC.md section 5); None: there was none.
    """

    def __init__(self, description: str, condition: str | None = None) -> None:
        super().__init__(description)
        self.condition = condition


class WireUnavailableError(WireError):
    """Our own AMQP cannot be used here; the SDK's is used instead. The text has the reason."""


class WireTimeoutError(WireError, TimeoutError):
    """The namespace did not answer within our own deadline."""


class WireConnectionError(WireError):
    """The connection to the namespace failed or ended."""


class WireAuthenticationError(WireError):
    """The credential gave no token, or the namespace refused it."""


class WireLinkError(WireError):
    """A link was refused or detached.

    peers_error: the peer's own error, AMQP's composite type, for an owner that passes it on.
    """

    def __init__(self, description: str, condition: str | None = None, *, peers_error: object = None) -> None:
        super().__init__(description, condition)
        self.peers_error = peers_error


class WireOutcomeError(WireError):
    """A message was rejected, released or modified instead of accepted."""


class WireRequestError(WireError):
    """The namespace refused a request; `status` is its HTTP-like number, such as 404."""

    def __init__(self, description: str, condition: str | None = None, *, status: int) -> None:
        super().__init__(description, condition)
        self.status = status


class DrainError(PairedError):
    """A drain cannot begin or continue. Moved messages stay moved; the others remain in the backlog."""


class DrillError(PairedError):
    """A rehearsed outage cannot be carried out, through no fault of the pairing."""


class CleanUpError(PairedError):
    """An unused backlog queue was not deleted; the text has the reason and the queue's state (SPEC.md section 4.3)."""


class RedriveError(PairedError):
    """A re-drive ended early; what it moved stays moved, and the other dead letters stay.

    moved: the number of those put back to work. in_doubt: the sequence numbers of those that may be in the queue too.
    """

    def __init__(self, text: str, *, moved: int = 0, in_doubt: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.moved = moved
        self.in_doubt = in_doubt


class FleetBoardError(PairedError):
    """A board of the fleet could not be read, written, cleaned or created; the pairing continues without it.

    is_busy: the namespace throttles. is_missing: the board's queue does not exist. is_refused: the key lacks a right.
    """

    def __init__(self, text: str, *, is_busy: bool = False, is_missing: bool = False, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_busy = is_busy
        self.is_missing = is_missing
        self.is_refused = is_refused


class PipelineError(PairedError):
    """The tables of a journal could not be written or read."""


class SparkMissingError(PipelineError):
    """Spark is not installed; the text has the install command."""


class JavaNotFoundError(PipelineError):
    """Java for Spark was not found; the text names the places searched."""


class SparkFailedError(PipelineError):
    """Spark did not start, or a job failed; the text has the first line of the reason."""


class PipelineRunningError(PipelineError):
    """Another pipeline writes the same tables."""


class NoTablesError(PipelineError):
    """No tables were found, or their format is unknown."""


class DamagedTablesError(NoTablesError):
    """The tables' manifest is unreadable. The tables may be intact, so only their owner may delete them."""


class IllegalEventError(PairedError):
    """An event that is impossible in the present state. The state is unchanged."""


class MessagesUnknownError(PairedError):
    """The messages of a backlog queue cannot be shown; the text, which begins with "unknown", has the reason."""


class ControlError(PairedError):
    """An engine could not be reached, started or commanded."""


class EngineNotRunningError(ControlError):
    """No engine answers for this pairing."""


class EngineRunningError(ControlError):
    """An engine for this pairing runs already."""


class EngineStartError(ControlError):
    """The engine ended before it was ready; the text has its reason."""


class CommandRefusedError(ControlError):
    """The guard refused a command; the text has the reason."""


def other_format(what: str, found: object, known: int, remedy: str) -> str:
    """Return the sentence about anything that another release made; formats are not converted."""
    return f"{what} has format {found}, and this release has {known}: {remedy}, or use the release that made it"
