"""Why dp-combinatorial does not serve decisions on demand."""

from posse.systems.modules import Live

LIVE = Live(
    reason=(
        "a round is a purchase from all producers under a quality constraint, by several agents "
        "at once, and not one arm. Use posse.start, or a federation whose agents have sources of "
        "their own."
    ),
)
