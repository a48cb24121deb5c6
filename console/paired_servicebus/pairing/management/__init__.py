"""Management of a namespace by Atom or ARM: a pairing's backlog queues are found, created and counted here."""
