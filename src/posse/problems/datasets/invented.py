"""Invented ratings of invented stores by invented people with an age and a neighbourhood; no file,
no download.

For looking at what preprocessing shows: the mean of a store among people of one age or one
neighbourhood, and what a party that computes it in one place would see. The numbers are a pure
function of nothing: the same everywhere.
"""

from __future__ import annotations

from functools import cache
from random import Random

from posse.problems.tables.frames import Frame, as_frame

STORES = (
    "Mill Bakery",
    "Harbour Books",
    "Green Corner",
    "Station Bikes",
    "Old Town Deli",
    "Lakeside Garden",
    "Tin Toys",
    "Northgate Records",
)
NEIGHBOURHOODS = ("Harbour", "Mill Hill", "Old Town", "Northgate", "Lakeside", "Station Road")
PEOPLE = 320
THRESHOLD = 3.0
"""A rating above it is a reward of 1."""
_LIKED = (0.1, 0.6, 0.3, 0.9, 0.2, 0.5, -0.2, 0.4)
"""Average stars of a store beyond 3."""


@cache
def stores() -> Frame:
    """Return the table: user, age, neighbourhood, item and rating, one row per rating.

    >>> stores().names, stores().rows > 1500
    (('user', 'age', 'neighbourhood', 'item', 'rating'), True)
    """
    draw = Random(20_220_501).random  # the one stream that Python promises to keep
    rows = []
    for person in range(PEOPLE):
        age = 18 + int(62 * draw() * draw() + 8 * draw())
        home = int(len(NEIGHBOURHOODS) * draw())
        for store, liked in enumerate(_LIKED):
            if draw() < 0.35:
                continue
            near = 0.7 if home == store % len(NEIGHBOURHOODS) else -0.1
            young = (0.02 if store % 2 else -0.02) * (40 - age)
            stars = 3.2 + liked + near + young + 2.2 * (draw() + draw() - 1.0)
            rated = max(1, min(5, round(stars)))
            rows.append(
                {
                    "user": f"person-{person + 1}",
                    "age": age,
                    "neighbourhood": NEIGHBOURHOODS[home],
                    "item": STORES[store],
                    "rating": rated,
                }
            )
    frame = as_frame(rows, "invented stores")
    assert frame is not None
    return frame
