//! The real gateway between fake servers and fake clients.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use testkit::certificates::Certificates;
use testkit::scripted::{Compression, Identity, Server, ServerScript};

use crate::gateway::RunningGateway;

use super::combination::{Back, Combination};
use super::secrets::Wiretap;

/// Everybody's password. Nothing else that is sent has these bytes in it.
pub(crate) const PASSWORD: &[u8] = b"open sesame, and this is longer than a nonce";

/// A gateway with one listener, one cluster and one server for each kind of server link.
pub(crate) struct Stage {
    fronts: Vec<Front>,
    identity: Identity,
    secure_identity: Identity,
    _gateway: RunningGateway,
    _folder: TempDir,
}

struct Front {
    back: Back,
    address: SocketAddr,
    server: Arc<Server>,
}

impl Stage {
    /// Starts everything. Servers are `script` with TLS where the link has it.
    /// `options` are added to every cluster, and with a `wiretap` all server links lead over it.
    pub(crate) async fn start_with(script: &ServerScript, options: &str, wiretap: Option<&Wiretap>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::generate().unwrap();
        certificates.write_to(folder.path()).unwrap();
        let (mut servers, mut targets) = (Vec::new(), Vec::new());
        for back in Back::all() {
            let script = ServerScript {
                tls: back.tls.then(|| certificates.server_config().unwrap()),
                ..script.clone()
            };
            let server = Arc::new(Server::start(script).await.unwrap());
            targets.push((
                back,
                match wiretap {
                    Some(wiretap) => wiretap.before(server.address()).await,
                    None => server.address(),
                },
            ));
            servers.push((back, server));
        }
        let gateway = RunningGateway::start(&configuration(folder.path(), &targets, options), None);
        let fronts = servers.into_iter().zip(gateway.addresses());
        let fronts = fronts.map(|((back, server), address)| Front {
            back,
            address,
            server,
        });
        let identity = Identity {
            password: script.password.clone(),
            attributes: Some(b"\x05_name\x05sweep".to_vec()),
            ..Identity::default()
        };
        Self {
            fronts: fronts.collect(),
            secure_identity: Identity {
                tls: Some(certificates.client_config(false).unwrap()),
                ..identity.clone()
            },
            identity,
            _gateway: gateway,
            _folder: folder,
        }
    }

    /// Where a client connects, and the server behind it.
    pub(crate) fn front(&self, back: Back) -> (SocketAddr, &Arc<Server>) {
        let front = self.fronts.iter().find(|front| front.back == back).unwrap();
        (front.address, &front.server)
    }

    /// Who connects: with what the combination says, and the default plugin.
    pub(crate) fn identity(&self, combination: &Combination) -> Identity {
        let identity = if combination.client_tls {
            &self.secure_identity
        } else {
            &self.identity
        };
        Identity {
            capabilities: identity.capabilities | combination.capabilities(),
            ..identity.clone()
        }
    }
}

/// The gateway's configuration. Listeners are told apart by their loopback address, as the kernel picks the
/// ports. Clients and servers share a thread, which compresses large packets: whoever logs in or is checked
/// meanwhile has time.
fn configuration(folder: &Path, targets: &[(Back, SocketAddr)], options: &str) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut text = "workers = 1\n".to_owned();
    for (number, (back, target)) in targets.iter().enumerate() {
        let compression = match back.compression {
            None => "off",
            Some(Compression::Zlib) => "zlib",
            Some(Compression::Zstd) => "zstd",
        };
        let tls = if back.tls {
            format!("{{ mode = \"required\", ca = \"{}\" }}", file("ca.pem"))
        } else {
            "{ mode = \"off\" }".to_owned()
        };
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        write!(
            text,
            r#"
            [[listener]]
            login_delay_max = "0s"
            login_timeout = "1m"
            bind = "127.0.1.{number}:0"
            cluster = "c{number}"
            tls = {{ mode = "preferred", cert = "{cert}", key = "{key}" }}
            [cluster.c{number}]
            servers = ["{target}"]
            compression = "{compression}"
            tls = {tls}
            connect_timeout = "1m"
            login_timeout = "1m"
            check = {{ interval = "1h", rise = 1, timeout = "1m" }}
            {options}
            "#
        )
        .unwrap();
    }
    text
}
