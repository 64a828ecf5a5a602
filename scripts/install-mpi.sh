#!/bin/sh
# Installs MPI (Open MPI) and libclang, which builds Rust's bindings to it, if they are missing. Supports apt, dnf and
# pacman, and Homebrew on macOS. Prints one line about what it did.
set -eu

say() { echo "mpi: $*"; }
has() { command -v "$1" >/dev/null; }

# Any libclang: from the system's packages, or from an LLVM folder.
has_libclang() {
    [ -n "${LIBCLANG_PATH-}" ] && return 0
    for file in /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* /usr/lib64/libclang*.so* /usr/lib/libclang*.so* \
        /opt/homebrew/opt/llvm/lib/libclang.dylib /Library/Developer/CommandLineTools/usr/lib/libclang.dylib; do
        case $file in
            *libclang-cpp*) ;;
            *) [ -e "$file" ] && return 0 ;;
        esac
    done
    return 1
}

if has mpicc && has mpirun && has_libclang; then
    say "nothing to install: $(mpirun --version 2>/dev/null | head -n 1)"
    exit 0
fi

sudo=
if [ "$(id -u)" != 0 ]; then sudo=sudo; fi
if has apt-get; then
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends libopenmpi-dev openmpi-bin libclang-dev >/dev/null
elif has dnf; then
    $sudo dnf install -y -q openmpi-devel clang-devel
elif has pacman; then
    $sudo pacman -S --noconfirm --needed openmpi clang >/dev/null
elif has brew; then
    brew install -q open-mpi llvm
else
    say "cannot install anything here: Open MPI or MPICH, and libclang, must be there" >&2
    exit 1
fi
if has mpicc && has mpirun; then
    say "installed Open MPI and libclang"
else
    say "installed Open MPI and libclang; mpicc and mpirun are not in PATH yet: 'module load mpi' may put them there" >&2
    exit 1
fi
