#!/bin/sh
# An ML engineer: what would other policies have earned, and one model on many devices.
set -eu

posse evaluate examples/logs.csv --figure intervals.svg
posse run fed-contextual --rounds 40 --model-out model.npz
posse budget sampled --clients 342477 --cohort 64 --noise 0.7 --rounds 1600 --delta 1e-6
