#!/bin/sh
# A retailer: which policy suits rates like ours, and what do the shops earn in a federation?
set -eu

posse compare --policy ucb --policy thompson --means 0.4,0.5,0.6,0.7 --horizon 400 --runs 20
posse up examples/shops.toml
posse runs list
