"""The fleet's rules: documents on two boards, who is there, which orders count, and what an engine does about it."""
