"""What people call the columns that problems need."""

from __future__ import annotations

import re
from collections.abc import Mapping

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "item": (
        "items",
        "name",
        "product",
        "shop",
        "store",
        "variant",
        "arm",
        "option",
        "title",
        "film",
        "movie",
        "restaurant",
        "business",
        "game",
        "article",
        "artikel",
        "produkt",
        "laden",
        "filiale",
        "campaign",
        "ad",
        "group",
        "version",
        "treatment",
        "choice",
        "brand",
        "place",
        "branch",
        "index",
    ),
    "rating": (
        "ratings",
        "stars",
        "star",
        "score",
        "clicked",
        "click",
        "converted",
        "conversion",
        "reward",
        "success",
        "outcome",
        "value",
        "points",
        "grade",
        "note",
        "bewertung",
        "sterne",
        "punkte",
        "used",
        "redeemed",
        "bought",
        "purchased",
        "hours",
        "result",
        "response",
        "responded",
        "opened",
        "satisfaction",
        "liked",
    ),
    "user": (
        "userid",
        "username",
        "customer",
        "customerid",
        "client",
        "clientid",
        "person",
        "personid",
        "visitor",
        "visitorid",
        "reviewer",
        "reviewerid",
        "member",
        "kunde",
        "kundennummer",
        "nutzer",
        "session",
        "sessionid",
        "author",
        "respondent",
    ),
    "name": ("item", "arm", "variant", "shop", "store", "product", "option", "title", "index"),
    "mean": ("means", "rate", "probability", "average", "avg", "share", "ctr", "conversionrate"),
    "row": ("id", "rowid", "patient", "patientid", "case", "caseid", "record", "index"),
    "client": (
        "clientid",
        "user",
        "userid",
        "customer",
        "customerid",
        "person",
        "visitor",
        "visitorid",
        "deviceid",
        "device",
        "site",
        "index",
    ),
    "label": ("class", "target", "category", "outcome", "y"),
    "agent": ("buyer", "retailer", "customer", "shop"),
    "supplier": ("producer", "seller", "vendor", "lieferant"),
    "cost": ("price", "unitprice", "unitcost", "preis", "kosten"),
    "capacity": ("units", "maximum", "limit", "stock", "menge"),
    "quality": ("share", "rate", "score", "good"),
    "arm": ("action", "item", "variant", "choice", "option", "decision", "treatment"),
    "reward": ("rating", "outcome", "clicked", "click", "converted", "success", "value", "payoff"),
    "probability": ("propensity", "prob", "chance", "p", "pscore"),
}
"""Other words for the columns of problems, without blanks and marks, the most usual first."""

KNOWN = frozenset(("userid", "movieid", *SYNONYMS))
"""Columns of problems and of data sets."""

_REMARK = re.compile(r"\s*[(\[].*?[)\]]\s*")


def plain(name: str) -> str:
    """Return a name in lower case, without remarks in brackets, blanks and marks.

    >>> plain("Stars (1-5)"), plain("user_id")
    ('stars', 'userid')
    """
    words = _REMARK.sub(" ", name) or name
    return re.sub(r"[\W_]", "", words.lower())


def fit(column: str, name: str) -> int:
    """Return how well the name of a column fits what a problem needs; 0 if it does not.

    >>> fit("Shop", "item") > fit("Shop of sale", "item") > fit("price", "item")
    True
    """
    words = (name, *SYNONYMS.get(name, ()))
    plain_column = plain(column)
    if plain_column in words:
        return 1000 - words.index(plain_column)
    parts = [plain(part) for part in re.split(r"[\W_]+", _REMARK.sub(" ", column))]
    places = [words.index(part) for part in parts if part in words]
    return 500 - min(places) if places else 0
