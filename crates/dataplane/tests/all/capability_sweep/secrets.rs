//! What somebody sees who listens on the links between gateway and servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use testkit::scripted::{Client, Plugin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::stage::{PASSWORD, Stage};
use super::sweep::{Sweep, block_on};

/// Everything that passed on some links, as bytes.
#[derive(Clone, Default)]
pub(crate) struct Wiretap(Arc<Mutex<Vec<u8>>>);

impl Wiretap {
    /// An address in front of `target` where everything is overheard.
    pub(crate) async fn before(&self, target: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let wiretap = self.clone();
        tokio::spawn(async move {
            while let Ok((one, _)) = listener.accept().await {
                let Ok(other) = TcpStream::connect(target).await else {
                    continue;
                };
                let ((one_in, one_out), (other_in, other_out)) = (one.into_split(), other.into_split());
                tokio::spawn(wiretap.clone().pass(one_in, other_out));
                tokio::spawn(wiretap.clone().pass(other_in, one_out));
            }
        });
        address
    }

    async fn pass(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bytes = vec![0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes).await {
            self.0.lock().unwrap().extend(&bytes[..n]);
            if to.write_all(&bytes[..n]).await.is_err() {
                return;
            }
        }
    }

    /// Whether a text passed until now.
    fn heard(&self, text: &[u8]) -> bool {
        let bytes = self.0.lock().unwrap();
        bytes.windows(text.len()).any(|window| window == text)
    }
}

/// The client's link is secure in `secure`. Returns whether the password was heard.
async fn password_is_heard(plugin: Plugin, secure: bool) -> bool {
    let sweep = Sweep::of(plugin).logins_only();
    let wiretap = Wiretap::default();
    let stage = Stage::start_with(&sweep.script, "", Some(&wiretap)).await;
    let combinations = sweep.combinations.iter().filter(|one| one.client_tls == secure);
    for combination in combinations {
        let (address, _) = stage.front(combination.back);
        let mut identity = stage.identity(combination);
        identity.capabilities.insert(plugin.capabilities());
        // Refused or not: the question is what was said.
        if let Ok(mut client) = Client::connect(address, &identity).await {
            let _ = client.change_user(b"other", PASSWORD).await;
        }
    }
    assert!(
        wiretap.heard(b"caching_sha2") || wiretap.heard(b"forebay_ask_the_client"),
        "a wire that is dead"
    );
    wiretap.heard(PASSWORD)
}

#[test]
fn a_password_given_inside_tls_is_never_in_the_clear_on_a_link_to_a_server() {
    block_on(async {
        for plugin in Plugin::ALL {
            assert!(!password_is_heard(plugin, true).await, "{plugin:?}");
        }
    });
}

#[test]
fn a_password_given_in_the_clear_is_in_the_clear_and_no_other() {
    block_on(async {
        for plugin in Plugin::ALL {
            let chosen = matches!(plugin, Plugin::Clear | Plugin::Dialog | Plugin::TwoFactorsClear);
            assert_eq!(password_is_heard(plugin, false).await, chosen, "{plugin:?}");
        }
    });
}
