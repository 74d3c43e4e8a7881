#!/bin/bash
# package.sh BINARY FOLDER: makes a Debian package of a built binary in the folder, with its symbols in a file beside it, and
# prints the name of the package.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "$1")
out=$2
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
architecture=$(dpkg --print-architecture)
mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -D -m 755 "$binary" "$root/usr/bin/veche"
packaging/strip.sh "$root/usr/bin/veche" "$out/veche_${version}_$architecture.debug"
install -D -m 644 packaging/systemd/veche.service "$root/lib/systemd/system/veche.service"
install -D -m 644 packaging/veche.toml "$root/etc/veche/veche.toml"

# The binary itself generates completions and man pages from the definitions of its command line.
for shell in bash:bash-completion/completions/veche zsh:zsh/vendor-completions/_veche fish:fish/vendor_completions.d/veche.fish; do
  file=$root/usr/share/${shell#*:}
  mkdir -p "$(dirname "$file")"
  "$binary" completions "${shell%%:*}" > "$file"
done
mkdir -p "$root/usr/share/man/man1"
"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1

doc=$root/usr/share/doc/veche
mkdir -p "$doc"
cp -r README.md docs/guide docs/reference packaging/grafana packaging/prometheus "$doc/"
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
{
  printf 'Veche is licensed under the Apache License 2.0 or the MIT license, at your option.\n\n'
  cat LICENSE-MIT
  printf '\nThe Apache License is in /usr/share/common-licenses/Apache-2.0.\n'
  [ ! -f web/vendor/uplot/LICENSE ] || { printf '\nThe admin page has uPlot in it, which has this license:\n\n'; cat web/vendor/uplot/LICENSE; }
  [ ! -f web/vendor/centrifuge/LICENSE ] || { printf '\nThe demo page has npm centrifuge in it, which has this license:\n\n'; cat web/vendor/centrifuge/LICENSE; }
} > "$doc/copyright"
find "$root/usr/share" -type f -exec chmod 644 {} +
find "$root/usr/share" "$root/etc" -type d -exec chmod 755 {} +

# The version of glibc that the binary's symbols require; a static binary requires none.
glibc=$(objdump -T "$root/usr/bin/veche" 2> /dev/null | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1 || true)
depends=passwd
[ -z "$glibc" ] || depends="libc6 (>= $glibc), libgcc-s1, passwd"
mkdir "$root/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/$depends/" \
  packaging/debian/control > "$root/DEBIAN/control"
printf 'Installed-Size: %s\n' "$(du -sk --exclude DEBIAN "$root" | cut -f1)" >> "$root/DEBIAN/control"
install -m 644 packaging/debian/conffiles "$root/DEBIAN/conffiles"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)

package=$out/veche_${version}_${architecture}.deb
dpkg-deb --root-owner-group --build "$root" "$package" > /dev/null
echo "$package"
