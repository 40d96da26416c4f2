"""The picture in the docs: the flow of the specification. Run this module to draw it again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import catbird_django
from catbird_django.monitoring.graph.flow_view import view_of_flow
from catbird_django.monitoring.graph.svg import render_svg_file

PACKAGE = Path(catbird_django.__file__).parent
PICTURE = PACKAGE.parent / "docs" / "images" / "order-flow.svg"


def draw() -> str:
    """Draw the example as if it were declared in `shop/flows.py`."""
    sys.modules.pop("tests.typing.flows", None)
    plan = importlib.import_module("tests.typing.flows").orders.definition.plan
    stylesheet = (PACKAGE / "static" / "catbird" / "graph.css").read_text(encoding="utf-8")
    return render_svg_file(view_of_flow(plan), stylesheet=stylesheet).replace("tests.typing.flows", "shop.flows")


if __name__ == "__main__":
    import django

    django.setup()
    PICTURE.write_text(draw(), encoding="utf-8")
