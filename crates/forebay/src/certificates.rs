//! When the certificates in use end: for the metrics, and in words before it is too late.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use config::{ClientAuth, Config, TlsMode, Verify};
use net::Validity;
use telemetry::{Samples, Source, catalog};
use tracing::warn;

const DAY: i64 = 86_400;
/// From here on the end is worth a word, at the latest.
const SOON: i64 = 14 * DAY;

/// When each file's certificates are good, as they were when the files were last taken into use.
#[derive(Default)]
pub(crate) struct Certificates(Mutex<BTreeMap<PathBuf, Validity>>);

impl Certificates {
    /// Looks at the files that the configuration names. To be called when they have just been taken into use:
    /// those that were refused say nothing of what is used.
    pub(crate) fn look(&self, config: &Config) {
        let ends = ends(config);
        for words in in_words(&ends, now()) {
            warn!("{words}");
        }
        *crate::lock(&self.0) = ends;
    }
}

impl Source for Certificates {
    fn collect(&self, out: &mut Samples) {
        let ends = crate::lock(&self.0);
        for (file, validity) in &*ends {
            let file = file.display().to_string();
            out.gauge(&catalog::CERTIFICATE_EXPIRY, &[&file], validity.end);
        }
    }
}

/// The files with certificates that have ended or soon will.
pub(crate) fn worries(config: &Config) -> Vec<String> {
    in_words(&ends(config), now())
}

/// By file. One that cannot be read is told of by those who use it.
fn ends(config: &Config) -> BTreeMap<PathBuf, Validity> {
    let mut ends = BTreeMap::new();
    let mut note = |file: Option<&PathBuf>, which: fn(&[Validity]) -> Option<Validity>| {
        if let Some((file, validity)) = file.and_then(|file| Some((file, end(file, which)?))) {
            ends.insert(file.clone(), validity);
        }
    };
    let listeners = config.listeners.iter().map(|listener| &listener.tls);
    for tls in listeners.filter(|tls| tls.mode != TlsMode::Off) {
        let asks_clients = tls.client_auth != ClientAuth::Off;
        note(tls.client_ca.as_ref().filter(|_| asks_clients), last);
        note(tls.cert.as_ref(), first);
    }
    for (_, tls) in crate::encrypted_links(config) {
        let is_asked = tls.verify != Verify::Off;
        note(tls.ca.as_ref().filter(|_| is_asked), last);
        note(tls.cert.as_ref(), first);
    }
    ends
}

/// A chain is of use as long as all of it.
fn first(all: &[Validity]) -> Option<Validity> {
    all.iter().min_by_key(|validity| validity.end).copied()
}

/// Of authorities one is enough: files keep those of before, and bundles have some that are over.
fn last(all: &[Validity]) -> Option<Validity> {
    all.iter().max_by_key(|validity| validity.end).copied()
}

fn end(file: &Path, which: fn(&[Validity]) -> Option<Validity>) -> Option<Validity> {
    which(&net::certificate_validities(file).ok()?)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A certificate that lives for days only is renewed late in them.
fn soon(validity: Validity) -> i64 {
    SOON.min((validity.end - validity.begin) / 3)
}

fn in_words(ends: &BTreeMap<PathBuf, Validity>, now: i64) -> Vec<String> {
    let words = |(file, validity): (&PathBuf, &Validity)| {
        let when = match validity.end - now {
            left if left < 0 => format!("ended {} ago", days(-left)),
            left if left < soon(*validity) => format!("ends in {}", days(left)),
            _ => return None,
        };
        Some(format!("the certificate in {} {when}", file.display()))
    };
    ends.iter().filter_map(words).collect()
}

fn days(seconds: i64) -> String {
    match seconds / DAY {
        0 => "less than a day".to_owned(),
        1 => "a day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_every_encrypted_link_are_looked_at() {
        let folder = std::env::temp_dir().join(format!("forebay-{}-certificates", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = sandbox::Certificates::make(&folder).unwrap();
        let tls = |verify: &str, files: &str| format!("tls = {{ mode = \"required\"{verify}{files} }}\n");
        let ca = format!(", ca = {:?}", made.ca);
        let of_client = format!(", cert = {:?}, key = {:?}", made.client_cert, made.client_key);
        let cluster = "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\n[cluster.main]\nservers = [\"db1\"]\n";
        let to_pd = format!(
            "{cluster}topology = \"tidb\"\n[cluster.main.pd]\naddresses = [\"pd1:2379\"]\n{}",
            tls("", &ca)
        );
        let to_store = format!(
            "[store]\nendpoints = [\"127.0.0.1:2379\"]\n{}",
            tls(", verify = \"off\"", &of_client)
        );
        for (text, file) in [(to_pd, &made.ca), (to_store, &made.client_cert)] {
            let config = Config::parse(&text, "f.toml").unwrap();
            let files: Vec<_> = ends(&config).into_keys().collect();
            assert_eq!(files, std::slice::from_ref(file));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_end_is_told_two_weeks_before_or_in_the_last_third() {
        let year = 365 * DAY;
        let files = [
            ("/far", 15 * DAY, year),
            ("/near", 3 * DAY, year),
            ("/now", 10, year),
            ("/over", -2 * DAY, year),
            ("/short", 3 * DAY, 7 * DAY),
            ("/short-near", 2 * DAY, 7 * DAY),
        ];
        let ends = files.map(|(file, end, life)| {
            let begin = end - life;
            (PathBuf::from(file), Validity { begin, end })
        });
        assert_eq!(
            in_words(&ends.into(), 0),
            [
                "the certificate in /near ends in 3 days",
                "the certificate in /now ends in less than a day",
                "the certificate in /over ended 2 days ago",
                "the certificate in /short-near ends in 2 days",
            ]
        );
    }
}
