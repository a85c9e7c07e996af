//! Words of HAProxy that are known and not taken over: of sections, of `bind` lines and of `server` lines.

use super::remarks::Equal::{self, Lacks, NeedsNone};

const HTTP: Equal = NeedsNone("about HTTP, which is not in front of MySQL");
const PROCESS: Equal = NeedsNone("how the process runs is a matter of systemd or the container");
const TUNING: Equal = NeedsNone("buffers, threads and system calls are not tuned by hand");
/// For what is about versions and suites of TLS.
pub(super) const SAFE_TLS: &str = "TLS 1.2 and 1.3 are spoken, with their safe suites";
const CIPHERS: Equal = NeedsNone(SAFE_TLS);
const ADMIN: Equal = NeedsNone("[admin] is in the place of statistics and of the socket for commands");
const LABELS: Equal = NeedsNone("a label for people");
const STICK: Equal =
    Lacks("no equal: a session keeps its server, but the sessions of one client may go to different servers");
const AGENT: Equal = Lacks("no equal: nobody is asked but the server");
const CLIENT_ADDRESS: Equal = Lacks("no equal: the client's address goes on by `send_proxy`");
const OWN_ADDRESS: Equal = Lacks("no equal: the system chooses the address to servers");
const REVOKED: Equal = Lacks("no equal: certificates are not looked for in lists of revoked ones");
const NAMESPACE: Equal = Lacks("no equal: the namespace is that of the process");

/// A table of words, each with what is said of it. A number behind that is how many words follow.
macro_rules! words {
    ($($equal:expr, $count:literal => $($word:literal)+;)+) => { &[$($(($word, $count, $equal)),+),+] };
    ($($equal:expr => $($word:literal)+;)+) => { &[$($(($word, $equal)),+),+] };
}

/// By the first word of a line, or by the first two.
const OF_SECTIONS: &[(&str, Equal)] = words! {
    PROCESS => "bind-process" "chroot" "cpu-map" "cpu-policy" "daemon" "gid" "group" "insecure-fork-wanted"
        "master-worker" "numa-cpu-mapping" "pidfile" "presetenv" "resetenv" "set-dumpable" "setenv"
        "stats bind-process" "uid" "unsetenv" "user" "zero-warning";
    HTTP => "capture" "compression" "cookie" "errorfile" "errorfiles" "errorloc" "errorloc302" "errorloc303"
        "h1-case-adjust" "http-after-response" "http-error" "http-errors" "http-request" "http-response"
        "http-reuse" "http-send-name-header" "max-keep-alive-queue" "max-session-srv-conns" "maxcomprate"
        "monitor" "option accept-invalid-http-request" "option accept-invalid-http-response"
        "option checkcache" "option disable-h2-upgrade" "option forceclose" "option forwardfor"
        "option forwarded" "option http-buffer-request" "option http-ignore-probes" "option http-keep-alive"
        "option http-no-delay" "option http-pretend-keepalive" "option http-server-close"
        "option http-use-htx" "option http-use-proxy-header" "option httpclose"
        "option idle-close-on-response" "option originalto" "redirect" "retry-on" "timeout http-keep-alive"
        "timeout http-request" "timeout tarpit" "unique-id-format" "unique-id-header";
    LABELS => "description" "guid" "id" "node";
    STICK => "force-persist" "hash-type" "ignore-persist" "localpeer" "option persist"
        "option prefer-last-server" "persist" "stick";
    TUNING => "maxpipes" "noepoll" "noevports" "nogetaddrinfo" "nokqueue" "nopoll" "noreuseport" "nosplice"
        "option splice-auto" "option splice-request" "option splice-response" "option tcp-smart-accept"
        "option tcp-smart-connect";
    ADMIN => "option contstats" "option socket-stats" "stats";
    CLIENT_ADDRESS => "option transparent";
    OWN_ADDRESS => "source";
    CIPHERS => "ssl-default-bind-ciphers" "ssl-default-bind-ciphersuites" "ssl-default-bind-curves"
        "ssl-default-server-ciphers" "ssl-default-server-ciphersuites" "ssl-default-server-curves"
        "ssl-default-server-options" "ssl-dh-param-file";
    Lacks("not looked at: the lines of all branches count") => ".if" ".elif" ".else";
    NeedsNone("what begins the branches has been told") => ".endif";
    Lacks("no equal in modes `session` and `tcp`: a firewall for addresses, a listener for each choice") =>
        "acl" "lua-load" "lua-load-per-thread" "tcp-request" "tcp-response" "use-server";
    NeedsNone("the folder is in front of the files' names") => "ca-base" "crt-base";
    NeedsNone("TCP keepalive is always on; `keepalive` of the cluster says how") => "clitcpka-cnt"
        "clitcpka-idle" "clitcpka-intvl" "option clitcpka" "option srvtcpka" "option tcpka" "srvtcpka-cnt"
        "srvtcpka-idle" "srvtcpka-intvl";
    NeedsNone("the log goes to standard error, one line for each session: docs/guide/operate.md") => "debug"
        "log" "log-format" "log-format-sd" "log-send-hostname" "log-steps" "log-tag" "option dontlog-normal"
        "option dontlognull" "option httplog" "option httpslog" "option log-health-checks"
        "option log-separate-errors" "option logasap" "option tcplog" "quiet";
    Lacks("no equal: the alert rules of deploy/prometheus do that") => "email-alert" "mailers";
    Lacks("no equal: a check is a login with a `query`; docs/guide/from-haproxy.md has some") =>
        "external-check" "http-check" "tcp-check";
    NeedsNone("a reload keeps what is known of servers") => "load-server-state-from-file" "server-state-base"
        "server-state-file" "server-state-file-name";
    Lacks("no equal: sessions are limited, not how fast they come") => "maxconnrate" "maxsessrate"
        "maxsslrate" "rate-limit";
    NeedsNone("a server that refuses is passed over for each other one, once") => "option redispatch"
        "redispatch" "retries";
    Lacks("no equal: there are no tables; what its `stick` lines come to is said of them") => "stick-table";
    NeedsNone("a login without end is ended by `login_timeout`") => "timeout client-hs";
    NeedsNone("it is taken over for listeners") => "backlog";
    Lacks("not looked at: files are named from the folder of the configuration") => "default-path";
    Lacks("no equal: name the server in a `server` line") => "dispatch";
    NeedsNone("it is so without saying") => "enabled";
    Lacks("no equal: limits of servers are what they are") => "fullconn";
    Lacks("no equal: put the whole chain into the certificate's file") => "issuers-chain-path";
    Lacks("no equal: `max_connections` counts all sessions") => "maxsslconn";
    Lacks("ask /readyz of [admin]") => "monitor-net" "monitor-uri";
    Lacks("no equal: one process, with `workers` threads") => "nbproc";
    NeedsNone("a client that is gone leaves the queue") => "option abortonclose";
    NeedsNone("all backups at once is what is done") => "option allbackups";
    NeedsNone("each direction is watched for itself") => "option independent-streams";
    Lacks("no equal: connections are closed in order") => "option nolinger";
    Lacks("not taken over: name each server, or the SRV records with `srv`: docs/guide/topology.md") =>
        "server-template";
    NeedsNone("checks are spread") => "spread-checks";
    Lacks("write `min_version = \"1.3\"` into [listener.tls]") => "ssl-default-bind-options";
    Lacks("[admin] has no login: it is bound to loopback") => "stats auth";
    NeedsNone("both directions end together") => "timeout client-fin" "timeout server-fin";
    NeedsNone("the soft limit of file descriptors is raised to the hard one") => "ulimit-n";
    Lacks("no equal: `unix_mode` of the listener") => "unix-bind";
};

/// What is said of a line of a section, if it is known.
pub(super) fn of_section(first: &str, second: &str) -> Option<Equal> {
    if first.starts_with("tune.") || first.starts_with("profiling.") || first.starts_with("no-memory-") {
        return Some(TUNING);
    }
    let both = format!("{first} {second}");
    let find = |words: &str| OF_SECTIONS.iter().find(|(known, _)| *known == words);
    find(&both).or_else(|| find(first)).map(|(_, equal)| *equal)
}

/// A word of a `bind` or `server` line, how many words follow it, and what is said of it.
pub(super) type Parameter = (&'static str, usize, Equal);

const CHECK_TRAFFIC: Equal = NeedsNone("checks speak as sessions do");

/// Of `bind` lines.
pub(super) const OF_BINDS: &[Parameter] = words! {
    CIPHERS, 0 => "allow-0rtt" "no-ca-names" "no-sslv3" "no-tls-tickets" "no-tlsv10" "no-tlsv11"
        "prefer-client-ciphers";
    HTTP, 1 => "alpn" "npn" "proto";
    CIPHERS, 1 => "ciphers" "ciphersuites" "client-sigalgs" "curves" "ecdhe" "sigalgs" "tls-ticket-keys";
    REVOKED, 1 => "crl-file";
    LABELS, 1 => "id" "name";
    ADMIN, 1 => "level" "severity-output";
    NAMESPACE, 1 => "namespace";
    TUNING, 1 => "nice" "shards";
    HTTP, 0 => "no-alpn";
    PROCESS, 1 => "process" "thread";
    Lacks("no equal: the socket is of whoever runs the gateway; `unix_mode` says who may connect"), 1 => "gid"
        "group" "uid" "user";
    Lacks("no equal: the PROXY protocol does that"), 1 => "accept-netscaler-cip";
    Lacks("no equal: `client_ca` holds all authorities"), 1 => "ca-verify-file";
    NeedsNone("the server speaks first in MySQL"), 0 => "defer-accept";
    Lacks("no equal: it listens on all interfaces here; bind the address of that one"), 1 => "interface";
    Lacks("no equal: a matter of routes"), 1 => "mss";
    Lacks("no equal: TLS 1.3 is always spoken"), 1 => "ssl-max-ver";
    Lacks("no equal: a listener has one certificate"), 0 => "strict-sni";
    Lacks("no equal: `client_idle_timeout`, and TCP keepalive"), 1 => "tcp-ut";
    Lacks("no equal: in MySQL the server speaks first"), 0 => "tfo";
    Lacks("no equal: `net.ipv4.ip_nonlocal_bind` lets any address be bound"), 0 => "transparent";
    NeedsNone("[::] takes IPv4 as well, where net.ipv6.bindv6only is 0"), 0 => "v4v6";
    Lacks("[::] takes IPv4 as well, where net.ipv6.bindv6only is 0"), 0 => "v6only";
};

/// Of `server` and `default-server` lines.
pub(super) const OF_SERVERS: &[Parameter] = words! {
    AGENT, 1 => "agent-addr" "agent-inter" "agent-port" "agent-send";
    AGENT, 0 => "agent-check";
    CIPHERS, 0 => "allow-0rtt" "no-sslv3" "no-tls-tickets" "no-tlsv10" "no-tlsv11" "ssl-reuse" "tls-tickets";
    HTTP, 1 => "alpn" "check-alpn" "check-proto" "cookie" "max-reuse" "pool-low-conn" "pool-max-conn"
        "pool-purge-delay" "proto" "redir" "ws";
    CHECK_TRAFFIC, 0 => "check-send-proxy" "check-ssl";
    CHECK_TRAFFIC, 1 => "check-sni";
    CIPHERS, 1 => "ciphers" "ciphersuites" "client-sigalgs" "curves" "sigalgs" "ssl-min-ver";
    REVOKED, 1 => "crl-file";
    LABELS, 1 => "guid";
    STICK, 1 => "hash-key";
    NAMESPACE, 1 => "namespace";
    STICK, 0 => "non-stick" "stick";
    OWN_ADDRESS, 1 => "source";
    CLIENT_ADDRESS, 1 => "usesrc";
    Lacks("no equal: a server that refuses sessions is checked at once"), 1 => "error-limit" "observe"
        "on-error";
    Lacks("no equal: addresses of a name are tried in turn"), 1 => "resolve-net" "resolve-opts"
        "resolve-prefer";
    Lacks("no equal: checks go to the server itself"), 1 => "addr";
    Lacks("no equal: `interval` counts always"), 1 => "downinter" "fastinter";
    NeedsNone("it is so without saying"), 0 => "enabled";
    NeedsNone("a name that cannot be looked up yet keeps nothing from starting"), 1 => "init-addr";
    Lacks("no equal: the first check decides"), 1 => "init-state";
    Lacks("no equal: the system chooses the way to servers"), 1 => "interface";
    Lacks("no equal: `max_connections` is one figure"), 1 => "minconn";
    Lacks("no equal: sessions on a backup stay until they end"), 1 => "on-marked-up";
    Lacks("checks go to the port that sessions go to: what another one says (clustercheck) takes a `query`, see docs/guide/from-haproxy.md"), 1 =>
        "port";
    Lacks("no equal: the header has the addresses and nothing else"), 1 => "proxy-v2-options";
    NeedsNone("names are looked up by the system's resolver, every `dns_interval`"), 1 => "resolvers";
    Lacks("no equal: servers are reached directly"), 1 => "socks4";
    Lacks("no equal: TLS 1.3 is always spoken"), 1 => "ssl-max-ver";
    Lacks("no equal: checks, and `keepalive` of the cluster"), 1 => "tcp-ut";
    Lacks("no equal: in MySQL the server speaks first"), 0 => "tfo";
    Lacks("no equal: each server of each cluster has its own checks"), 1 => "track";
};
