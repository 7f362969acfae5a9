#!/bin/sh
# Installs, upgrades, removes and purges the package $1 in a copy of this machine that is thrown away, and checks what
# each step leaves. Run by packaging.rs in a mount namespace of its own: unshare --mount sh install.sh PACKAGE
set -eu

die() {
    echo "install.sh: $*" >&2
    exit 1
}

mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mount -t proc none /mnt/root/proc
mount --rbind /dev /mnt/root/dev
cp "$1" /mnt/root/nprof.deb
# Otherwise each step indexes the manual pages of the whole machine.
rm -f /mnt/root/var/lib/man-db/auto-update

in_copy() {
    chroot /mnt/root "$@"
}

in_copy dpkg --install /nprof.deb
in_copy nprof --version
in_copy getent group nprof || die "no group nprof"
in_copy id nprof || die "no user nprof"
[ ! -e /mnt/root/etc/systemd/system/multi-user.target.wants/nprof.service ] || die "the service is enabled"

echo "# changed" >> /mnt/root/etc/nprof/nprof.toml
in_copy dpkg --install /nprof.deb
grep -qx "# changed" /mnt/root/etc/nprof/nprof.toml || die "an upgrade loses the configuration"

in_copy dpkg --remove nprof
[ ! -e /mnt/root/usr/bin/nprof ] || die "removing leaves the program"
[ -e /mnt/root/etc/nprof/nprof.toml ] || die "removing takes the configuration"

touch /mnt/root/etc/nprof/token
in_copy dpkg --purge nprof
[ ! -e /mnt/root/etc/nprof/nprof.toml ] || die "purging leaves the configuration"
[ -e /mnt/root/etc/nprof/token ] || die "purging takes what is not the package's"
! in_copy id nprof 2>/dev/null || die "purging leaves the user"
