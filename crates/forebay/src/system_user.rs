//! Who runs this process.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The name of the system user, as `/etc/passwd` has it; its number where it is not there, nothing where that
/// is not known.
pub(crate) fn name() -> String {
    let Ok(own) = fs::metadata("/proc/self") else {
        return String::new();
    };
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(own.uid(), &users)
}

fn name_of(uid: u32, users: &str) -> String {
    let number = uid.to_string();
    let mut entries = users.lines().map(|line| line.split(':'));
    let name = entries.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1) == Some(&number)).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn users_have_names() {
        let users = "root:x:0:0:root:/root:/bin/bash\nmysql:x:27:27::/var/lib/mysql:/sbin/nologin\n";
        assert_eq!(
            [0, 27, 1000].map(|uid| name_of(uid, users)),
            ["root", "mysql", "1000"]
        );
    }
}
