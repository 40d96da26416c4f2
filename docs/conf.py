"""How the documentation is built: `python3 bootstrap.py docs`. Nothing is fetched, then or when it is read."""

import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from scripts.sql_api import write_reference  # noqa: E402 - the checkout must be on the path first

project = "catbird_django"
author = "the catbird_django contributors"
project_copyright = author

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "catbird_django"
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    app.connect("builder-inited", write_sql_reference)


def write_sql_reference(app: Any) -> None:
    write_reference(Path(app.srcdir) / "reference" / "sql-api.md")
