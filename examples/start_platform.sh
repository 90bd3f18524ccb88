#!/bin/sh
# A platform engineer: seven parties as processes, mutual TLS between them.
set -eu

posse up examples/federation.toml
posse runs list
