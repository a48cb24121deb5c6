"""What a pairing asks of a namespace's management, by Atom or ARM; its backlog queues are found, made and counted here."""
