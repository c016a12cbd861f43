//! The operating-system user of a process, and the check that the kernel's user id can be trusted.
//!
//! In a user namespace that a process creates itself, it can have any user id: ids are mapped, and a process inside
//! sees only the result. The map itself cannot be forged. A map of all ids to themselves belongs to the initial
//! namespace of the machine, and a container's map can only be repeated by the creator of the container.

use std::{fs, io};

use rustix::process::getuid;

/// The map of the initial namespace of a machine: every id is mapped to itself.
const WHOLE: &str = "0 0 4294967295";

/// Returns the user id map of this process, one line per range, or `None` if the system has no user namespaces.
pub(crate) fn read_user_map() -> io::Result<Option<String>> {
    match fs::read_to_string("/proc/self/uid_map") {
        Ok(text) => Ok(Some(normalize_map(&text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Normalizes the spaces in each line, so that maps can be compared.
fn normalize_map(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Checks that the user id of this process can be trusted: it is in the initial namespace of the machine, or in the one
/// in which the state folder was created (`made_in`).
pub fn check_identity(made_in: Option<&str>) -> Result<(), IdentityError> {
    match read_user_map().map_err(IdentityError::Unreadable)? {
        None => Ok(()),
        Some(map) if map == WHOLE || Some(map.as_str()) == made_in => Ok(()),
        Some(map) => Err(IdentityError::Namespace { map: map.replace('\n', "; ") }),
    }
}

/// The reason why the user of this process cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("/proc/self/uid_map cannot be read: {0}")]
    Unreadable(io::Error),
    #[error(
        "this process is in a user namespace (its map of user ids is `{map}`), in which a process can have any user id"
    )]
    Namespace { map: String },
}

/// Returns the name of the user of this process.
pub fn current_user() -> String {
    user_name(getuid().as_raw())
}

/// Returns the name of a user, or its number if it has no name.
pub fn user_name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    find_user_name(&users, uid).unwrap_or_else(|| format!("uid-{uid}"))
}

fn find_user_name(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Returns the number of a group of this machine.
pub fn group_number(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nodd line\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(find_user_name(users, 1000).as_deref(), Some("ada"));
        assert_eq!(find_user_name(users, 7), None);
    }

    #[test]
    fn maps_are_compared_without_their_spaces() {
        assert_eq!(normalize_map("         0          0 4294967295\n"), WHOLE);
        assert_eq!(normalize_map("0 1000 1\n1  100000 65536\n"), "0 1000 1\n1 100000 65536");
    }

    #[test]
    fn a_group_is_found_by_its_name_and_by_its_number() {
        assert_eq!((group_number("root"), group_number("12")), (Some(0), Some(12)));
        assert_eq!(group_number("no-such-group-here"), None);
    }
}
