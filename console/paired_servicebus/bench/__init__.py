"""The measurements of `paired bench`: the project's speed on this machine, beside its targets.

Only the command line imports this package. Every figure is measured in the run that prints it; a projection is marked.
Clients here use the project's own AMQP, so that they add little cost to a measurement.
"""
