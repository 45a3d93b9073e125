#!/bin/sh
# Builds the launcher of the tier "sbx" into build/, where it is looked for. Needs gcc and the
# static C library (Debian: gcc, libc6-dev); the result needs nothing. The first argument may name
# another place for it.
set -eu
cd "$(dirname "$0")"
target="${1:-build/sbx}"
mkdir -p "$(dirname "$target")"
# Another one that is built at the same time, or in use, is replaced in one step.
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -static -s -o "$target.$$" sbx.c
mv -f "$target.$$" "$target"
