"""The first schema that has a history. Its number follows the numbers of the first edition.

The tables are made from the models (`fxminify.store.index.database`), so there is nothing to run here. The next
revision defines how to change an index that has this one.
"""

revision = "0004"
down_revision: str | None = None
