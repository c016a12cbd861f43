//! Namespaces that a worker creates inside its sandbox, in which it has every capability: hidden and protected files
//! must stay so.

use super::{Attack, Control::Always, shell};

pub(crate) const ATTACKS: &[Attack] = &[
    shell("nested_unmount_of_state", Always, "unshare -Urm bash -c 'umount -l $T_state; test -s $T_state/skein.db'"),
    shell(
        "nested_write_outside",
        Always,
        "unshare -Urm bash -c 'mount -o remount,bind,rw /; mount -o remount,bind,rw $T_project; echo x > $T_witness/nested'",
    ),
    shell("nested_unmount_of_tmp", Always, "unshare -Urm bash -c 'umount -l /tmp; cat $T_tmp_file'"),
    shell("nested_unmount_of_var_tmp", Always, "unshare -Urm bash -c 'umount -l /var/tmp; cat $T_var_tmp_file'"),
    shell(
        "nested_unmount_of_shared_memory",
        Always,
        "unshare -Urm bash -c 'umount -l /dev/shm; umount -l /dev; cat $T_shm_file'",
    ),
    shell("nested_unmount_of_devices", Always, "unshare -Urm bash -c 'umount -R -l /dev; test -c $T_terminal'"),
    shell("nested_unmount_of_processes", Always, "unshare -Urm bash -c 'umount -R -l /proc; test -d /proc/$T_pid'"),
    shell("nested_mount_of_processes", Always, "unshare -Urm bash -c 'mount -t proc proc /proc; test -d /proc/$T_pid'"),
    shell(
        "nested_unmount_of_a_socket",
        Always,
        "unshare -Urm bash -c 'umount -l $T_home_socket; /usr/bin/python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect(\\\"$T_home_socket\\\")\"'",
    ),
    shell(
        "nested_copy_of_the_folder_around_state",
        Always,
        "unshare -Urm bash -c 'mkdir -p copy; mount --bind $T_project copy || mount --rbind $T_project copy; test -s copy/.skein/skein.db'",
    ),
    shell(
        "nested_copy_of_root",
        Always,
        "unshare -Urm bash -c 'mkdir -p copy; mount --bind / copy || mount --rbind / copy; cat copy/$T_tmp_file'",
    ),
    shell(
        "nested_overlay_over_state",
        Always,
        "unshare -Urm bash -c 'mkdir -p o/u o/w o/m; mount -t overlay overlay -o lowerdir=$T_project,upperdir=o/u,workdir=o/w o/m; cd o/m 2>/dev/null; test -s .skein/skein.db || test -s $T_state/skein.db'",
    ),
    shell(
        "nested_move_of_state",
        Always,
        "unshare -Urm bash -c 'mkdir -p moved; mount --move $T_state moved; test -s $T_state/skein.db'",
    ),
    shell("nested_signal", Always, "unshare -Ur kill -0 $T_pid"),
    shell("nested_look_into_a_process", Always, "unshare -U bash -c 'grep -q outsider /proc/$T_pid/cmdline'"),
    shell(
        "nested_change_of_root",
        Always,
        "unshare -Ur chroot /proc/1/root test -s $T_state/skein.db || test -s $T_state/skein.db",
    ),
    shell("nested_change_of_owner", Always, "unshare -Ur touch -m $T_home/secret"),
    shell(
        "nested_links_out_of_a_copy",
        Always,
        "unshare -Urm bash -c 'mkdir -p copy; mount --rbind / copy; echo x > copy/$T_witness/rbind'",
    ),
];
