#!/bin/sh
# Builds the page in web/ that shows this crate in a browser. Any file server can serve the result:
#
#   sh scripts/build-page.sh && python3 -m http.server --directory web/dist
#
# Needs node's npm, for the library that draws curves; scripts/build-wasm.sh installs the rest.
set -eu
cd "$(dirname "$0")/.."

command -v npm >/dev/null || {
    echo "build-page: npm is missing (package npm, or https://nodejs.org)" >&2
    exit 1
}
scripts/build-wasm.sh web wgpu_norm_page
cd web
npm ci --omit=dev --no-audit --no-fund

rm -rf dist
mkdir dist
cp -r page/* pkg dist
cp node_modules/uplot/dist/uPlot.esm.js dist/uplot.js
cp node_modules/uplot/dist/uPlot.min.css dist/uplot.css
program=pkg/wgpu_norm_page_bg.wasm
compressed=$(gzip -9c $program | wc -c)
echo "page: web/dist; the program has $(wc -c <$program) bytes, $compressed compressed"
[ "$compressed" -le 2000000 ] || {
    echo "build-page: the program is larger than 2 MB" >&2
    exit 1
}
