"""The benches of the dashboard: keys and start (key_bench.py), and bytes (byte_bench.py)."""
