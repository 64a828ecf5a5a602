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
"$here/install.sh"
exec node "$here/check.mjs" "$1"
