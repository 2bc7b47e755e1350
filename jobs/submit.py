"""A job for ``spark-submit``: the same as ``odi-audit run``, in a session that Spark made.

``spark-submit --properties-file conf jobs/submit.py SPEC --lake LAKE [options of odi-audit run]``,
with the conf that ``odi-audit spark-conf --show-secrets`` prints. Owns nothing but the order of two
calls. Must never make a session of its own settings: it takes what ``spark-submit`` was given.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

COMMANDS = "odi_audit.cli.app"


def main(args: list[str]) -> int:
    """Take the session that ``spark-submit`` configured, and run; return the exit status."""
    from pyspark.sql import SparkSession

    # The session is active from here on: the lake's own start finds it, and checks that it fits.
    SparkSession.builder.getOrCreate()
    # By name: the command line is above this layer, and this file is a program like it.
    return int(import_module(COMMANDS).run(["run", *args]))


if __name__ == "__main__":
    # Spark puts this file's folder first on the path: its modules are `jobs.…`, not top-level.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if entry and str(Path(entry).resolve()) != here]
    sys.exit(main(sys.argv[1:]))
