#!/bin/sh
# Compiles every WGSL file of a directory with Tint on SwiftShader; see check.mjs.
#
#   tools/tint/run.sh DIRECTORY
#
# Needs node, npm, and the SwiftShader that Chromium brings (scripts/install-drivers.sh --all).
set -eu
if [ $# != 1 ]; then
    echo "usage: $0 DIRECTORY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
swiftshader=$("$here/../../scripts/find-swiftshader.sh") || {
    echo "tint: SwiftShader is not installed" >&2
    exit 1
}
# Installed once, and again when the lock file changes. The packages need none of their scripts.
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed-lock.json"; then
    (cd "$here" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
    cp "$here/package-lock.json" "$here/node_modules/.installed-lock.json"
fi
export VK_DRIVER_FILES="$swiftshader" VK_ICD_FILENAMES="$swiftshader"
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"
# Two processes: every machine has two cores.
node "$here/check.mjs" "$1" 0 2 &
other=$!
status=0
node "$here/check.mjs" "$1" 1 2 || status=1
wait $other || status=1
exit $status
