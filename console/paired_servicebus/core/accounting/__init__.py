"""What is counted: billed operations, the ledger of message ids, refused calls."""
