"""Who may do what: tokens of both kinds, what they prove, and what a connection has proved so far.

    tokens         what a token of either kind comes down to, or why it is refused
    sas, issuer    shared access signatures; bearer tokens, in the place of Microsoft Entra ID
    authorization  the judge of one namespace: rules, keys and roles against an audience
    addresses      audiences and link addresses, brought down to the path of an entity
    grants         what one connection has shown
    credentials    bearer tokens fetched for the SDK's clients in tests

Not here: rules and rights themselves, which are the broker's; how a token comes in and which right an act needs, which
is the business of those who serve it.
"""
