"""The limits on a pump's deliveries: circuits per destination, the syphon's rate limit, pauses."""
