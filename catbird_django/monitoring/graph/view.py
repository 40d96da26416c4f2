"""What a picture of a flow shows, whether it is drawn from a definition or from a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How a node is drawn."""

    STEP = "step"
    START = "start"
    END = "end"


class Form(StrEnum):
    """How the card of a step looks, by what the step does."""

    CARD = "card"
    STACK = "stack"
    """A map: one card per item."""
    FUNNEL = "funnel"
    """A reduce: many values go in, and one comes out."""
    SLIP = "slip"
    """An inline step: no piece of work of its own."""


class BadgeKind(StrEnum):
    """What a badge is about; each has an icon."""

    CONDITION = "condition"
    SIGNAL = "signal"
    TOLERANCE = "tolerance"
    RETRIES = "retries"
    DELAY = "delay"
    DEADLINE = "deadline"


class EdgeKind(StrEnum):
    """What an edge carries from one step to the next."""

    NEEDED = "needed"
    """An output that the next step cannot do without."""
    OPTIONAL = "optional"
    """An output that the next step takes if there is one."""
    ORDER = "order"
    """Nothing but the order."""
    ITEMS = "items"
    """A list that the next step goes over, item by item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A small mark on a node."""

    kind: BadgeKind
    text: str
    """What stands beside the icon."""
    meaning: str
    """The same in words that need no icon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCounts:
    """How far a map is."""

    spawned: int | None = None
    """None: it does not go over its list yet."""
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    text: str = ""
    """The same in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a step of a run is: the name for style sheets, the label for people."""

    name: str
    label: str
    items: ItemCounts | None = None
    """Of a map only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A step, or the start or the end of the flow."""

    id: str
    label: str
    shape: Shape = Shape.STEP
    form: Form = Form.CARD
    is_atomic: bool = False
    kind: str = ""
    """What kind of step it is, in the reader's language."""
    status: Status | None = None
    """None: it is the definition that is shown."""
    badges: tuple[Badge, ...] = ()
    tooltip: tuple[str, ...] = ()
    """Lines that say more of it, besides its label and badges."""

    @property
    def asks(self) -> bool:
        """Whether it waits for somebody."""
        return any(badge.kind is BadgeKind.SIGNAL for badge in self.badges)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeView:
    """An arrow between two nodes, by their ids."""

    source: str
    target: str
    kind: EdgeKind = EdgeKind.NEEDED
    label: str = ""
    """What the kind means, in the reader's language; empty where nothing needs saying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A flow as it is to be drawn. Edges form no circle, and both their ends are among the nodes."""

    title: str
    description: str
    """The whole picture in words, for who does not see it."""
    nodes: tuple[NodeView, ...]
    edges: tuple[EdgeView, ...]
