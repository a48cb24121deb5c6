"""AMQP values, described types, frames and message sections to bytes and back; no state."""
