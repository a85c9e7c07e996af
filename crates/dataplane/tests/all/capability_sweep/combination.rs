//! What is swept over.

use std::fmt;

use mysql_wire::Capabilities;
use testkit::scripted::Compression;

/// One way in which a session may look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combination {
    pub(crate) number: usize,
    pub(crate) client_tls: bool,
    pub(crate) deprecate_eof: bool,
    pub(crate) session_track: bool,
    /// The login packet names the server's plugin, and not the client's default.
    pub(crate) names_plugin: bool,
    pub(crate) client_compression: Option<Compression>,
    pub(crate) back: Back,
}

/// The gateway's link to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    pub(crate) tls: bool,
    pub(crate) compression: Option<Compression>,
}

const COMPRESSIONS: [Option<Compression>; 3] = [None, Some(Compression::Zlib), Some(Compression::Zstd)];
const EITHER: [bool; 2] = [false, true];

impl Back {
    /// All six.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        EITHER
            .into_iter()
            .flat_map(|tls| COMPRESSIONS.map(|compression| Self { tls, compression }))
    }
}

impl Combination {
    /// All 288, or the one that `FOREBAY_SWEEP` names.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for back in Back::all() {
            for client_compression in COMPRESSIONS {
                for flags in 0..16 {
                    let flag = |bit: usize| flags & bit != 0;
                    all.push(Self {
                        number: all.len(),
                        client_tls: flag(1),
                        deprecate_eof: flag(2),
                        session_track: flag(4),
                        names_plugin: flag(8),
                        client_compression,
                        back,
                    });
                }
            }
        }
        match std::env::var("FOREBAY_SWEEP") {
            Ok(number) => vec![all[number.parse::<usize>().unwrap()]],
            Err(_) => all,
        }
    }

    /// What the client asks for. The flags that are not swept over alternate.
    pub(crate) fn capabilities(&self) -> Capabilities {
        use Capabilities as C;
        let wanted = [
            (self.deprecate_eof, C::DEPRECATE_EOF),
            (self.session_track, C::SESSION_TRACK),
            (self.client_compression == Some(Compression::Zlib), C::COMPRESS),
            (
                self.client_compression == Some(Compression::Zstd),
                C::ZSTD_COMPRESSION,
            ),
            (self.number.is_multiple_of(3), C::QUERY_ATTRIBUTES),
            (self.number.is_multiple_of(5), C::OPTIONAL_RESULTSET_METADATA),
            (self.number % 5 == 1, C::MARIADB_CACHE_METADATA),
            (self.number % 7 < 4, C::MARIADB_EXTENDED_METADATA),
            (self.number % 7 > 2, C::MARIADB_PROGRESS),
        ];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
        wanted.fold(C::default(), |all, (_, one)| all | one)
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = |tls| if tls { "TLS" } else { "plain" };
        let Back { tls, compression } = self.back;
        write!(
            f,
            "combination {}: client {} {:?}, server {} {:?}, DEPRECATE_EOF {}, SESSION_TRACK {}, names the plugin: {}",
            self.number,
            link(self.client_tls),
            self.client_compression,
            link(tls),
            compression,
            self.deprecate_eof,
            self.session_track,
            self.names_plugin,
        )
    }
}
