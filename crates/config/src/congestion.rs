//! The option `congestion`: which of the kernel's congestion controls a TCP connection has.
//!
//! What the kernel has, and what this process may set of it, is looked at when a file is read and never
//! again: a name that cannot be set is a mistake with a place, and whoever makes connections is told what
//! `auto` comes to.

use std::fs;

use crate::report::Report;
use crate::schema::Config;
use crate::suggest;

/// Where the kernel says what it has, for the network namespace of this process.
const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_";
/// Longest name, without the zero at its end (`TCP_CA_NAME_MAX`).
const NAME_MAX: usize = 15;

/// Congestion control of TCP connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// The system's; but where that paces, connections that stay on this machine have one that does not.
    Auto {
        /// The system's paces, and this process may set another. Never in a text that was read on its own.
        spares_local: bool,
    },
    /// The system's.
    System,
    /// This one.
    Named(String),
}

impl Congestion {
    /// Paces nothing, and every kernel has it.
    pub const UNPACED: &str = "reno";

    pub(crate) const KIND: &str =
        "\"auto\", \"system\" or the name of one that the kernel has (\"reno\", \"cubic\", \"bbr\")";
    pub(crate) const AUTO: Self = Self::Auto { spares_local: false };

    /// Reads what a file says. `None` for what is no name; whether the kernel has it is not looked at.
    pub fn parse(text: &str) -> Option<Self> {
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match text {
            "auto" => Some(Self::AUTO),
            "system" => Some(Self::System),
            name => ((1..=NAME_MAX).contains(&name.len()) && name.bytes().all(in_name))
                .then(|| Self::Named(name.to_owned())),
        }
    }

    pub(crate) fn word(&self) -> &str {
        match self {
            Self::Auto { .. } => "auto",
            Self::System => "system",
            Self::Named(name) => name,
        }
    }
}

/// Compares the names in a configuration with what the kernel has, and settles what `auto` comes to.
pub(crate) fn settle(config: &mut Config, report: &mut Report<'_>) {
    Kernel::look().settle(config, report);
}

/// Names that this process may set by a capability only: another that reads the same file may be refused.
#[must_use]
pub fn congestion_worries(config: &Config) -> Vec<String> {
    Kernel::look().worries(config)
}

/// What the kernel has. Lists are empty where it does not say.
struct Kernel {
    /// What a connection has for which nobody has chosen.
    default: String,
    available: Vec<String>,
    /// Those that every process may set.
    allowed: Vec<String>,
    /// This process may set the others, too.
    may_set_all: bool,
}

impl Kernel {
    fn look() -> Self {
        let says = |what: &str| fs::read_to_string(format!("{SYSCTL}{what}")).unwrap_or_default();
        let names = |what: &str| says(what).split_whitespace().map(str::to_owned).collect();
        Self {
            default: says("congestion_control").trim().to_owned(),
            available: names("available_congestion_control"),
            allowed: names("allowed_congestion_control"),
            may_set_all: fs::read_to_string("/proc/self/status").is_ok_and(|status| has_net_admin(&status)),
        }
    }

    fn settle(&self, config: &mut Config, report: &mut Report<'_>) {
        for (index, listener) in config.listeners.iter_mut().enumerate() {
            let path = format!("listener[{index}].congestion");
            self.settle_one(&mut listener.congestion, &path, report);
        }
        for (name, cluster) in &mut config.clusters {
            let path = format!("cluster.{name}.congestion");
            self.settle_one(&mut cluster.congestion, &path, report);
        }
    }

    fn settle_one(&self, congestion: &mut Congestion, path: &str, report: &mut Report<'_>) {
        let name = match congestion {
            Congestion::System => return,
            Congestion::Auto { spares_local } => {
                *spares_local = paces(&self.default) && self.may_set(Congestion::UNPACED);
                return;
            }
            Congestion::Named(name) => name.as_str(),
        };
        if !holds(&self.available, name) {
            let expected = format!(
                "\"auto\", \"system\" or one that the kernel has ({})",
                self.available.join(", ")
            );
            let hint = suggest::hint(
                name,
                self.available
                    .iter()
                    .map(String::as_str)
                    .chain(["auto", "system"]),
            )
            .unwrap_or_else(|| format!("`modprobe tcp_{name}` loads it where it is a module of the kernel"));
            report.wrong(path, expected, format!("{name:?}")).hint(hint);
        } else if !self.may_set(name) {
            let expected = format!(
                "\"auto\", \"system\" or one that this process may set ({})",
                self.allowed.join(", ")
            );
            let hint = "the kernel allows those in net.ipv4.tcp_allowed_congestion_control".to_owned();
            report.wrong(path, expected, format!("{name:?}")).hint(hint);
        }
    }

    fn worries(&self, config: &Config) -> Vec<String> {
        let of_listeners = config.listeners.iter().enumerate();
        let of_listeners =
            of_listeners.map(|(index, listener)| (format!("listener[{index}]"), &listener.congestion));
        let of_clusters = config.clusters.iter();
        let of_clusters = of_clusters.map(|(name, cluster)| (format!("cluster.{name}"), &cluster.congestion));
        let words = |(path, congestion): (String, &Congestion)| match congestion {
            Congestion::Named(name) if self.may_set_all && !holds(&self.allowed, name) => Some(format!(
                "{path}.congestion: {name:?} is not in net.ipv4.tcp_allowed_congestion_control: a process without \
                 CAP_NET_ADMIN, such as that of the systemd unit, refuses this file"
            )),
            _ => None,
        };
        of_listeners.chain(of_clusters).filter_map(words).collect()
    }

    fn may_set(&self, name: &str) -> bool {
        self.may_set_all || holds(&self.allowed, name)
    }
}

/// Where the kernel does not say, connections will show.
fn holds(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|known| known == name)
}

/// BBR in all its versions, and Prague.
fn paces(name: &str) -> bool {
    name.starts_with("bbr") || name == "prague"
}

/// Whether the capabilities in effect have CAP_NET_ADMIN.
fn has_net_admin(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits >> 12 & 1 == 1)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::error::ConfigErrors;
    use crate::syntax;
    use crate::value::Value;

    fn kernel(default: &str) -> Kernel {
        let names = |names: &str| names.split(' ').map(str::to_owned).collect();
        Kernel {
            default: default.to_owned(),
            available: names("reno bbr cubic"),
            allowed: names("reno bbr"),
            may_set_all: false,
        }
    }

    fn read(value: &str, kernel: &Kernel) -> Result<Config, ConfigErrors> {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\ncongestion = {value}\n\
             [cluster.main]\nservers = [\"db1\"]\n"
        );
        let mut report = Report::new("f.toml", &text);
        let root = syntax::root(&text, &mut report).unwrap();
        let mut config = Config::read(&root, "", &mut report).unwrap();
        kernel.settle(&mut config, &mut report);
        report.finish().map(|()| config)
    }

    fn listens(value: &str, kernel: &Kernel) -> Congestion {
        read(value, kernel).unwrap().listeners.remove(0).congestion
    }

    fn told(value: &str, kernel: &Kernel, expected: Expect) {
        expected.assert_eq(&format!("{}\n", read(value, kernel).unwrap_err()));
    }

    #[test]
    fn auto_spares_local_connections_what_paces() {
        let spares = |kernel: &Kernel| {
            let config = read("\"auto\"", kernel).unwrap();
            // The cluster says nothing: `auto` is the default.
            assert_eq!(config.listeners[0].congestion, config.clusters["main"].congestion);
            config.listeners[0].congestion == Congestion::Auto { spares_local: true }
        };
        assert!(spares(&kernel("bbr")));
        assert!(spares(&kernel("bbr3")));
        assert!(!spares(&kernel("cubic")));
        assert!(!spares(&kernel("")), "the kernel does not say");
        let mut strict = kernel("bbr");
        strict.allowed = vec!["bbr".to_owned()];
        assert!(!spares(&strict), "it may not be set");
        strict.may_set_all = true;
        assert!(spares(&strict));
    }

    #[test]
    fn a_reload_sees_that_the_system_has_changed() {
        let config = |default: &str| read("\"auto\"", &kernel(default)).unwrap();
        assert!(config("cubic").diff(&config("reno")).is_empty());
        expect![[r#"
            listener[].congestion: changed (new sessions)
            cluster.main.congestion: changed (new sessions)
        "#]]
        .assert_eq(&format!("{}\n", config("cubic").diff(&config("bbr"))));
    }

    #[test]
    fn names_are_those_that_can_be_set() {
        let mut kernel = kernel("bbr");
        let named = |name: &str| Congestion::Named(name.to_owned());
        assert_eq!(listens("\"reno\"", &kernel), named("reno"));
        assert_eq!(listens("\"system\"", &kernel), Congestion::System);
        told(
            "\"cubik\"",
            &kernel,
            expect![[r#"
                f.toml:4:14: listener[0].congestion: expected "auto", "system" or one that the kernel has (reno, bbr, cubic), found "cubik"; did you mean `cubic`?
            "#]],
        );
        told(
            "\"vegas\"",
            &kernel,
            expect![[r#"
                f.toml:4:14: listener[0].congestion: expected "auto", "system" or one that the kernel has (reno, bbr, cubic), found "vegas"; `modprobe tcp_vegas` loads it where it is a module of the kernel
            "#]],
        );
        told(
            "\"cubic\"",
            &kernel,
            expect![[r#"
                f.toml:4:14: listener[0].congestion: expected "auto", "system" or one that this process may set (reno, bbr), found "cubic"; the kernel allows those in net.ipv4.tcp_allowed_congestion_control
            "#]],
        );
        told(
            "\"\"",
            &kernel,
            expect![[r#"
                f.toml:4:14: listener[0].congestion: expected "auto", "system" or the name of one that the kernel has ("reno", "cubic", "bbr"), found ""
            "#]],
        );
        told(
            "true",
            &kernel,
            expect![[r#"
                f.toml:4:14: listener[0].congestion: expected "auto", "system" or the name of one that the kernel has ("reno", "cubic", "bbr"), found true
            "#]],
        );
        told(
            "\"a name of 16 b\"",
            &kernel,
            expect![[r#"
                f.toml:4:14: listener[0].congestion: expected "auto", "system" or the name of one that the kernel has ("reno", "cubic", "bbr"), found "a name of 16 b"
            "#]],
        );
        kernel.may_set_all = true;
        assert_eq!(listens("\"cubic\"", &kernel), named("cubic"));
        expect![[r#"
            [
                "listener[0].congestion: \"cubic\" is not in net.ipv4.tcp_allowed_congestion_control: a process without CAP_NET_ADMIN, such as that of the systemd unit, refuses this file",
            ]
        "#]]
        .assert_debug_eq(&kernel.worries(&read("\"cubic\"", &kernel).unwrap()));
        assert_eq!(kernel.worries(&read("\"bbr\"", &kernel).unwrap()), [""; 0]);
        // Where /proc is hidden connections will show.
        (kernel.available, kernel.allowed, kernel.may_set_all) = (Vec::new(), Vec::new(), false);
        assert_eq!(listens("\"vegas\"", &kernel), named("vegas"));
    }

    #[test]
    fn the_capability_is_found() {
        assert!(has_net_admin("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(has_net_admin("CapEff:\t0000000000001000\n"));
        assert!(!has_net_admin(
            "CapPrm:\t0000000000001000\nCapEff:\t0000000000000400\n"
        ));
        assert!(!has_net_admin(""));
    }
}
