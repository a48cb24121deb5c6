"""The process that runs a rehearsal on Spark: its one argument is the folder that the order stands in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from console.pipeline.rehearsal.spread import main

os.nice(10)  # engines and people first
sys.exit(main(Path(sys.argv[1])))
