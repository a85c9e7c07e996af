//! The configuration each contender runs with.

use std::{fmt::Write as _, fs, net::SocketAddr, path::Path};

use anyhow::Context;

use super::{
    Kind, Plan,
    workload::{PASSWORD, USER},
};

const HAPROXY: &str = include_str!("../../../../bench/haproxy.cfg");
const PROXYSQL: &str = include_str!("../../../../bench/proxysql.cnf");

/// Sessions a contender must allow where the plan needs fewer; `bench/haproxy.cfg` says the same.
pub(super) const SESSIONS: usize = 9000;

pub(super) struct ContenderPlace<'a> {
    pub listen: SocketAddr,
    /// The primary first.
    pub servers: &'a [SocketAddr],
    /// Connections to each of them at the same time.
    pub limits: &'a [usize],
    pub folder: &'a Path,
}

/// It takes its addresses from its environment.
pub(super) fn haproxy(other: Option<&Path>) -> anyhow::Result<String> {
    given_or(other, HAPROXY)
}

/// It cannot read its environment: the names stand for their values.
pub(super) fn proxysql(other: Option<&Path>, place: &ContenderPlace<'_>) -> anyhow::Result<String> {
    let mut servers = String::new();
    for (at, (server, limit)) in place.servers.iter().zip(place.limits).enumerate() {
        let separator = if at == 0 { "" } else { ",\n" };
        let group = usize::from(at > 0);
        // Writing to a String cannot fail.
        let _ = write!(
            servers,
            "{separator}    {{ address = \"{}\", port = {}, hostgroup = {group}, max_connections = {limit} }}",
            server.ip(),
            server.port()
        );
    }
    let text = given_or(other, PROXYSQL)?
        .replace("BENCH_BIND", &place.listen.to_string())
        .replace("BENCH_FOLDER", &place.folder.display().to_string())
        .replace("BENCH_USER", &String::from_utf8_lossy(USER))
        .replace("BENCH_PASSWORD", &String::from_utf8_lossy(PASSWORD))
        .replace("BENCH_SERVERS", &servers);
    Ok(text)
}

/// This program, in one of its modes. Checks ask no more of a server than its kernel can answer: the rig sees
/// to the fake servers only while it opens sessions and makes load.
pub(super) fn forebay(kind: Kind, plan: &Plan, workers: usize, place: &ContenderPlace<'_>) -> String {
    let sessions = match kind.shares_connections() {
        true => SESSIONS.max(plan.idle_sessions + 200),
        false => SESSIONS,
    };
    let mut servers = String::new();
    for (at, (server, limit)) in place.servers.iter().zip(place.limits).enumerate() {
        // Writing to a String cannot fail.
        let _ = match (kind, at) {
            (Kind::Split, 0) => write!(
                servers,
                "{{ address = \"{server}\", role = \"primary\", max_connections = {limit} }}"
            ),
            (Kind::Split, _) => write!(
                servers,
                ", {{ address = \"{server}\", role = \"replica\", max_connections = {limit} }}"
            ),
            _ => write!(servers, "\"{server}\""),
        };
    }
    let users = match kind {
        Kind::Split | Kind::Moves => format!(
            "\n[[user]]\nname = \"{}\"\npassword = \"{}\"\n",
            String::from_utf8_lossy(USER),
            String::from_utf8_lossy(PASSWORD)
        ),
        _ => String::new(),
    };
    let [top, mut listener, cluster] = options(&plan.forebay_options);
    let mode = match kind {
        Kind::Moves => {
            listener.push_str("moves = true\n");
            Kind::Session
        }
        kind => kind,
    };
    format!(
        "workers = {workers}\nmax_connections = {sessions}\n{top}\n[log]\nlevel = \"warn\"\n\n[[listener]]\nbind = \"{}\"\n\
         mode = \"{mode}\"\ncluster = \"main\"\nbacklog = 4096\n{listener}\n[cluster.main]\nservers = [{servers}]\n{cluster}\n\
         [cluster.main.check]\nkind = \"tcp\"\ninterval = \"1h\"\n{users}",
        place.listen
    )
}

/// Lines of the top level, the listener and the cluster.
pub(crate) fn options(given: &[String]) -> [String; 3] {
    let mut lines = [const { String::new() }; 3];
    for option in given {
        let (section, line) = match (option.strip_prefix("listener."), option.strip_prefix("cluster.")) {
            (Some(line), _) => (1, line),
            (_, Some(line)) => (2, line),
            (None, None) => (0, option.as_str()),
        };
        lines[section].extend([line, "\n"]);
    }
    lines
}

fn given_or(other: Option<&Path>, built_in: &str) -> anyhow::Result<String> {
    match other {
        Some(path) => fs::read_to_string(path).with_context(|| path.display().to_string()),
        None => Ok(built_in.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_place<T>(test: impl FnOnce(&ContenderPlace<'_>) -> T) -> T {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        test(&ContenderPlace {
            listen: address(1),
            servers: &[address(3), address(4), address(5)],
            limits: &[2, 3, 3],
            folder: Path::new("/somewhere"),
        })
    }

    #[test]
    fn options_are_in_their_sections() {
        let given = [
            "listener.compression = false",
            "watch = false",
            "cluster.keepalive = \"0s\"",
        ];
        let given = given.map(str::to_owned);
        let sections = ["watch = false\n", "compression = false\n", "keepalive = \"0s\"\n"];
        assert_eq!(options(&given), sections);
        assert_eq!(options(&[]), [""; 3]);
    }

    #[test]
    fn nothing_is_left_to_be_filled_in() {
        let text = with_place(|place| proxysql(None, place)).unwrap();
        let settings = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let settings: String = settings.collect();
        assert!(!settings.contains("BENCH_"), "{settings}");
        assert!(
            settings.contains("port = 3, hostgroup = 0, max_connections = 2"),
            "{settings}"
        );
        assert!(
            settings.contains("port = 5, hostgroup = 1, max_connections = 3"),
            "{settings}"
        );
    }
}
