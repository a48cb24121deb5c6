"""What one engine owns on this machine: its name, files, lock, log, socket permissions and background tasks."""
