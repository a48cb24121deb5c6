"""`paired drill`: a rehearsed outage on the owner's namespaces, with entities that it makes and deletes."""
