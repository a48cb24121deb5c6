"""The sandbox in place of Microsoft's Service Bus emulator: its ports, its key and its configuration file.

`config_file` reads `config.json`, `emulator_host` starts both ports, also as a process.
"""
