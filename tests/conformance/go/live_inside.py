"""One package's live tests within a network of their own: the sandboxes, the variables, the program."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conformance.checking import sandbox_facts
from tests.conformance.go.live import NAMESPACES


def main(program: str, names: str) -> int:
    with sandbox_facts("--config", str(NAMESPACES)) as facts:
        standard, premium = facts["namespaces"]
        keys = ("NoManage", "SendOnly", "ListenOnly")
        by_key = {key: f"SharedAccessKeyName={key};SharedAccessKey={key}" for key in keys}
        endpoint = f"Endpoint=sb://{standard['host']}/"
        environment = {
            "AZURE_RECORD_MODE": "live",
            "SERVICEBUS_ENDPOINT": standard["host"],
            "SERVICEBUS_ENDPOINT_PREMIUM": premium["host"],
            "SERVICEBUS_CONNECTION_STRING": standard["standard_connection_string"],
            "SERVICEBUS_CONNECTION_STRING_PREMIUM": premium["standard_connection_string"],
            "SERVICEBUS_CONNECTION_STRING_NO_MANAGE": f"{endpoint};{by_key['NoManage']}",
            "SERVICEBUS_CONNECTION_STRING_SEND_ONLY": f"{endpoint};{by_key['SendOnly']}",
            "SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY": f"{endpoint};{by_key['ListenOnly']}",
            "SSL_CERT_FILE": facts["ca_file"],
            **facts["identities"][0]["managed_identity"],
        }
        command = [os.environ["GO"], "tool", "test2json", "-t", program]
        command += ["-test.v=test2json", "-test.timeout=15m", f"-test.run=^({names})$"]
        settings = {**os.environ, **environment}
        done = subprocess.run(command, env=settings, cwd=os.environ["PACKAGE"], check=False)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
