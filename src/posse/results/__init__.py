"""What came out: records, their store, frames, figures and reports.

A run is a `Record`. A `Store` keeps records on this machine; `export` and the `to_*` functions take
them elsewhere; `compare` compares them, and `joining` each party with the same party alone. `document`
is what is shown of records; `report` writes it as one HTML page. Figures are returned, never shown.
Nothing here knows a system: what a system wants shown is in its records.
"""

from posse.core.statistics import Band, Interval, band, bootstrap, regret_ratio, standard_error
from posse.results.compare import ComparedRun, Comparison, compare, identical
from posse.results.export import (
    FORMATS,
    Row,
    export,
    party_rows,
    rows,
    summary_rows,
    to_arrow,
    to_pandas,
    to_polars,
)
from posse.results.joining import Joining, Share, joining
from posse.results.naming import differences, labels
from posse.results.plots import (
    pulls_per_arm,
    regret_curves,
    reward_curves,
    role_times,
    secure_against_plain,
)
from posse.results.record import Interrupted, Progress, Record, Traffic, Watch, new_id, points_of
from posse.results.render import render_report, report
from posse.results.store import RunHandle, RunRow, Store, default_path
from posse.results.values import JSON
from posse.results.words import Vocabulary

__all__ = [
    "FORMATS",
    "JSON",
    "Band",
    "ComparedRun",
    "Comparison",
    "Interrupted",
    "Interval",
    "Joining",
    "Progress",
    "Record",
    "Row",
    "RunHandle",
    "RunRow",
    "Share",
    "Store",
    "Traffic",
    "Vocabulary",
    "Watch",
    "band",
    "bootstrap",
    "compare",
    "default_path",
    "differences",
    "export",
    "identical",
    "joining",
    "labels",
    "new_id",
    "party_rows",
    "points_of",
    "pulls_per_arm",
    "regret_curves",
    "regret_ratio",
    "render_report",
    "report",
    "reward_curves",
    "role_times",
    "rows",
    "secure_against_plain",
    "standard_error",
    "summary_rows",
    "to_arrow",
    "to_pandas",
    "to_polars",
]
