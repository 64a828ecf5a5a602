#!/bin/sh
# Installs a software Vulkan driver (Mesa's lavapipe) if this machine has no usable Vulkan driver.
#
#   scripts/install-drivers.sh          installs what the command and the library need
#   scripts/install-drivers.sh --all    also installs what the tests need: lavapipe in any case, llvmpipe
#                                       for GL, and, with apt, Chromium for its SwiftShader, and
#                                       the validators of SPIR-V and GLSL
#
# Supports apt, dnf and pacman; macOS and Windows already have everything. Leaves alone what is already installed.
# Prints one line about what it did.
set -eu

all=no
case "${1-}" in
    '') ;;
    --all) all=yes ;;
    *)
        echo "usage: $0 [--all]" >&2
        exit 2
        ;;
esac

say() { echo "drivers: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

case "$(uname -s)" in
    Darwin)
        say "nothing to install: macOS brings Metal"
        exit 0
        ;;
    MINGW* | MSYS* | CYGWIN*)
        say "nothing to install: Windows brings DirectX 12"
        exit 0
        ;;
    Linux) ;;
    *)
        say "cannot install anything on $(uname -s): a Vulkan driver must be there" >&2
        exit 0
        ;;
esac

PATH=$PATH:/usr/sbin:/sbin # ldconfig's folder, which not every PATH has
here=$(dirname "$0")

# Does one of these files exist? (A pattern that matches nothing stays as written.)
any() {
    for file; do
        [ -e "$file" ] && return 0
    done
    return 1
}
has_library() {
    { ldconfig -p 2>/dev/null || true; } | grep -q -F "$1" \
        || any /usr/lib/"$1" /usr/lib64/"$1" /usr/lib/*/"$1" /usr/local/lib/"$1"
}

# A driver named by the environment, in the Vulkan loader's way.
has_named_driver() {
    named=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}
    [ -n "$named" ] || return 1
    saved=$IFS
    IFS=:
    # shellcheck disable=SC2086 # a colon-separated list, split on purpose
    set -- $named
    IFS=$saved
    any "$@"
}
has_manifest() {
    # shellcheck disable=SC2086 # a pattern
    any /usr/share/vulkan/icd.d/$1 /usr/local/share/vulkan/icd.d/$1 /etc/vulkan/icd.d/$1
}
has_gpu() { any /dev/dri/renderD* /dev/nvidia0 /dev/dxg; }

has_lavapipe() { has_library libvulkan.so.1 && has_manifest 'lvp_icd*.json'; }
# A GPU's driver counts only if there is a GPU: Mesa installs several drivers on any machine.
has_vulkan() {
    has_library libvulkan.so.1 || return 1
    has_named_driver || has_manifest 'lvp_icd*.json' || { has_gpu && has_manifest '*.json'; }
}
has_llvmpipe() {
    has_library libEGL.so.1 && has_library libEGL_mesa.so.0 \
        && any /usr/lib/*/dri/swrast_dri.so /usr/lib*/dri/swrast_dri.so \
            /usr/lib/*/libgallium*.so /usr/lib*/libgallium*.so
}
has_swiftshader() { "$here/find-swiftshader.sh" >/dev/null; }
has_validators() {
    command -v spirv-val >/dev/null && command -v glslangValidator >/dev/null \
        && any /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json
}

if command -v apt-get >/dev/null; then
    manager=apt
elif command -v dnf >/dev/null; then
    manager=dnf
elif command -v pacman >/dev/null; then
    manager=pacman
else
    manager=none
fi

need= # what is missing, in words
packages=
want() { # words, then the packages by apt, dnf, pacman
    need="$need${need:+, }$1"
    case $manager in
        apt) packages="$packages $2" ;;
        dnf) packages="$packages $3" ;;
        pacman) packages="$packages $4" ;;
    esac
}
lavapipe() {
    want lavapipe 'mesa-vulkan-drivers libvulkan1' 'mesa-vulkan-drivers vulkan-loader' \
        'vulkan-swrast vulkan-icd-loader'
}
if [ $all = yes ]; then
    has_lavapipe || lavapipe
    has_llvmpipe || want llvmpipe 'libegl1 libegl-mesa0 libgl1-mesa-dri' \
        'mesa-libEGL mesa-dri-drivers' mesa
    if [ $manager = apt ]; then
        has_validators || want validators 'spirv-tools glslang-tools vulkan-validationlayers' '' ''
        has_swiftshader || want SwiftShader chromium '' ''
    fi
else
    has_vulkan || lavapipe
fi

if [ -z "$need" ]; then
    if [ $all = yes ]; then
        say "nothing to install: the software drivers and validators for the tests are here"
    else
        say "nothing to install: a Vulkan driver is here"
    fi
    exit 0
fi
[ $manager != none ] \
    || fail "missing: $need; apt, dnf and pacman are not available: please install it in another way"

if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null; then
    root=sudo
else
    fail "missing: $need; please install as root:$packages"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { # shows a command's output only if it failed
    $root "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        return 1
    }
}
# A package that this distribution lacks would make apt refuse all of them (Ubuntu's Chromium is a snap).
if [ $manager = apt ]; then
    # One broken third-party source is no reason to stop: the installation reports a missing package.
    quietly apt-get update -qq || say "apt-get update failed; going on with the lists as they are" >&2
    case $packages in
        *chromium*)
            if ! apt-cache show chromium 2>/dev/null | grep -q '^Filename:'; then
                packages=$(echo "$packages" | sed 's/ chromium//')
                need=$(echo "$need" | sed 's/,* *SwiftShader//')
                say "apt has no chromium package here: the tests go without SwiftShader" >&2
            fi
            ;;
    esac
fi
[ -n "$need" ] || exit 0
# shellcheck disable=SC2086 # a list of words, split on purpose
case $manager in
    apt)
        quietly env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $packages
        ;;
    dnf) quietly dnf install -y -q --setopt=install_weak_deps=False $packages ;;
    pacman) quietly pacman -Sy --needed --noconfirm $packages ;;
esac || fail "could not install $need ($manager:$packages)"

case $need in *lavapipe*) has_lavapipe || fail "installed$packages, but no lavapipe driver came" ;; esac
case $need in *llvmpipe*) has_llvmpipe || fail "installed$packages, but no llvmpipe driver came" ;; esac
case $need in *validators*) has_validators || fail "installed$packages, but no validators came" ;; esac
case $need in *SwiftShader*) has_swiftshader || fail "installed$packages, but no SwiftShader came" ;; esac
say "installed $need ($manager:$packages)"
