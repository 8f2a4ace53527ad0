#!/bin/sh
# clean_debian.sh runs this inside of the bare Debian.
set -eu
export OMP_NUM_THREADS=2

for tool in cc gcc c99 clang make cmake; do
    ! command -v $tool || { echo "there is a compiler here"; exit 1; }
done
! ldconfig -p | grep libgomp || { echo "there is a libgomp here"; exit 1; }

echo "== the wheel, in a virtual environment"
cat >/program.py <<'END'
import numpy as np
import tconv

x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
y = tconv.conv_transpose2d(x, np.ones((1, 1, 2, 2), np.float32), stride=2)
assert y.tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]]]
wide = tconv.conv_transpose2d(np.ones((1, 64, 64, 64), np.float32), np.ones((64, 8, 3, 3), np.float32))
assert wide[0, 0, 5, 5] == 64 * 9
gomp = {line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}
print("tconv", tconv.__version__, "with NumPy", np.__version__, "and", *gomp)
END
python3 -m venv --system-site-packages /venv
/venv/bin/pip install -q --no-index --disable-pip-version-check /packages/*.whl
/venv/bin/python -I /program.py

echo "== libtconv0 and tconv"
apt-get install -q -y --no-install-recommends /packages/libtconv0_*.deb /packages/tconv_*.deb >/log 2>&1 || { cat /log; exit 1; }
library=$(dpkg -L libtconv0 | grep '/libtconv\.so\.0$')
[ "$(readlink "$library")" = "$(basename "$(readlink -f "$library")")" ]
ldconfig -p | grep "libtconv.so.0 "
dpkg -V libtconv0 tconv
tconv --version
for command in $(tconv --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    zcat /usr/share/man/man1/tconv.1.gz | grep -qx ".B $command" || { echo "the man page lacks $command"; exit 1; }
done
tconv info
tconv verify --no-corners --layers 20
TCONV_LIBRARY=$library /venv/bin/python -I /program.py

echo "== libtconv-dev"
apt-get install -q -y --no-install-recommends /packages/libtconv-dev_*.deb >/log 2>&1 || { cat /log; exit 1; }
cmp "${library%.0}" "$library"

echo "== all of it away"
apt-get purge -q -y libtconv0 libtconv-dev tconv >/log 2>&1 || { cat /log; exit 1; }
! find /usr /etc /var/lib/dpkg -name '*tconv*' | grep . || { echo "this is left"; exit 1; }
