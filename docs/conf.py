"""The settings of Sphinx for the documentation site; ``make docs`` builds it into ``build/site``.

The root of the checkout is the source folder, so that links between README.md and docs/ are those that GitHub follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxminify import __version__
from fxminify.docs import website

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "fxminify"
copyright = "the maintainers of fxminify"
version = release = __version__
root_doc = "README"
include_patterns = [f"{page}.md" for page in website.every_page()]
exclude_patterns = [".*", "build", "dist", "tests", "*.egg-info"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpicky = True
smartquotes = False

# Markdown as GitHub reads it.
myst_heading_anchors = 4
highlight_language = "none"

# Docstrings: names in `single backticks` are references, see `website.is_broken`.
default_role = "py:obj"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_static_path = ["website.css"]
html_css_files = ["website.css"]
html_title = f"fxminify {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False

# `make docs-links`, which writes every external link into build/links/output.txt.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors = False


def setup(app: Sphinx) -> None:
    """Connect what the pages need besides Sphinx itself."""
    app.connect("source-read", website.read)
    app.connect("missing-reference", website.refer)
    app.connect("build-finished", website.begin_at_front)
