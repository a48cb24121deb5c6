"""The scenario any-language: senders in four languages that know nothing but a connection string."""
