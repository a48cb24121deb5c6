"""Message queues: intake, delivery, locks, sessions, schedules, duplicates, forwarding."""
