//! Who is at the terminal: the operating system's user, by name where it has one.

use std::fs;

/// The user that this process runs as.
pub fn name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    by_number(&users, uid).unwrap_or_else(|| format!("uid-{uid}"))
}

fn by_number(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nodd line\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(by_number(users, 1000).as_deref(), Some("ada"));
        assert_eq!(by_number(users, 7), None);
    }
}
