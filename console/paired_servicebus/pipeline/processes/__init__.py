"""Starts and ends the processes that run Spark; loads no Spark itself."""
