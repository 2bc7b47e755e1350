"""The run that the demo kills: the main job, stopped when all is staged and nothing published.

Owns the stop: it writes a marker file and waits for the SIGKILL. Must never get past it: if
nobody kills it in time, it ends itself without publishing.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from jobs.files import FilesJob, load_files
from odi_audit.workspace import Workspace

POINT = "gated"
"""The point of the road after the batch has passed the gate, and before it is published."""
WAIT_S_MAX = 60
NOBODY_CAME = 75


def main(lake: str, folder: str, table: str, job: str, marker: str) -> None:
    """Run the main job as far as the point, and stay there."""

    def stay(point: str) -> None:
        if point == POINT:
            Path(marker).touch()
            time.sleep(WAIT_S_MAX)
            os._exit(NOBODY_CAME)

    with Workspace.find(Path(lake)) as workspace:
        load_files(FilesJob(job=job, folder=Path(folder), table=table), workspace, reach=stay)


if __name__ == "__main__":
    main(*sys.argv[1:])
