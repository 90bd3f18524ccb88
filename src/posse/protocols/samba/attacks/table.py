"""All attacks on Samba."""

from __future__ import annotations

from posse.protocols.samba.attacks import many, network, together, watching

ATTACKS = (*watching.ATTACKS, *together.ATTACKS, *many.ATTACKS, *network.ATTACKS)
