"""Names of tables in a real PostgreSQL: ours and those of openlineage-spark are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lineage.context import LedgerContext
from lineage.listener import turning
from lineage.naming import DatasetName, of_database, of_source
from lineage.spool import Spool
from odi_audit.workspace import Workspace
from tests.stack.postgres import PostgresServer, running_postgres

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
CHILD = """
import json, sys
from pathlib import Path
import odi_audit as odi
from odi_audit.workspace import Workspace

order = json.load(sys.stdin)
overrides = {"spark.master": "local[1]", "spark.driver_memory": "1g", "spark.conf": order["conf"]}
spark = odi.session(Workspace.find(Path(order["lake"]), overrides=overrides), listener=True)
for word, (url, options) in order["reads"].items():
    options["driver"] = "org.postgresql.Driver"
    frame = spark.read.format("jdbc").options(url=url, **options).load()
    frame.write.parquet(f"{order['out']}/{word}")
spark.stop()
"""


@pytest.fixture(scope="module")
def server() -> PostgresServer:  # type: ignore[misc]
    with running_postgres() as running:
        yield running


def test_tables_have_the_names_that_the_listener_gives_them(
    server: PostgresServer, tmp_path: Path
) -> None:
    from odi_audit.spark import jars
    from odi_audit.spark.conf import jars_dir

    database = server.new_database()
    with server.admin(database) as connection:
        connection.execute("CREATE TABLE orders (id bigint)")
        connection.execute("CREATE SCHEMA shop CREATE TABLE lines (id bigint)")
    bare = f"jdbc:postgresql://{server.host}:{server.port}/{database}"
    login = {"user": "postgres", "password": server.password}
    inside = f"{bare}?user=postgres&password={server.password}"
    reads = {
        "plain": (bare, {**login, "dbtable": "orders"}),
        "schema": (bare, {**login, "dbtable": "shop.lines"}),
        "public": (inside, {"dbtable": "public.orders"}),
    }
    with Workspace.init(tmp_path / "lake") as lake:
        paths = jars.ensure(jars_dir(lake.settings), ["core", "postgresql"])
        order = {
            "lake": str(lake.root),
            "out": str(tmp_path / "out"),
            "reads": reads,
            "conf": json.dumps({"spark.jars": ",".join(map(str, paths))}),
        }
        child = subprocess.run(
            [sys.executable, "-c", CHILD], input=json.dumps(order), text=True,
            cwd=ROOT, timeout=TIMEOUT_S, capture_output=True, check=False,
        )  # fmt: skip
        said = [line for line in child.stderr.splitlines() if not line.strip().startswith("at ")]
        assert child.returncode == 0, "\n".join(said)[-3000:]
        context = LedgerContext(lake.ledger(read_only=True))
        spool = Spool(lake.root / "spool", turning(context))
        events = [json.loads(event.body) for event in spool.read(None, 1_000)]
    seen = {
        event["outputs"][0]["name"].rpartition("/")[2]: [
            DatasetName(namespace=read["namespace"], name=read["name"]) for read in event["inputs"]
        ]
        for event in events
        if event["outputs"]
    }
    ours = {word: [of_database(url, options["dbtable"])] for word, (url, options) in reads.items()}
    assert seen == ours
    assert seen["plain"][0].namespace == f"postgres://{server.host}:{server.port}"
    # A watermark's source is written with the table behind the database.
    assert of_source(f"{bare}.shop.lines") == seen["schema"][0]
    assert server.password not in json.dumps(events)
