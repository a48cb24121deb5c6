"""The meaning and unit of every column of the tables: for Spark's column comments, and for the page COLUMNS.md.

`meaning_of` is held equal to schema.py by a test. A unit is empty for names, sentences and yes or no.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.pipeline.table_store.schema import DATED, TABLES, Columns

Meaning = tuple[str, str]
"""A clause and a unit."""

UTC: Final = "UTC, microseconds"
MESSAGES: Final = "messages"
RECORDS: Final = "records"
SENDS: Final = "attempts"
OPERATIONS: Final = "billed operations"
INDEX: Final = "number, from 0"
YES: Final = "yes or no"

ROWS: Final[dict[str, str]] = {
    "events": "a record of a journal, once; a line that cannot be read is a row too, with the problem in trouble",
    "timeline": "an event that is no count and no receipt: changes of state, pings, orders, warnings, engines",
    "engines": "a boot of an engine: its journal, and how it ended",
    "gaps": "records that the numbers of a boot lack",
    "minutes": "a minute of an entity at an engine",
    "failures": "failed attempts of a minute, by entity, route and kind",
    "backlog": "a minute of a backlog queue, as an engine read it",
    "syphon": "a minute of the syphon, by queue and destination",
    "dead_letters": "dead letters of a minute, by queue, destination and reason",
    "cost": "billed operations of a minute, by cause",
    "episodes": "a failover of an entity at an engine, from the first failure to an empty backlog",
    "receipts": "the receipts of a message, summed, for each subscription that reported it",
    "audit": "a message and its fate",
    "verdicts": "the fates, counted: for each entity, each subscription that records, each pairing, and everything",
}
"""The meaning of a row, by table."""

_MEANINGS: Final[dict[str, Meaning]] = {
    # names and places, in several tables
    "pairing": ("the pairing; engines of the same two namespaces have one", ""),
    "entity": ("the queue or topic, by its configured path", ""),
    "engine": ("the engine's name, unique among all hosts", ""),
    "boot": ("the start of the engine that wrote it", ""),
    "message_id": ("the id of the message", ""),
    "subscription": ("the topic's subscription that recorded it; empty: none", ""),
    "stream": ("the unit of order: the session, or a name of the application's own", ""),
    "session": ("the session id", ""),
    "key": ("the gateway's key that the client signed with; null: a sender of the engine's own process", ""),
    "queue": ("the backlog queue", INDEX),
    "minute": ("the begin of the minute", UTC),
    "date": ("the day of the row's time, which chooses the files; 1970-01-01: the row has no time", "UTC day"),
    "reason": ("why, in a sentence", ""),
    "number": ("the sender's own count of the message within its stream, or the number of a ping", "number, from 1"),
    # a record's header
    "v": ("the version of the record's format", "number"),
    "seq": ("the number of the record within its boot; none is left out", "number, from 1"),
    "event_time": ("when it happened, by the clock of the engine's host", UTC),
    "kind": ("the kind of event", ""),
    "trouble": ("the problem of a line that is no record; null: it is one", ""),
    "line": ("the text of such a line, its beginning", ""),
    "file": ("the journal file of such a line", ""),
    # fields of events
    "primary_namespace": ("the primary namespace", ""),
    "secondary_namespace": ("the secondary namespace", ""),
    "backlog_queues": ("the backlog queues that the engine found or made", "queues"),
    "syphon": ("whether the engine moves parked messages home", YES),
    "version": ("the version of the program", ""),
    "was": ("the state before", ""),
    "now": ("the state after", ""),
    "why": ("why, in a sentence: the operator's or ours", ""),
    "operator": ("the operator; empty: the engine by itself", ""),
    "took": ("how long a ping took", "seconds"),
    "throttled": ("whether the namespace was busy", YES),
    "route": ("where a send went: primary, or backlog/N", ""),
    "accepted": ("attempts that were accepted", SENDS),
    "failed": ("attempts that failed", SENDS),
    "seconds": ("the time that a count covers, up to event_time", "seconds"),
    "failure": ("the kind of failure", ""),
    "count": ("how many of them", SENDS),
    "sends": ("operations of sends to the primary", OPERATIONS),
    "parked": ("operations of sends to the backlog", OPERATIONS),
    "pings": ("operations of pings", OPERATIONS),
    "receives": ("operations of the syphon's receives", OPERATIONS),
    "moves": ("operations of the syphon's sends", OPERATIONS),
    "settlements": ("operations of the syphon's settlements", OPERATIONS),
    "sent_bytes": ("bodies sent to the primary", "bytes"),
    "parked_bytes": ("bodies sent to the backlog", "bytes"),
    "moved_bytes": ("whole messages that the syphon moved", "bytes"),
    "depth": ("active messages in the queue", MESSAGES),
    "size_bytes": ("the queue's size, as the namespace counts it", "bytes"),
    "dead_lettered": ("messages in the queue's dead-letter queue", MESSAGES),
    "scheduled": ("messages in the queue that are due later", MESSAGES),
    "is_scheduled": ("whether receivers get the message at a later time", YES),
    "sequence_number": ("the entity's sequence number of the message", "number"),
    "delivery_count": ("earlier deliveries of the same copy; null: unknown", "deliveries"),
    "retry_at": ("when it is tried again", UTC),
    "command": ("an operator's order", ""),
    "target": ("the object of an order: an entity, a queue, a message; empty: everything", ""),
    "command_seq": ("the seq of the order that this is the result of, in the same boot", "number"),
    "outcome": ("the result of an order", ""),
    "destination": ("the destination that a pause of the syphon is for; empty: all", ""),
    "about": ("the object of a warning", ""),
    "text": ("the text of a warning", ""),
    # engines and gaps
    "started_at": ("the time of its engine-started record; null: that record is missing", UTC),
    "engines.first_at": ("the time of its first record", UTC),
    "engines.last_at": ("the time of its last record", UTC),
    "first_seq": ("the first number", "number"),
    "last_seq": ("the last number", "number"),
    "records": ("records that are here", RECORDS),
    "missing": ("records that its numbers lack, the first ones included", RECORDS),
    "complete_to": ("the time of the last record before the first gap; null: the first record is missing", UTC),
    "complete_from": ("the time of the first record after the last gap; null: there is no gap", UTC),
    "ended": ("stopped, restarted, silent, running or retired", ""),
    "ended_at": ("when it ended, if it did", UTC),
    "end_reason": ("why it ended, in a sentence", ""),
    "engines.receives": ("whether it recorded messages that its receivers got", YES),
    "pairing_name": ("the engine's own name of the pairing", ""),
    "predecessor": ("the boot before it, as its journal has it; null: none", ""),
    "predecessor_seq": ("the number of that boot's last record", "number, from 1"),
    "end_known": ("whether its last record is known to be its last", YES),
    "lacks_boot": ("whether the boot before it is not here", YES),
    "retired_at": ("when an operator declared the engine gone for good; null: none did", UTC),
    "retired_why": ("the operator's reason", ""),
    # minutes of sends, pings, queues, the syphon and cost
    "primary_accepted": ("attempts that the primary accepted", SENDS),
    "primary_failed": ("attempts that failed at the primary", SENDS),
    "backlog_accepted": ("attempts that a backlog queue accepted", SENDS),
    "backlog_failed": ("attempts that failed at a backlog queue", SENDS),
    "pings_sent": ("pings that were sent", "pings"),
    "pings_accepted": ("pings that the primary accepted", "pings"),
    "pings_failed": ("pings that were refused, throttled or not answered", "pings"),
    "ping_seconds": ("how long each accepted ping took", "seconds"),
    "availability": ("the share of attempts at the primary that were accepted; null: there was none", "0 to 1"),
    "accepted_share": ("the share of all attempts that were accepted, on either route", "0 to 1"),
    "ping_p50": ("half of the accepted pings took at most this", "seconds"),
    "ping_p95": ("95 of 100 accepted pings took at most this", "seconds"),
    "ping_p99": ("99 of 100 accepted pings took at most this", "seconds"),
    "minutes.last_good_at": ("the begin of the last second in which the primary accepted a send", UTC),
    "backlog.parked": ("messages that the engine parked in the queue in this minute", MESSAGES),
    "read_at": ("the time of the minute's last reading; depth and the columns after it are of that reading", UTC),
    "depth_max": ("the largest depth of the minute", MESSAGES),
    "backlog.bytes": ("the queue's size", "bytes"),
    "slope": ("how fast the depth changed, fitted to the readings", "messages a second"),
    "n": ("readings of the minute, for slope", "readings"),
    "sum_t": ("the sum of the readings' times, from the minute's begin, for slope", "seconds"),
    "sum_d": ("the sum of the readings' depths, for slope", MESSAGES),
    "sum_tt": ("the sum of the squared times, for slope", "seconds squared"),
    "sum_td": ("the sum of times by depths, for slope", "seconds by messages"),
    "moved": ("messages that the destination accepted from the syphon", MESSAGES),
    "retries": ("moves that had to be made again", "moves"),
    "syphon.dead_lettered": ("messages that the syphon dead-lettered", MESSAGES),
    "dead_letters.count": ("messages that the syphon dead-lettered", MESSAGES),
    "cause": ("the cause of the failover, or of the operations", ""),
    "operations": ("operations that the namespaces bill", OPERATIONS),
    "bytes": ("bytes of those operations", "bytes"),
    # episodes
    "id": ("entity@engine@begin, the begin in microseconds; paired report takes it", ""),
    "began_at": ("when it began: the first failure, or the order", UTC),
    "suspected_at": ("the first failure that counted", UTC),
    "failed_over_at": ("when sends began to go to the backlog; null: they never did", UTC),
    "first_ping_at": ("the first ping that the primary accepted", UTC),
    "failed_back_at": ("when sends went to the primary again", UTC),
    "backlog_empty_at": ("when the last of its parked messages was moved or dead-lettered", UTC),
    "episodes.last_at": ("the time of its latest event", UTC),
    "last_good_at": ("the last send that the primary accepted before", UTC),
    "first_diverted_at": ("the first message that a backlog queue accepted", UTC),
    "episodes.outcome": ("open, recovered (no failover), failed back, pinned, engine ended or engine silent", ""),
    "forced": ("whether an operator forced it", YES),
    "episodes.parked": ("messages that this engine parked from its begin to the entity's next one", MESSAGES),
    "episodes.moved": ("of those, messages that are home", MESSAGES),
    "episodes.dead_lettered": ("of those, messages that the syphon dead-lettered", MESSAGES),
    "orders": ("the operators' orders, a JSON list of objects with their time, order, operator and reason", ""),
    # receipts of a message
    "direct": ("times that the primary accepted it directly", "receipts"),
    "diverted": ("times that a backlog queue accepted it", "receipts"),
    "in_doubt": ("attempts without an answer", "receipts"),
    "refused": ("times that its caller was refused", "receipts"),
    "received": ("deliveries to receivers that record", "receipts"),
    "redelivered": ("deliveries of a copy that a receiver had before", "receipts"),
    "receipts.moved": ("times that its destination accepted it from the syphon", "receipts"),
    "audit.moved": ("times that its destination accepted it from the syphon", "receipts"),
    "receipts.dead_lettered": ("times that the syphon dead-lettered it", "receipts"),
    "audit.dead_lettered": ("times that the syphon dead-lettered it", "receipts"),
    "receipts.scheduled": ("1: it was sent for a later time", "0 or 1"),
    "diverted_by": ("the engine that parked it first", ""),
    "diverted_boot": ("that engine's boot", ""),
    "diverted_seq": ("the record's number", "number"),
    "reached_by": ("the engine of its last acceptance by the destination", ""),
    "reached_boot": ("that engine's boot", ""),
    "reached_seq": ("the record's number", "number"),
    "received_by": ("the engine of the receiver that got it first", ""),
    "received_boot": ("that engine's boot", ""),
    "received_seq": ("the record's number", "number"),
    "first_at": ("the first record about it", UTC),
    "accepted_at": ("when a namespace accepted it first: the primary, or a backlog queue", UTC),
    "diverted_at": ("when a backlog queue accepted it first", UTC),
    "moved_at": ("when its destination accepted it from the syphon, the last time", UTC),
    "dead_lettered_at": ("when the syphon dead-lettered it, the last time", UTC),
    "reached_at": ("when its destination accepted it, the last time", UTC),
    "received_at": ("when a receiver got it first", UTC),
    "last_at": ("the last record about it", UTC),
    # the audit and its sums
    "status": ("its fate: delivered, accepted, in flight, parked, dead-lettered, expired, missing, lost, unknown, "
               "refused, in doubt or unexpected", ""),
    "answer": ("the answer to its sender: accepted, in doubt, refused, or never attempted here", ""),
    "duplicates": ("copies beyond the first", "copies"),
    "out_of_order": ("whether a later message of its stream overtook it", YES),
    "dwell": ("how long it was parked", "seconds"),
    "age": ("the time from its acceptance to the judgement; null: its fate is settled", "seconds"),
    "receivers_told": ("whether a receiver of its entity records deliveries", YES),
    "is_shared": ("unknown since the receivers seem to record only a share of the entity", YES),
    "time_to_live": ("the message's own time to live; null: it has the entity's", "seconds"),
    "among_missing": ("on parked messages: how many of its pairing are missing, not known by name", MESSAGES),
    "verdicts.entity": ("the entity; empty: the pairing as a whole", ""),
    "verdicts.subscription": ("the subscription; empty: the entity as a whole", ""),
    "attempted": ("messages that a sender here tried to send", MESSAGES),
    "verdicts.accepted": ("messages that a namespace accepted", MESSAGES),
    "verdicts.refused": ("messages refused to their callers", MESSAGES),
    "verdicts.in_doubt": ("messages with no answer to their last attempt", MESSAGES),
    "recovered": ("messages in doubt that arrived all the same", MESSAGES),
    "reached": ("messages that their destination accepted, directly or from the backlog", MESSAGES),
    "delivered": ("messages that a receiver got", MESSAGES),
    "verdicts.dead_lettered": ("messages that the syphon dead-lettered", MESSAGES),
    "verdicts.parked": ("messages in the backlog", MESSAGES),
    "in_flight": ("messages accepted, and not received yet", MESSAGES),
    "verdicts.missing": ("messages parked by their receipts, that no backlog queue holds", MESSAGES),
    "lost": ("messages accepted, and neither received nor in the backlog, by complete journals", MESSAGES),
    "unknown": ("messages of a fate that cannot be known, for a reason in audit", MESSAGES),
    "unexpected": ("messages received, and by the senders of these journals not accepted", MESSAGES),
    "unsent": ("messages received from senders without a journal here", MESSAGES),
    "verdicts.duplicates": ("copies beyond the first", "copies"),
    "verdicts.out_of_order": ("messages that a later one of their stream overtook", MESSAGES),
    "verdicts.direct": ("messages that the primary accepted directly", MESSAGES),
    "verdicts.diverted": ("messages that a backlog queue accepted", MESSAGES),
    "home": ("of those, messages that their destination accepted from the syphon", MESSAGES),
    "unconfirmed": ("messages that their destination accepted, and of which no receiver keeps a record", MESSAGES),
    "in_flight_age": ("the age of the oldest message in flight", "seconds"),
    "verdicts.receivers_told": ("whether a receiver records deliveries", YES),
    "journals": ("journals of engines", "journals"),
    "journals_complete": ("journals without a gap that are not behind", "journals"),
    "verdicts.complete_to": ("the time to which the complete journals go", UTC),
    "judged_at": ("the time of the judgement", UTC),
    "expired": ("their time to live ended before a receiver got to them", MESSAGES),
    "finding": ("lost, unknown, not recorded, not delivered, accepted, open or nothing lost", ""),
    "rests_on": ("the grounds of the verdict, in sentences", ""),
}  # fmt: skip
"""By column, or by table.column where a table means another thing by it."""


def meaning_of(table: str, column: str) -> Meaning:
    """Return the meaning and the unit of a column. Raises KeyError: it has none."""
    return _MEANINGS.get(f"{table}.{column}") or _MEANINGS[column]


def columns_page() -> str:
    """Return the page with every table's columns, their types, meanings and units, as Markdown."""
    parts = [_HEAD]
    for table, columns in TABLES.items():
        parts.append(f"## {table}\n\nA row is {ROWS[table]}.\n\n| column | type | meaning | unit |\n|---|---|---|---|")
        parts.append("\n".join(_line(table, name, kind) for name, kind in _with_date(table, columns).items()) + "\n")
    return "\n".join(parts)


def _with_date(table: str, columns: Columns) -> Columns:
    return columns | {"date": "DATE"} if table in DATED else columns


def _line(table: str, column: str, kind: str) -> str:
    meaning, unit = meaning_of(table, column)
    return f"| `{column}` | {kind} | {meaning} | {unit} |"


_HEAD: Final = """# The columns of the tables

This page is for whoever queries the tables that [the data pipeline](README.md) makes. It is made from the schema
(`.venv/bin/pytest tests/pipeline/test_column_meanings.py --approve`), and a test holds both equal.

Times are instants in UTC. Null means unknown, or not yet. A state, a kind or an outcome is a word of the journal.
"""
