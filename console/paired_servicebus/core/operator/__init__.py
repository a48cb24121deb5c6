"""The operator's view: why-lines, outlook, readiness, alarms, and the table of actions with its previews and checks."""
