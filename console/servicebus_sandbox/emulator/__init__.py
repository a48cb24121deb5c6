"""The sandbox in place of Microsoft's Service Bus emulator: its ports, its key and its configuration file.

`config_file` reads `config.json` with `json_place`, `administration` serves HTTP, `emulator_host` starts both ports,
`emulator_command` is the process.
"""
