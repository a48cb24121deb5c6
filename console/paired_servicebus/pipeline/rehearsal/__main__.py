"""The process that runs a rehearsal on Spark: its one argument is the folder that the order stands in. It ends with its
standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paired_servicebus.pipeline.rehearsal.spread import main
from paired_servicebus.pipeline.starter import when_gone

os.nice(10)  # engines and people first
when_gone(lambda: None, within=0.0)
sys.exit(main(Path(sys.argv[1])))
