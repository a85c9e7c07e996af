//! Every table of the reports: what is run for it here, or why nothing is.

use std::fmt;

use super::published::{self, Published};
use crate::{cache::Part, overhead::Kind};

/// A report that can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// TiProxy beside HAProxy.
    #[value(name = "tiproxy-2024")]
    Tiproxy,
    /// TiDB in Kubernetes: networks, machines, zones.
    #[value(name = "tidb-kubernetes-2019")]
    Kubernetes,
    /// ProxySQL before MySQL Group Replication.
    #[value(name = "proxysql-mgr-2021")]
    Proxysql,
    /// TiDB beside MySQL: TPC-C, updates, reads by key, joins.
    #[value(name = "tidb-ly-2024")]
    TidbLy,
    /// Rows from memory, beside Redis and SQL.
    #[value(name = "polardb-tair")]
    Tair,
    /// What clients see of restarts and failures. Nobody has published any.
    #[value(name = "disruption")]
    Disruption,
    /// All of them.
    #[value(name = "all")]
    All,
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::write_name(self, out)
    }
}

impl Name {
    /// Of its page.
    pub(super) fn title(self) -> String {
        let title = match self {
            Self::Tiproxy => "TiProxy beside HAProxy (2024)",
            Self::Kubernetes => "TiDB in Kubernetes (2019)",
            Self::Proxysql => "ProxySQL before Group Replication (2021)",
            Self::TidbLy => "TiDB beside MySQL (2024)",
            Self::Tair => "Rows from memory, beside Redis and SQL",
            Self::Disruption => "Restarts and failures",
            Self::All => "All reports",
        };
        format!("{title}, repeated with Forebay")
    }
}

#[derive(Debug)]
pub(super) struct Table {
    /// As the design counts them.
    pub number: &'static str,
    /// On the command line, where the number will do as well.
    pub name: &'static str,
    pub report: Name,
    pub title: &'static str,
    /// What is run here; of what is not, why.
    pub text: &'static str,
    pub conclusion: &'static str,
    /// Scenario and parameter of its published ratios; of a scenario that only this table has, no parameter.
    published: &'static [(&'static str, Option<&'static str>)],
    pub how: How,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// sysbench through all contenders.
    Sysbench(Load),
    /// The same through gateways before a group.
    Group(Load),
    /// The same before servers of which two are far away.
    Zones(Load),
    /// The same over a bridge between network namespaces.
    Bridge(Load),
    /// A load of our own through all contenders.
    Own(Own),
    /// New connections beside sysbench.
    Connects,
    /// Memory of idle sessions, by `bench overhead`.
    Idle,
    /// More workers, by `bench overhead`.
    Workers,
    /// `bench capture`.
    Capture,
    /// A part of `bench cache`.
    Cache(Part),
    /// `bench disruption`.
    Disruption,
    /// Not at all.
    NotHere,
}

impl How {
    pub(super) fn is_here(self) -> bool {
        !matches!(self, Self::NotHere)
    }

    /// What runs differ in.
    pub(super) fn varied(self) -> &'static str {
        match self {
            Self::Sysbench(load) | Self::Group(load) | Self::Zones(load) | Self::Bridge(load) => {
                match load.vary {
                    Vary::Threads(_) => "clients",
                    Vary::Range(..) => "rows",
                }
            }
            Self::Capture => "clients",
            Self::Idle => "sessions",
            _ => "",
        }
    }

    /// Why it is not made before servers of the user's.
    pub(super) fn not_on_own(self) -> Option<&'static str> {
        match self {
            Self::Sysbench(_) | Self::Own(_) | Self::Connects | Self::NotHere => None,
            Self::Group(_) => Some("It needs a Group Replication that the lab sets up itself."),
            Self::Zones(_) => Some("It needs three servers on this machine, with relays before two of them."),
            Self::Bridge(_) => {
                Some("It needs a server on this machine, which is reached by its Unix socket.")
            }
            Self::Idle | Self::Workers => {
                Some("Its server is one that costs almost nothing, and no real one.")
            }
            Self::Capture => {
                Some("It needs two servers that begin alike, and changes a row behind the back of one.")
            }
            Self::Cache(_) => Some(
                "It needs a server with a binary log as the lab configures it, and an account that reads it.",
            ),
            Self::Disruption => Some("It restarts and kills its servers."),
        }
    }

    /// Its gateways run with the options of the command line.
    pub(super) fn takes_options(self) -> bool {
        !matches!(self, Self::Capture | Self::Cache(_) | Self::Disruption)
    }
}

/// A load that sysbench does not have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    Tpcc,
    Updates,
    Joins,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// `oltp_point_select`.
    pub script: &'static str,
    /// Of the script.
    pub options: &'static [&'static str],
    pub vary: Vary,
    /// Who runs; none means the contenders of the command line.
    pub racers: &'static [&'static str],
    /// Whose figures are divided by whose.
    pub ratios: &'static [(&'static str, &'static str)],
}

/// What differs from run to run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Vary {
    Threads(&'static [usize]),
    /// Rows of an answer, for so many clients.
    Range(usize, &'static [u64]),
}

impl Table {
    pub(super) fn published(&self) -> Vec<Published> {
        let all = published::all().into_iter();
        all.filter(|row| self.has(row)).collect()
    }

    fn has(&self, row: &Published) -> bool {
        self.published.iter().any(|(scenario, parameter)| {
            *scenario == row.scenario && parameter.is_none_or(|parameter| parameter == row.parameter)
        })
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.number.eq_ignore_ascii_case(name)
    }
}

pub(super) fn of(report: Name) -> Vec<&'static Table> {
    let tables = TABLES.iter();
    tables
        .filter(|table| report == Name::All || table.report == report)
        .collect()
}

/// Who is compared where the command line does not say.
pub(super) const CONTENDERS: [Kind; 5] = [Kind::Direct, Kind::Haproxy, Kind::Tcp, Kind::Session, Kind::Split];

const TO_HAPROXY: &[(&str, &str)] = &[
    ("tcp", "haproxy"),
    ("session", "haproxy"),
    ("moves", "haproxy"),
    ("split", "haproxy"),
];
const TO_BOTH: &[(&str, &str)] = &[
    ("tcp", "haproxy"),
    ("session", "haproxy"),
    ("moves", "haproxy"),
    ("split", "haproxy"),
    ("haproxy", "direct"),
    ("tcp", "direct"),
    ("session", "direct"),
    ("moves", "direct"),
    ("split", "direct"),
];

/// A gateway that does not tell one statement from another, before the one that does.
pub(super) const CHAIN: &str = "tcp, session";
pub(super) const ONE: &str = "one gateway";
pub(super) const TWO_WORKERS: &str = "2 workers";
pub(super) const TWO_BEHIND_TCP: &str = "two behind tcp";
pub(super) const LOOPBACK: &str = "loopback";
pub(super) const BRIDGED: &str = "bridge";
pub(super) const ONE_ZONE: &str = "one zone";
/// The delay, and who has it, without and with zones.
pub(super) const ZONES: [(&str, &str, &str); 2] = [
    ("0.5 ms", "0.5 ms, no zones", "0.5 ms, zones"),
    ("1 ms", "1 ms, no zones", "1 ms, zones"),
];
pub(super) const KEEP_20: &str = "20 kept";
pub(super) const KEEP_100: &str = "100 kept";

const fn load(script: &'static str, threads: &'static [usize]) -> Load {
    Load {
        script,
        options: &[],
        vary: Vary::Threads(threads),
        racers: &[],
        ratios: TO_HAPROXY,
    }
}

const fn to_both(script: &'static str, threads: &'static [usize]) -> Load {
    Load {
        ratios: TO_BOTH,
        ..load(script, threads)
    }
}

/// As the report on Group Replication has it: single reads, prepared, outside transactions.
const fn group(racers: &'static [&'static str], ratios: &'static [(&'static str, &'static str)]) -> How {
    How::Group(Load {
        script: "oltp_read_only",
        options: &["--skip_trx=on"],
        vary: Vary::Threads(&[16, 64, 256]),
        racers,
        ratios,
    })
}

const SHARED_CORES: &str = "Load, gateway and servers share the cores of one machine: CPU for a query travels to other machines, \
     queries a second only as a ratio between two gateways that do the same.";

static TABLES: &[Table] = &[
    Table {
        number: "T1",
        name: "point-select",
        report: Name::Tiproxy,
        title: "One row by its key",
        text: "sysbench oltp_point_select with 20, 50 and 100 clients, prepared statements.",
        conclusion: SHARED_CORES,
        published: &[("point-select", None)],
        how: How::Sysbench(load("oltp_point_select", &[20, 50, 100])),
    },
    Table {
        number: "T2",
        name: "read-only",
        report: Name::Tiproxy,
        title: "Transactions that read",
        text: "sysbench oltp_read_only with 50, 100 and 200 clients: transactions of 14 reads, four of them of 100 rows.",
        conclusion: SHARED_CORES,
        published: &[("read-only", None)],
        how: How::Sysbench(load("oltp_read_only", &[50, 100, 200])),
    },
    Table {
        number: "T3",
        name: "write-only",
        report: Name::Tiproxy,
        title: "Transactions that write",
        text: "sysbench oltp_write_only with 100, 300 and 500 clients. Servers that the lab starts flush their log once a second \
               (innodb_flush_log_at_trx_commit = 2), so that not the disk is measured.",
        conclusion: SHARED_CORES,
        published: &[("write-only", None)],
        how: How::Sysbench(load("oltp_write_only", &[100, 300, 500])),
    },
    Table {
        number: "T4",
        name: "read-write",
        report: Name::Tiproxy,
        title: "Transactions that read and write",
        text: "sysbench oltp_read_write with 50, 100 and 200 clients.",
        conclusion: SHARED_CORES,
        published: &[("read-write", None)],
        how: How::Sysbench(load("oltp_read_write", &[50, 100, 200])),
    },
    Table {
        number: "T5",
        name: "result-set",
        report: Name::Tiproxy,
        title: "Answers of many rows",
        text: "sysbench oltp_read_only with one simple range in place of all else, outside transactions, 100 clients; \
               answers of 10, 100, 1000 and 10 000 rows.",
        conclusion: "From 1000 rows on the server is what is full, and all gateways reach the same: CPU for a query is what differs.",
        published: &[("result-set", None)],
        how: How::Sysbench(Load {
            script: "oltp_read_only",
            options: &[
                "--skip_trx=on",
                "--point_selects=0",
                "--simple_ranges=1",
                "--sum_ranges=0",
                "--order_ranges=0",
                "--distinct_ranges=0",
            ],
            vary: Vary::Range(100, &[10, 100, 1000, 10_000]),
            racers: &[],
            ratios: TO_HAPROXY,
        }),
    },
    Table {
        number: "T6",
        name: "scalability",
        report: Name::Tiproxy,
        title: "More workers",
        text: "bench overhead with one worker and with two, in mode session, before a server that costs almost nothing: queries that \
               a second of CPU pays for. The report has queries a second of 2, 4, 6 and 8 cores.",
        conclusion: "A ratio of 1 means that workers do not get in each other's way. The published figures are queries a second, on \
                     machines with cores to spare: they stand here to be seen, not to be compared.",
        published: &[("scalability", None)],
        how: How::Workers,
    },
    Table {
        number: "T7",
        name: "long-connections",
        report: Name::Tiproxy,
        title: "Idle sessions",
        text: "bench overhead: growth of memory by 5000, 10 000 and 15 000 idle sessions; contenders that hold a server connection \
               for each of them are measured with as many as there are descriptors for.",
        conclusion: "Bytes a session are the same on every machine. The report has no HAProxy to compare with here.",
        published: &[],
        how: How::Idle,
    },
    Table {
        number: "T8",
        name: "short-connections",
        report: Name::Tiproxy,
        title: "New connections",
        text: "100, 200 and 300 connections a second that log in and leave, without and with TLS, beside 50 clients of sysbench \
               oltp_point_select. TLS is that of the gateway in modes session and split, and else that of the server.",
        conclusion: "What the 50 lose is shared by whoever lets the new ones in: the gateway and the server.",
        published: &[],
        how: How::Connects,
    },
    Table {
        number: "T9",
        name: "traffic-capture",
        report: Name::Tiproxy,
        title: "Capturing traffic",
        text: "bench capture: sysbench oltp_read_write with 20, 50 and 100 clients, the capture off and on in turns.",
        conclusion: "On and off are the same program on the same machine, and their ratio travels. On a machine of two cores the \
                     capture takes its CPU from load and server.",
        published: &[("traffic-capture", None)],
        how: How::Capture,
    },
    Table {
        number: "K1",
        name: "pod-network",
        report: Name::Kubernetes,
        title: "Pod network and host network",
        text: "sysbench oltp_point_select through a gateway in mode session: over loopback, and from one network namespace to another, \
               with a veth pair for each and a bridge between them. The gateway reaches its server over a Unix socket.",
        conclusion: "What the way between two pods of one machine costs, in queries a second and in CPU of the gateway and of the load, \
                     which has the kernel's work for packets in it. The published figures are those of ways between machines.",
        published: &[],
        how: How::Bridge(Load {
            racers: &[LOOPBACK, BRIDGED],
            ratios: &[(BRIDGED, LOOPBACK)],
            ..load("oltp_point_select", &[50, 150, 300])
        }),
    },
    Table {
        number: "K2",
        name: "operating-system",
        report: Name::Kubernetes,
        title: "Ubuntu and Container-Optimized OS",
        text: "One machine has one operating system: images of two cannot be compared on it.",
        conclusion: "",
        published: &[],
        how: How::NotHere,
    },
    Table {
        number: "K3",
        name: "one-hop-more",
        report: Name::Kubernetes,
        title: "Service and load balancer",
        text: "A load balancer is one hop more: sysbench oltp_point_select through a gateway in mode session, and through one in mode \
               tcp before it.",
        conclusion: "The CPU of both together, divided by that of the one, is what the second hop costs.",
        published: &[],
        how: How::Sysbench(Load {
            racers: &["session", CHAIN],
            ratios: &[(CHAIN, "session")],
            ..load("oltp_point_select", &[50, 150, 300])
        }),
    },
    Table {
        number: "K4",
        name: "machine-type",
        report: Name::Kubernetes,
        title: "Two types of machines",
        text: "One machine has one type: two cannot be compared on it.",
        conclusion: "",
        published: &[],
        how: How::NotHere,
    },
    Table {
        number: "K5",
        name: "update-index",
        report: Name::Kubernetes,
        title: "Updates of an indexed column",
        text: "sysbench oltp_update_index with 50, 150 and 300 clients.",
        conclusion: SHARED_CORES,
        published: &[],
        how: How::Sysbench(to_both("oltp_update_index", &[50, 150, 300])),
    },
    Table {
        number: "K6",
        name: "update-non-index",
        report: Name::Kubernetes,
        title: "Updates of a column without an index",
        text: "sysbench oltp_update_non_index with 50, 150 and 300 clients.",
        conclusion: SHARED_CORES,
        published: &[],
        how: How::Sysbench(to_both("oltp_update_non_index", &[50, 150, 300])),
    },
    Table {
        number: "K7",
        name: "read-write",
        report: Name::Kubernetes,
        title: "Transactions that read and write",
        text: "sysbench oltp_read_write with 50, 150 and 300 clients.",
        conclusion: SHARED_CORES,
        published: &[],
        how: How::Sysbench(to_both("oltp_read_write", &[50, 150, 300])),
    },
    Table {
        number: "K8",
        name: "multi-zone",
        report: Name::Kubernetes,
        title: "One zone and three",
        text: "sysbench oltp_point_select through a gateway in mode split before a primary and two replicas. A relay before the primary \
               and one replica delays a question with its answer by 0.5 ms, then 1 ms: without zones, and with the gateway in the \
               zone of the near replica, which it prefers for reads.",
        conclusion: "How much of what the delay costs is won back by zones: 1 is all of it. The relay takes CPU of the same machine, where \
                     the published loss is that of a network.",
        published: &[("multi-zone", None)],
        how: How::Zones(Load {
            racers: &[ONE_ZONE, ZONES[0].1, ZONES[0].2, ZONES[1].1, ZONES[1].2],
            ratios: &[
                (ZONES[0].1, ONE_ZONE),
                (ZONES[0].2, ONE_ZONE),
                (ZONES[1].1, ONE_ZONE),
                (ZONES[1].2, ONE_ZONE),
            ],
            ..load("oltp_point_select", &[50, 150, 300])
        }),
    },
    Table {
        number: "P1",
        name: "direct",
        report: Name::Proxysql,
        title: "The primary and the readers, without a gateway",
        text: "Here all servers share the cores of one machine: three of them are no faster than one.",
        conclusion: "",
        published: &[],
        how: How::NotHere,
    },
    Table {
        number: "P2",
        name: "one-gateway",
        report: Name::Proxysql,
        title: "One gateway before a group",
        text: "sysbench oltp_read_only outside transactions, prepared, through a gateway in mode split before three members of a \
               Group Replication.",
        conclusion: "Direct is the primary alone. What the published ratio says, how much of the readers' rate one gateway reaches on a \
                     machine of its own, cannot be had on shared cores.",
        published: &[("rw-split", Some("one"))],
        how: group(&["direct", ONE], &[(ONE, "direct")]),
    },
    Table {
        number: "P3",
        name: "two-gateways",
        report: Name::Proxysql,
        title: "Two gateways",
        text: "Two gateways without anything before them need a core each and a load for each: there is no third core to measure them \
               with. Two behind a gateway in mode tcp are P5.",
        conclusion: "",
        published: &[("rw-split", Some("two"))],
        how: How::NotHere,
    },
    Table {
        number: "P4",
        name: "layer-7",
        report: Name::Proxysql,
        title: "A balancer of layer 7 before two gateways",
        text: "The product of the report cannot be had.",
        conclusion: "",
        published: &[("rw-split", Some("two behind a 7-layer balancer"))],
        how: How::NotHere,
    },
    Table {
        number: "P5",
        name: "layer-4",
        report: Name::Proxysql,
        title: "A balancer of layer 4 before two gateways",
        text: "The load of P2 through a gateway in mode tcp, and two in mode split behind it.",
        conclusion: "The CPU of all three, divided by that of one gateway, is what the chain costs.",
        published: &[("rw-split", Some("two behind a 4-layer balancer"))],
        how: group(&[ONE, TWO_BEHIND_TCP], &[(TWO_BEHIND_TCP, ONE)]),
    },
    Table {
        number: "P6",
        name: "workers",
        report: Name::Proxysql,
        title: "More threads",
        text: "The load of P2 with one worker and with two.",
        conclusion: "As for T6: the published ratio is that of a machine with cores to spare.",
        published: &[("threads", None)],
        how: group(&[ONE, TWO_WORKERS], &[(TWO_WORKERS, ONE)]),
    },
    Table {
        number: "P7",
        name: "prepared",
        report: Name::Proxysql,
        title: "Prepared statements that a connection keeps",
        text: "The load of P2 with prepared_max = 20 and with 100. The report found no difference and prints no figure.",
        conclusion: "Both are the same program on the same machine, and their ratio travels.",
        published: &[],
        how: group(&[KEEP_20, KEEP_100], &[(KEEP_100, KEEP_20)]),
    },
    Table {
        number: "L1",
        name: "tpcc",
        report: Name::TidbLy,
        title: "TPC-C",
        text: "The five transactions of TPC-C by a driver of our own, on one or two warehouses and without keying times: new orders a minute \
               through everybody, and the 95th percentile of each kind. Transactions that lose a lock are run again and counted. After every \
               turn the conditions of consistency 3.3.2.1 to 3.3.2.12 have to hold, or the table fails.",
        conclusion: "What a gateway costs a transaction of some thirty statements, as a ratio to the server without it. The published figures are \
                     those of two servers on machines of their own, and are not to be compared.",
        published: &[],
        how: How::Own(Own::Tpcc),
    },
    Table {
        number: "L2",
        name: "range-update",
        report: Name::TidbLy,
        title: "Updates of many rows",
        text: "UPDATE … SET k = k + 1 WHERE id BETWEEN …, of 10 to 100 000 rows: the best rate of several numbers of clients. The report prints \
               a curve only.",
        conclusion: "The more rows a statement has, the less of its time is the gateway's: the ratio to the server without it goes to 1.",
        published: &[],
        how: How::Own(Own::Updates),
    },
    Table {
        number: "L3",
        name: "key-read",
        report: Name::TidbLy,
        title: "One client reads by key",
        text: "sysbench oltp_point_select with one client: its queries a second tell how long each takes.",
        conclusion: "What a gateway adds here are two hops over loopback; over a network its share of the whole is smaller.",
        published: &[],
        how: How::Sysbench(to_both("oltp_point_select", &[1])),
    },
    Table {
        number: "L4",
        name: "join",
        report: Name::TidbLy,
        title: "A join and a dependent subquery",
        text: "One client has a table joined with itself by key, and asks a subquery of every row: the time of each. Everybody has to answer the \
               same. The report prints a bound only.",
        conclusion: "All of the time is the server's: a ratio to the server without a gateway that is not 1 is noise, or a fault.",
        published: &[],
        how: How::Own(Own::Joins),
    },
    Table {
        number: "C1",
        name: "cache-read",
        report: Name::Tair,
        title: "Rows from memory",
        text: "bench cache, part operations: GET and HGET of rows from memory, at strong and at eventual, beside Redis with the same \
               rows, with values of 16, 128 and 256 bytes; each contender has a core of its own. The load is the bench's own client; the \
               report's was memtier_benchmark. Part sql: point selects by sysbench, answered \
               from memory and by the server.",
        conclusion: "CPU for an operation is what travels. The published ratios are those of values of 16 bytes.",
        published: &[("cache-read", None)],
        how: How::Cache(Part::Operations),
    },
    Table {
        number: "C2",
        name: "hit-ratio",
        report: Name::Tair,
        title: "Keys that do not exist",
        text: "bench cache, part hits: strong GETs of which 0, 50, 75 and 100 in a hundred find a row.",
        conclusion: "To 100 %, in the same program on the same machine: the ratio travels.",
        published: &[("hit-ratio", None)],
        how: How::Cache(Part::Hits),
    },
    Table {
        number: "C3",
        name: "updates",
        report: Name::Tair,
        title: "Reads beside updates",
        text: "bench cache, part updates: strong and eventual GETs while 1000, 2000, 4000 and 8000 rows a second change.",
        conclusion: "All share the cores of one machine, the writers, too: where no CPU is idle the ratio tells how much CPU strong reads \
                     take, and not how long they wait.",
        published: &[("scc-updates", None)],
        how: How::Cache(Part::Updates),
    },
    Table {
        number: "D1",
        name: "disruption",
        report: Name::Disruption,
        title: "Restarts and failures",
        text: "bench disruption: servers that this command has started are restarted as planned, or die, under a load at a fixed rate.",
        conclusion: "Times are counted from when a statement was due. Nobody has published such figures.",
        published: &[],
        how: How::Disruption,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_published_ratio_has_one_table_which_is_made_or_says_why_not() {
        for row in published::all() {
            let tables: Vec<&Table> = TABLES.iter().filter(|table| table.has(&row)).collect();
            let [table] = tables[..] else {
                panic!("{row:?} has the tables {tables:?}");
            };
            assert!(!table.text.is_empty(), "{table:?}");
        }
    }

    /// The published figures themselves. They never stand beside ours.
    const FIGURES: [(Name, &str); 5] = [
        (Name::Tiproxy, include_str!("published/tiproxy-2024.csv")),
        (
            Name::Kubernetes,
            include_str!("published/tidb-kubernetes-2019.csv"),
        ),
        (Name::Proxysql, include_str!("published/proxysql-mgr-2021.csv")),
        (Name::TidbLy, include_str!("published/tidb-ly-2024.csv")),
        (Name::Tair, include_str!("published/polardb-tair.csv")),
    ];

    /// The tables that a row belongs to, by its first two columns.
    fn tables_of(report: Name, scenario: &str, variant: &str) -> &'static [&'static str] {
        match (report, scenario, variant) {
            (Name::Kubernetes, "point-select", "pod network") => &["K1"],
            (Name::Kubernetes, "point-select", "host network (COS)") => &["K1", "K2"],
            (Name::Kubernetes, "point-select", "load balancer") => &["K3"],
            (Name::Kubernetes, "point-select", "kubernetes service") => &["K2", "K3", "K4"],
            (Name::Kubernetes, "multi-zone", "single zone (n1-standard-16)") => &["K4", "K8"],
            (Name::Kubernetes, "multi-zone", "three zones") => &["K8"],
            (Name::Proxysql, "rw-split", "direct to one MySQL primary" | "direct to the 2 readers") => {
                &["P1"]
            }
            (Name::Proxysql, "rw-split", "one ProxySQL") => &["P2"],
            (Name::Proxysql, "rw-split", "two ProxySQL") | (Name::Proxysql, "instances", _) => &["P3"],
            (Name::Proxysql, "rw-split", "7-layer balancer + two ProxySQL") => &["P4"],
            (
                Name::Proxysql,
                "rw-split",
                "4-layer balancer + two ProxySQL" | "4-layer balancer + two ProxySQL (to primary)",
            ) => &["P5"],
            (Name::Proxysql, "threads", _) => &["P6"],
            (Name::TidbLy, "pk-read", _) => &["L3"],
            (Name::TidbLy, "inner-join (1000000 rows)" | "dependent-subquery (1000000 rows)", _) => &["L4"],
            (Name::Tair, "scc-updates", _) => &["C3"],
            // Named as the table is.
            _ => &[],
        }
    }

    #[test]
    fn every_published_figure_has_its_tables_which_are_made_or_say_why_not() {
        for (report, text) in FIGURES {
            let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
            let mut count = 0;
            for row in rows {
                let mut columns = row.split(',');
                let (scenario, variant) = (columns.next().unwrap(), columns.next().unwrap());
                let numbers = tables_of(report, scenario, variant);
                let is_its = |table: &&Table| match numbers {
                    [] => table.name == scenario,
                    numbers => numbers.contains(&table.number),
                };
                let tables: Vec<&Table> = of(report).into_iter().filter(is_its).collect();
                assert_eq!(tables.len(), numbers.len().max(1), "{report}: {row}: {tables:?}");
                assert!(tables.iter().all(|table| !table.text.is_empty()), "{row}");
                count += 1;
            }
            assert!(count > 4, "{report}");
        }
    }

    #[test]
    fn what_a_table_claims_is_published() {
        for table in TABLES {
            for (scenario, parameter) in table.published {
                let found = published::all().into_iter().any(|row| {
                    row.scenario == *scenario && parameter.is_none_or(|parameter| parameter == row.parameter)
                });
                assert!(found, "{}: {scenario}, {parameter:?}", table.number);
            }
        }
    }

    #[test]
    fn tables_are_told_apart_by_name_and_by_number() {
        let numbers: HashSet<&str> = TABLES.iter().map(|table| table.number).collect();
        assert_eq!(numbers.len(), TABLES.len());
        for report in [
            Name::Tiproxy,
            Name::Kubernetes,
            Name::Proxysql,
            Name::TidbLy,
            Name::Tair,
        ] {
            let names: HashSet<&str> = of(report).iter().map(|table| table.name).collect();
            assert_eq!(names.len(), of(report).len(), "{report}");
        }
        assert!(TABLES.iter().all(|table| table.report != Name::All));
        assert_eq!(of(Name::All).len(), TABLES.len());
        assert_eq!(of(Name::Tiproxy).len(), 9);
        assert!(TABLES[0].is_called("t1") && !TABLES[0].is_called("point"));
    }

    #[test]
    fn what_is_made_here_says_what_may_be_concluded() {
        for table in TABLES {
            assert_eq!(
                table.how.is_here(),
                !table.conclusion.is_empty(),
                "{}",
                table.number
            );
        }
    }
}
