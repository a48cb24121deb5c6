"""The rules of a rehearsed outage: its names, its plan and cost, its times beside the promises, the last one's end."""
