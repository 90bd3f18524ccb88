#!/bin/sh
# A retailer with a table of ratings: which shop, and who would learn what?
set -eu

posse run samba --policy ucb --data examples/shops.csv --threshold 3 --horizon 500 --report shops.html  # extra plot
posse compare --policy ucb --policy thompson --data examples/shops.csv --threshold 3 --horizon 500 --runs 20
posse runs list
