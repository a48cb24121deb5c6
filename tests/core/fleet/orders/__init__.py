"""Tests of paired_servicebus.core.fleet.orders."""
