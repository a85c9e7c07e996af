//! Networks between the gateway and a server that fail on demand.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::mpsc;
use std::thread;

use sandbox::{Node, Sandbox};
use testkit::lossy_link::LossyLink;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// A link with a thread of its own: starting a gateway keeps the thread of the test.
pub struct Link {
    link: LossyLink,
    /// Its thread ends when this is dropped.
    _end: oneshot::Sender<()>,
}

impl Link {
    pub fn to(server: &Sandbox) -> Self {
        Self::to_node(server.primary())
    }

    pub fn to_node(server: &Node) -> Self {
        Self::to_address(&server.address())
    }

    pub fn to_address(address: &str) -> Self {
        let target: SocketAddr = address.parse().unwrap();
        let (started, link) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                started.send(LossyLink::start(target).await.unwrap()).unwrap();
                let _ = ended.await; // that nobody is there is what it waits for
            });
        });
        Self {
            link: link.recv().unwrap(),
            _end: end,
        }
    }
}

impl Deref for Link {
    type Target = LossyLink;

    fn deref(&self) -> &LossyLink {
        &self.link
    }
}
