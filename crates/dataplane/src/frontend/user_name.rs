//! Names of users: as servers read them, and as operators see them.

/// How many bytes of a user name are logged: servers know none that is longer, and a line has a limit.
const USER_SHOWN: usize = 256;

/// A user's name as logs and lists have it.
pub(crate) fn shown_user(user: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&user[..user.len().min(USER_SHOWN)]).into()
}

/// The name of an account as servers read it in a login: up to a zero byte, without one pair of quotes around
/// it, and no longer than names may be (`parse_client_handshake_packet` of both).
pub(crate) fn as_servers_read(name: &[u8], is_mariadb: bool) -> &[u8] {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = match name {
        [b'\'', inner @ .., b'\''] => inner,
        _ => name,
    };
    let longest = if is_mariadb { 128 } else { 32 };
    let begins_character = |at: &usize| name[*at] & 0xc0 != 0x80;
    let end = (0..name.len()).filter(begins_character).nth(longest);
    &name[..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::as_servers_read;

    #[test]
    fn names_are_read_as_servers_read_them() {
        let long = "x".repeat(33);
        for (name, on_mysql, on_mariadb) in [
            ("app", "app", "app"),
            ("", "", ""),
            ("app\0x", "app", "app"),
            ("'app'", "app", "app"),
            ("''app''", "'app'", "'app'"),
            ("'", "'", "'"),
            (&long, &long[..32], &long),
        ] {
            let read = |is_mariadb| as_servers_read(name.as_bytes(), is_mariadb);
            assert_eq!(
                [read(false), read(true)],
                [on_mysql, on_mariadb].map(str::as_bytes)
            );
        }
        let wide = "ä".repeat(33);
        assert_eq!(as_servers_read(wide.as_bytes(), false), "ä".repeat(32).as_bytes());
    }
}
