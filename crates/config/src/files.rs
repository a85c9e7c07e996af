//! What a configuration refers to outside its own text: certificate and key files, and secrets.
//!
//! Relative paths start at the folder of the configuration file, wherever the program was started.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::report::Report;
use crate::schema::{Check, Config};
use crate::secret::Secret;

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

/// Makes paths absolute, checks the files behind them and reads the secrets.
pub(crate) fn resolve(config: &mut Config, folder: &Path, report: &mut Report<'_>) {
    for (index, listener) in config.listeners.iter_mut().enumerate() {
        let path = format!("listener[{index}]");
        pem(
            &mut listener.rsa_key,
            Pem::PrivateKey,
            folder,
            &format!("{path}.rsa_key"),
            report,
        );
        pem(
            &mut listener.tls.cert,
            Pem::Certificate,
            folder,
            &format!("{path}.tls.cert"),
            report,
        );
        pem(
            &mut listener.tls.key,
            Pem::PrivateKey,
            folder,
            &format!("{path}.tls.key"),
            report,
        );
        pem(
            &mut listener.tls.client_ca,
            Pem::Certificate,
            folder,
            &format!("{path}.tls.client_ca"),
            report,
        );
    }
    for (name, cluster) in &mut config.clusters {
        let path = format!("cluster.{name}");
        password(&mut cluster.check, folder, &format!("{path}.check"), report);
        pem(
            &mut cluster.tls.ca,
            Pem::Certificate,
            folder,
            &format!("{path}.tls.ca"),
            report,
        );
        pem(
            &mut cluster.tls.cert,
            Pem::Certificate,
            folder,
            &format!("{path}.tls.cert"),
            report,
        );
        pem(
            &mut cluster.tls.key,
            Pem::PrivateKey,
            folder,
            &format!("{path}.tls.key"),
            report,
        );
    }
}

fn pem(file: &mut Option<PathBuf>, content: Pem, folder: &Path, path: &str, report: &mut Report<'_>) {
    let Some(file) = file else { return };
    *file = folder.join(&*file);
    match read(file) {
        Ok(text) if content.is_in(&text) => {}
        Ok(_) => report
            .wrong(path, content.words(), format!("none in {}", file.display()))
            .hint(None),
        Err(error) => report
            .wrong(path, content.words(), format!("{}: {error}", file.display()))
            .hint(None),
    }
}

/// Puts the password of a check where it belongs, from wherever it comes.
fn password(check: &mut Check, folder: &Path, path: &str, report: &mut Report<'_>) {
    if let Some(file) = &mut check.password_file {
        *file = folder.join(&*file);
        let path = format!("{path}.password_file");
        match read(file) {
            Ok(text) if !without_newline(&text).is_empty() => {
                check.password = Some(Secret::new(without_newline(&text)))
            }
            Ok(_) => report
                .wrong(
                    &path,
                    "a file with a password",
                    format!("nothing in {}", file.display()),
                )
                .hint(None),
            Err(error) => {
                report
                    .wrong(
                        &path,
                        "a file with a password",
                        format!("{}: {error}", file.display()),
                    )
                    .hint(None);
            }
        }
    }
    if let Some(variable) = &check.password_env {
        match std::env::var(variable) {
            Ok(secret) => check.password = Some(Secret::new(secret)),
            Err(error) => {
                let path = format!("{path}.password_env");
                let found = match error {
                    std::env::VarError::NotPresent => "that it is not set",
                    std::env::VarError::NotUnicode(_) => "bytes that are not UTF-8",
                };
                report
                    .wrong(
                        &path,
                        format!("a password in the environment variable {variable:?}"),
                        found,
                    )
                    .hint(None);
            }
        }
    }
}

/// Editors and `echo` end a file with a newline; a password that ends with one has two.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The whole text of a regular file that is not unreasonably large.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("is a folder"));
    }
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!("is larger than {FILE_MAX} bytes")));
    }
    Ok(text)
}
