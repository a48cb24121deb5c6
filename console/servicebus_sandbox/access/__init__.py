"""Authorization: tokens of both kinds, their proof, and the access of a connection.

Not here: rules and rights (broker); receiving tokens and choosing the required right (the servers).
"""
