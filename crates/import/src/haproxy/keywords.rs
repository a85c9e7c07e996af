//! Words of HAProxy that are known and not taken over: of sections, of `bind` lines and of `server` lines.

use super::told::Equal::{self, Lacks, NeedsNone};

const LOG: Equal =
    NeedsNone("the log goes to standard error, one line for each session: docs/guide/operate.md");
const HTTP: Equal = NeedsNone("about HTTP, which is not in front of MySQL");
const PROCESS: Equal = NeedsNone("how the process runs is a matter of systemd or the container");
const TUNING: Equal = NeedsNone("buffers, threads and system calls are not tuned by hand");
/// For what is about versions and suites of TLS.
pub(super) const SAFE_TLS: &str = "TLS 1.2 and 1.3 are spoken, with their safe suites";
const CIPHERS: Equal = NeedsNone(SAFE_TLS);
const BASE: Equal = NeedsNone("the folder is in front of the files' names");
const RETRIES: Equal = NeedsNone("a server that refuses is passed over for each other one, once");
const KEEPALIVE: Equal = NeedsNone("TCP keepalive is always on; `keepalive` of the cluster says how");
const ADMIN: Equal = NeedsNone("[admin] is in the place of statistics and of the socket for commands");
const LABELS: Equal = NeedsNone("a label for people");
const RULE: Equal =
    Lacks("no equal in modes `session` and `tcp`: a firewall for addresses, a listener for each choice");
const STICK: Equal =
    Lacks("no equal: a session keeps its server, but the sessions of one client may go to different servers");
const TABLE: Equal = Lacks("no equal: there are no tables; what its `stick` lines come to is said of them");
const OWN_CHECK: Equal =
    Lacks("no equal: a check is a login with a `query`; docs/guide/from-haproxy.md has some");
const MAIL: Equal = Lacks("no equal: the alert rules of deploy/prometheus do that");
const ALWAYS_SAFE: Equal = NeedsNone("a login without end is ended by `login_timeout`");
const AGENT: Equal = Lacks("no equal: nobody is asked but the server");
const KEPT_STATE: Equal = NeedsNone("a reload keeps what is known of servers");
const RATES: Equal = Lacks("no equal: sessions are limited, not how fast they come");
const SOCKET_OWNER: Equal =
    Lacks("no equal: the socket is of whoever runs the gateway; `unix_mode` says who may connect");
const CHECKED_AT_ONCE: Equal = Lacks("no equal: a server that refuses sessions is checked at once");
const IN_TURN: Equal = Lacks("no equal: addresses of a name are tried in turn");
const CLIENT_ADDRESS: Equal = Lacks("no equal: the client's address goes on by `send_proxy`");
const OWN_ADDRESS: Equal = Lacks("no equal: the system chooses the address to servers");
const REVOKED: Equal = Lacks("no equal: certificates are not looked for in lists of revoked ones");
const NAMESPACE: Equal = Lacks("no equal: the namespace is that of the process");

/// By the first word of a line, or by the first two.
const OF_SECTIONS: &[(&str, Equal)] = &[
    ("acl", RULE),
    ("backlog", NeedsNone("it is taken over for listeners")),
    ("bind-process", PROCESS),
    ("ca-base", BASE),
    ("capture", HTTP),
    ("chroot", PROCESS),
    ("clitcpka-cnt", KEEPALIVE),
    ("clitcpka-idle", KEEPALIVE),
    ("clitcpka-intvl", KEEPALIVE),
    ("compression", HTTP),
    ("cookie", HTTP),
    ("cpu-map", PROCESS),
    ("cpu-policy", PROCESS),
    ("crt-base", BASE),
    ("daemon", PROCESS),
    ("debug", LOG),
    (
        "default-path",
        Lacks("not looked at: files are named from the folder of the configuration"),
    ),
    ("description", LABELS),
    ("dispatch", Lacks("no equal: name the server in a `server` line")),
    ("email-alert", MAIL),
    ("enabled", NeedsNone("it is so without saying")),
    ("errorfile", HTTP),
    ("errorfiles", HTTP),
    ("errorloc", HTTP),
    ("errorloc302", HTTP),
    ("errorloc303", HTTP),
    ("external-check", OWN_CHECK),
    ("force-persist", STICK),
    ("fullconn", Lacks("no equal: limits of servers are what they are")),
    ("gid", PROCESS),
    ("group", PROCESS),
    ("guid", LABELS),
    ("h1-case-adjust", HTTP),
    ("hash-type", STICK),
    ("http-after-response", HTTP),
    ("http-check", OWN_CHECK),
    ("http-error", HTTP),
    ("http-errors", HTTP),
    ("http-request", HTTP),
    ("http-response", HTTP),
    ("http-reuse", HTTP),
    ("http-send-name-header", HTTP),
    ("id", LABELS),
    ("ignore-persist", STICK),
    ("insecure-fork-wanted", PROCESS),
    (
        "issuers-chain-path",
        Lacks("no equal: put the whole chain into the certificate's file"),
    ),
    ("load-server-state-from-file", KEPT_STATE),
    ("localpeer", STICK),
    ("log", LOG),
    ("log-format", LOG),
    ("log-format-sd", LOG),
    ("log-send-hostname", LOG),
    ("log-steps", LOG),
    ("log-tag", LOG),
    ("lua-load", RULE),
    ("lua-load-per-thread", RULE),
    ("mailers", MAIL),
    ("master-worker", PROCESS),
    ("max-keep-alive-queue", HTTP),
    ("max-session-srv-conns", HTTP),
    ("maxcomprate", HTTP),
    ("maxconnrate", RATES),
    ("maxpipes", TUNING),
    ("maxsessrate", RATES),
    (
        "maxsslconn",
        Lacks("no equal: `max_connections` counts all sessions"),
    ),
    ("maxsslrate", RATES),
    ("monitor", HTTP),
    ("monitor-net", Lacks("ask /readyz of [admin]")),
    ("monitor-uri", Lacks("ask /readyz of [admin]")),
    ("nbproc", Lacks("no equal: one process, with `workers` threads")),
    ("node", LABELS),
    ("numa-cpu-mapping", PROCESS),
    (
        "option abortonclose",
        NeedsNone("a client that is gone leaves the queue"),
    ),
    ("option accept-invalid-http-request", HTTP),
    ("option accept-invalid-http-response", HTTP),
    (
        "option allbackups",
        NeedsNone("all backups at once is what is done"),
    ),
    ("option checkcache", HTTP),
    ("option clitcpka", KEEPALIVE),
    ("option contstats", ADMIN),
    ("option disable-h2-upgrade", HTTP),
    ("option dontlog-normal", LOG),
    ("option dontlognull", LOG),
    ("option forceclose", HTTP),
    ("option forwardfor", HTTP),
    ("option forwarded", HTTP),
    ("option http-buffer-request", HTTP),
    ("option http-ignore-probes", HTTP),
    ("option http-keep-alive", HTTP),
    ("option http-no-delay", HTTP),
    ("option http-pretend-keepalive", HTTP),
    ("option http-server-close", HTTP),
    ("option http-use-htx", HTTP),
    ("option http-use-proxy-header", HTTP),
    ("option httpclose", HTTP),
    ("option httplog", LOG),
    ("option httpslog", LOG),
    ("option idle-close-on-response", HTTP),
    (
        "option independent-streams",
        NeedsNone("each direction is watched for itself"),
    ),
    ("option log-health-checks", LOG),
    ("option log-separate-errors", LOG),
    ("option logasap", LOG),
    (
        "option nolinger",
        Lacks("no equal: connections are closed in order"),
    ),
    ("option originalto", HTTP),
    ("option persist", STICK),
    ("option prefer-last-server", STICK),
    ("option redispatch", RETRIES),
    ("option socket-stats", ADMIN),
    ("option splice-auto", TUNING),
    ("option splice-request", TUNING),
    ("option splice-response", TUNING),
    ("option srvtcpka", KEEPALIVE),
    ("option tcp-smart-accept", TUNING),
    ("option tcp-smart-connect", TUNING),
    ("option tcpka", KEEPALIVE),
    ("option tcplog", LOG),
    ("option transparent", CLIENT_ADDRESS),
    ("persist", STICK),
    ("pidfile", PROCESS),
    ("presetenv", PROCESS),
    ("quiet", LOG),
    ("rate-limit", RATES),
    ("redirect", HTTP),
    ("redispatch", RETRIES),
    ("resetenv", PROCESS),
    ("retries", RETRIES),
    ("retry-on", HTTP),
    ("server-state-base", KEPT_STATE),
    ("server-state-file", KEPT_STATE),
    ("server-state-file-name", KEPT_STATE),
    (
        "server-template",
        Lacks("not taken over: name each server, or the SRV records with `srv`: docs/guide/topology.md"),
    ),
    ("set-dumpable", PROCESS),
    ("setenv", PROCESS),
    ("source", OWN_ADDRESS),
    ("spread-checks", NeedsNone("checks are spread")),
    ("srvtcpka-cnt", KEEPALIVE),
    ("srvtcpka-idle", KEEPALIVE),
    ("srvtcpka-intvl", KEEPALIVE),
    ("ssl-default-bind-ciphers", CIPHERS),
    ("ssl-default-bind-ciphersuites", CIPHERS),
    ("ssl-default-bind-curves", CIPHERS),
    (
        "ssl-default-bind-options",
        Lacks("write `min_version = \"1.3\"` into [listener.tls]"),
    ),
    ("ssl-default-server-ciphers", CIPHERS),
    ("ssl-default-server-ciphersuites", CIPHERS),
    ("ssl-default-server-curves", CIPHERS),
    ("ssl-default-server-options", CIPHERS),
    ("ssl-dh-param-file", CIPHERS),
    (
        "stats auth",
        Lacks("[admin] has no login: it is bound to loopback"),
    ),
    ("stats bind-process", PROCESS),
    ("stats", ADMIN),
    ("stick", STICK),
    ("stick-table", TABLE),
    ("tcp-check", OWN_CHECK),
    ("tcp-request", RULE),
    ("tcp-response", RULE),
    ("timeout client-fin", NeedsNone("both directions end together")),
    ("timeout client-hs", ALWAYS_SAFE),
    ("timeout http-keep-alive", HTTP),
    ("timeout http-request", HTTP),
    ("timeout server-fin", NeedsNone("both directions end together")),
    ("timeout tarpit", HTTP),
    ("uid", PROCESS),
    (
        "ulimit-n",
        NeedsNone("the soft limit of file descriptors is raised to the hard one"),
    ),
    ("unique-id-format", HTTP),
    ("unique-id-header", HTTP),
    ("unix-bind", Lacks("no equal: `unix_mode` of the listener")),
    ("unsetenv", PROCESS),
    ("use-server", RULE),
    ("user", PROCESS),
    ("zero-warning", PROCESS),
];

/// What is said of a line of a section, if it is known.
pub(super) fn of_section(first: &str, second: &str) -> Option<Equal> {
    if first.starts_with("tune.") || first.starts_with("profiling.") || first.starts_with("no-memory-") {
        return Some(TUNING);
    }
    // Conditions on the file itself.
    match first {
        ".if" | ".elif" | ".else" => return Some(Lacks("not looked at: the lines of all branches count")),
        ".endif" => return Some(NeedsNone("what begins the branches has been told")),
        _ => {}
    }
    // Ways to wait for events, switched off for some kernel.
    if [
        "noepoll",
        "nokqueue",
        "noevports",
        "nopoll",
        "nosplice",
        "noreuseport",
        "nogetaddrinfo",
    ]
    .contains(&first)
    {
        return Some(TUNING);
    }
    let both = format!("{first} {second}");
    let find = |words: &str| OF_SECTIONS.iter().find(|(known, _)| *known == words);
    find(&both).or_else(|| find(first)).map(|(_, equal)| *equal)
}

/// A word of a `bind` or `server` line, how many words follow it, and what is said of it.
pub(super) type Parameter = (&'static str, usize, Equal);

const CHECK_TRAFFIC: Equal = NeedsNone("checks speak as sessions do");
const VERSIONS: Equal = CIPHERS;

/// Of `bind` lines.
pub(super) const OF_BINDS: &[Parameter] = &[
    (
        "accept-netscaler-cip",
        1,
        Lacks("no equal: the PROXY protocol does that"),
    ),
    ("allow-0rtt", 0, CIPHERS),
    ("alpn", 1, HTTP),
    (
        "ca-verify-file",
        1,
        Lacks("no equal: `client_ca` holds all authorities"),
    ),
    ("ciphers", 1, CIPHERS),
    ("ciphersuites", 1, CIPHERS),
    ("client-sigalgs", 1, CIPHERS),
    ("crl-file", 1, REVOKED),
    ("curves", 1, CIPHERS),
    ("defer-accept", 0, NeedsNone("the server speaks first in MySQL")),
    ("ecdhe", 1, CIPHERS),
    ("gid", 1, SOCKET_OWNER),
    ("group", 1, SOCKET_OWNER),
    ("id", 1, LABELS),
    (
        "interface",
        1,
        Lacks("no equal: it listens on all interfaces here; bind the address of that one"),
    ),
    ("level", 1, ADMIN),
    ("mss", 1, Lacks("no equal: a matter of routes")),
    ("name", 1, LABELS),
    ("namespace", 1, NAMESPACE),
    ("nice", 1, TUNING),
    ("no-alpn", 0, HTTP),
    ("no-ca-names", 0, CIPHERS),
    ("no-sslv3", 0, VERSIONS),
    ("no-tls-tickets", 0, CIPHERS),
    ("no-tlsv10", 0, VERSIONS),
    ("no-tlsv11", 0, VERSIONS),
    ("npn", 1, HTTP),
    ("prefer-client-ciphers", 0, CIPHERS),
    ("process", 1, PROCESS),
    ("proto", 1, HTTP),
    ("severity-output", 1, ADMIN),
    ("shards", 1, TUNING),
    ("sigalgs", 1, CIPHERS),
    ("ssl-max-ver", 1, Lacks("no equal: TLS 1.3 is always spoken")),
    ("strict-sni", 0, Lacks("no equal: a listener has one certificate")),
    (
        "tcp-ut",
        1,
        Lacks("no equal: `client_idle_timeout`, and TCP keepalive"),
    ),
    ("tfo", 0, Lacks("no equal: in MySQL the server speaks first")),
    ("thread", 1, PROCESS),
    ("tls-ticket-keys", 1, CIPHERS),
    (
        "transparent",
        0,
        Lacks("no equal: `net.ipv4.ip_nonlocal_bind` lets any address be bound"),
    ),
    ("uid", 1, SOCKET_OWNER),
    ("user", 1, SOCKET_OWNER),
    (
        "v4v6",
        0,
        NeedsNone("[::] takes IPv4 as well, where net.ipv6.bindv6only is 0"),
    ),
    (
        "v6only",
        0,
        Lacks("[::] takes IPv4 as well, where net.ipv6.bindv6only is 0"),
    ),
];

/// Of `server` and `default-server` lines.
pub(super) const OF_SERVERS: &[Parameter] = &[
    ("addr", 1, Lacks("no equal: checks go to the server itself")),
    ("agent-addr", 1, AGENT),
    ("agent-check", 0, AGENT),
    ("agent-inter", 1, AGENT),
    ("agent-port", 1, AGENT),
    ("agent-send", 1, AGENT),
    ("allow-0rtt", 0, CIPHERS),
    ("alpn", 1, HTTP),
    ("check-alpn", 1, HTTP),
    ("check-proto", 1, HTTP),
    ("check-send-proxy", 0, CHECK_TRAFFIC),
    ("check-sni", 1, CHECK_TRAFFIC),
    ("check-ssl", 0, CHECK_TRAFFIC),
    ("ciphers", 1, CIPHERS),
    ("ciphersuites", 1, CIPHERS),
    ("client-sigalgs", 1, CIPHERS),
    ("cookie", 1, HTTP),
    ("crl-file", 1, REVOKED),
    ("curves", 1, CIPHERS),
    ("downinter", 1, Lacks("no equal: `interval` counts always")),
    ("enabled", 0, NeedsNone("it is so without saying")),
    ("error-limit", 1, CHECKED_AT_ONCE),
    ("fastinter", 1, Lacks("no equal: `interval` counts always")),
    ("guid", 1, LABELS),
    ("hash-key", 1, STICK),
    (
        "init-addr",
        1,
        NeedsNone("a name that cannot be looked up yet keeps nothing from starting"),
    ),
    ("init-state", 1, Lacks("no equal: the first check decides")),
    (
        "interface",
        1,
        Lacks("no equal: the system chooses the way to servers"),
    ),
    ("max-reuse", 1, HTTP),
    ("minconn", 1, Lacks("no equal: `max_connections` is one figure")),
    ("namespace", 1, NAMESPACE),
    ("no-sslv3", 0, VERSIONS),
    ("no-tls-tickets", 0, CIPHERS),
    ("no-tlsv10", 0, VERSIONS),
    ("no-tlsv11", 0, VERSIONS),
    ("non-stick", 0, STICK),
    ("observe", 1, CHECKED_AT_ONCE),
    ("on-error", 1, CHECKED_AT_ONCE),
    (
        "on-marked-up",
        1,
        Lacks("no equal: sessions on a backup stay until they end"),
    ),
    ("pool-low-conn", 1, HTTP),
    ("pool-max-conn", 1, HTTP),
    ("pool-purge-delay", 1, HTTP),
    (
        "port",
        1,
        Lacks(
            "checks go to the port that sessions go to: what another one says (clustercheck) takes a `query`, see docs/guide/from-haproxy.md",
        ),
    ),
    ("proto", 1, HTTP),
    (
        "proxy-v2-options",
        1,
        Lacks("no equal: the header has the addresses and nothing else"),
    ),
    ("redir", 1, HTTP),
    ("resolve-net", 1, IN_TURN),
    ("resolve-opts", 1, IN_TURN),
    ("resolve-prefer", 1, IN_TURN),
    (
        "resolvers",
        1,
        NeedsNone("names are looked up by the system's resolver, every `dns_interval`"),
    ),
    ("sigalgs", 1, CIPHERS),
    ("socks4", 1, Lacks("no equal: servers are reached directly")),
    ("source", 1, OWN_ADDRESS),
    ("ssl-max-ver", 1, Lacks("no equal: TLS 1.3 is always spoken")),
    ("ssl-min-ver", 1, VERSIONS),
    ("ssl-reuse", 0, CIPHERS),
    ("stick", 0, STICK),
    (
        "tcp-ut",
        1,
        Lacks("no equal: checks, and `keepalive` of the cluster"),
    ),
    ("tfo", 0, Lacks("no equal: in MySQL the server speaks first")),
    ("tls-tickets", 0, CIPHERS),
    (
        "track",
        1,
        Lacks("no equal: each server of each cluster has its own checks"),
    ),
    ("usesrc", 1, CLIENT_ADDRESS),
    ("ws", 1, HTTP),
];
