"""Operators' commands: arming, permission, audit, execution, and the orders that outlive an engine."""
