//! From hostgroups to clusters.
//!
//! A hostgroup is a list of servers that somebody sends statements to. A cluster is all servers with the same
//! data, and knows itself which of them is the primary. So a pair of writer and reader hostgroup is one
//! cluster; a hostgroup that shares servers with a cluster, or gets statements of its users by rule, is a
//! group in it; the rest is pieced together from who uses it.

use std::collections::{BTreeMap, BTreeSet};

use config::{Role, ServerAddress, Topology};

use crate::dump::{Dump, ImportError, Row};
use crate::write::Notes;

/// Largest weight of ours.
const WEIGHT_MAX: u64 = 1_000_000;

/// A cluster to be.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) topology: Topology,
    pub(crate) servers: Vec<Server>,
    /// By name.
    pub(crate) groups: BTreeMap<String, Group>,
    /// What `route` is for each of its hostgroups.
    pub(crate) routes: BTreeMap<u64, String>,
    pub(crate) primary_reads: bool,
    pub(crate) max_writers: u64,
    pub(crate) max_transactions_behind: u64,
    pub(crate) comment: String,
}

impl Cluster {
    fn server(&self, address: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.address == address)
    }
}

/// A server with what its rows in all hostgroups of the cluster say together.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) weight: u64,
    pub(crate) max_connections: u64,
    pub(crate) role: Option<Role>,
    pub(crate) max_lag_s: u64,
    /// Whether it gets reads in some hostgroup however far behind it is.
    pub(crate) any_lag: bool,
    pub(crate) use_ssl: bool,
    pub(crate) compression: bool,
    pub(crate) comment: String,
}

impl Server {
    /// Takes what another row of the same server says, but for the weight.
    fn add(&mut self, other: &Self) {
        self.max_connections = self.max_connections.saturating_add(other.max_connections);
        self.max_lag_s = self.max_lag_s.max(other.max_lag_s);
        self.any_lag |= other.any_lag;
        self.use_ssl |= other.use_ssl;
        self.compression |= other.compression;
        if self.comment.is_empty() {
            self.comment.clone_from(&other.comment);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) servers: Vec<String>,
    pub(crate) exclusive: bool,
}

/// One row of `mysql_servers` that takes part.
#[derive(Debug)]
struct Listed {
    hostgroup: u64,
    server: Server,
    is_offline_soft: bool,
}

/// Who sends statements to which hostgroup.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Users by default hostgroup.
    pub(crate) defaults: BTreeMap<u64, usize>,
    /// Hostgroups that rules send to.
    pub(crate) destinations: BTreeSet<u64>,
    /// Hostgroups that get copies.
    pub(crate) mirrors: BTreeSet<u64>,
}

/// All clusters of a configuration; the first is the one most users belong to.
pub(crate) fn plan(dump: &Dump, uses: &Uses, notes: &mut Notes) -> Result<Vec<Cluster>, ImportError> {
    let listed = listed(dump, notes)?;
    let mut clusters = defined(dump, &listed, notes)?;
    let mut left: BTreeSet<u64> = listed.iter().map(|row| row.hostgroup).collect();
    left.retain(|hostgroup| cluster_of(&clusters, *hostgroup).is_none());
    // What belongs to one of the hostgroup tables without being sent to is no cluster of its own.
    left.retain(|hostgroup| !is_put_aside(dump, *hostgroup));

    let founders: Vec<u64> = left
        .iter()
        .copied()
        .filter(|left| uses.defaults.contains_key(left) && !is_part_of_one(*left, &listed, &clusters))
        .collect();
    for hostgroup in founders {
        left.remove(&hostgroup);
        clusters.push(founded(hostgroup, &listed, notes));
    }
    clusters.retain(|cluster| {
        let is_empty = cluster.servers.is_empty();
        if is_empty {
            notes.add(format!("cluster {}: it has no servers; left out", cluster.name));
        }
        !is_empty
    });
    sort_by_users(&mut clusters, uses);
    if let Some(first) = clusters.first_mut() {
        "main".clone_into(&mut first.name);
    }
    for hostgroup in left {
        place(hostgroup, &listed, &mut clusters, uses, notes);
    }
    for cluster in &mut clusters {
        settle_routes(cluster, notes);
    }
    tell_weights(&listed, &clusters, notes);
    Ok(clusters)
}

/// A server has one weight, whichever hostgroups it is in: what became of the others.
fn tell_weights(listed: &[Listed], clusters: &[Cluster], notes: &mut Notes) {
    for Listed {
        hostgroup,
        server: row,
        is_offline_soft,
    } in listed
    {
        let address = &row.address;
        let holds = |cluster: &&Cluster| cluster.server(address).is_some();
        let home = cluster_of(clusters, *hostgroup).filter(holds);
        // Hostgroups for backups and for what is offline belong to a cluster that has no route for them.
        let Some(cluster) = home.or_else(|| clusters.iter().find(holds)) else {
            continue;
        };
        let Some(server) = cluster.server(address) else {
            continue;
        };
        let is_read = cluster
            .routes
            .get(hostgroup)
            .is_some_and(|route| route != "primary");
        match (is_offline_soft, server.weight) {
            (true, 0) => notes.add(format!(
                "server {address}: OFFLINE_SOFT is weight 0 here, and the monitor goes on watching it"
            )),
            (true, weight) => notes.add(format!(
                "server {address}: it is OFFLINE_SOFT in hostgroup {hostgroup} only, and a server has one weight here: {weight}, as elsewhere in [cluster.{}]",
                cluster.name
            )),
            (false, weight) if weight != row.weight && is_read => notes.add(format!(
                "server {address}: weight {} of hostgroup {hostgroup} is left out, since a server has one here: {weight}, as elsewhere in [cluster.{}]",
                row.weight, cluster.name
            )),
            (false, _) => {}
        }
    }
}

/// The cluster that a hostgroup leads to.
pub(crate) fn cluster_of(clusters: &[Cluster], hostgroup: u64) -> Option<&Cluster> {
    clusters
        .iter()
        .find(|cluster| cluster.routes.contains_key(&hostgroup))
}

fn sort_by_users(clusters: &mut [Cluster], uses: &Uses) {
    clusters.sort_by_key(|cluster| {
        let users = |hostgroup: &u64| uses.defaults.get(hostgroup).copied().unwrap_or(0);
        std::cmp::Reverse(cluster.routes.keys().map(users).sum::<usize>())
    });
}

/// The rows of `mysql_servers`.
fn listed(dump: &Dump, notes: &mut Notes) -> Result<Vec<Listed>, ImportError> {
    let mut listed = Vec::new();
    for row in dump.rows("mysql_servers") {
        let hostgroup = row.number("hostgroup_id")?.unwrap_or(0);
        let host = row
            .filled("hostname")
            .ok_or_else(|| ImportError::new(row.line, "hostname is missing"))?;
        let address = match row.number("port")?.unwrap_or(3306) {
            0 => host.to_owned(),
            port if host.contains(':') => format!("[{host}]:{port}"),
            port => format!("{host}:{port}"),
        };
        let Some(address) = ServerAddress::parse(&address) else {
            notes.add(format!(
                "server {address} of hostgroup {hostgroup}: not an address; left out"
            ));
            continue;
        };
        let address = address.to_string();
        let status = row.filled("status").unwrap_or("ONLINE").to_ascii_uppercase();
        if status == "OFFLINE_HARD" {
            notes.add(format!(
                "server {address} of hostgroup {hostgroup}: OFFLINE_HARD; left out"
            ));
            continue;
        }
        let mut weight = row.number("weight")?.unwrap_or(1);
        if weight > WEIGHT_MAX {
            notes.add(format!("server {address}: weight {weight} is {WEIGHT_MAX} here"));
            weight = WEIGHT_MAX;
        }
        let is_offline_soft = status == "OFFLINE_SOFT";
        if is_offline_soft {
            weight = 0;
        }
        let max_connections = row.number("max_connections")?.unwrap_or(1000);
        if max_connections == 0 {
            weight = 0;
            notes.add(format!(
                "server {address} of hostgroup {hostgroup}: max_connections = 0 is none at all there and no limit here; weight 0 is written"
            ));
        }
        more_columns(row, &address, notes)?;
        replace_earlier(&mut listed, hostgroup, &address, notes);
        listed.push(Listed {
            hostgroup,
            is_offline_soft,
            server: Server {
                address,
                weight,
                max_connections,
                role: None,
                max_lag_s: row.number("max_replication_lag")?.unwrap_or(0),
                any_lag: false,
                use_ssl: row.flag("use_ssl", false)?,
                compression: row.flag("compression", false)?,
                comment: row.filled("comment").unwrap_or_default().to_owned(),
            },
        });
    }
    Ok(listed)
}

/// The table has a row for each hostgroup and address: a later one takes the place of the earlier.
fn replace_earlier(listed: &mut Vec<Listed>, hostgroup: u64, address: &str, notes: &mut Notes) {
    let length = listed.len();
    listed.retain(|row| row.hostgroup != hostgroup || row.server.address != address);
    if listed.len() < length {
        notes.add(format!(
            "server {address} of hostgroup {hostgroup}: it stands there twice; the later row counts"
        ));
    }
}

/// Columns of a server without an equal.
fn more_columns(row: &Row, address: &str, notes: &mut Notes) -> Result<(), ImportError> {
    if let Some(latency) = row.number("max_latency_ms")?.filter(|latency| *latency > 0) {
        notes.add(format!(
            "server {address}: max_latency_ms = {latency} has no equal; `read_balance = \"latency\"` prefers quick servers"
        ));
    }
    if row.number("gtid_port")?.is_some_and(|port| port > 0) {
        notes.add(format!(
            "server {address}: gtid_port is not needed; positions come from the servers themselves"
        ));
    }
    Ok(())
}

/// The clusters that ProxySQL's tables of hostgroups define.
fn defined(dump: &Dump, listed: &[Listed], notes: &mut Notes) -> Result<Vec<Cluster>, ImportError> {
    const TABLES: [(&str, Topology); 3] = [
        ("mysql_replication_hostgroups", Topology::Replication),
        ("mysql_group_replication_hostgroups", Topology::GroupReplication),
        ("mysql_galera_hostgroups", Topology::Galera),
    ];
    let mut clusters = Vec::new();
    for (table, topology) in TABLES {
        for row in dump.rows(table) {
            let (writer, reader) = (
                row.required("writer_hostgroup")?,
                row.required("reader_hostgroup")?,
            );
            if !row.flag("active", true)? {
                notes.add(format!(
                    "{table}: writer_hostgroup {writer} is not active; left out"
                ));
                continue;
            }
            let mut members = vec![writer, reader];
            for column in ["backup_writer_hostgroup", "offline_hostgroup"] {
                members.extend(row.number(column)?);
            }
            columns_of_hostgroups(row, table, writer, notes)?;
            let primary_reads = match (topology, row.number("writer_is_also_reader")?) {
                (Topology::Replication, _) => {
                    dump.flag("mysql-monitor_writer_is_also_reader").unwrap_or(true)
                }
                (_, also) => also == Some(1),
            };
            clusters.push(Cluster {
                name: format!("hostgroup-{writer}"),
                topology,
                servers: merged(
                    listed.iter().filter(|row| members.contains(&row.hostgroup)),
                    reader,
                ),
                groups: BTreeMap::new(),
                routes: BTreeMap::from([(writer, "primary".to_owned()), (reader, "replicas".to_owned())]),
                primary_reads,
                max_writers: max_writers(row, topology, table, writer, notes)?,
                max_transactions_behind: max_transactions_behind(row, topology, table, writer, notes)?,
                comment: row.filled("comment").unwrap_or_default().to_owned(),
            });
        }
    }
    Ok(clusters)
}

/// Servers that take writes at the same time. ProxySQL gives each statement to any of them.
fn max_writers(
    row: &Row,
    topology: Topology,
    table: &str,
    writer: u64,
    notes: &mut Notes,
) -> Result<u64, ImportError> {
    const MAX: u64 = 64;
    let writers = row.number("max_writers")?.unwrap_or(1).clamp(1, MAX);
    if writers > 1 && topology != Topology::Replication {
        notes.add(format!(
            "{table} {writer}: max_writers = {writers}: each session keeps to one of them here"
        ));
        return Ok(writers);
    }
    Ok(1)
}

fn max_transactions_behind(
    row: &Row,
    topology: Topology,
    table: &str,
    writer: u64,
    notes: &mut Notes,
) -> Result<u64, ImportError> {
    if !matches!(topology, Topology::GroupReplication | Topology::Galera) {
        return Ok(0);
    }
    // ProxySQL takes 0 where nothing is said.
    let most = row.number("max_transactions_behind")?.unwrap_or(0);
    if most == 0 {
        notes.add(format!(
            "{table} {writer}: max_transactions_behind = 0: readers with anything to apply get no reads there; here 0 is no limit, \
             and `max_lag` limits the time"
        ));
    }
    Ok(most.min(1_000_000_000))
}

fn columns_of_hostgroups(row: &Row, table: &str, writer: u64, notes: &mut Notes) -> Result<(), ImportError> {
    if row.number("writer_is_also_reader")? == Some(2) {
        notes.add(format!(
            "{table} {writer}: writer_is_also_reader = 2: every member but the primary serves reads here"
        ));
    }
    match row.filled("check_type") {
        None | Some("read_only") => {}
        Some(other) => notes.add(format!(
            "{table} {writer}: check_type {other:?}: a primary has both `read_only` and `super_read_only` off here"
        )),
    }
    Ok(())
}

/// One server for each address: connections of all its rows together, the weight of the row in `reader` if
/// there is one, since weights are about reads here.
fn merged<'l>(rows: impl Iterator<Item = &'l Listed>, reader: u64) -> Vec<Server> {
    let mut servers: Vec<Server> = Vec::new();
    for Listed {
        hostgroup, server, ..
    } in rows
    {
        let any_lag = *hostgroup == reader && server.max_lag_s == 0;
        match servers.iter_mut().find(|known| known.address == server.address) {
            Some(known) => {
                known.add(server);
                known.any_lag |= any_lag;
                if *hostgroup == reader {
                    known.weight = server.weight;
                }
            }
            None => servers.push(Server {
                address: server.address.clone(),
                comment: server.comment.clone(),
                any_lag,
                ..*server
            }),
        }
    }
    servers
}

/// Backup writers and members that are offline: ProxySQL itself moves servers there.
fn is_put_aside(dump: &Dump, hostgroup: u64) -> bool {
    ["mysql_group_replication_hostgroups", "mysql_galera_hostgroups"]
        .iter()
        .flat_map(|table| dump.rows(table))
        .filter(|row| row.flag("active", true) == Ok(true))
        .any(|row| {
            ["backup_writer_hostgroup", "offline_hostgroup"]
                .iter()
                .any(|column| row.number(column) == Ok(Some(hostgroup)))
        })
}

/// A cluster around a hostgroup that is somebody's default and stands in no table of hostgroups.
fn founded(hostgroup: u64, listed: &[Listed], notes: &mut Notes) -> Cluster {
    let mut servers = merged(listed.iter().filter(|row| row.hostgroup == hostgroup), hostgroup);
    let heaviest = servers.iter().map(|server| server.weight).max();
    let primary = servers.iter().position(|server| Some(server.weight) == heaviest);
    for (index, server) in servers.iter_mut().enumerate() {
        let is_primary = Some(index) == primary;
        server.role = Some(if is_primary { Role::Primary } else { Role::Replica });
    }
    if servers.len() > 1
        && let Some(primary) = primary.map(|index| servers[index].address.clone())
    {
        notes.add(format!(
            "hostgroup {hostgroup}: nothing says which of its {} servers is the primary; {primary} is taken for it, and the \
             others for replicas. Look at `role`, or let the servers say it (`topology`)",
            servers.len()
        ));
    }
    Cluster {
        name: format!("hostgroup-{hostgroup}"),
        topology: Topology::Static,
        servers,
        groups: BTreeMap::new(),
        routes: BTreeMap::from([(hostgroup, "primary".to_owned())]),
        primary_reads: false,
        max_writers: 1,
        max_transactions_behind: 0,
        comment: String::new(),
    }
}

/// Whether a cluster that is there already has all servers of a hostgroup: another choice of them, and no
/// other data.
fn is_part_of_one(hostgroup: u64, listed: &[Listed], clusters: &[Cluster]) -> bool {
    let rows = || listed.iter().filter(|row| row.hostgroup == hostgroup);
    let knows_all = |cluster: &Cluster| rows().all(|row| cluster.server(&row.server.address).is_some());
    clusters.iter().any(knows_all)
}

/// Finds a place for a hostgroup that founds no cluster: in a cluster that it shares a server with, in the
/// first cluster when rules send to it, else as a cluster for copies, else nowhere.
fn place(hostgroup: u64, listed: &[Listed], clusters: &mut Vec<Cluster>, uses: &Uses, notes: &mut Notes) {
    let rows = || listed.iter().filter(|row| row.hostgroup == hostgroup);
    let servers = merged(rows(), hostgroup);
    let shares = |cluster: &Cluster| {
        let mut addresses = servers.iter().map(|server| &server.address);
        addresses.any(|address| cluster.server(address).is_some())
    };
    let sharing = clusters.iter().position(shares);
    let is_sent_to = uses.destinations.contains(&hostgroup);
    let Some(home) = sharing.or((is_sent_to && !clusters.is_empty()).then_some(0)) else {
        if uses.mirrors.contains(&hostgroup) {
            clusters.push(founded(hostgroup, listed, notes));
        } else {
            notes.add(format!(
                "hostgroup {hostgroup}: neither a user nor a rule leads to it; left out"
            ));
        }
        return;
    };
    let cluster = &mut clusters[home];
    // What has no weight there gets nothing from there, as long as there is another one.
    let gets = |server: &&Server| server.weight > 0 || servers.iter().all(|other| other.weight == 0);
    let members: Vec<String> = servers
        .iter()
        .filter(gets)
        .map(|server| server.address.clone())
        .collect();
    let is_static = cluster.topology == Topology::Static;
    if sharing.is_none() && !is_static {
        notes.add(format!(
            "hostgroup {hostgroup}: it is in no table of hostgroups; its servers are taken for replicas of {} that only \
             rules send to. Take them out if they hold other data",
            cluster.name
        ));
    }
    for mut server in servers {
        match cluster
            .servers
            .iter_mut()
            .find(|known| known.address == server.address)
        {
            Some(known) => {
                known.add(&server);
                cluster.primary_reads |= is_static && known.role == Some(Role::Primary);
            }
            None => {
                if sharing.is_some() && !is_static {
                    notes.add(format!(
                        "server {}: hostgroup {hostgroup} alone has it there; here it takes other reads of {}, too",
                        server.address, cluster.name
                    ));
                }
                server.role = is_static.then_some(Role::Replica);
                cluster.servers.push(server);
            }
        }
    }
    let name = format!("hostgroup-{hostgroup}");
    cluster.routes.insert(hostgroup, name.clone());
    let group = Group {
        servers: members,
        exclusive: sharing.is_none() && !is_static,
    };
    cluster.groups.insert(name, group);
}

/// A static cluster with one more hostgroup than that of its primary is the plain split: the group is its
/// replicas.
fn settle_routes(cluster: &mut Cluster, notes: &mut Notes) {
    if cluster.topology != Topology::Static || cluster.groups.len() != 1 {
        return;
    }
    let readers: BTreeSet<&str> = cluster
        .servers
        .iter()
        .filter(|server| server.role == Some(Role::Replica))
        .map(|server| server.address.as_str())
        .collect();
    let is_all_of_them = cluster.groups.values().all(|group| {
        let members: BTreeSet<&str> = group.servers.iter().map(String::as_str).collect();
        readers.is_subset(&members)
    });
    if is_all_of_them && !readers.is_empty() {
        cluster.groups.clear();
        for route in cluster.routes.values_mut().filter(|route| *route != "primary") {
            "replicas".clone_into(route);
        }
        notes.add(format!(
            "cluster {}: no table of hostgroups says who is the primary, so the roles are written down. With `topology` and \
             `monitor` a failover is followed by itself",
            cluster.name
        ));
    }
}
