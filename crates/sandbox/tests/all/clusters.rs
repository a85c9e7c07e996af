//! Real servers of the other kinds: MySQL with replicas, Galera, Group Replication, and the newer MariaDB.

use sandbox::{Kind, Sandbox, Spec, mariadb_11};

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB";

#[test]
fn mysql_replicas_have_what_the_primary_committed() {
    let sandbox = Sandbox::start(Spec::new(Kind::Mysql).nodes(2)).unwrap();
    let [primary, replica] = sandbox.nodes() else {
        panic!("two nodes")
    };
    let version = sandbox.release().map(|number| number.to_string()).join(".");
    assert!(primary.sql("SELECT VERSION()").unwrap().starts_with(&version));
    let plugin = "SELECT plugin FROM mysql.user WHERE user='forebay'";
    assert_eq!(primary.sql(plugin).unwrap(), "caching_sha2_password\n");

    primary
        .sql(&format!("{TABLE}; INSERT INTO t VALUES (1), (2)"))
        .unwrap();
    sandbox.sync().unwrap();
    assert_eq!(replica.sql("SELECT COUNT(*) FROM t").unwrap(), "2\n");
    assert!(
        replica
            .sql("INSERT INTO t VALUES (3)")
            .unwrap_err()
            .to_string()
            .contains("1290")
    );

    primary.kill9().unwrap();
    primary.restart().unwrap();
    primary.sql("INSERT INTO t VALUES (3)").unwrap();
    sandbox.sync().unwrap();
    assert_eq!(replica.sql("SELECT COUNT(*) FROM t").unwrap(), "3\n");
}

#[test]
fn mysql_without_tls_offers_none() {
    let sandbox = Sandbox::start(Spec::new(Kind::Mysql).tls(false)).unwrap();
    let status = sandbox.primary().sql("SELECT @@tls_version").unwrap();
    assert_eq!(status.trim(), "");
}

#[test]
fn every_galera_node_takes_writes_and_a_killed_one_joins_again() {
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(3)).unwrap();
    sandbox
        .node(1)
        .sql(&format!("{TABLE}; INSERT INTO t VALUES (1)"))
        .unwrap();
    sandbox.sync().unwrap();
    sandbox.node(2).sql("INSERT INTO t VALUES (2)").unwrap();
    sandbox.sync().unwrap();
    assert_eq!(sandbox.node(0).sql("SELECT COUNT(*) FROM t").unwrap(), "2\n");

    // What it missed comes as write sets; the first node may go as well as any other.
    sandbox.node(0).kill9().unwrap();
    sandbox.node(1).sql("INSERT INTO t VALUES (3)").unwrap();
    sandbox.node(0).restart().unwrap();
    assert_eq!(sandbox.node(0).sql("SELECT COUNT(*) FROM t").unwrap(), "3\n");
}

#[test]
fn a_galera_node_that_lost_its_place_gets_everything_anew() {
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(2)).unwrap();
    let [first, second] = sandbox.nodes() else {
        panic!("two nodes")
    };
    first.sql(&format!("{TABLE}; INSERT INTO t VALUES (1)")).unwrap();
    second.stop().unwrap();
    first.sql("INSERT INTO t VALUES (2)").unwrap();
    std::fs::remove_dir_all(second.data_folder()).unwrap();
    std::fs::create_dir(second.data_folder()).unwrap();
    second.restart().unwrap();
    assert_eq!(second.sql("SELECT COUNT(*) FROM t").unwrap(), "2\n");
}

#[test]
fn group_replication_members_are_online_and_a_killed_one_joins_again() {
    let sandbox = Sandbox::start(Spec::new(Kind::GroupReplication).nodes(3)).unwrap();
    let members =
        "SELECT member_state, member_role, COUNT(*) FROM performance_schema.replication_group_members
        GROUP BY 1, 2 ORDER BY 2";
    assert_eq!(
        sandbox.node(2).sql(members).unwrap(),
        "ONLINE\tPRIMARY\t1\nONLINE\tSECONDARY\t2\n"
    );
    sandbox
        .primary()
        .sql(&format!("{TABLE}; INSERT INTO t VALUES (1)"))
        .unwrap();
    sandbox.sync().unwrap();
    assert_eq!(sandbox.node(2).sql("SELECT COUNT(*) FROM t").unwrap(), "1\n");

    sandbox.node(2).kill9().unwrap();
    sandbox.primary().sql("INSERT INTO t VALUES (2)").unwrap();
    sandbox.node(2).restart().unwrap();
    sandbox.sync().unwrap();
    assert_eq!(sandbox.node(2).sql("SELECT COUNT(*) FROM t").unwrap(), "2\n");
}

#[test]
fn mariadb_11_knows_parsec() {
    let sandbox = Sandbox::start(Spec::new(Kind::Mariadb).program(mariadb_11().unwrap())).unwrap();
    let node = sandbox.primary();
    node.sql("INSTALL SONAME 'auth_parsec'; CREATE USER p IDENTIFIED VIA parsec USING PASSWORD('x')")
        .unwrap();
    assert_eq!(
        node.sql("SELECT plugin FROM mysql.user WHERE user='p'").unwrap(),
        "parsec\n"
    );
}
