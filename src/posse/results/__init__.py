"""What came out: records, their store, frames, figures and reports.

A run is a `RunRecord`. A `Store` keeps records on this machine; `export` and the `to_*` functions take them elsewhere;
`compare` sets them side by side, and `joining` each party beside itself alone; figures are returned, never shown;
`write_report` makes one HTML page.
"""

from posse.results.bands import Band, band, standard_error
from posse.results.bootstrap import Interval, bootstrap, regret_ratio
from posse.results.compare import ComparedRun, Comparison, compare, identical
from posse.results.costs import role_times, secure_against_plain
from posse.results.export import FORMATS, export
from posse.results.frames import Row, rows, summary_rows, to_arrow, to_pandas, to_polars
from posse.results.ids import new_id
from posse.results.joining import Joining, Share, joining
from posse.results.location import default_path
from posse.results.palette import ROLES, role_colour
from posse.results.parties import PartyRow, party_rows
from posse.results.plots import pulls_per_arm, regret_curves, reward_curves
from posse.results.record import RunRecord, Traffic
from posse.results.report import render_report, write_report
from posse.results.schema import RunRow
from posse.results.store import Store
from posse.results.values import JSON
from posse.results.vocabulary import Vocabulary

__all__ = [
    "FORMATS",
    "JSON",
    "ROLES",
    "Band",
    "ComparedRun",
    "Comparison",
    "Interval",
    "Joining",
    "PartyRow",
    "Row",
    "RunRecord",
    "RunRow",
    "Share",
    "Store",
    "Traffic",
    "Vocabulary",
    "band",
    "bootstrap",
    "compare",
    "default_path",
    "export",
    "identical",
    "joining",
    "new_id",
    "party_rows",
    "pulls_per_arm",
    "regret_curves",
    "regret_ratio",
    "render_report",
    "reward_curves",
    "role_colour",
    "role_times",
    "rows",
    "secure_against_plain",
    "standard_error",
    "summary_rows",
    "to_arrow",
    "to_pandas",
    "to_polars",
    "write_report",
]
