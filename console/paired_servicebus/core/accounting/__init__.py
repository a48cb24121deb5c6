"""The counts: billed operations, the ledger of message ids, refused calls."""
