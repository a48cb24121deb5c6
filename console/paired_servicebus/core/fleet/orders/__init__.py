"""The rules of orders: which order counts, what stands, and who answered. Pure; every time is the namespace's."""
