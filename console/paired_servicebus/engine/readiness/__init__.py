"""Whether a failover would work now: the periodic check, `paired check`, and evidence from other local engines."""
