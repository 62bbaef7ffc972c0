"""The fxminify that comes after this one, for tests of `minify upgrade`: its schema has one revision more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

from alembic.config import Config
from sqlalchemy import Connection

from fxminify.store.index import copying, database, sqlite, upgrade
from fxminify.store.index.tables import SCHEMA

NEXT = "0012"
#: The reason of each capture after it.
REASON = "read by the next version"
_REVISION = f"""
from alembic import op

revision, down_revision = "{NEXT}", "{SCHEMA}"


def upgrade():
    op.execute("UPDATE captures SET reason = '{REASON}'")
"""


def patches(folder: Path) -> list[Any]:
    """Return the patches that make this process the next version, whose revisions are written to ``folder``."""
    if not (revisions := folder / "migrations").exists():
        shutil.copytree(Path(database.__file__).parent / "migrations", revisions)
        (revisions / "versions" / f"{NEXT}_next.py").write_text(_REVISION)
    ours = database.migrations

    def migrations(connection: Connection) -> Config:
        config = ours(connection)
        config.set_main_option("script_location", str(revisions).replace("%", "%%"))
        return config

    modules = (copying, database, sqlite, upgrade)
    return [patch.object(upgrade, "migrations", migrations), *(patch.object(m, "SCHEMA", NEXT) for m in modules)]


def become(folder: Path) -> None:
    """Be the next version until this process ends."""
    for one in patches(folder):
        one.start()
