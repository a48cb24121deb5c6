"""The way of a send: paired sender, links to the primary and the backlog, pings."""
