#!/bin/sh
# Installs the software drivers for the tests, if possible, and runs the tests.
#
#   scripts/test.sh             whether it works on this machine: every operator and algorithm on one adapter, and a
#                               selection of those on the others
#   scripts/test.sh --all       all cases, and every other check: formatting, lints, documentation, benches (once,
#                               untimed), examples, and the kernels through Tint, Chrome's WGSL compiler
#   scripts/test.sh --release   in addition, every element type with every kernel on every adapter, every text of every
#                               kernel, a hundred thousand random plans, verify's full list, the oldest Rust, the
#                               packages and what they depend on, the application with egui, the page, and Burn in
#                               a browser: hours
#   scripts/test.sh --trust [MINUTES]
#                               tests that search by themselves for so long [default: 5]; WGPU_NORM_SEED repeats a search
#
# Environment:
#   WGPU_NORM_REQUIRE_ADAPTERS  adapters that the tests require: a comma-separated list of lavapipe,
#                               llvmpipe and swiftshader; on Linux with apt, where all three can be
#                               installed, it is set here unless it is already set
#   WGPU_NORM_REQUIRE_VALIDATORS  if set, the tests require spirv-val and glslangValidator; set here
#                               where apt can install them
#   CI=true                     nothing is skipped: the requirements of every step must be met
set -eu
cd "$(dirname "$0")/.."
ci=${CI:-false}
all=no
trust=
case "${1-}" in
    '') ;;
    --all) all=yes ;;
    --release)
        all=yes
        export WGPU_NORM_TEST_EVERY=1
        ;;
    --trust)
        trust=${2:-5}
        case $trust in
            *[!0-9.]* | .* | 0)
                echo "$0 --trust: expected minutes, got $trust" >&2
                exit 2
                ;;
        esac
        ;;
    *)
        echo "usage: $0 [--all | --release | --trust [MINUTES]]" >&2
        exit 2
        ;;
esac

heading() { printf '\n==== %s\n' "$*"; }
skip() { # reason
    if [ "$ci" = true ]; then
        echo "failed: $1" >&2
        exit 1
    fi
    echo "skipped: $1"
}
has() { command -v "$1" >/dev/null; }

has cargo || {
    echo "cargo is missing: install Rust from https://rustup.rs" >&2
    exit 1
}

heading "drivers"
scripts/install-drivers.sh --all

# The Vulkan loader finds installed drivers by itself, but not the one inside Chromium; and if one driver is named, all
# must be named. A list of both puts every adapter into one process. Loaders before 1.3.207 know only the second
# variable. Only the tests get this list.
drivers=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}
swiftshader=
if [ "$(uname -s)" = Linux ] && swiftshader=$(scripts/find-swiftshader.sh); then
    if [ -z "$drivers" ]; then
        for manifest in /usr/share/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json \
            /etc/vulkan/icd.d/*.json; do
            if [ -e "$manifest" ]; then drivers="$drivers${drivers:+:}$manifest"; fi
        done
    fi
    case ":$drivers:" in
        *":$swiftshader:"*) ;;
        *) drivers="$drivers${drivers:+:}$swiftshader" ;;
    esac
fi
if [ -z "${WGPU_NORM_REQUIRE_ADAPTERS+set}" ] && [ "$(uname -s)" = Linux ] && has apt-get; then
    WGPU_NORM_REQUIRE_ADAPTERS=lavapipe
    # If there is a GPU, GL may offer only its driver.
    gpu=no
    for device in /dev/dri/renderD* /dev/nvidia0 /dev/dxg; do
        if [ -e "$device" ]; then gpu=yes; fi
    done
    if [ $gpu = no ]; then WGPU_NORM_REQUIRE_ADAPTERS=$WGPU_NORM_REQUIRE_ADAPTERS,llvmpipe; fi
    # Not every distribution has an apt package of Chromium.
    if [ -n "$swiftshader" ]; then
        WGPU_NORM_REQUIRE_ADAPTERS=$WGPU_NORM_REQUIRE_ADAPTERS,swiftshader
    fi
    export WGPU_NORM_REQUIRE_ADAPTERS
fi
if [ "$(uname -s)" = Linux ] && has apt-get; then
    export WGPU_NORM_REQUIRE_VALIDATORS=1
fi
echo "adapters that must be tested: ${WGPU_NORM_REQUIRE_ADAPTERS:-those that are here}"

with_drivers() {
    if [ -n "$drivers" ]; then
        VK_DRIVER_FILES=$drivers VK_ICD_FILENAMES=$drivers "$@"
    else
        "$@"
    fi
}

# Otherwise the GL driver's search for a Wayland display complains in every process.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"

# One test per core: software drivers have their own threads, and idle ones spin.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$cores}"

# What failed, for the last lines.
failed=
step() { # a command, named at the end if it fails
    "$@" || failed="$failed
  $*"
}
run_tests() {
    cargo test --no-run --lib --test library --test integration
    step with_drivers cargo test --lib --no-fail-fast
    if [ $all = yes ]; then
        # These write files for tools: --all compiles those for Tint.
        files=writes_every_variant_for_tint
        [ -z "${WGPU_NORM_TEST_EVERY:-}" ] || files=writes
        step cargo test --lib -- --ignored "$files"
    fi
    if [ $all = no ]; then
        step with_drivers cargo test --test library --no-fail-fast
    else
        # A process for each module: kernels compiled by drivers stay in a process's memory, here many gigabytes.
        modules=$(cargo test -q --test library -- --list | sed -n 's/::.*: test$//p' | sort -u)
        step [ -n "$modules" ]
        for module in $modules; do
            step with_drivers cargo test --test library -- "$module::"
        done
    fi
    # The command is tested on lavapipe, which caches compiled kernels on disk; SwiftShader has no cache.
    run=with_drivers
    case "${WGPU_NORM_TEST_EVERY:-},${WGPU_NORM_REQUIRE_ADAPTERS:-}" in ,*lavapipe*) run= ;; esac
    step $run cargo test --test integration --no-fail-fast
}
# A share of the minutes for every adapter, and one for lavapipe under Vulkan's validation layers.
search() { # minutes
    export WGPU_NORM_SEED="${WGPU_NORM_SEED:-$(date +%s)}"
    step with_drivers env WGPU_NORM_TRUST="$(LC_ALL=C awk "BEGIN { print $1 * 0.8 }")" cargo test --test trust
    if [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ]; then
        step env WGPU_NORM_TRUST="$(LC_ALL=C awk "BEGIN { print $1 * 0.2 }")" WGPU_NORM_TRUST_ADAPTER="(vulkan, llvmpipe" WGPU_VALIDATION=1 \
            VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1 cargo test --test trust
    else
        skip "Vulkan's validation layers are not installed (package vulkan-validationlayers)"
    fi
}
finish() {
    if [ -n "$failed" ]; then
        heading "failed, see above:$failed"
        exit 1
    fi
    heading "all passed"
}

if [ -n "$trust" ]; then
    heading "a search of $trust minutes"
    search "$trust"
    finish
    exit 0
fi

if [ $all = no ]; then
    heading "tests"
    run_tests
    finish
    exit 0
fi
export WGPU_NORM_TEST_ALL=1

heading "format"
if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --check
else
    skip "rustfmt is not installed (rustup component add rustfmt)"
fi

heading "lints"
if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy --all-targets -- -D warnings
else
    skip "clippy is not installed (rustup component add clippy)"
fi

heading "the library without a backend"
cargo check -p wgpu-norm --lib --no-default-features

heading "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features safetensors

heading "tests"
rm -rf target/wgsl # the tests write kernels there, for Tint
run_tests
step with_drivers cargo test --examples --no-fail-fast
step with_drivers cargo test --doc

if [ -n "${WGPU_NORM_TEST_EVERY:-}" ]; then
    heading "verify sees damage"
    step env RUSTFLAGS="--cfg wgpu_norm_mutants" CARGO_TARGET_DIR=target/mutants \
        cargo test -p wgpu-norm-cli --test integration damage_is_seen
fi

# With `cargo test`, so that the dependencies are not built again under the bench profile.
heading "benches, each once and untimed"
with_drivers cargo test --bench '*'

for example in train backward channels record adaptive autograd synchronized "diffusion -- 20" "digits -- --steps 20"; do
    heading "example $example"
    # shellcheck disable=SC2086 # a name, and arguments of its own
    cargo run --quiet --example $example
done
heading "example wgsl"
cargo run --quiet --example wgsl >/dev/null # thousands of lines

if [ -n "${WGPU_NORM_TEST_EVERY:-}" ]; then
    heading "the oldest Rust"
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if cargo "+$oldest" --version >/dev/null 2>&1; then
        cargo "+$oldest" check --locked --workspace
    else
        skip "Rust $oldest is not installed (rustup toolchain install $oldest)"
    fi
    heading "packages"
    scripts/test-packages.sh
    if cargo deny --version >/dev/null 2>&1; then
        cargo deny check
    else
        skip "cargo-deny is not installed (cargo install cargo-deny)"
    fi
    heading "the application with egui"
    scripts/test-egui.sh target/egui.png
    heading "the page"
    scripts/test-page.sh
    heading "Burn's layers in a browser"
    scripts/test-burn-browser.sh
fi

heading "a search of 2 minutes"
export WGPU_NORM_SEED="${WGPU_NORM_SEED:-1}" # always the same, so that a change fails for what it changed
search 2

heading "kernels through Tint"
if [ "$ci" = true ] && has apt-get && ! { has node && has npm; }; then
    sudo=
    if [ "$(id -u)" != 0 ]; then sudo=sudo; fi
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
fi
if ! has node || ! has npm; then
    skip "node and npm are not installed"
else
    tools/tint/run.sh target/wgsl
fi

finish
