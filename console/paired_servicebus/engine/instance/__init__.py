"""The resources of one engine on this machine: name, files, lock, log, socket permissions and background tasks."""
