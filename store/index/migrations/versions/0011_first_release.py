"""The first schema that is released; those before it were of development versions.

The tables are made from the models (`fxminify.store.index.database`), so there is nothing to run here. The next
revision says how to change an index that has this one.
"""

revision = "0011"
down_revision: str | None = None
