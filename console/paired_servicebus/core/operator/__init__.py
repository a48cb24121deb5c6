"""What an operator reads and orders: why-lines, outlook, readiness, alarms, the table of actions."""
