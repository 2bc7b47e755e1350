"""Which earlier writes a snapshot has rewritten: the files that it took out, by who added them.

Owns one answer, for tables whose rows have no ids: after a rewrite only this tells where a row may
have come from. Must never be asked of a snapshot that has expired: its manifests may be gone.
"""

from __future__ import annotations

from collections import defaultdict

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus

from odi_audit.catalog.state import TableState
from odi_audit.errors import EntryNotFound, StorageError
from odi_audit.ids import SnapshotId

WHOLE_TABLE = "*"
PARTITIONS_MAX = 1_000
"""Beyond this the answer is given for the whole table: it must fit into one ledger entry."""


def rewritten(state: TableState, snapshot: SnapshotId) -> dict[str, list[int]]:
    """Return, by partition path, the sequence numbers of the writes whose files were taken out.

    The path of an unpartitioned table is empty; ``*`` stands for all partitions. The numbers are
    those of the files, not of the data in them: for a file that a compaction had written, the
    compaction's own.

    Raises:
        EntryNotFound: the snapshot is not in the table's metadata (any more).
        StorageError: a manifest cannot be read.
    """
    table = state.handle
    found = table.snapshot_by_id(int(snapshot))
    if found is None:
        raise EntryNotFound(f"table {state.ref.name} has no snapshot {snapshot}", snapshot=snapshot)
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    try:
        for manifest in found.manifests(table.io):
            ours = manifest.added_snapshot_id == found.snapshot_id
            if manifest.content is not ManifestContent.DATA or not ours:
                continue
            # A rewrite across specs moves rows between partitions of different names.
            current = manifest.partition_spec_id == state.spec_id
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                file = entry.data_file
                gone = entry.status is ManifestEntryStatus.DELETED
                if gone and file.content is DataFileContent.DATA:
                    path = WHOLE_TABLE
                    if current:
                        path = table.spec().partition_to_path(file.partition, table.schema())
                    numbers[path].add(entry.file_sequence_number or entry.sequence_number or 0)
    except OSError as problem:
        raise StorageError(
            f"table {state.ref.name}, snapshot {snapshot}: a manifest cannot be read: {problem}",
            hint="odi-audit verify",
            table=state.ref.name,
        ) from problem
    if len(numbers) > PARTITIONS_MAX or WHOLE_TABLE in numbers:
        numbers = defaultdict(set, {WHOLE_TABLE: set().union(*numbers.values())})
    return {path: sorted(found) for path, found in sorted(numbers.items())}
