"""X3: `manage.py catbird_graph`. It needs no database."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.core.management import CommandError, call_command

from catbird_django import discovery
from catbird_django.client.flows import Flow
from catbird_django.definitions.registry import registry


@pytest.fixture(autouse=True)
def _only_the_flows_of_the_test() -> Iterator[None]:
    with registry.isolated():
        registry.flows.clear()
        yield


@pytest.fixture
def parcel() -> Flow[Any, Any]:
    flow: Flow[Any, Any] = Flow("parcel")

    @flow.step
    def weigh(input: int) -> float:
        return input / 1000

    @flow.step
    def send(weigh: float) -> str:
        return f"{weigh} kg"

    return flow


@pytest.fixture
def broken() -> Flow[Any, Any]:
    flow: Flow[Any, Any] = Flow("broken")

    @flow.step
    def send(nobody: float) -> None:
        """Needs a step that is not there."""

    return flow


def catbird_graph(*arguments: str) -> str:
    out = io.StringIO()
    call_command("catbird_graph", *arguments, stdout=out)
    return out.getvalue()


def test_it_prints_an_svg_file(parcel: Any) -> None:
    picture = ET.fromstring(catbird_graph("parcel"))

    assert picture.get("aria-label") == "Flow parcel"
    assert {element.get("data-step") for element in picture.iter()} >= {"weigh", "send"}
    assert ".catbird-graph" in (picture.findtext("{http://www.w3.org/2000/svg}style") or "")


def test_it_may_lead_down(parcel: Any) -> None:
    wide, high = (ET.fromstring(catbird_graph("parcel", "--direction", way)) for way in ("lr", "td"))

    assert float(wide.get("width", 0)) > float(wide.get("height", 0))
    assert float(high.get("width", 0)) < float(high.get("height", 0))


def test_it_prints_mermaid(parcel: Any) -> None:
    text = catbird_graph("parcel", "--format", "mermaid", "--direction", "td")

    assert text.startswith("flowchart TD\n")
    assert "    step_weigh --> step_send\n" in text


def test_it_writes_to_a_file(parcel: Any, tmp_path: Path) -> None:
    said = catbird_graph("parcel", "--output", str(tmp_path / "parcel.svg"))

    assert said == ""
    assert (tmp_path / "parcel.svg").read_text(encoding="utf-8") == catbird_graph("parcel")


def test_a_file_that_cannot_be_written_is_an_error(parcel: Any, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"--output: .*nowhere"):
        catbird_graph("parcel", "--output", str(tmp_path / "nowhere" / "parcel.svg"))


def test_without_a_name_it_lists_the_flows(parcel: Any, broken: Any) -> None:
    assert catbird_graph().splitlines() == ["broken: cannot work, see manage.py check", "parcel: 2 steps"]


def test_without_flows_it_says_so() -> None:
    assert catbird_graph() == "there are no flows\n"


@pytest.mark.parametrize(
    ("name", "hint"), [("parcl", r"'parcl'; did you mean 'parcel'\?"), ("zzz", r"'zzz' \(there are: parcel\)")]
)
def test_an_unknown_name_is_an_error_with_a_hint(parcel: Any, name: str, hint: str) -> None:
    with pytest.raises(CommandError, match=f"there is no flow named {hint}") as raised:
        catbird_graph(name)

    assert raised.value.returncode == 2


@pytest.fixture
def broken_module() -> Iterator[None]:
    discovery.broken_modules.append(discovery.BrokenModule("shop.flows", "SyntaxError: invalid syntax"))
    yield
    discovery.broken_modules.pop()


@pytest.mark.usefixtures("broken_module")
def test_a_module_that_cannot_be_imported_is_mentioned() -> None:
    with pytest.raises(CommandError, match=r"shop\.flows cannot be imported: SyntaxError"):
        catbird_graph("order")
    assert "shop.flows cannot be imported" in catbird_graph()


def test_a_flow_that_cannot_work_is_an_error_that_says_why(broken: Any) -> None:
    with pytest.raises(CommandError, match="nobody") as raised:
        catbird_graph("broken")

    assert raised.value.returncode == 2
