"""The demo: two sandbox namespaces, an application, an engine, a scripted outage, and the balance, on this machine.

The verdict uses only the lists of the application (workload).
"""
