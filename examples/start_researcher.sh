#!/bin/sh
# A researcher with a custom policy: can it run in a federation, and does it earn more?
set -eu

posse policies --check examples/own_policy.py:Narrow
posse compare --policy ucb --policy examples/own_policy.py:Narrow --horizon 2000 --runs 50
