#!/bin/sh
# A platform engineer: seven parties run as processes, with mutual TLS.
set -eu

posse up examples/federation.toml
posse runs list
