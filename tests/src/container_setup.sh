# Makes the root of a container and starts a command in it, in place of this shell. Runs as root in a mount namespace
# of its own, with which all that is mounted here vanishes.
#
# IMAGE: directory with the container's own files.  LAYER: upper or lower, where in the overlay they lie.
# BASE: empty directory to mount on.                ROOT: pivot or chroot, how the root is entered.
# USER_NAMESPACE: yes or no.                        OUTER_UID: the user as the host sees it.
# The arguments are the command.
set -eu

mount -t tmpfs -o mode=755 nprof-tests "$BASE"
cd "$BASE"
mkdir upper lower work root
# A copy, as a directory of the host cannot be a layer beside the root that it lies in.
cp -a "$IMAGE/." "$LAYER"
mount -t overlay -o lowerdir=lower:/,upperdir=upper,workdir=work overlay root
# A file system of its own is not part of the overlay.
if [ ! -x "root$JDK/bin/java" ]; then
    mkdir -p "root$JDK"
    mount --bind "$JDK" "root$JDK"
fi

# Who enters a user namespace is root in it, and on the host stays who he was.
case $USER_NAMESPACE in
    yes)
        before="setpriv --reuid $OUTER_UID --regid $OUTER_UID --clear-groups"
        map=--map-root-user
        inside= ;;
    no)
        before=
        map=
        inside="setpriv --reuid $OUTER_UID --regid $OUTER_UID --clear-groups" ;;
esac
export inside

# shellcheck disable=SC2016,SC2086 # The inner shell expands its own variables; the words are options.
exec $before unshare $map --mount --pid --uts --ipc --fork --kill-child /bin/sh -euc '
    hostname container
    # A copy of the mount, which unlike one from outside may become the root.
    mount --rbind "$BASE/root" "$BASE/root"
    cd "$BASE/root"
    mount -t proc proc proc
    case $ROOT in
        pivot)
            mount --rbind /dev dev
            pivot_root . .
            umount -l .
            cd /
            exec $inside "$@" ;;
        chroot)
            mount --rbind /dev dev
            exec chroot . $inside "$@" ;;
    esac' container "$@"
