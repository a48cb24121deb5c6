"""Judges messages by their receipts: the SQL of receipts, audit and verdicts (SPEC.md section 11)."""
