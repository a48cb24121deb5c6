"""Management over Atom beside recorded answers of the service: facts of public recordings, no bodies."""
