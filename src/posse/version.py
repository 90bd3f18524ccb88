"""The version of the package and of what its parties say to each other."""

__version__ = "0.1.1"

PROTOCOL_VERSION = 3
"""Parties of different package versions understand each other when this number is equal."""

MANIFEST_VERSION = "0.1.0"
"""What manifests name as the version: the first release with this protocol version. A customer that
is upgraded in a run makes its manifest again from its journal, and it must be the one that all have
signed.
"""

NAMED_ITSELF = "0.1.1"
"""The release of this protocol version whose manifests name it instead."""
