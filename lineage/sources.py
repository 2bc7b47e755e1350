"""Where a batch's rows came from, as input datasets with the part that was read.

Owns the step from offsets to datasets: topics, folders of files, databases, streams. The subset
facet says the offset range in OpenLineage's words; our own facet says it in ours. Must never make
a dataset of a source that the offsets do not name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from openlineage.client.generated.base import DatasetFacet, InputDataset, InputDatasetFacet
from openlineage.client.generated.base_subset_dataset import (
    BaseSubsetCondition,
    BinarySubsetCondition,
    CompareSubsetCondition,
    FieldBaseCompareExpression,
    InputSubsetInputDatasetFacet,
    LiteralCompareExpression,
    LocationSubsetCondition,
)
from openlineage.client.generated.input_statistics_input_dataset import (
    InputStatisticsInputDatasetFacet,
)

from lineage.facets import (
    PRODUCER,
    OdiOffsetsRunFacet,
    OffsetRange,
    data_source,
    dataset_type,
)
from lineage.naming import (
    LOCAL,
    UNPLACED,
    DatasetName,
    accepted,
    of_location,
    of_source,
    of_topic,
    trimmed,
)
from lineage.sharing import OPEN_MAX, Once, shared
from odi_audit.errors import UsageError
from odi_audit.model.offsets import OffsetKind, Offsets, Place, Range

INPUTS_MAX = 200
"""A graph with more sources of one batch than this cannot be read; the ledger names them all."""
SUBSET_PARTITIONS_MAX = 64
"""A condition of more branches than this is noise; our own facet has every partition."""
_TOPICS = re.compile(r"^KafkaV2\[(?:Subscribe|Assign)\[(?P<topics>[^\]]*)\]")
_FOLDER = re.compile(r"^FileStreamSource\[(?P<path>.*)\]$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One input of a batch: its name, what it is, and the part that was read."""

    name: DatasetName
    kind: str | None = None
    part: BaseSubsetCondition | None = None
    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None


def sources_of(offsets: Offsets, read: Collection[DatasetName] = ()) -> list[Source]:
    """Return the inputs that offsets name, sorted, at most :data:`INPUTS_MAX`.

    ``read`` is what the plan read, where that is known: files of the offsets that are one of these,
    or lie in one, go by its name, so that one source is one input.

    Work that is named by the caller's own key has no source that anybody could name; what a table
    does on itself has the table, which the caller of this function knows better.
    """
    return _found.get((offsets,), frozenset(read), lambda: _sources(offsets, read))


_found: Once[list[Source]] = Once(OPEN_MAX)
_subsets: Once[InputSubsetInputDatasetFacet] = Once(OPEN_MAX)


def _sources(offsets: Offsets, read: Collection[DatasetName]) -> list[Source]:
    match offsets.kind:
        case OffsetKind.KAFKA:
            found = _topics(offsets)
        case OffsetKind.FILES:
            found = _folders(offsets, read)
        case OffsetKind.STREAM:
            found = _streams(offsets)
        case OffsetKind.ONCE | OffsetKind.TABLE:
            found = []
        case _:
            found = _named(offsets)
    return sorted(found, key=lambda source: source.name)[:INPUTS_MAX]


def input_dataset(source: Source, *, read: bool = False) -> InputDataset:
    """Return a source as an input dataset; how much of it was read is told once it was."""
    namespace = accepted(source.name.namespace)
    facets: dict[str, DatasetFacet] = {"dataSource": data_source(namespace)}
    if source.kind is not None:
        facets["datasetType"] = dataset_type(source.kind)
    about: dict[str, InputDatasetFacet] = {}
    if source.part is not None:
        about["subset"] = _subsets.get((source.part,), None, partial(_subset, source.part))
    if read and (source.rows, source.size_bytes, source.files) != (None, None, None):
        about["inputStatistics"] = InputStatisticsInputDatasetFacet(
            rowCount=source.rows,
            size=source.size_bytes,
            fileCount=source.files,
            producer=PRODUCER,
        )
    return InputDataset(
        namespace=namespace, name=source.name.name, facets=facets, inputFacets=about
    )


def _subset(part: BaseSubsetCondition) -> InputSubsetInputDatasetFacet:
    return shared(InputSubsetInputDatasetFacet(inputCondition=part, producer=PRODUCER))


def offsets_facet(offsets: Offsets) -> OdiOffsetsRunFacet:
    """Return offsets as our own facet: every partition, nothing left out."""
    return OdiOffsetsRunFacet(
        kind=offsets.kind.value,
        source=offsets.source,
        ranges=[
            OffsetRange(
                partition=name,
                start=part.start,
                end=part.end,
                identity=offsets.identity.get(name),
            )
            for name, part in sorted(offsets.ranges.items())
        ],
        rows=offsets.rows,
        producer=PRODUCER,
    )


# -- the kinds of sources ------------------------------------------------------------------------


def _topics(offsets: Offsets) -> list[Source]:
    by_topic: dict[str, dict[str, Range]] = {}
    for name, part in offsets.ranges.items():
        topic, _, partition = name.rpartition("-")
        by_topic.setdefault(topic, {})[partition] = part
    servers = offsets.servers or offsets.source.removeprefix("kafka://")
    return [
        Source(
            name=_topic(servers, topic),
            kind="TOPIC",
            part=_ranges("partition", "offset", parts),
            rows=offsets.rows if len(by_topic) == 1 else None,
        )
        for topic, parts in by_topic.items()
        if topic
    ]


def _topic(servers: str, topic: str) -> DatasetName:
    try:
        return of_topic(servers, topic)
    except UsageError:
        # Named by the id of the cluster: the servers are not in the ledger.
        return DatasetName(namespace=f"kafka://{servers}", name=topic)


def _folders(offsets: Offsets, read: Collection[DatasetName]) -> list[Source]:
    # openlineage-spark names the folder, unless a single file was asked for.
    by_folder: dict[DatasetName, list[str]] = {}
    for path in offsets.ranges:
        named = _location(path)
        if named is not None:
            holder = _holder(named, read) or trimmed(_folder(named))
            by_folder.setdefault(holder, []).append(path)
    return [
        Source(
            name=name,
            kind="FILE",
            part=LocationSubsetCondition(locations=sorted(paths)),
            rows=offsets.rows if len(by_folder) == 1 else None,
            size_bytes=_size([offsets.ranges[path].end for path in paths]),
            files=len(paths),
        )
        for name, paths in by_folder.items()
    ]


def _holder(file: DatasetName, read: Collection[DatasetName]) -> DatasetName | None:
    holding = [
        name
        for name in read
        if name.namespace == file.namespace
        and (file.name == name.name or file.name.startswith(name.name.rstrip("/") + "/"))
    ]
    return max(holding, key=lambda name: len(name.name), default=None)


def _folder(file: DatasetName) -> DatasetName:
    return DatasetName(namespace=file.namespace, name=posixpath.dirname(file.name) or "/")


def _size(ends: Sequence[Place]) -> int | None:
    sizes = [str(end).partition(":")[0] for end in ends]
    return sum(map(int, sizes)) if all(size.isdigit() for size in sizes) else None


def _streams(offsets: Offsets) -> list[Source]:
    found: dict[DatasetName, Source] = {}
    for description in offsets.source.removeprefix("stream:").split(", "):
        topics, folder = _TOPICS.match(description), _FOLDER.match(description)
        if topics is not None:
            for topic in topics["topics"].split(","):
                # Spark's offset log does not say which servers the topic is on.
                name = DatasetName(namespace="kafka", name=topic.strip())
                found[name] = Source(name=name, kind="TOPIC")
        elif folder is not None:
            named = _location(folder["path"])
            if named is not None:
                found[named] = Source(name=named, kind="FILE")
        elif description:
            name = DatasetName(namespace=UNPLACED, name=description)
            found[name] = Source(name=name, kind="STREAM")
    return [source for name, source in found.items() if name.name]


def _named(offsets: Offsets) -> list[Source]:
    named = of_source(offsets.source)
    if named is None:
        return []
    if offsets.kind is OffsetKind.MAPPING:
        part = _ranges("partition", "offset", offsets.ranges)
    else:
        columns = [_between(column, held) for column, held in sorted(offsets.ranges.items())]
        part = _joined("AND", columns)
    kinds = {"kafka": "TOPIC", "postgres": "TABLE", "mysql": "TABLE", LOCAL: "FILE"}
    return [
        Source(
            name=named,
            kind=kinds.get(named.namespace.partition(":")[0]),
            part=part,
            rows=offsets.rows,
        )
    ]


def _location(location: str) -> DatasetName | None:
    try:
        return of_location(location)
    except UsageError:
        return None


# -- subsets ---------------------------------------------------------------------------------------


def _ranges(partition: str, place: str, parts: Mapping[str, Range]) -> BaseSubsetCondition | None:
    if not parts or len(parts) > SUBSET_PARTITIONS_MAX:
        return None
    branches: list[BaseSubsetCondition] = []
    for name, part in sorted(parts.items()):
        this = _compare(partition, "EQUAL", name)
        branches.append(_both("AND", this, _between(place, part)))
    return _joined("OR", branches)


def _between(field: str, part: Range) -> BaseSubsetCondition:
    end = _compare(field, "LESS_THAN", part.end)
    if part.start is None:
        return end
    return _both("AND", _compare(field, "GREATER_EQUAL_THAN", part.start), end)


def _compare(field: str, comparison: str, value: Place) -> CompareSubsetCondition:
    return CompareSubsetCondition(
        left=FieldBaseCompareExpression(field=field),
        right=LiteralCompareExpression(value=str(value)),
        comparison=comparison,
    )


def _both(
    operator: str, left: BaseSubsetCondition, right: BaseSubsetCondition
) -> BinarySubsetCondition:
    return BinarySubsetCondition(left=left, right=right, operator=operator)


def _joined(operator: str, parts: Sequence[BaseSubsetCondition]) -> BaseSubsetCondition | None:
    """Join conditions into a tree that is as flat as can be: readers recurse into it."""
    if len(parts) < 2:
        return parts[0] if parts else None
    middle = len(parts) // 2
    left, right = _joined(operator, parts[:middle]), _joined(operator, parts[middle:])
    assert left is not None and right is not None
    return _both(operator, left, right)
