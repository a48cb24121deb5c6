"""What `paired bench` measures: the project's own speed, on this machine, beside what it should be.

Known by the command line alone. Every figure is measured in the run that prints it; what is extrapolated says so.
Clients here speak the project's own AMQP, so that they cost little beside what they measure.
"""
