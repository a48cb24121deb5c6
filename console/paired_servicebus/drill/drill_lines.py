"""A drill in words: the question before it, the table after it, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, Final

from paired_servicebus.core.drill.drill_names import MARKER, PREFIX, drill_name
from paired_servicebus.core.drill.drill_plan import DrillPlan
from paired_servicebus.core.drill.drill_report import DrillMeasures, DrillOutcome, TimeRow, time_rows
from paired_servicebus.core.model.policy import times_line
from paired_servicebus.core.text.number_format import duration, plural

WIDTH: Final = 80
LABEL: Final = 11
PRODUCTION: Final = "production"


def question_lines(
    plan: DrillPlan, *, pairing: str, environment: str, primary: str, secondary: str, left: str = ""
) -> list[str]:
    """Return the preview: contents, place, cost and length. primary, secondary: names with hosts."""
    is_production = environment.casefold() == PRODUCTION
    where = f" in {environment.upper() if is_production else environment}" if environment else ""
    policy = plan.policy
    made = ", ".join(f"{part.role} ({part.kind})" for part in plan.parts)
    facts = [
        ("where", f"primary {primary}; secondary {secondary}"),
        ("makes", f"in the primary {PREFIX}ID/…: {made}; in the secondary a {MARKER} queue and "
         f"{plural(policy.backlog_queue_count, 'backlog queue')}; ID is random. All are deleted at the end"),
        ("breaks", "the first is set to SendDisabled, the second is deleted and made again; "
         "the third has to stay healthy"),
        ("spares", "your own entities and messages: nothing of theirs is sent, received or changed. Other engines "
         "do not take part"),
        ("times", f"{times_line(policy)} ({_whose(plan)})"),
        ("takes", f"about {duration(plan.expected_seconds)}, and at most {duration(plan.most_seconds)}"),
        ("costs", f"about {plan.expected_operations:,} billed operations, on both namespaces together; "
         "requests of management are not billed"),
    ]  # fmt: skip
    if plan.left_out:
        facts.append(("leaves out", plan.left_out))
    if left:
        facts.append(("earlier", left))
    head = f"drill of {pairing}{where}: a rehearsed outage"
    warning = ["This is PRODUCTION: both namespaces carry the drill's traffic beside yours."] if is_production else []
    return [head, *warning, *(line for label, text in facts for line in _fact(label, text))]


def _whose(plan: DrillPlan) -> str:
    return "the pairing's own" if plan.configured else "short ones of the drill; --as-configured uses the pairing's own"


def _fact(label: str, text: str) -> list[str]:
    return wrap(f"{label:<{LABEL}}{text}", WIDTH, subsequent_indent=" " * LABEL, break_on_hyphens=False)


def report_lines(plan: DrillPlan, measures: DrillMeasures, broken: tuple[str, ...]) -> list[str]:
    """Return the times beside the promises, the balance, and the verdict."""
    ledger = measures.ledger
    counts = [
        f"{ledger.attempted} sent", f"{ledger.accepted} accepted", f"{measures.diverted} of them by the backlog",
        f"{ledger.delivered} delivered", f"{ledger.lost} lost", f"{ledger.unexpected} unexpected",
        plural(ledger.duplicates, "duplicate"), f"{ledger.out_of_order} out of order",
    ]  # fmt: skip
    pings = [
        f"{one.part.role} {one.pings_refused} refused, {one.pings_accepted} accepted"
        for one in measures.parts
        if one.part.fails
    ]
    return [
        f"{'':<{LABEL}}{'entity':<12}{'took':>8}   promised by SPEC.md section 3",
        *(_time_line(row) for row in time_rows(plan, measures)),
        *_fact("pings", "; ".join(pings)),
        *_fact("messages", ", ".join(counts)),
        *_fact("operations", f"{measures.operations:,} billed, {plan.expected_operations:,} estimated"),
        *_fact("verdict", _verdict(measures, broken)),
        *(line for text in broken for line in _fact("", f"- {text}")),
    ]


def _time_line(row: TimeRow) -> str:
    took = "never" if row.took is None else f"{row.took:.1f} s"
    promise = "no time: as long as the backlog is deep" if row.promise is None else f"within {row.promise:g} s"
    return f"{row.phase:<{LABEL}}{row.role or 'all':<12}{took:>8}   {promise}{'' if row.is_kept else '  BROKEN'}"


def _verdict(measures: DrillMeasures, broken: tuple[str, ...]) -> str:
    kept = f"{plural(len(broken), 'promise')} broken" if broken else "every promise held"
    return f"{measures.ledger.verdict}; {kept}; the drill took {duration(measures.seconds)}"


def as_json(
    run: str,
    plan: DrillPlan,
    outcome: DrillOutcome,
    *,
    pairing: str,
    text: str,
    status: int,
    measures: DrillMeasures | None,
    broken: tuple[str, ...] = (),
) -> str:
    """Return the result as one JSON object; keys are added to and never renamed. Times are seconds."""
    document: dict[str, Any] = {
        "pairing": pairing,
        "drill": drill_name(run),
        "outcome": str(outcome),
        "text": text,
        "exit": status,
        "as_configured": plan.configured,
        "estimated_operations": plan.expected_operations,
    }
    if measures is not None:
        document |= dict(_measured(plan, measures, broken))
    return json.dumps(document)


def _measured(plan: DrillPlan, measures: DrillMeasures, broken: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    ledger = measures.ledger
    names = (
        "attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "dead_lettered", "parked", "lost",
        "unexpected", "duplicates", "out_of_order",
    )  # fmt: skip
    yield "seconds", round(measures.seconds, 1)
    yield "operations", measures.operations
    yield "diverted", measures.diverted
    yield "verdict", ledger.verdict
    yield "broken", list(broken)
    yield "messages", {name: getattr(ledger, name) for name in names}
    yield "lost_ids", list(ledger.lost_ids)
    yield "unexpected_ids", list(ledger.unexpected_ids)
    yield (
        "times",
        [
            {
                "phase": str(row.phase),
                "entity": str(row.role) if row.role is not None else None,
                "took": round(row.took, 3) if row.took is not None else None,
                "promise": row.promise,
                "kept": row.is_kept,
            }
            for row in time_rows(plan, measures)
        ],
    )
    yield (
        "pings",
        {
            str(one.part.role): {"refused": one.pings_refused, "accepted": one.pings_accepted}
            for one in measures.parts
            if one.part.fails
        },
    )
