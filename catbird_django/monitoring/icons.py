"""Small line drawings, on a grid of 16 by 16, in the colour of the text beside them."""

from __future__ import annotations

CLOCK = "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3l2 1.5"
HOURGLASS = "M4 2.5h8M4 13.5h8M5 2.5c0 4 6 7 6 11M11 2.5c0 4-6 7-6 11"
PERSON = "M8 2.5a2.6 2.6 0 1 0 0 5.2a2.6 2.6 0 1 0 0-5.2M2.8 13.8c0-3 2.2-4.4 5.2-4.4s5.2 1.4 5.2 4.4"
DIAMOND = "M8 2.2l5.8 5.8l-5.8 5.8l-5.8-5.8z"
ARROW_ROUND = "M13.2 8a5.2 5.2 0 1 1-1.7-3.9M13.2 2v3h-3"
FLAG = "M4 14v-11.5h8.5l-2.2 3.2l2.2 3.3h-8.5"
SHIELD = "M8 2l5 2v4c0 3-2 5-5 6c-3-1-5-3-5-6v-4z"
STACK = "M2.5 5.5h8v8h-8zM5.5 5.5v-3h8v8h-3"
SIGMA = "M12.5 4.5v-1.8h-9l4.8 5.3l-4.8 5.3h9v-1.8"
BOLT = "M9.5 1.8l-5.5 7.4h4l-1.5 5l5.5-7.4h-4z"
CYLINDER = "M3 4.2c0-1.2 2.2-2 5-2s5 .8 5 2s-2.2 2-5 2s-5-.8-5-2v7.6c0 1.2 2.2 2 5 2s5-.8 5-2v-7.6"

STATUS_ICONS = {
    "queued": CLOCK,
    "started": "M5 3l8 5l-8 5z",
    "canceling": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M5.5 8h5",
    "failing": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M6 6l4 4M10 6l-4 4",
    "completing": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M5.5 8.3l1.8 1.8l3.2-4",
    "completed": "M3 8.5l3.5 3.5l6.5-8",
    "failed": "M4 4l8 8M12 4l-8 8",
    "skipped": "M3 4l5 4l-5 4zM12 4v8",
    "canceled": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M4 12l8-8",
    "expired": HOURGLASS,
    "waiting_for_dependencies": "M3 8h.1M8 8h.1M13 8h.1",
    "waiting_for_signal": PERSON,
    "waiting_for_state": "M3.5 13.5v-11M12.5 13.5v-11M3.5 6h9M3.5 10h9",
    "waiting_for_items": "M3 4.5h10M3 8h10M3 11.5h6",
}
