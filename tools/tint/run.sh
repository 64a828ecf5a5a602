#!/bin/sh
# Compiles every WGSL file of a directory with Tint; see check.mjs.
#
#   tools/tint/run.sh DIRECTORY
#
# Needs node and npm.
set -eu
if [ $# != 1 ]; then
    echo "usage: $0 DIRECTORY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
# Installed once, and again when the lock file changes. The packages need none of their scripts.
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed-lock.json"; then
    (cd "$here" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
    cp "$here/package-lock.json" "$here/node_modules/.installed-lock.json"
fi
exec node "$here/check.mjs" "$1"
