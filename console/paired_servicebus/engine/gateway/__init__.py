"""The gateway: a namespace on loopback whose senders go through the pairing, for clients of any language.

Receivers and other management are relayed to the primary one to one. Not here: sends themselves (pairing.sending).
"""
