"""Two engines with a syphon each on one backlog, through an outage: neither may call the syphon stuck."""
