"""The process of a rehearsal on Spark: its argument is the order's folder. It ends with its standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paired_servicebus.pipeline.processes.parent_watch import watch_parent
from paired_servicebus.pipeline.rehearsal.spark_tasks import main

os.nice(10)  # engines and people first
watch_parent(lambda: None, within=0.0)
sys.exit(main(Path(sys.argv[1])))
