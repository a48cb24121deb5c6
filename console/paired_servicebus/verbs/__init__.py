"""The verbs of the command line that come in kinds: orders, what Spark does, measurements; paired_servicebus.cli has the rest.

A verb reads the command line and hands over: what it does is done elsewhere, and imported when it is asked for.
"""
