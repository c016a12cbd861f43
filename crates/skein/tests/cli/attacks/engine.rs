//! Commands to a run from inside a worker.

use super::{Attack, Control::Unproven, python, shell};

pub(crate) const ATTACKS: &[Attack] = &[
    shell("approve", Unproven, "$T_skein approve $T_run sign-off"),
    shell("approve_by_state", Unproven, "cd /; $T_skein approve $T_run sign-off --state $T_state"),
    shell("approve_with_an_empty_environment", Unproven, "env -i $T_skein approve $T_run sign-off --state $T_state"),
    shell("approve_as_another_user", Unproven, "unshare -U env -i $T_skein approve $T_run --state $T_state"),
    shell("approve_as_root", Unproven, "unshare -Urm env -i $T_skein approve $T_run --state $T_state"),
    shell("approve_from_another_home", Unproven, "env -i HOME=$PWD $T_skein approve $T_run --state $T_state"),
    shell("approve_with_a_copy", Unproven, "cp $T_skein ./other; env -i ./other approve $T_run --state $T_state"),
    shell(
        "approve_without_parents",
        Unproven,
        "(setsid env -i $T_skein approve $T_run --state $T_state; echo $? > said) & sleep 1; test \"$(cat said)\" = 0",
    ),
    shell("approve_through_own_root", Unproven, "env -i $T_skein approve $T_run --state /proc/self/root$T_state"),
    shell("reject", Unproven, "env -i $T_skein reject $T_run --state $T_state"),
    shell("signal", Unproven, "env -i $T_skein signal $T_run go.now --state $T_state"),
    shell("cancel", Unproven, "env -i $T_skein cancel $T_run --state $T_state"),
    shell("resume", Unproven, "env -i $T_skein resume $T_run --state $T_state"),
    shell("fork", Unproven, "env -i $T_skein fork $T_run --from draft --state $T_state"),
    python(
        "write_the_journal",
        Unproven,
        "import sqlite3\ndb = sqlite3.connect(T.state + '/skein.db', timeout=1)\ndb.execute('create table forged (x)')\nok = True",
    ),
];
