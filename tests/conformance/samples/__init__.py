"""A cross-check with Microsoft's sample programs for their emulator, which run unchanged against ours."""
