"""`python -m tests.bench sandbox`: ingest, moves, memory, idle links and round trips of the sandbox under load."""
