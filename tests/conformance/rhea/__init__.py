"""A cross-check with clients that are not in Python: rhea, and the JavaScript client for Service Bus on top of it."""
