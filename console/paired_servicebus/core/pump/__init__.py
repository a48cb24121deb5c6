"""What a pump may deliver: circuits per destination, the syphon's rate limit, pauses."""
