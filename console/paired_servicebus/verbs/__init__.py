"""Groups of verbs of the command line: orders, Spark, measurements; paired_servicebus.cli has the rest.

A verb parses the command line and calls an implementation, imported on demand.
"""
