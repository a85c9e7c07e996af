//! What a configuration refers to outside its own text: certificate and key files, and secrets.
//!
//! Relative paths start at the folder of the configuration file, wherever the program was started.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::report::Report;
use crate::schema::{ClusterTls, Config, Store, User};
use crate::secret::Secret;
use crate::validate;

/// Largest file read here. Certificate bundles of whole operating systems are a quarter of it.
const FILE_MAX: u64 = 1 << 20;

/// What a file must contain.
#[derive(Clone, Copy)]
enum Pem {
    Certificate,
    PrivateKey,
}

impl Pem {
    fn words(self) -> &'static str {
        match self {
            Self::Certificate => "a file with PEM certificates",
            Self::PrivateKey => "a file with a PEM private key",
        }
    }

    /// Looks for the frame only; what is inside is for those who use it.
    fn is_in(self, text: &str) -> bool {
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("-----BEGIN "))
            .any(|label| match self {
                Self::Certificate => label.ends_with("CERTIFICATE-----"),
                Self::PrivateKey => label.ends_with("PRIVATE KEY-----"),
            })
    }
}

/// The ways to give a password that need a look outside: from wherever it comes, it ends up in `password`.
struct Source<'c> {
    password: &'c mut Option<Secret>,
    file: &'c mut Option<PathBuf>,
    env: &'c Option<String>,
}

/// The source of a section that has `password`, `password_file` and `password_env`.
macro_rules! source {
    ($section:expr) => {
        Source {
            password: &mut $section.password,
            file: &mut $section.password_file,
            env: &$section.password_env,
        }
    };
}

/// Makes paths absolute, checks the files behind them and reads the secrets.
pub(crate) fn resolve(config: &mut Config, folder: &Path, report: &mut Report<'_>) {
    for (index, listener) in config.listeners.iter_mut().enumerate() {
        let path = format!("listener[{index}]");
        let tls = &mut listener.tls;
        let files = [
            (&mut listener.rsa_key, Pem::PrivateKey, "rsa_key"),
            (&mut tls.cert, Pem::Certificate, "tls.cert"),
            (&mut tls.key, Pem::PrivateKey, "tls.key"),
            (&mut tls.client_ca, Pem::Certificate, "tls.client_ca"),
        ];
        pems(files, folder, &path, report);
    }
    user_secrets(&mut config.users, folder, report);
    zone(config, folder, report);
    if let Some(admin) = &mut config.admin {
        let paths = [&mut admin.socket, &mut admin.token_file];
        paths
            .into_iter()
            .flatten()
            .for_each(|path| *path = folder.join(&*path));
    }
    if let Some(store) = &mut config.store {
        store_files(store, folder, report);
    }
    if let Some(file) = &mut config.users_file {
        *file = folder.join(&*file);
    }
    if let Some(account) = config.cache.as_mut().and_then(|cache| cache.account.as_mut()) {
        source!(account).resolve(folder, "cache.account", report);
    }
    for (name, cluster) in &mut config.clusters {
        let path = format!("cluster.{name}");
        source!(cluster.check).resolve(folder, &format!("{path}.check"), report);
        if let Some(monitor) = &mut cluster.monitor {
            source!(monitor).resolve(folder, &format!("{path}.monitor"), report);
        }
        if let Some(switchover) = &mut cluster.switchover {
            source!(switchover).resolve(folder, &format!("{path}.switchover"), report);
            if let Some(account) = &mut switchover.replication {
                source!(account).resolve(folder, &format!("{path}.switchover.replication"), report);
            }
        }
        link_files(&mut cluster.tls, folder, &path, report);
        if let Some(pd) = &mut cluster.pd {
            link_files(&mut pd.tls, folder, &format!("{path}.pd"), report);
        }
        if let Some(slices) = &mut cluster.endpoint_slices {
            slices.account_dir = folder.join(&slices.account_dir);
        }
    }
}

/// The files for encrypted links of the gateway to others.
fn link_files(tls: &mut ClusterTls, folder: &Path, of: &str, report: &mut Report<'_>) {
    let files = [
        (&mut tls.ca, Pem::Certificate, "tls.ca"),
        (&mut tls.cert, Pem::Certificate, "tls.cert"),
        (&mut tls.key, Pem::PrivateKey, "tls.key"),
    ];
    pems(files, folder, of, report);
}

/// The files that options of the table `of` name.
fn pems<const N: usize>(
    files: [(&mut Option<PathBuf>, Pem, &str); N],
    folder: &Path,
    of: &str,
    report: &mut Report<'_>,
) {
    for (file, content, option) in files {
        pem(file, content, folder, &format!("{of}.{option}"), report);
    }
}

fn pem(file: &mut Option<PathBuf>, content: Pem, folder: &Path, path: &str, report: &mut Report<'_>) {
    let Some(file) = file else { return };
    *file = folder.join(&*file);
    let found = match read(file) {
        Ok(text) if content.is_in(&text) => return,
        Ok(_) => format!("none in {}", file.display()),
        Err(error) => format!("{}: {error}", file.display()),
    };
    report.wrong(path, content.words(), found);
}

/// The passwords of accounts, in the configuration itself or in a users file in `folder`.
pub(crate) fn user_secrets(users: &mut [User], folder: &Path, report: &mut Report<'_>) {
    for (index, user) in users.iter_mut().enumerate() {
        source!(user).resolve(folder, &format!("user[{index}]"), report);
    }
}

fn store_files(store: &mut Store, folder: &Path, report: &mut Report<'_>) {
    let folders = [&mut store.secrets_dir, &mut store.state_dir];
    folders
        .into_iter()
        .chain(store.folder.as_mut())
        .for_each(|path| *path = folder.join(&*path));
    source!(store).resolve(folder, "store", report);
    link_files(&mut store.tls, folder, "store", report);
}

impl Source<'_> {
    fn resolve(self, folder: &Path, path: &str, report: &mut Report<'_>) {
        if let Some(file) = self.file {
            *file = folder.join(&*file);
            match password_in(file) {
                Ok(secret) => *self.password = Some(secret),
                Err(found) => report
                    .wrong(&format!("{path}.password_file"), "a file with a password", found)
                    .hint(None),
            }
        }
        if let Some(variable) = self.env {
            match std::env::var(variable) {
                Ok(secret) => *self.password = Some(Secret::new(secret)),
                Err(error) => {
                    let found = match error {
                        std::env::VarError::NotPresent => "that it is not set",
                        std::env::VarError::NotUnicode(_) => "bytes that are not UTF-8",
                    };
                    let expected = format!("a password in the environment variable {variable:?}");
                    report.wrong(&format!("{path}.password_env"), expected, found);
                }
            }
        }
    }
}

/// The zone of the gateway, where something else than the file says it.
fn zone(config: &mut Config, folder: &Path, report: &mut Report<'_>) {
    if let Some(file) = &mut config.zone_file {
        *file = folder.join(&*file);
        match read(file) {
            Ok(text) => config.zone = Some(without_newline(&text).to_owned()),
            Err(error) => {
                let found = format!("{}: {error}", file.display());
                report.wrong("zone_file", "a file with the zone", found);
            }
        }
        validate::zone(config.zone.as_deref(), "zone_file", report);
    } else if let Some(variable) = &config.zone_env {
        match std::env::var(variable) {
            Ok(zone) => config.zone = Some(zone),
            Err(_) => {
                let expected = format!("a zone in the environment variable {variable:?}");
                report.wrong("zone_env", expected, "that it is not set, or no text");
            }
        }
        validate::zone(config.zone.as_deref(), "zone_env", report);
    }
}

/// The password in a file, or what is there instead.
fn password_in(file: &Path) -> Result<Secret, String> {
    let text = Zeroizing::new(read(file).map_err(|error| format!("{}: {error}", file.display()))?);
    match without_newline(&text) {
        "" => Err(format!("nothing in {}", file.display())),
        lines if lines.contains('\n') => {
            let count = lines.lines().count();
            Err(format!(
                "{count} lines in {}; it is to hold one, the password",
                file.display()
            ))
        }
        password => Ok(Secret::new(password)),
    }
}

/// Editors and `echo` end a file with a newline; a password that ends with one has two.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The whole text of a regular file that is not unreasonably large.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    // To open a pipe is to wait for somebody who writes into it.
    let kind = fs::metadata(path)?.file_type();
    if let Some(words) = no_file(kind) {
        return Err(io::Error::other(words));
    }
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!("more than {FILE_MAX} bytes")));
    }
    text(bytes).map_err(io::Error::other)
}

/// What there is in the place of a regular file.
fn no_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a pipe, and no file that could be read again"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device, and no file that could be read again"),
    }
}

/// Bytes as text; or what they are instead.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    let has_mark = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if has_mark || matches!(bytes[..], [a, b, ..] if (a == 0) != (b == 0)) {
        return Err("text in UTF-16: save it as UTF-8".to_owned());
    }
    let line = |at: usize| bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(format!("no text: a zero byte in line {}", line(at)));
    }
    if let Err(error) = std::str::from_utf8(&bytes) {
        return Err(format!(
            "bytes in line {} that are not UTF-8",
            line(error.valid_up_to())
        ));
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}
