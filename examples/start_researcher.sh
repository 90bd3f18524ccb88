#!/bin/sh
# A researcher with a policy of her own: can it be federated, and does it earn more?
set -eu

posse policies --check examples/own_policy.py:Narrow
posse compare --policy ucb --policy examples/own_policy.py:Narrow --horizon 2000 --runs 50
