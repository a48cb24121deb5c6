"""A large backlog moved by the syphon's own pumps in many processes: bounded tasks, in waves, on a Spark cluster.

command    what the person started: looks first, shows how far it is, moves receipts into the journal
process    the process that holds Spark
waves      which tasks there are to be, and when a queue counts as drained
task       one pump within bounds, where an executor runs it
receipts   the journal of a task, that survives its being killed
order      what all of these say to each other
bar        the terminal's
"""
