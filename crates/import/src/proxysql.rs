//! From ProxySQL: its admin tables as SQL, or its configuration file.

use config::{Role, Topology};

use crate::clusters::{Cluster, Uses};
use crate::dump::{Dump, ImportError, TABLES, text_of};
use crate::variables::{self, Section};
use crate::write::{ADMIN, Notes, Toml, list, mistakes, quote};
use crate::{Imported, accounts, clusters, libconfig, routes, rules, sql};

/// Tables in which nothing of the operator stands.
const NOTHING_IN: [&str; 3] = ["mysql_collations", "global_settings", "sqlite_sequence"];

/// Turns a configuration of ProxySQL into one of ours: the SQL text of its admin tables, or its
/// `proxysql.cnf`.
///
/// # Errors
/// The text is neither, or a table in it cannot be read.
pub fn proxysql(text: &str) -> Result<Imported, ImportError> {
    let text = text_of(text)?;
    if let Some(what) = something_else(text) {
        return Err(ImportError::new(1, what));
    }
    let dump = if is_sql(text) {
        sql::parse(text)?
    } else {
        libconfig::parse(text)?
    };
    let mut notes = Notes::default();
    let users = accounts::users(&dump, &mut notes)?;
    let mut uses = Uses::default();
    accounts::count(&users, &mut uses);
    rules::count(&dump, &mut uses)?;
    let clusters = clusters::plan(&dump, &uses, &mut notes)?;
    if clusters.is_empty() {
        return Err(ImportError::new(
            1,
            "no server in mysql_servers that a user or a rule leads to",
        ));
    }
    let has_users = |cluster: &Cluster| {
        cluster
            .routes
            .keys()
            .any(|hostgroup| uses.defaults.contains_key(hostgroup))
    };
    let listeners = routes::listeners(&dump, &clusters, has_users, &mut notes);
    debug_assert!(!listeners.is_empty(), "every result can be reached");

    let mut toml = Toml::default();
    toml.comment("Made from a ProxySQL configuration by `forebay import proxysql`.");
    toml.comment("Look at it with `forebay check`; docs/guide/from-proxysql.md says what is different.");
    toml.blank();
    variables::write(&dump, Section::Top, &mut toml, &mut notes);
    routes::write(&listeners, &dump, &mut toml, &mut notes);
    toml.section("[admin]");
    toml.comment(
        "/metrics, /status and /sessions, in the place of the admin interface: to read needs no login.",
    );
    toml.text("bind", ADMIN);
    write_fleet(&dump, &mut toml, &mut notes);
    for cluster in &clusters {
        write_cluster(cluster, &dump, &mut toml, &mut notes);
    }
    accounts::write(&users, &dump, &mut toml, &mut notes)?;
    let around = rules::Around {
        dump: &dump,
        clusters: &clusters,
        listeners: &listeners,
    };
    rules::write(&around, &users, &mut toml, &mut notes)?;
    leftovers(&dump, &mut notes);
    let toml = toml.finish();
    mistakes(&toml).into_iter().for_each(|mistake| notes.add(mistake));
    Ok(Imported {
        toml,
        without_equal: notes.finish(),
    })
}

/// What a file is that is neither of the two, where that can be told.
fn something_else(text: &str) -> Option<&'static str> {
    if text.starts_with("SQLite format 3") {
        return Some("this is the database itself; its text is wanted: sqlite3 FILE .dump");
    }
    if text.starts_with("\u{1f}\u{fffd}") {
        return Some("this is compressed: unpack it first");
    }
    let is_of_proxysql = text.contains("mysql_") || text.contains("mysql-");
    (!is_of_proxysql).then_some(
        "nothing here is ProxySQL's: expected the SQL text of its admin tables, or its proxysql.cnf",
    )
}

/// Whether a text is SQL: a file of libconfig has no line that begins with one of these words, other than in
/// a comment.
fn is_sql(text: &str) -> bool {
    const WORDS: [&str; 9] = [
        "INSERT", "REPLACE", "CREATE", "UPDATE", "DELETE", "PRAGMA", "LOAD", "SAVE", "SET",
    ];
    text.lines().any(|line| {
        let word = line.split_whitespace().next().unwrap_or_default();
        WORDS.iter().any(|known| known.eq_ignore_ascii_case(word)) && !line.contains(" = (")
    })
}

/// ProxySQL's nodes of a cluster pull their configuration from one another. Here there is a store, of which
/// nothing is known: its section is a comment.
fn write_fleet(dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    let rows = dump.rows("proxysql_servers").iter();
    let nodes: Vec<&str> = rows.filter_map(|row| row.filled("hostname")).collect();
    let Some(first) = nodes.first() else {
        return;
    };
    let named = nodes.join(", ");
    toml.blank();
    toml.comment(&format!(
        "A cluster of {}: {named}. Here several gateways have one configuration by an etcd (docs/guide/fleet.md). Put \
         [store] into a file of each gateway's own, with [admin] and `workers`, and all the rest into one text: forebay \
         ctl apply. Passwords become `password_file` there: none in clear goes into the store",
        nodes.len()
    ));
    toml.comment("[store]");
    toml.comment("endpoints = [\"etcd1:2379\", \"etcd2:2379\", \"etcd3:2379\"]");
    toml.comment("user = \"forebay\"");
    toml.comment("password_file = \"store.password\"");
    toml.comment("tls = { mode = \"required\", ca = \"etcd-ca.pem\" }");
    toml.comment(&format!("name = {}", quote(first)));
    notes.add(format!(
        "proxysql_servers: {named} need a store to have one configuration: [store] is there as a comment; without it \
         each has a file of its own"
    ));
}

fn write_cluster(cluster: &Cluster, dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    toml.section(&format!("[cluster.{}]", cluster.name));
    toml.comment(&cluster.comment);
    toml.text("topology", cluster.topology.word());
    toml.option("servers", &servers(cluster));
    if cluster.max_writers > 1 {
        toml.option("max_writers", &cluster.max_writers.to_string());
    }
    if cluster.max_transactions_behind > 0 {
        toml.option(
            "max_transactions_behind",
            &cluster.max_transactions_behind.to_string(),
        );
    }
    if cluster.primary_reads {
        toml.option("primary_reads", "true");
    }
    // 0 there is no look at the lag at all.
    let lags = || cluster.servers.iter().map(|server| server.max_lag_s);
    let lag = lags().filter(|lag| *lag > 0).min().unwrap_or(0).min(7 * 86_400);
    if lags().filter(|other| *other > 0).any(|other| other != lag) {
        notes.add(format!(
            "cluster {}: max_replication_lag differs from server to server; the smallest is taken for all",
            cluster.name
        ));
    }
    let reads_anyway = |server: &&clusters::Server| server.any_lag && server.role != Some(Role::Primary);
    for server in cluster.servers.iter().filter(reads_anyway).filter(|_| lag > 0) {
        notes.add(format!(
            "server {}: max_replication_lag = 0 is no limit there; {lag}s of its cluster is taken for it, too",
            server.address
        ));
    }
    toml.text("max_lag", &format!("{lag}s"));
    if all_or_some(cluster, |server| server.compression, "compression", notes) {
        toml.text("compression", "zlib");
    }
    variables::write(dump, Section::Cluster, toml, notes);
    write_monitor(cluster, dump, toml, notes);
    if variables::any(dump, Section::Check) {
        toml.section(&format!("[cluster.{}.check]", cluster.name));
        variables::write(dump, Section::Check, toml, notes);
    }
    write_pool(cluster, dump, toml, notes);
    write_tls(cluster, dump, toml, notes);
    for (name, group) in &cluster.groups {
        toml.section(&format!("[cluster.{}.group.{name}]", cluster.name));
        toml.option("servers", &list(group.servers.iter().map(String::as_str)));
        if group.exclusive {
            toml.option("exclusive", "true");
        }
    }
}

fn servers(cluster: &Cluster) -> String {
    let mut out = "[\n".to_owned();
    for server in &cluster.servers {
        let mut options = vec![format!("address = {}", quote(&server.address))];
        if server.weight != 1 {
            options.push(format!("weight = {}", server.weight));
        }
        options.push(format!(
            "max_connections = {}",
            server.max_connections.min(10_000_000)
        ));
        options.extend(server.role.map(|role| format!("role = {}", quote(role.word()))));
        let comment = server.comment.replace(char::is_control, " ");
        let comment = if comment.is_empty() {
            comment
        } else {
            format!(" # {comment}")
        };
        out.push_str(&format!("    {{ {} }},{comment}\n", options.join(", ")));
    }
    out.push(']');
    out
}

/// Whether any server has what is said for the whole cluster here.
fn all_or_some(
    cluster: &Cluster,
    has: impl Fn(&clusters::Server) -> bool,
    column: &str,
    notes: &mut Notes,
) -> bool {
    let count = cluster.servers.iter().filter(|server| has(server)).count();
    if count > 0 && count < cluster.servers.len() {
        notes.add(format!(
            "cluster {}: {column} of some servers is taken for all of them",
            cluster.name
        ));
    }
    count > 0
}

fn write_monitor(cluster: &Cluster, dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    let account = dump.variable("mysql-monitor_username");
    if account.is_none() && cluster.topology == Topology::Static {
        return;
    }
    toml.section(&format!("[cluster.{}.monitor]", cluster.name));
    match cluster.topology {
        Topology::Replication => {
            toml.comment(
                "It needs REPLICATION CLIENT; on MariaDB, SLAVE MONITOR. See docs/guide/topology.md.",
            );
        }
        Topology::GroupReplication => {
            toml.comment("It needs SELECT on performance_schema. See docs/guide/topology.md.");
        }
        Topology::Galera | Topology::Static | Topology::Tidb => {}
    }
    for variable in ["mysql-monitor_username", "mysql-monitor_password"] {
        if dump.variable(variable).is_none() {
            notes.add(format!(
                "{variable} is not there: what ProxySQL takes then, `monitor`, is written"
            ));
        }
    }
    // The account that ProxySQL takes when nothing is said.
    toml.text("user", account.unwrap_or("monitor"));
    toml.text(
        "password",
        dump.variable("mysql-monitor_password").unwrap_or("monitor"),
    );
    variables::write(dump, Section::Monitor(cluster.topology), toml, notes);
}

fn write_pool(cluster: &Cluster, dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    let init = dump.variable("mysql-init_connect");
    if init.is_none() && !variables::any(dump, Section::Pool) {
        return;
    }
    toml.section(&format!("[cluster.{}.pool]", cluster.name));
    variables::write(dump, Section::Pool, toml, notes);
    if let Some(init) = init {
        toml.option("init", &list(statements(init)));
    }
}

/// The statements of a text, cut at each `;` outside quotes.
fn statements(text: &str) -> Vec<&str> {
    let mut quote = None;
    let cut = |c: char| {
        match (quote, c) {
            (None, '\'' | '"' | '`') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        c == ';' && quote.is_none()
    };
    let parts = text.split(cut).map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

fn write_tls(cluster: &Cluster, dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    if !all_or_some(cluster, |server| server.use_ssl, "use_ssl", notes) {
        return;
    }
    toml.section(&format!("[cluster.{}.tls]", cluster.name));
    toml.text("mode", "required");
    for (variable, option) in [
        ("ssl_p2s_ca", "ca"),
        ("ssl_p2s_cert", "cert"),
        ("ssl_p2s_key", "key"),
    ] {
        if let Some(file) = dump.variable(&format!("mysql-{variable}")) {
            toml.text(option, file);
        }
    }
    if dump.variable("mysql-ssl_p2s_ca").is_some() {
        // Names of hosts are not compared there.
        toml.text("verify", "ca");
    }
}

/// What nobody asked for: other tables, statements that are not understood, other variables.
fn leftovers(dump: &Dump, notes: &mut Notes) {
    for (line, statement) in &dump.not_understood {
        notes.add(format!(
            "line {line}: {statement}: not understood; write the rows as they are afterwards"
        ));
    }
    for (table, rows) in dump.tables() {
        if !is_copy(table) && !TABLES.contains(&table) && !NOTHING_IN.contains(&table) {
            notes.add(format!("table {table}: its {rows} rows have no equal"));
        }
    }
    variables::without_equal(dump, notes);
}

/// Copies of what is in force, what was counted, and tables of older versions (`mysql_users_v1_3_0`).
fn is_copy(table: &str) -> bool {
    let is_old = table
        .split_once("_v")
        .is_some_and(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()));
    is_old || table.starts_with("runtime_") || table.starts_with("stats_")
}
