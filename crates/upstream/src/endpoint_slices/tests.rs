use std::net::TcpListener;
use std::path::PathBuf;

use config::{Check, CheckKind};
use proptest::prelude::*;
use testkit::api_server::ApiServer;
use testkit::certificates::Certificates;

use super::*;

/// As Kubernetes 1.30 shows it, without what is of no use here.
const SLICE: &str = r#"{"metadata":{"name":"mysql-abcde","namespace":"db","generation":7,"labels":{"kubernetes.io/service-name":"mysql"}},
    "addressType":"IPv4","endpoints":[
    {"addresses":["10.1.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"hostname":"mysql-0","nodeName":"n1","zone":"east",
     "targetRef":{"kind":"Pod","namespace":"db","name":"mysql-0","uid":"6d0d"}},
    {"addresses":["10.1.0.2"],"conditions":{"ready":false,"serving":false,"terminating":false},"zone":""},
    {"addresses":["10.1.0.3"],"conditions":{"ready":false,"serving":true,"terminating":true}},
    {"addresses":["10.1.0.1"],"conditions":{}},{"addresses":[]},{}],
    "ports":[{"name":"metrics","port":9104,"protocol":"TCP"},{"name":"sql","port":3306,"protocol":"TCP"}]}"#;

const SIX: &str = r#"{"metadata":{"name":"mysql-six"},"addressType":"IPv6",
    "endpoints":[{"addresses":["fd00::1"],"conditions":{"terminating":null}}],"ports":[{"name":"","port":3307}]}"#;

fn known(slices: &[&str]) -> Known {
    let slices = slices.iter().map(|text| serde_json::from_str(text).unwrap());
    slices.map(|slice| (name(&slice), slice)).collect()
}

fn names(found: &Endpoints) -> Vec<&str> {
    found.servers.iter().map(|server| server.name.as_str()).collect()
}

#[test]
fn endpoints_are_servers_whether_they_are_ready_or_not() {
    let of_port = EndpointSlices {
        port: Some("sql".to_owned()),
        max_connections: 9,
        ..EndpointSlices::new("mysql")
    };
    let found = endpoints(&of_port, &known(&[SIX, SLICE]), "IPv4");
    assert_eq!(names(&found), ["10.1.0.1:3306", "10.1.0.2:3306", "10.1.0.3:3306"]);
    assert_eq!(found.terminating, BTreeSet::from(["10.1.0.3:3306".to_owned()]));
    let zones: Vec<_> = (found.servers.iter())
        .map(|server| server.zone.as_deref())
        .collect();
    assert_eq!(zones, [Some("east"), None, None]);
    assert_eq!(found.servers[0].max_connections, 9);

    let any = EndpointSlices::new("mysql");
    let first = endpoints(&any, &known(&[SLICE]), "IPv4");
    assert!(names(&first).is_empty(), "two ports, and none is named");
    let six = endpoints(&any, &known(&[SIX]), "IPv6");
    assert_eq!(names(&six), ["[fd00::1]:3307"]);
    assert!(names(&endpoints(&of_port, &known(&[SIX]), "IPv6")).is_empty());
    assert_eq!(family(&of_port, &known(&[SIX, SLICE])), "IPv4");
    assert_eq!(family(&any, &known(&[SIX])), "IPv6");
    assert_eq!(family(&any, &known(&[])), "IPv4");
}

#[test]
fn their_number_is_bounded() {
    let all: Vec<String> = (0..400)
        .map(|n| format!("{{\"addresses\":[\"10.0.{}.{}\"]}}", n / 200, n % 200))
        .collect();
    let all = all.join(",");
    let slice = format!(
        "{{\"metadata\":{{\"name\":\"a\"}},\"addressType\":\"IPv4\",\"endpoints\":[{all}],\"ports\":[{{\"port\":1}}]}}"
    );
    let found = endpoints(&EndpointSlices::new("mysql"), &known(&[&slice]), "IPv4");
    assert_eq!(
        (found.servers.len(), found.left_out),
        (SERVERS_MAX, 400 - SERVERS_MAX)
    );
}

#[test]
fn events_change_what_is_known() {
    let mut known = known(&[SLICE]);
    let line = |kind: &str, object: &str| format!("{{\"type\":{kind:?},\"object\":{object}}}\n");
    assert!(apply(&mut known, line("ADDED", SIX).as_bytes()).unwrap());
    assert_eq!(known.len(), 2);
    assert!(apply(&mut known, line("DELETED", SLICE).as_bytes()).unwrap());
    assert_eq!(known.keys().collect::<Vec<_>>(), ["mysql-six"]);
    assert!(!apply(&mut known, line("BOOKMARK", "{}").as_bytes()).unwrap());
    let gone = apply(&mut known, line("ERROR", "{\"code\":410}").as_bytes()).unwrap_err();
    assert_eq!(gone.to_string(), "error 410");
    apply(&mut known, line("RENAMED", "{}").as_bytes()).unwrap_err();
    for line in ["no JSON", "[1]", "null", "\"ADDED\""] {
        apply(&mut known, line.as_bytes()).unwrap_err();
    }
}

proptest! {
    #[test]
    fn any_slice_is_read(at in 0..SLICE.len(), byte in 32..127_u8) {
        let mut bytes = SLICE.as_bytes().to_vec();
        bytes[at] = byte;
        let line = [b"{\"type\":\"ADDED\",\"object\":", &bytes[..], b"}"].concat();
        let mut known = Known::new();
        let _ = apply(&mut known, &line);
        endpoints(&EndpointSlices::new("mysql"), &known, "IPv4");
    }
}

/// A service, and a cluster that follows it.
struct Setup {
    api: ApiServer,
    certificates: Certificates,
    account: tempfile::TempDir,
    cluster: Arc<Cluster>,
    port: u16,
    _servers: Vec<TcpListener>,
}

impl Setup {
    fn start() -> Self {
        let (api, certificates) = ApiServer::start("db", "mysql").unwrap();
        let account = tempfile::tempdir().unwrap();
        let (servers, port) = servers();
        let slices = EndpointSlices {
            api_server: ServerAddress::parse(&api.address()),
            account_dir: PathBuf::from(account.path()),
            ..EndpointSlices::new("mysql")
        };
        let mut config = config::Cluster::new("main", Vec::new());
        config.endpoint_slices = Some(slices);
        config.check = Check {
            kind: CheckKind::Tcp,
            interval: Duration::from_millis(50),
            ..Check::default()
        };
        let setup = Self {
            cluster: Cluster::new(config).unwrap(),
            api,
            certificates,
            account,
            port,
            _servers: servers,
        };
        setup.renew("first");
        setup
    }

    fn renew(&self, token: &str) {
        let folder = self.account.path();
        let written = self.api.write_account(folder, &self.certificates, "db", token);
        written.unwrap();
    }

    /// The rest of a slice with these endpoints, whose last part of the address is given, and whether they
    /// terminate.
    fn slice(&self, endpoints: &[(u8, bool)]) -> String {
        let endpoint = |(last, terminating): &(u8, bool)| {
            format!("{{\"addresses\":[\"127.0.0.{last}\"],\"conditions\":{{\"terminating\":{terminating}}}}}")
        };
        let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
        format!(
            "\"addressType\":\"IPv4\",\"endpoints\":[{}],\"ports\":[{{\"name\":\"sql\",\"port\":{}}}]",
            endpoints.join(","),
            self.port
        )
    }

    fn put(&self, endpoints: &[(u8, bool)]) {
        self.api.put("mysql-1", &self.slice(endpoints));
    }

    /// Waits until the cluster has these servers, and those of them drain that are to.
    async fn has(&self, expected: &[(u8, bool)]) {
        let found = || -> Vec<(String, bool)> {
            let servers = self.cluster.servers();
            let say = |server: &Arc<crate::Server>| (server.name().to_owned(), server.is_draining());
            servers.iter().map(say).collect()
        };
        let name = |(last, drains): &(u8, bool)| (format!("127.0.0.{last}:{}", self.port), *drains);
        let expected: Vec<_> = expected.iter().map(name).collect();
        until(
            || found() == expected,
            || format!("{:?}, not {expected:?}", found()),
        )
        .await;
    }

    async fn answers(&self, expected: bool) {
        let answers = || self.cluster.slices_answer.load(Ordering::Relaxed);
        until(|| answers() == expected, || format!("answers: {}", answers())).await;
    }
}

/// Two servers with the same port.
fn servers() -> (Vec<TcpListener>, u16) {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind(("127.0.0.2", port)) {
            return (vec![first, second], port);
        }
    }
}

async fn until(is_so: impl Fn() -> bool, say: impl Fn() -> String) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("{}", say()));
}

#[tokio::test]
async fn servers_come_and_go_with_the_endpoints() {
    let setup = Setup::start();
    setup.put(&[(1, false)]);
    let checks = tokio::spawn(Arc::clone(&setup.cluster).run_checks());
    setup.has(&[(1, false)]).await;
    setup.answers(true).await;
    setup.put(&[(1, false), (2, false)]);
    setup.has(&[(1, false), (2, false)]).await;
    setup.api.bookmark();
    // Who terminates drains, and is a server until it is gone.
    setup.put(&[(1, true), (2, false)]);
    setup.has(&[(1, true), (2, false)]).await;
    setup.put(&[(2, false)]);
    setup.has(&[(2, false)]).await;
    // Somebody has to serve.
    setup.put(&[(2, true)]);
    let server = Arc::clone(&setup.cluster.servers()[0]);
    until(|| server.is_terminating(), || "it does not terminate".to_owned()).await;
    setup.has(&[(2, false)]).await;
    // That nobody is left is not believed.
    setup.api.delete("mysql-1");
    setup.answers(false).await;
    setup.has(&[(2, false)]).await;
    assert_eq!(setup.api.lists(), 1, "all that was told by one watch");
    checks.abort();
}

#[tokio::test]
async fn an_endpoint_may_go_from_one_slice_to_another() {
    let setup = Setup::start();
    setup.put(&[(1, false)]);
    setup.api.put("mysql-2", &setup.slice(&[(2, false)]));
    let checks = tokio::spawn(Arc::clone(&setup.cluster).run_checks());
    setup.has(&[(1, false), (2, false)]).await;
    until(|| setup.api.watches() == 1, || "no watch".to_owned()).await;
    let servers = || setup.cluster.servers().to_vec();
    let before = servers();
    let all = setup.slice(&[(1, false), (2, false), (3, false)]);
    setup.api.delete_and_put("mysql-2", "mysql-1", &all);
    until(|| servers().len() == 3, || format!("{:?}", servers())).await;
    let stays = before
        .iter()
        .zip(servers())
        .all(|(before, now)| Arc::ptr_eq(before, &now));
    assert!(stays, "no server was taken away in between");
    checks.abort();
}

#[tokio::test]
async fn however_a_watch_ends_all_is_listed_again() {
    let setup = Setup::start();
    setup.put(&[(1, false)]);
    let checks = tokio::spawn(Arc::clone(&setup.cluster).run_checks());
    setup.has(&[(1, false)]).await;
    setup.answers(true).await;

    let both = setup.slice(&[(1, false), (2, false)]);
    setup.api.put_and_forget("mysql-1", &both);
    setup.has(&[(1, false), (2, false)]).await;
    // Nothing is on its way with the old token.
    until(|| setup.api.watches() == 2, || "no second watch".to_owned()).await;

    setup.renew("second");
    setup.put(&[(2, false)]);
    setup.has(&[(2, false)]).await;
    setup.answers(true).await;
    // The list has told it.
    until(|| setup.api.watches() == 3, || "no third watch".to_owned()).await;
    assert_eq!(setup.api.refused(), 0, "the file is read again each time");

    setup.api.set_gone(true);
    setup.answers(false).await;
    setup.put(&[(1, false)]);
    setup.has(&[(2, false)]).await;
    setup.api.set_gone(false);
    setup.has(&[(1, false)]).await;
    setup.answers(true).await;
    checks.abort();
}

/// Neither an API server that shows another certificate nor one that does not know the token names servers.
#[tokio::test]
async fn only_the_api_server_of_the_account_is_believed() {
    let setup = Setup::start();
    setup.put(&[(1, false)]);
    let stranger = Certificates::generate().unwrap();
    fs::write(setup.account.path().join("ca.crt"), &stranger.ca).unwrap();
    let slices = setup.cluster.config().endpoint_slices.clone().unwrap();
    let list = async || Api::new(&slices).unwrap().list().await;
    assert_eq!(list().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(
        (setup.api.lists(), setup.api.refused()),
        (0, 0),
        "nobody else hears the token"
    );

    fs::write(setup.account.path().join("ca.crt"), &setup.certificates.ca).unwrap();
    fs::write(setup.account.path().join("token"), "another").unwrap();
    let refused = list().await.unwrap_err().to_string();
    assert!(refused.starts_with("status 401"), "{refused}");
    fs::write(setup.account.path().join("token"), "first").unwrap();
    let (known, _) = list().await.unwrap();
    assert_eq!(known.len(), 1);
    fs::write(setup.account.path().join("token"), "two\nlines").unwrap();
    assert!(Api::new(&slices).is_err());
}
