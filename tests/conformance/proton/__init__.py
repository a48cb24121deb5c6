"""A cross-check with Apache Qpid Proton: AMQP 1.0 in C, written by others, under Python."""
