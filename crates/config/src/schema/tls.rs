//! `[listener.tls]` and `[cluster.NAME.tls]`: encryption on both sides.

use std::path::PathBuf;

use crate::section::{choice, section};

section! {
    /// Encryption between clients and a listener.
    pub struct ListenerTls [impl Default] {
        /// `off`; `preferred`: offered, the client decides; `required`: a login without TLS is refused.
        pub mode: TlsMode = default(TlsMode::Off), NewSessions;

        /// Certificate chain (PEM), the listener's own first.
        pub cert: Option<PathBuf> = default(None), NewSessions;

        /// Private key of `cert` (PEM).
        pub key: Option<PathBuf> = default(None), NewSessions;

        /// Authorities (PEM) that sign client certificates.
        pub client_ca: Option<PathBuf> = default(None), NewSessions;

        /// Whether clients are asked for a certificate (`optional`) or must have one (`required`, only with
        /// `mode = "required"`).
        pub client_auth: ClientAuth = default(ClientAuth::Off), NewSessions;

        /// Oldest TLS version accepted.
        pub min_version: TlsVersion = default(TlsVersion::V12), NewSessions;
    }

    /// Encryption between us and the servers of a cluster.
    pub struct ClusterTls [impl Default] {
        /// `off`; `preferred`: used where the server offers it; `required`: a server without TLS is not used.
        pub mode: TlsMode = default(TlsMode::Off), NewSessions;

        /// How far a server's certificate is trusted: not looked at (`off`), signed by `ca` (`ca`), or signed
        /// by `ca` for the host name in `servers` (`identity`).
        pub verify: Verify = default(Verify::Off, "`identity` with a `ca`, else `off`"), NewSessions;

        /// Authorities (PEM) that sign server certificates.
        pub ca: Option<PathBuf> = default(None), NewSessions;

        /// Certificate chain (PEM) that we show to servers that ask for one.
        pub cert: Option<PathBuf> = default(None), NewSessions;

        /// Private key of `cert` (PEM).
        pub key: Option<PathBuf> = default(None), NewSessions;
    }
}

choice! {
    /// How much TLS is wanted on a link.
    pub enum TlsMode {
        /// None.
        Off = "off",
        /// Where the other side can.
        Preferred = "preferred",
        /// Always.
        Required = "required",
    }

    /// Whether clients show a certificate.
    pub enum ClientAuth {
        /// They are not asked.
        Off = "off",
        /// They are asked; one that is shown must be valid.
        Optional = "optional",
        /// They must.
        Required = "required",
    }

    /// A TLS version.
    pub enum TlsVersion {
        /// TLS 1.2.
        V12 = "1.2",
        /// TLS 1.3.
        V13 = "1.3",
    }

    /// How far a server's certificate is trusted.
    pub enum Verify {
        /// Not looked at.
        Off = "off",
        /// Signed by a known authority.
        Ca = "ca",
        /// Signed by a known authority for this host name.
        Identity = "identity",
    }
}
