"""Everything on this machine: two sandbox namespaces, an application, an engine, a scripted outage, and the balance.

`scenarios.py` is data; `application.py` sends and receives and keeps its own lists; `worker.py` is the engine's
process; `command.py` is what the person started. The verdict comes from the application's lists alone.
"""
