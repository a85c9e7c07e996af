//! The token of acts: the file of `[admin] token_file`, and `forebay token`, which makes one.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use config::{Config, Secret};

/// Fewer can be guessed; more do not belong into a request.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;
/// Random bytes of a new one, each two digits.
const RANDOM: usize = 32;

/// Where the new token goes.
#[derive(Args)]
pub(crate) struct NewToken {
    /// The file; only its owner may read it.
    file: PathBuf,
    /// In the place of the token that is there, with the same owner.
    #[arg(long)]
    replace: bool,
}

/// Makes a file with a new token.
pub(crate) fn make(new: &NewToken) -> Result<()> {
    let file = &new.file;
    let before = fs::symlink_metadata(file).ok();
    if before.is_some() && !new.replace {
        bail!(
            "{} is there already: --replace makes another token",
            file.display()
        );
    }
    let mut bytes = [0; RANDOM];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("no random bytes from /dev/urandom")?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // Whoever reads meanwhile finds the old one or the new one, never half of it.
    let mut unfinished = file.clone().into_os_string();
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let write = || {
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)?;
        if let Some(before) = &before {
            fchown(&out, Some(before.uid()), Some(before.gid()))?;
        }
        writeln!(out, "{token}")?;
        out.sync_all()?;
        fs::rename(&unfinished, file)
    };
    write().or_else(|error| {
        let _ = fs::remove_file(&unfinished);
        Err(error).with_context(|| format!("cannot write {}", file.display()))
    })
}

/// The token of this configuration, for the gateway itself: whoever can change the file can have everything
/// done that the gateway does, so it has to be root's or its own.
pub(crate) fn of(config: &Config) -> Result<Option<Secret>> {
    let file = config
        .admin
        .as_ref()
        .and_then(|admin| admin.token_file.as_deref());
    let Some(file) = file else { return Ok(None) };
    let own = fs::metadata("/proc/self")
        .context("the own system user is not known")?
        .uid();
    let (token, owner) = read(file).context("admin.token_file")?;
    ensure!(
        owner == 0 || owner == own,
        "admin.token_file: {} belongs to system user {owner}, neither to root nor to the gateway's own ({own}): chown it",
        file.display()
    );
    Ok(Some(token))
}

/// The token in a file, and the system user whose file it is.
pub(crate) fn read(path: &Path) -> Result<(Secret, u32)> {
    let read = || -> Result<(Secret, u32)> {
        // To open a pipe is to wait for somebody who writes into it.
        ensure!(fs::metadata(path)?.is_file(), "it is no regular file");
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mode = metadata.mode() & 0o777;
        ensure!(
            mode & 0o077 == 0,
            "others than its owner may use it (mode {mode:04o}): chmod 600, and make another token (forebay token --replace)"
        );
        let mut text = String::new();
        file.take(*LENGTHS.end() as u64 + 3).read_to_string(&mut text)?;
        let token = text.trim_end();
        ensure!(
            LENGTHS.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()),
            "it holds no token: one line of {} to {} letters, digits and signs is expected; forebay token makes one",
            LENGTHS.start(),
            LENGTHS.end()
        );
        Ok((Secret::new(token), metadata.uid()))
    };
    read().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // helpers of tests

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> PathBuf {
        let name = std::thread::current()
            .name()
            .unwrap_or_default()
            .replace(':', "-");
        let folder = std::env::temp_dir().join(format!("forebay-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_new_token_is_its_owners_alone_and_is_not_replaced_by_chance() {
        let folder = folder();
        let file = folder.join("token");
        let make = |replace| {
            super::make(&NewToken {
                file: file.clone(),
                replace,
            })
        };
        make(false).expect("a new one");
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o777, 0o600);
        let (first, _) = read(&file).expect("a token");
        assert_eq!(first.reveal().len(), 2 * RANDOM);
        assert!(make(false).is_err());
        assert_eq!(read(&file).expect("a token").0, first);
        make(true).expect("another one");
        assert_ne!(read(&file).expect("a token").0, first);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        fs::remove_dir_all(folder).expect("it goes");
    }

    #[test]
    fn what_is_no_safe_token_is_refused() {
        let folder = folder();
        let file = folder.join("token");
        let refused = |text: &str, mode| {
            fs::write(&file, text).expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
            read(&file)
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default()
        };
        let token = "0123456789abcdef\n";
        assert_eq!(refused(token, 0o600), "");
        assert_eq!(refused(token, 0o400), "");
        for mode in [0o640, 0o604, 0o660, 0o602] {
            assert!(refused(token, mode).contains("others than its owner"), "{mode:o}");
        }
        let long = "x".repeat(LENGTHS.end() + 1);
        for text in [
            "",
            "\n",
            "short\n",
            "two words of a token\n",
            "0123456789abcdef\nmore\n",
            &long,
        ] {
            assert!(refused(text, 0o600).contains("it holds no token"), "{text}");
        }
        assert!(read(&folder).is_err() && read(&folder.join("none")).is_err());
        fs::remove_dir_all(folder).expect("it goes");
    }
}
