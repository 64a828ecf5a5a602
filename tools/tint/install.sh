#!/bin/sh
# Installs Dawn for node, with its libraries for every system, in this directory; again whenever the lock file changes.
# Needs npm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed-lock.json"; then
    # The packages' scripts are not needed.
    (cd "$here" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
    cp "$here/package-lock.json" "$here/node_modules/.installed-lock.json"
fi
