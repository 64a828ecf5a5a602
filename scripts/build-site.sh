#!/bin/sh
# Builds one static site: the page of web/ at its root, and the manual, with all public items, under doc/.
#
#   sh scripts/build-site.sh [FOLDER] && python3 -m http.server --directory site     [default: site]
#
# Needs what scripts/build-page.sh needs. .github/workflows/site.yml publishes the result.
set -eu
cd "$(dirname "$0")/.."
site=${1:-site}

sh scripts/build-page.sh
RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --features safetensors -p wgpu-norm -p wgpu-norm-verify

rm -rf "$site"
cp -r web/dist "$site"
cp -r target/doc "$site/doc"
rm -f "$site/doc/.lock" # which nobody else may read
# The page links to docs.rs where there is no manual beside it.
sed 's#https://docs.rs/wgpu-norm"#doc/"#' web/dist/index.html >"$site/index.html"
cat >"$site/doc/index.html" <<'END'
<!doctype html>
<html lang="en">
<meta http-equiv="refresh" content="0; url=wgpu_norm/index.html">
<title>wgpu-norm's manual</title>
<a href="wgpu_norm/index.html">wgpu-norm's manual</a>
END
echo "site: $site, $(du -sh "$site" | cut -f1)"
