#!/usr/bin/env bash
# Installs and uses the packages of scripts/wheel and scripts/deb in a bare Debian that has Python and NumPy, and
# neither a compiler nor libgomp. The headers and the files for CMake and pkg-config are used on this machine, which has
# a compiler.
#     clean_debian.sh WHEELS DEBS SCRATCH
# Says "skipped: ..." and exits with 77 where such a Debian cannot be made.
set -euo pipefail
wheels=$(realpath "$1") debs=$(realpath "$2") scratch=$3
here=$(cd "$(dirname "$0")" && pwd)

skip() {
    echo "skipped: this needs $*"
    exit 77
}

command -v mmdebstrap >/dev/null || skip "mmdebstrap"
[ "$(id -u)" -eq 0 ] || skip "root"
unshare --mount true 2>/dev/null || skip "a machine on which root may mount"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# This is the mirror that this machine uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $suite" "Component: main" | head -n 1)
[ -n "$mirror" ] || skip "apt-get to know a mirror of ${suite:-Debian}"

rm -rf "$scratch"
mkdir -p "$scratch/packages" "$scratch/installed"
scratch=$(realpath "$scratch")
cp "$wheels"/*.whl "$debs"/*.deb "$here/clean_debian_inside.sh" "$scratch/packages"

for package in "$debs"/*.deb; do
    dpkg-deb -x "$package" "$scratch/installed"
done
"$here/use_prefix.sh" "$scratch/installed/usr" "$here/../consumer" "$scratch/use" cc

# The root is thrown away when the hook has run.
mmdebstrap -q --variant=apt --include=python3-numpy,python3-venv --format=null --dpkgopt=force-unsafe-io \
    --customize-hook="mkdir \"\$1/packages\" && cp '$scratch'/packages/* \"\$1/packages\"" \
    --customize-hook='chroot "$1" sh /packages/clean_debian_inside.sh' \
    "$suite" /dev/null "$mirror"
rm -rf "$scratch"
