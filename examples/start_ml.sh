#!/bin/sh
# An ML engineer: estimate other policies from a log, and train one model on many devices.
set -eu

posse evaluate examples/logs.csv --figure intervals.svg  # extra plot
posse run fed-contextual --rounds 40 --model-out model.npz  # extras contextual, data
