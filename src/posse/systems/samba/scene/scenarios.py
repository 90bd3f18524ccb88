"""Set-ups for someone who sees Samba for the first time: invented shops, games, clinics, and the
paper's examples.
"""

from __future__ import annotations

from posse.systems.modules import Scenario

_STORES = {
    "names": ("Mill Bakery", "Harbour Books", "Green Corner", "Station Bikes"),
    "means": (0.38, 0.55, 0.47, 0.71),
}
_GAMES = {
    "names": (
        "Lantern Valley",
        "Tin Soldiers",
        "Deep Orchard",
        "Paper Rally",
        "Northern Keep",
        "Clockmaker",
        "Salt Road",
        "Moth and Moon",
    ),
    "means": (0.62, 0.41, 0.55, 0.33, 0.74, 0.48, 0.69, 0.27),
}
_CLINICS = {
    "names": (
        "Northgate Clinic",
        "Riverside Practice",
        "St Anne's",
        "Hillside Surgery",
        "Old Town Clinic",
        "Lakeview",
    ),
    "means": (0.44, 0.58, 0.52, 0.61, 0.35, 0.66),
}
_OFF = {"aes": False, "paillier": False, "permutation": False, "mask": False}
_EXAMPLE = {"level": "paper", "names": ("DO1", "DO2", "DO3")}

SCENARIOS = (
    Scenario(
        "Four local stores",
        "A parent company shows one item at a time on its web site, from one of four local stores, "
        "and wants clicks. "
        "Each store keeps its customers' data. Watch which store is shown more and more often, and "
        "that no server sees "
        "which one it is.",
        {"policy": "ucb", "horizon": 400, "level": "strict", **_STORES},
    ),
    Scenario(
        "A naive federation",
        "The same four stores with every protection off. Choose the controller or comp as observer "
        "and read the "
        "scores, the pulled store and every sum. Then switch on AES, mask, permutation and "
        "Paillier one by one.",
        {"policy": "ucb", "horizon": 400, "level": "paper", **_STORES, **_OFF},
    ),
    Scenario(
        "The published protocol",
        "The four stores with the protocol as published: scores sealed, masked and permuted, sums "
        "under Paillier. "
        "Follow one step through its messages 2 to 5, then look at what comp finds out over many "
        "steps.",
        {"policy": "ucb", "horizon": 400, "level": "paper", **_STORES},
    ),
    Scenario(
        "Eight games",
        "A platform recommends one of eight studios' games a time; a studio does not show the "
        "others how its game is "
        "rated. Thompson sampling finds the best liked one; no server sees a score.",
        {"policy": "thompson", "horizon": 1000, "level": "strict", **_GAMES},
    ),
    Scenario(
        "Six clinics",
        "Six clinics try one treatment each on the next patient who agrees, and none may show its "
        "patients' outcomes. "
        "At level strict the servers learn neither scores nor whose turn it is.",
        {"policy": "thompson", "horizon": 600, "level": "strict", **_CLINICS},
    ),
    Scenario(
        "Twenty films",
        "Twenty owners with one film each, on means of MovieLens that ship with Posse: a larger "
        "federation.",
        {"policy": "thompson", "owners": 20, "horizon": 2000, "level": "strict"},
    ),
    Scenario(
        "Preprocessing in one place",
        "Eight invented stores and what 320 invented people of known age and neighbourhood think "
        "of them; only those "
        "under 40 count. See in the preview what a server would read if it computed the means "
        "itself, and who is named "
        "by age and neighbourhood alone.",
        {
            "policy": "thompson",
            "horizon": 600,
            "level": "strict",
            "data": "invented:stores",
            "where": "age<40",
        },
    ),
    Scenario(
        "Worked example: UCB at t = 68",
        "Section 4.1.2 of the paper: scores 1.23, 1.01 and 1.12, mask 0.5, the order (3, 1, 2). "
        "The first owner is "
        "chosen and is paid 1: 25 of 34.",
        {
            "policy": "ucb",
            "horizon": 100,
            "means": (24 / 33, 10 / 24, 2 / 10),
            **_EXAMPLE,
        },
        {"example": "ucb-68"},
    ),
    Scenario(
        "Worked example: epsilon-greedy at t = 68 and 69",
        "Section 4.1.2 of the paper, on the numbers of its example of UCB: with epsilon 0.1 the "
        "coin 0.7 exploits, and "
        "the largest mean wins; the coin 0.04 explores: all owners send 0, and comp picks any of "
        "three equal numbers.",
        {
            "policy": "epsilon-greedy",
            "epsilon": 0.1,
            "horizon": 100,
            "shortcut": False,
            "means": (24 / 33, 10 / 24, 2 / 10),
            **_EXAMPLE,
        },
        {"example": "epsilon-greedy-68"},
    ),
    Scenario(
        "Worked example: Softmax at t = 98",
        "Section 4.1.2 of the paper: temperature 0.1, mask 0.15, probabilities 0.01, 0.03 and "
        "0.96. As printed, means "
        "are rounded to two decimals before the exponential in this one step.",
        {
            "policy": "softmax",
            "tau": 0.1,
            "horizon": 120,
            "means": (49 / 68, 9 / 24, 1 / 5),
            **_EXAMPLE,
        },
        {"example": "softmax-98"},
    ),
    Scenario(
        "Worked example: Pursuit at t = 4",
        "Section 4.2 of the paper: two passes a step. The first finds the best mean and moves the "
        "probabilities from "
        "1/3 to 0.4, 0.3 and 0.3; the second draws an owner by them.",
        {
            "policy": "pursuit",
            "beta": 0.1,
            "horizon": 40,
            "means": (0.7, 0.4, 0.3),
            **_EXAMPLE,
        },
        {"example": "pursuit-4"},
    ),
)
