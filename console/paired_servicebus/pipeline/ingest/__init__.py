"""From journal files to tables: the streaming queries and every step of a batch."""
