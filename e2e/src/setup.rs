//! The configuration of a gateway in a scenario, made of the few lines that the scenario is about.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sandbox::Lent;

use crate::Gateway;

/// One listener, one cluster `main`, health checks several times a second, the admin server. Text given by
/// the scenario is TOML and lands in the section that the method names.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) bind: Bind,
    mode: String,
    servers: Vec<String>,
    top: String,
    listener: String,
    listener_tables: String,
    cluster: String,
    cluster_tables: String,
    tables: String,
    check: String,
    admin: String,
    pub(crate) environment: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Bind {
    /// A free port on this address; IPv6 in brackets.
    Ip(&'static str),
    Unix(PathBuf),
}

impl Setup {
    /// A gateway in mode `session` in front of the first node of each sandbox.
    #[must_use]
    pub fn in_front_of(servers: &[Lent]) -> Self {
        Self::of_addresses(servers.iter().map(|sandbox| sandbox.primary().address()))
    }

    /// A gateway in front of servers that need not be there.
    #[must_use]
    pub fn of_addresses(addresses: impl IntoIterator<Item = String>) -> Self {
        Self {
            bind: Bind::Ip("127.0.0.1"),
            mode: "session".to_owned(),
            servers: addresses
                .into_iter()
                .map(|address| format!("{address:?}"))
                .collect(),
            top: String::new(),
            listener: String::new(),
            listener_tables: String::new(),
            cluster: String::new(),
            cluster_tables: String::new(),
            tables: String::new(),
            admin: String::new(),
            environment: Vec::new(),
            check: "interval = \"200ms\"\ntimeout = \"2s\"\nrise = 1\nfall = 2\n".to_owned(),
        }
    }

    #[must_use]
    pub fn mode(mut self, mode: &str) -> Self {
        mode.clone_into(&mut self.mode);
        self
    }

    /// Servers as they are written in TOML, tables with weights and the like.
    #[must_use]
    pub fn servers(mut self, servers: impl IntoIterator<Item = String>) -> Self {
        self.servers = servers.into_iter().collect();
        self
    }

    /// What the gateway finds in its environment, beside what the test has.
    #[must_use]
    pub fn environment(mut self, variables: Vec<(String, String)>) -> Self {
        self.environment = variables;
        self
    }

    /// Listens on a free port of `::1`.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.bind = Bind::Ip("[::1]");
        self
    }

    #[must_use]
    pub fn unix(mut self, path: &Path) -> Self {
        self.bind = Bind::Unix(path.to_path_buf());
        self
    }

    /// Options of the top level.
    #[must_use]
    pub fn top(mut self, toml: &str) -> Self {
        let _ = writeln!(self.top, "{toml}");
        self
    }

    /// Options of `[[listener]]`.
    #[must_use]
    pub fn listener(mut self, toml: &str) -> Self {
        let _ = writeln!(self.listener, "{toml}");
        self
    }

    /// Options of `[listener.tls]`.
    #[must_use]
    pub fn listener_tls(mut self, toml: &str) -> Self {
        let _ = writeln!(self.listener_tables, "[listener.tls]\n{toml}");
        self
    }

    /// Options of `[cluster.main]`.
    #[must_use]
    pub fn cluster(mut self, toml: &str) -> Self {
        let _ = writeln!(self.cluster, "{toml}");
        self
    }

    /// Options of `[cluster.main.tls]`.
    #[must_use]
    pub fn cluster_tls(mut self, toml: &str) -> Self {
        let _ = writeln!(self.cluster_tables, "[cluster.main.tls]\n{toml}");
        self
    }

    /// Whole tables, such as `[[user]]`.
    #[must_use]
    pub fn tables(mut self, toml: &str) -> Self {
        let _ = writeln!(self.tables, "{toml}");
        self
    }

    /// Options of `[admin]`.
    #[must_use]
    pub fn admin(mut self, toml: &str) -> Self {
        let _ = writeln!(self.admin, "{toml}");
        self
    }

    /// All options of `[cluster.main.check]`, instead of the quick checks.
    #[must_use]
    pub fn check(mut self, toml: &str) -> Self {
        self.check = format!("{toml}\n");
        self
    }

    pub(crate) fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// Starts the gateway and waits until it is ready and all its servers are up.
    #[must_use]
    pub fn start(self) -> Gateway {
        Gateway::start(self, true)
    }

    /// Starts the gateway and waits until it listens, with servers or without.
    #[must_use]
    pub fn start_unready(self) -> Gateway {
        Gateway::start(self, false)
    }

    pub(crate) fn to_toml(&self, port: u16, admin_port: u16) -> String {
        let bind = match &self.bind {
            Bind::Ip(address) => format!("{address}:{port}"),
            Bind::Unix(path) => path.display().to_string(),
        };
        let Self {
            mode,
            top,
            listener,
            listener_tables,
            cluster,
            cluster_tables,
            tables,
            check,
            admin,
            ..
        } = self;
        let servers = self.servers.join(", ");
        let unless_said = |text: &str, option: &str, line: &'static str| match text.contains(option) {
            true => "",
            false => line,
        };
        // Two descriptors a session: the default of 20000 sessions is above what some machines allow.
        let limit = unless_said(top, "max_connections", "max_connections = 400\n");
        let workers = unless_said(top, "workers", "workers = 2\n");
        // A reload is asked for by a signal, and must not be done twice.
        let watch = unless_said(top, "watch", "watch = false\n");
        let socket = unless_said(admin, "socket", "socket = \"admin.sock\"\n");
        format!(
            "{workers}{limit}{watch}{top}\n[[listener]]\nname = \"e2e\"\nbind = \"{bind}\"\nmode = \"{mode}\"\n\
             cluster = \"main\"\n{listener}{listener_tables}\n[cluster.main]\nservers = [{servers}]\n{cluster}\
             [cluster.main.check]\n{check}{cluster_tables}\n{tables}\n[admin]\nbind = \"127.0.0.1:{admin_port}\"\n{socket}{admin}"
        )
    }
}
