"""An application that sends and receives over a paired client, and keeps its own account of it."""
