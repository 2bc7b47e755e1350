"""A second pair of eyes: what pyiceberg and the ledger's own file say, past the product's code.

Tables are read with pyiceberg and their metadata as the JSON document that it is; the ledger's
bytes are read from disk. Nothing here calls the committer or the product's readers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

Row: TypeAlias = tuple[object, ...]


class Eyes:
    """Looks at the tables of one lake."""

    def __init__(self, uri: str, warehouse: Path, name: str = "lake") -> None:
        self._catalog = SqlCatalog(
            name, uri=uri, warehouse=str(warehouse), init_catalog_tables="false"
        )

    @classmethod
    def on(cls, root: Path) -> Eyes:
        """Look at an embedded lake."""
        return cls(f"sqlite:///{root / 'catalog.db'}", root / "warehouse")

    def table(self, *parts: str) -> Table:
        """Load a table as it is now."""
        return self._catalog.load_table(_parts(parts))

    def rows(self, *parts: str, columns: Sequence[str] = ("*",)) -> list[Row]:
        """Return every row of main, sorted."""
        found = self.table(*parts).scan(selected_fields=tuple(columns)).to_arrow()
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)

    def metadata(self, *parts: str) -> dict[str, Any]:
        """Return the table's metadata document."""
        return _document(self.table(*parts).metadata_location)

    def head(self, *parts: str) -> dict[str, Any]:
        """Return the current snapshot, as the metadata document has it."""
        metadata = self.metadata(*parts)
        current = metadata["current-snapshot-id"]
        return next(item for item in metadata["snapshots"] if item["snapshot-id"] == current)

    def data_files(self, *parts: str) -> set[str]:
        """Return the paths of main's data files."""
        return {task.file.file_path for task in self.table(*parts).scan().plan_files()}

    def rewrote(self, name: str, snapshot: str) -> dict[str, list[int]]:
        """Return which writes' files a snapshot took out, by the partition's path.

        Found by comparing the files of every snapshot: the first that has a file added it.
        """
        table, chain = self.table(name), self.history(name)[::-1]
        files: dict[int, dict[str, str]] = {}
        added_by: dict[str, int] = {}
        for item in chain:
            here = files[item["snapshot-id"]] = {}
            for task in table.scan(snapshot_id=item["snapshot-id"]).plan_files():
                path = table.spec().partition_to_path(task.file.partition, table.schema())
                here[task.file.file_path] = path
                added_by.setdefault(task.file.file_path, item["sequence-number"])
        (found,) = (item for item in chain if str(item["snapshot-id"]) == snapshot)
        before = files.get(found.get("parent-snapshot-id", 0), {})
        gone: dict[str, set[int]] = {}
        for path in before.keys() - files[found["snapshot-id"]].keys():
            gone.setdefault(before[path], set()).add(added_by[path])
        return {path: sorted(numbers) for path, numbers in gone.items()}

    def history(self, *parts: str) -> list[dict[str, Any]]:
        """Return main's snapshots, newest first."""
        metadata = self.metadata(*parts)
        by_id = {item["snapshot-id"]: item for item in metadata.get("snapshots", [])}
        chain: list[dict[str, Any]] = []
        current = metadata.get("current-snapshot-id")
        while current in by_id:
            chain.append(by_id[current])
            current = by_id[current].get("parent-snapshot-id")
        return chain


def on_disk(folder: Path, suffix: str = ".parquet") -> set[str]:
    """Return the files below a folder that end so; checksum files aside."""
    return {
        str(path)
        for path in folder.rglob(f"*{suffix}")
        if path.is_file() and not path.name.startswith(".")
    }


def ledger_bytes(root: Path) -> bytes:
    """Return everything that the embedded ledger has on disk, its write-ahead log included."""
    return b"".join(path.read_bytes() for path in sorted(root.glob("ledger.db*")) if path.is_file())


def _document(location: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(Path(location.removeprefix("file:")).read_text("utf-8"))
    return body


def _parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(parts[0].split(".")) if len(parts) == 1 else parts
