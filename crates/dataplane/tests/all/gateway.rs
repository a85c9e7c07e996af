//! The gateway, without its program.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use config::Config;
use dataplane::Gateway;
use dataplane::extension::{BuildExtension, Extension};
use net::Peer;
use telemetry::Telemetry;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;

/// A running gateway, and the thread that is its control thread.
pub(crate) struct RunningGateway {
    gateway: Arc<Gateway>,
    telemetry: Arc<Telemetry>,
    control: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl RunningGateway {
    pub(crate) fn start(configuration: &str, extension: Option<Arc<dyn Extension>>) -> Self {
        let config = Config::parse(configuration, "test.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let telemetry = Telemetry::new(config.workers, |byte| mysql_wire::Command(byte).name());
        let extension: Option<BuildExtension<'_>> = match extension {
            Some(extension) => Some(Box::new(move |_| Ok(extension))),
            None => None,
        };
        let gateway = Gateway::start(&config, Arc::clone(&telemetry), extension).unwrap();
        telemetry.register(Arc::clone(&gateway) as _);
        let (stop, stopped) = oneshot::channel();
        let running = Arc::clone(&gateway);
        let control = std::thread::spawn(move || {
            let built = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default());
            let runtime = built.unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = running.run() => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            gateway,
            telemetry,
            control: Some((stop, control)),
        }
    }

    /// Whether statements are sent to the server of this name, as far as the gateway knows.
    pub(crate) fn takes_statements(&self, name: &str) -> bool {
        let topologies: Vec<_> = self
            .gateway
            .clusters()
            .iter()
            .map(|cluster| cluster.topology())
            .collect();
        let mut members = topologies.iter().flat_map(|topology| &topology.members);
        members.any(|member| member.server.name() == name && member.server.takes_statements())
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Its metrics, as they are fetched from it.
    pub(crate) fn metrics(&self) -> String {
        self.telemetry.encode()
    }

    /// It goes on by another configuration.
    pub(crate) fn reload(&self, configuration: &str) {
        let config = Config::parse(configuration, "test.toml").unwrap_or_else(|errors| panic!("{errors}"));
        self.gateway.reload(&config).unwrap();
    }

    /// Where its listeners are, in the order of the configuration.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let address = |address| match address {
            Peer::Tcp(address) => address,
            Peer::Unix => panic!("no listener of these tests is a Unix socket"),
        };
        let listeners = self.gateway.listeners().into_iter();
        listeners.map(|listener| address(listener.address)).collect()
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        self.gateway.stop_now();
        self.gateway.join();
        if let Some((stop, control)) = self.control.take() {
            drop(stop);
            let _ = control.join();
        }
    }
}
