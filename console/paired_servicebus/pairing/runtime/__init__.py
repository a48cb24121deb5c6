"""The asyncio shell around the pure machine: runtime, tasks, deadlines, log and the watch over the SDK's clients."""
