"""Judges messages from journal records, without SQL: boots of engines, receipts, the audit, verdicts."""
