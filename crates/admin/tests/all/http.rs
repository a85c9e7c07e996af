//! The admin server over real connections on loopback.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admin::{
    BalanceStatus, CacheStatus, CaptureOrder, CaptureStatus, ClusterStatus, DrainStatus, Gateway,
    LastMovedStatus, ListenerStatus, MappingStatus, MirrorStatus, MirrorTimes, MirroredStatement, PinStatus,
    RefusedReload, ServerBalanceStatus, ServerStatus, SessionStatus, Status, SwitchoverOrder,
    SwitchoverStatus, SwitchoverStep, WorkerStatus,
};
use telemetry::Telemetry;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

/// A gateway that does what the test says and notes what it was asked to do.
#[derive(Default)]
struct Fake {
    not_ready: Mutex<Vec<String>>,
    wrong: Mutex<Vec<String>>,
    done: Mutex<Vec<String>>,
    token: Mutex<Option<String>>,
}

impl Gateway for Fake {
    fn is_token(&self, given: &[u8]) -> Option<bool> {
        let token = self.token.lock().expect("no panic");
        token.as_ref().map(|token| token.as_bytes() == given)
    }

    fn hosts(&self) -> Vec<String> {
        vec!["gateway.example".to_owned()]
    }

    fn ready(&self) -> Result<Vec<String>, Vec<String>> {
        let reasons = self.not_ready.lock().expect("no panic").clone();
        let wrong = self.wrong.lock().expect("no panic").clone();
        if reasons.is_empty() {
            Ok(wrong)
        } else {
            Err(reasons)
        }
    }

    fn sessions(&self, limit: usize) -> Pin<Box<dyn Future<Output = Vec<SessionStatus>> + Send + '_>> {
        let session = |id, pins| SessionStatus {
            id,
            worker: 0,
            listener: "all".into(),
            user: "app".into(),
            client: "127.0.0.1:5000".into(),
            waits_for: "client".into(),
            waiting_seconds: 1.5,
            server: None,
            server_connection_id: None,
            schema: None,
            digest: None,
            pins,
        };
        let pin = PinStatus {
            reason: "temporary-table".into(),
            digest: "00ff".into(),
            since_seconds: 2.0,
        };
        let sessions = vec![session(1, Vec::new()), session(2, vec![pin])];
        Box::pin(async move { sessions.into_iter().take(limit).collect() })
    }

    fn set_unready(&self, reason: Option<String>, limit: Option<Duration>) -> Result<(), String> {
        let asked = format!("unready {reason:?} {limit:?}");
        self.done.lock().expect("no panic").push(asked);
        Ok(())
    }

    fn status(&self) -> Status {
        let server = ServerStatus {
            name: "db-1".into(),
            address: "10.0.0.1:3306".into(),
            state: "down".into(),
            state_seconds: 4,
            reason: "connection refused".into(),
            role: "unusable".into(),
            role_reason: "is down (connection refused)".into(),
            lag_seconds: None,
            too_far_behind: false,
            sessions: 0,
            draining: false,
            drained_by: None,
        };
        let listener = ListenerStatus {
            name: "app".into(),
            bind: "127.0.0.1:6033".into(),
            protocol: "mysql".into(),
            mode: "session".into(),
            cluster: "main".into(),
            sessions: 7,
        };
        Status {
            version: "0.1.0".into(),
            uptime_seconds: 60,
            shutting_down: false,
            unready: Some("new kernel".into()),
            unready_ends_in_seconds: Some(600),
            process_id: 77,
            failed_upgrade: None,
            refused_reload: Some(RefusedReload {
                seconds_ago: 30,
                why: "SIGHUP".into(),
                first_mistake: "forebay.toml:3:1: workrs: unknown option".into(),
                more_mistakes: 1,
            }),
            store: None,
            capture: None,
            sessions: 7,
            listeners: vec![listener],
            clusters: vec![ClusterStatus {
                name: "main".into(),
                waiting: 2,
                paused: false,
                servers: vec![server],
            }],
            workers: vec![WorkerStatus {
                index: 0,
                sessions: 7,
            }],
        }
    }

    fn log_level(&self) -> String {
        "net=debug,info".into()
    }

    fn change_log_level(&self, level: &str) -> Result<String, String> {
        self.done.lock().expect("no panic").push(format!("level {level}"));
        if level == "loud" {
            Err("\"loud\" is not a log level".into())
        } else {
            Ok(format!("net=debug,{level}"))
        }
    }

    fn reload(&self) -> Result<String, String> {
        let mut done = self.done.lock().expect("no panic");
        done.push("reload".into());
        match done.len() {
            1 => Ok("cluster.main.servers: changed\n".into()),
            _ => Err("forebay.toml:3:1: workrs: unknown option".into()),
        }
    }

    fn cache(&self) -> Option<CacheStatus> {
        let is_flushed = !self.done.lock().expect("no panic").is_empty();
        is_flushed.then(|| CacheStatus {
            stream: "following db-1".into(),
            lag_seconds: 0.5,
            memory_bytes: 1000,
            memory_max_bytes: 2000,
            mappings: vec![MappingStatus {
                name: "user".into(),
                table: "shop.users".into(),
                row_of: None,
                state: "serving".into(),
                reason: "serving".into(),
                rows: Some(3),
            }],
        })
    }

    fn drain(&self, cluster: Option<&str>, server: &str, end_after: Option<Duration>) -> Result<(), String> {
        let asked = format!("drain {cluster:?} {server} {end_after:?}");
        self.done.lock().expect("no panic").push(asked);
        match server {
            "last" => Err("nobody would be left".into()),
            _ => Ok(()),
        }
    }

    fn undrain(&self, cluster: Option<&str>, server: &str) -> Result<(), String> {
        let asked = format!("undrain {cluster:?} {server}");
        self.done.lock().expect("no panic").push(asked);
        Ok(())
    }

    fn pause(&self, cluster: Option<&str>) -> Result<bool, String> {
        self.done
            .lock()
            .expect("no panic")
            .push(format!("pause {cluster:?}"));
        Ok(true)
    }

    fn resume(&self, cluster: Option<&str>) -> Result<(), String> {
        self.done
            .lock()
            .expect("no panic")
            .push(format!("resume {cluster:?}"));
        Ok(())
    }

    fn switch_over(&self, cluster: Option<&str>, order: SwitchoverOrder) -> Result<(), String> {
        let asked = format!("switch over {cluster:?} {} {}", order.to, order.check_only);
        self.done.lock().expect("no panic").push(asked);
        Ok(())
    }

    fn upgrade(&self) {
        self.done.lock().expect("no panic").push("upgrade".into());
    }

    fn switchovers(&self) -> Vec<SwitchoverStatus> {
        vec![SwitchoverStatus {
            cluster: "main".into(),
            from: "db1".into(),
            to: "db2".into(),
            state: "done".into(),
            steps: vec![SwitchoverStep {
                what: "db1 is read-only".into(),
                at_seconds: 0.5,
            }],
            warnings: Vec::new(),
            reason: String::new(),
            paused_seconds: Some(0.25),
        }]
    }

    fn drains(&self) -> Pin<Box<dyn Future<Output = Vec<DrainStatus>> + Send + '_>> {
        let drain = DrainStatus {
            cluster: "main".into(),
            server: "db3".into(),
            drained_by: "offline_mode = ON".into(),
            sessions: 2,
            held_by: [("transaction".to_owned(), 1)].into(),
            ends_in_seconds: None,
        };
        Box::pin(async move { vec![drain] })
    }

    fn kill(
        &self,
        id: u32,
        query_only: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let asked = format!("kill {id} {query_only}");
        self.done.lock().expect("no panic").push(asked);
        Box::pin(async { Ok(()) })
    }

    fn start_capture(
        &self,
        order: CaptureOrder,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let asked = format!(
            "capture {} {:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?}",
            order.to,
            order.spool,
            order.duration,
            order.max_size,
            order.free_disk,
            order.sample,
            order.user,
            order.schema,
            order.listener,
            order.digest,
            order.load_data,
            order.end_when_full,
            order.key_file
        );
        self.done.lock().expect("no panic").push(asked);
        Box::pin(async { Ok(()) })
    }

    fn stop_capture(&self) -> Result<(), String> {
        self.done
            .lock()
            .expect("no panic")
            .push("stop capture".to_owned());
        Ok(())
    }

    fn capture(&self) -> Option<CaptureStatus> {
        None
    }

    fn mirrors(&self) -> Vec<MirrorStatus> {
        let times = MirrorTimes {
            p50_ms: 1.0,
            p95_ms: 2.5,
            p99_ms: 4.0,
        };
        vec![MirrorStatus {
            cluster: "next".into(),
            compared: [("equal".to_owned(), 9)].into(),
            unchecked: [("masked".to_owned(), 1)].into(),
            original: times.clone(),
            copy: times,
            statements: vec![MirroredStatement {
                digest: "00ff00ff00ff00ff".into(),
                text: "SELECT ?".into(),
                compared: [("rows".to_owned(), 2)].into(),
                example: "1 → 2 rows".into(),
                seconds_ago: 0.5,
            }],
            of_others: 0,
        }]
    }

    fn balance(&self) -> Vec<BalanceStatus> {
        let of = |cluster: &str| BalanceStatus {
            cluster: cluster.into(),
            policy: "connections".into(),
            state: "moving".into(),
            servers: vec![ServerBalanceStatus {
                server: "db1".into(),
                sessions: 12,
                share: 8.0,
                cpu_percent: Some(61.5),
                memory_percent: None,
                score: Some(1.5),
                note: None,
                last_moved: Some(LastMovedStatus {
                    factor: "connections".into(),
                    sessions: 3,
                    to: "db2".into(),
                    seconds_ago: 0.5,
                }),
            }],
        };
        vec![of("main"), of("other")]
    }

    fn cluster_name(&self, cluster: Option<&str>, _: Option<&str>) -> Result<String, String> {
        Ok(cluster.unwrap_or("main").to_owned())
    }

    fn fleet(&self) -> Option<Arc<fleet::Fleet>> {
        None
    }

    fn flush_cache(&self) -> bool {
        self.done.lock().expect("no panic").push("flush".into());
        true
    }
}

struct Server {
    address: SocketAddr,
    gateway: Arc<Fake>,
    telemetry: Arc<Telemetry>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    fn start() -> Self {
        let listener = admin::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let gateway = Arc::new(Fake::default());
        let telemetry = Telemetry::new(1, |_| "unknown");
        let task = tokio::spawn(admin::serve(
            listener,
            Arc::clone(&telemetry),
            Arc::clone(&gateway) as Arc<dyn Gateway>,
        ));
        Self {
            address,
            gateway,
            telemetry,
            task,
        }
    }

    /// How many requests were refused for this.
    fn refused(&self, why: &str) -> u64 {
        let page = self.telemetry.encode_as(telemetry::Format::negotiate(""));
        let series = format!("forebay_admin_refused_total{{why={why:?}}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&series));
        count.and_then(|count| count.parse().ok()).expect("a count")
    }

    async fn ask(&self, request: &str, headers: &str) -> Answer {
        self.send(&format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"))
            .await
    }

    async fn send(&self, text: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address)
            .await
            .expect("the server listens");
        stream
            .write_all(text.as_bytes())
            .await
            .expect("the request is taken");
        Answer::read(stream).await
    }

    /// An act, with the token.
    async fn act(&self, request: &str, headers: &str) -> Answer {
        *self.gateway.token.lock().expect("no panic") = Some("secret".to_owned());
        let headers = format!("Authorization: Bearer secret\r\n{headers}");
        self.ask(request, &headers).await
    }

    fn done(&self) -> Vec<String> {
        self.gateway.done.lock().expect("no panic").clone()
    }
}

#[derive(Debug)]
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    /// Reads to the end of the connection.
    async fn read(mut stream: impl AsyncRead + Unpin) -> Self {
        let mut text = String::new();
        stream
            .read_to_string(&mut text)
            .await
            .expect("an answer to its end");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        Self {
            code,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let server = Server::start();
    let plain = server.ask("GET /metrics", "").await;
    assert_eq!(plain.code, 200);
    assert!(
        plain
            .head
            .contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{}",
        plain.head
    );
    assert!(plain.head.contains("cache-control: no-store"), "{}", plain.head);
    assert!(
        plain
            .body
            .contains("\nforebay_commands_total{command=\"unknown\"} 0\n")
    );
    assert!(!plain.body.contains("# EOF"));

    let accept =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5\r\n";
    let open = server.ask("GET /metrics", accept).await;
    assert!(
        open.head
            .contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(open.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn ready_says_why_not() {
    let server = Server::start();
    assert_eq!(server.ask("GET /healthz", "").await.code, 200);
    let ready = server.ask("GET /readyz", "").await;
    assert_eq!((ready.code, ready.body.as_str()), (200, "ok\n"));

    *server.gateway.wrong.lock().unwrap() = vec!["cluster main: writes are refused".to_owned()];
    let ready = server.ask("GET /readyz", "").await;
    let said = "ok\ncluster main: writes are refused\n";
    assert_eq!((ready.code, ready.body.as_str()), (200, said));

    let reasons = ["shutting down", "listener app: no server of cluster main is up"];
    *server.gateway.not_ready.lock().unwrap() = reasons.map(str::to_owned).to_vec();
    let answer = server.ask("GET /readyz", "").await;
    assert_eq!(answer.code, 503);
    assert_eq!(answer.body.lines().collect::<Vec<_>>(), reasons);
    assert_eq!(server.ask("GET /healthz", "").await.code, 200);
}

#[tokio::test]
async fn status_is_json() {
    let answer = Server::start().ask("GET /status", "").await;
    assert!(answer.head.contains("content-type: application/json"));
    let found: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let wanted = serde_json::json!({
        "version": "0.1.0", "uptime_seconds": 60, "shutting_down": false, "unready": "new kernel", "unready_ends_in_seconds": 600, "process_id": 77, "failed_upgrade": null, "refused_reload": {
            "seconds_ago": 30, "why": "SIGHUP", "first_mistake": "forebay.toml:3:1: workrs: unknown option", "more_mistakes": 1,
        }, "store": null, "capture": null, "sessions": 7,
        "listeners": [
            {"name": "app", "bind": "127.0.0.1:6033", "protocol": "mysql", "mode": "session", "cluster": "main", "sessions": 7}
        ],
        "clusters": [{"name": "main", "paused": false, "waiting": 2, "servers": [{
            "name": "db-1", "address": "10.0.0.1:3306", "state": "down", "state_seconds": 4,
            "reason": "connection refused", "role": "unusable", "role_reason": "is down (connection refused)",
            "lag_seconds": null, "too_far_behind": false, "sessions": 0, "draining": false, "drained_by": null
        }]}],
        "workers": [{"index": 0, "sessions": 7}],
    });
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn the_log_level_is_changed_by_put_and_by_post() {
    let server = Server::start();
    let get = server.ask("GET /log", "").await;
    assert_eq!((get.code, get.body.as_str()), (200, "net=debug,info\n"));
    let put = server.act("PUT /log?level=debug", "").await;
    assert_eq!((put.code, put.body.as_str()), (200, "net=debug,debug\n"));
    let post = server
        .act("POST /log?level=info%2Cnet%3Dtrace", "Content-Length: 0\r\n")
        .await;
    assert_eq!(post.code, 200);
    let wrong = server.act("PUT /log?level=loud", "").await;
    assert_eq!(
        (wrong.code, wrong.body.as_str()),
        (400, "\"loud\" is not a log level\n")
    );
    for (request, why) in [
        ("PUT /log", "missing field `level`"),
        ("PUT /log?levle=info", "unknown field `levle`, expected `level`"),
        (
            "GET /sessions?pined=true",
            "unknown field `pined`, expected `limit` or `pinned`",
        ),
        ("GET /sessions?limit=all", "limit: invalid digit"),
    ] {
        let answer = server.act(request, "").await;
        assert_eq!(answer.code, 400);
        let (first, rest) = answer.body.split_once('\n').expect("lines");
        assert!(first.starts_with("refused: ") && first.contains(why), "{first}");
        assert!(rest.contains("PUT  /log?level=LEVEL"), "{rest}");
    }
    assert_eq!(
        server.done(),
        ["level debug", "level info,net=trace", "level loud"]
    );
}

#[tokio::test]
async fn the_cache_is_shown_and_flushed() {
    let server = Server::start();
    assert_eq!(server.ask("GET /cache", "").await.code, 404, "there is none yet");
    assert_eq!(server.act("POST /cache/flush", "").await.code, 200);
    assert_eq!(server.done(), ["flush"]);
    let answer = server.ask("GET /cache", "").await;
    let cache: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(cache["stream"], "following db-1");
    assert_eq!(cache["mappings"][0]["rows"], 3);
    assert_eq!(server.ask("GET /cache/flush", "").await.code, 405);
}

#[tokio::test]
async fn a_reload_says_what_it_did_or_what_is_wrong() {
    let server = Server::start();
    let ok = server.act("POST /reload", "Content-Length: 4\r\n").await;
    assert_eq!(
        (ok.code, ok.body.as_str()),
        (200, "cluster.main.servers: changed\n")
    );
    let wrong = server.act("PUT /reload", "").await;
    assert_eq!(
        (wrong.code, wrong.body.as_str()),
        (422, "forebay.toml:3:1: workrs: unknown option\n")
    );
}

#[tokio::test]
async fn a_web_page_can_change_nothing() {
    let server = Server::start();
    for origin in ["http://evil.example", "null", "http://localhost"] {
        let headers = format!("Origin: {origin}\r\n");
        for request in ["PUT /log?level=trace", "POST /reload", "DELETE /reload"] {
            assert_eq!(
                server.act(request, &headers).await.code,
                403,
                "{request} from {origin}"
            );
        }
        assert_eq!(server.ask("GET /readyz", &headers).await.code, 200);
    }
    assert_eq!(server.done(), Vec::<String>::new());
}

#[tokio::test]
async fn other_paths_and_methods_are_told_what_there_is() {
    let server = Server::start();
    let unknown = server.ask("GET /metric", "").await;
    assert_eq!(unknown.code, 404);
    assert!(unknown.body.contains("GET  /metrics"));
    let reload = server.ask("GET /reload", "").await;
    assert_eq!(reload.code, 405);
    assert!(reload.head.contains("allow: "), "{}", reload.head);
    // What `curl` shows where nobody asks for the code.
    assert!(reload.body.starts_with("refused: ") && reload.body.contains("PUT  /reload"));
    assert_eq!(server.ask("POST /metrics", "").await.code, 405);
    assert_eq!(server.ask("HEAD /metrics", "").await.body, "");
    assert!(server.done().is_empty());
}

/// What changes something comes by the socket; everything else by both.
#[tokio::test]
async fn acts_are_taken_on_the_socket_alone() {
    let server = Server::start();
    let acts = [
        (
            "/drain?cluster=main&server=db3&end_after=1.5",
            "drain Some(\"main\") db3 Some(1.5s)",
        ),
        ("/undrain?server=db3", "undrain None db3"),
        (
            "/readyz?ready=false&reason=new%0Akernel&for=1.5",
            "unready Some(\"newkernel\") Some(1.5s)",
        ),
        ("/readyz?ready=false", "unready Some(\"\") None"),
        ("/readyz?ready=true", "unready None None"),
        ("/kill?id=7&query=true", "kill 7 true"),
        (
            "/traffic/capture?to=/c/1&duration=1.5&max_size=9&sample=0.5&user=u&end_when_full=true&key_file=/k",
            "capture /c/1 None Some(1.5) Some(9) 10 Some(0.5) Some(\"u\") None None None None true Some(\"/k\")",
        ),
        (
            "/traffic/capture?to=s3%3A%2F%2Fb%2Fp&spool=/s",
            "capture s3://b/p Some(\"/s\") None None 10 None None None None None None false None",
        ),
        (
            "/traffic/capture?to=/c/2&listener=app&digest=00ff&load_data=7",
            "capture /c/2 None None None 10 None None None Some(\"app\") Some(\"00ff\") Some(7) false None",
        ),
        ("/traffic/capture/stop", "stop capture"),
        ("/pause", "pause None"),
        ("/upgrade", "upgrade"),
        ("/resume?cluster=main", "resume Some(\"main\")"),
        (
            "/switchover?cluster=main&to=db2&check_only=true",
            "switch over Some(\"main\") db2 true",
        ),
    ];
    let others = ["/reload", "/log?level=info", "/cache/flush"];
    for act in acts.iter().map(|(act, _)| *act).chain(others) {
        let refused = server.ask(&format!("PUT {act}"), "").await;
        assert_eq!(refused.code, 403, "{act}");
        assert!(refused.body.starts_with("refused: ") && refused.body.contains("forebay ctl"));
    }
    assert!(server.done().is_empty());
    let drains = server.ask("GET /drains", "").await;
    let expected = r#"[{"cluster":"main","server":"db3","drained_by":"offline_mode = ON","sessions":2,"held_by":{"transaction":1},"ends_in_seconds":null}]"#;
    assert_eq!(drains.body, expected);
    let switchovers = server.ask("GET /switchovers", "").await;
    let expected = r#"[{"cluster":"main","from":"db1","to":"db2","state":"done","steps":[{"what":"db1 is read-only","at_seconds":0.5}],"warnings":[],"reason":"","paused_seconds":0.25}]"#;
    assert_eq!(switchovers.body, expected);
    // Whoever only looks needs no right.
    let balance = server.ask("GET /balance?cluster=main", "").await;
    let expected = r#"[{"cluster":"main","policy":"connections","state":"moving","servers":[{"server":"db1","sessions":12,"share":8.0,"score":1.5,"cpu_percent":61.5,"memory_percent":null,"note":null,"last_moved":{"factor":"connections","sessions":3,"to":"db2","seconds_ago":0.5}}]}]"#;
    assert_eq!((balance.code, balance.body.as_str()), (200, expected));
    let all = server.ask("GET /balance", "").await;
    assert!(
        all.body.contains("main") && all.body.contains("other"),
        "{}",
        all.body
    );
    let unknown = server.ask("GET /balance?cluster=none", "").await;
    assert_eq!(
        (unknown.code, unknown.body.as_str()),
        (404, "there is no cluster none\n")
    );

    let folder = std::env::temp_dir().join(format!("forebay-admin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("admin.sock");
    let bind = || admin::bind_socket(&path);
    // What a process that was killed has left is replaced.
    drop(bind().unwrap());
    let listener = bind().unwrap();
    assert!(bind().is_err(), "somebody listens");
    let gateway = Arc::clone(&server.gateway) as Arc<dyn Gateway>;
    let task = tokio::spawn(admin::serve_socket(
        listener,
        Telemetry::new(1, |_| "unknown"),
        gateway,
    ));
    let ask = async |request: String| {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let text = format!("{request} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Answer::read(stream).await
    };
    for (act, done) in acts {
        let answer = ask(format!("PUT {act}")).await;
        assert_eq!((answer.code, answer.body.as_str()), (200, "ok\n"), "{act}");
        assert_eq!(server.done().last().unwrap(), done);
    }
    for other in others {
        assert_ne!(ask(format!("PUT {other}")).await.code, 403, "{other}");
    }
    let done = server.done();
    assert_eq!(done[done.len() - 3..], ["reload", "level info", "flush"]);
    let refused = ask("PUT /drain?server=last".to_owned()).await;
    assert_eq!(
        (refused.code, refused.body.as_str()),
        (409, "nobody would be left\n")
    );
    for wrong in [
        "/drain",
        "/drain?server=a&end_after=-1",
        "/kill?id=many",
        "/kill?id=1&qery=true",
    ] {
        let answer = ask(format!("PUT {wrong}")).await;
        assert!(matches!(answer.code, 400 | 409), "{wrong}: {}", answer.code);
    }
    task.abort();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn acts_are_taken_on_the_address_with_the_token() {
    let server = Server::start();
    let with = |token: &str| format!("Authorization: Bearer {token}\r\n");
    // No token fits where none is configured, not even an empty one.
    for headers in [String::new(), with(""), with("secret")] {
        let refused = server.ask("PUT /pause", &headers).await;
        assert_eq!(refused.code, 403, "{headers}");
        assert!(refused.body.contains("token_file"), "{}", refused.body);
    }
    assert_eq!(server.refused("no_token_file"), 3);
    // What shows a configuration, or statements, is shown to nobody else, either.
    for page in ["/fleet/history", "/fleet/diff?from=1&to=2", "/mirrors"] {
        assert_eq!(server.ask(&format!("GET {page}"), "").await.code, 403, "{page}");
    }
    assert_eq!(server.ask("GET /fleet/members", "").await.code, 404, "no fleet");

    *server.gateway.token.lock().unwrap() = Some("secret".to_owned());
    let refused = server.ask("PUT /pause", "").await;
    assert_eq!(refused.code, 401);
    assert!(
        refused
            .head
            .contains("www-authenticate: bearer realm=\"forebay\"\r\n")
    );
    assert!(refused.body.starts_with("refused: ") && refused.body.contains("--token-file"));
    for headers in [
        with(""),
        with("secre"),
        with("secret2"),
        "Authorization: Basic secret\r\n".to_owned(),
        "Authorization: secret\r\n".to_owned(),
        with("wrong") + &with("secret"),
    ] {
        let refused = server.ask("PUT /pause", &headers).await;
        assert_eq!(refused.code, 401, "{headers}");
        assert!(
            refused.head.contains("error=\"invalid_token\""),
            "{}",
            refused.head
        );
    }
    assert_eq!(server.refused("token"), 7);
    let from_page = server
        .ask("PUT /pause", &(with("secret") + "Origin: http://gateway\r\n"))
        .await;
    assert_eq!((from_page.code, server.refused("page")), (403, 1));
    assert!(server.done().is_empty());

    for page in ["/fleet/history", "/fleet/diff?from=1&to=2"] {
        assert_eq!(server.ask(&format!("GET {page}"), "").await.code, 401, "{page}");
        let answered = server.ask(&format!("GET {page}"), &with("secret")).await;
        assert_eq!(answered.code, 404, "there is no fleet: {page}");
    }

    assert_eq!(server.ask("GET /mirrors", "").await.code, 401);
    let mirrors = server.ask("GET /mirrors", &with("secret")).await;
    let expected = r#"[{"cluster":"next","compared":{"equal":9},"unchecked":{"masked":1},"original":{"p50_ms":1.0,"p95_ms":2.5,"p99_ms":4.0},"copy":{"p50_ms":1.0,"p95_ms":2.5,"p99_ms":4.0},"statements":[{"digest":"00ff00ff00ff00ff","text":"SELECT ?","compared":{"rows":2},"example":"1 → 2 rows","seconds_ago":0.5}],"of_others":0}]"#;
    assert_eq!((mirrors.code, mirrors.body.as_str()), (200, expected));

    let taken = server.ask("PUT /pause", &with("secret")).await;
    assert_eq!((taken.code, taken.body.as_str()), (200, "ok\n"));
    let taken = server.ask("POST /kill?id=7", &with("secret")).await;
    assert_eq!(taken.code, 200);
    assert_eq!(server.done(), ["pause None", "kill 7 false"]);
    assert_eq!(server.ask("GET /pause", "").await.code, 405);
}

#[tokio::test]
async fn names_of_others_are_refused() {
    let server = Server::start();
    let ask = async |host: &str| {
        let asked = format!("GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n");
        server.send(&asked).await
    };
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let machine = machine.trim();
    for own in [
        "127.0.0.1",
        "10.1.2.3:6080",
        "[::1]:6080",
        "LOCALHOST:80",
        "Gateway.Example:6080",
        "gateway.example.",
        machine,
        "",
    ] {
        assert_eq!(ask(own).await.code, 200, "{own}");
    }
    for other in [
        "evil.example",
        "gateway",
        "gateway.example.evil.example",
        "localhost.evil.example:6080",
        "127.0.0.1.evil.example",
        "[evil]",
        "evil.example:80:80",
    ] {
        let refused = ask(other).await;
        assert_eq!(refused.code, 421, "{other}");
        assert!(refused.body.contains("`hosts` in [admin]"), "{}", refused.body);
    }
    let two = "GET /status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert!([400, 421].contains(&server.send(two).await.code));
    let by_target = async |name: &str| {
        let asked = format!("GET http://{name}/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
        server.send(&asked).await.code
    };
    assert_eq!(by_target("evil.example:6080").await, 421);
    for own in ["gateway.example:6080", "127.0.0.1", "[::1]:6080"] {
        assert_eq!(by_target(own).await, 200, "{own}");
    }
    assert!(server.refused("host") >= 8);
}

/// HAProxy asks so where nobody says how: `option httpchk`.
#[tokio::test]
async fn checks_without_a_name_are_answered() {
    let server = Server::start();
    for check in ["OPTIONS / HTTP/1.0\r\n\r\n", "GET /readyz HTTP/1.0\r\n\r\n"] {
        assert_eq!(server.send(check).await.code, 200, "{check}");
    }
    *server.gateway.not_ready.lock().unwrap() = vec!["shutting down".to_owned()];
    for check in ["OPTIONS / HTTP/1.0\r\n\r\n", "GET /readyz HTTP/1.0\r\n\r\n"] {
        assert_eq!(server.send(check).await.code, 503, "{check}");
    }
}

#[tokio::test]
async fn heads_beyond_the_limit_are_refused() {
    let server = Server::start();
    let many: String = (0..65).map(|i| format!("X-{i}: 1\r\n")).collect();
    assert_eq!(server.ask("GET /healthz", &many).await.code, 431);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may close while we still write; what counts is that it does.
    let _ = stream.write_all(&vec![b'x'; 200_000]).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.len() < 1000);
    assert_eq!(server.ask("GET /healthz", "").await.code, 200);
}

/// The clock of the runtime is paused and jumps when all wait.
#[tokio::test(start_paused = true)]
async fn connections_that_say_nothing_are_closed_and_others_get_their_turn() {
    let server = Server::start();
    let mut silent = Vec::new();
    for i in 0..200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        if i % 2 == 0 {
            stream.write_all(b"GET /healthz HTT").await.unwrap();
        }
        silent.push(stream);
    }
    let started = tokio::time::Instant::now();
    assert_eq!(server.ask("GET /healthz", "").await.code, 200);
    // Silent connections make room, or are ended by the header timeout.
    assert!(
        started.elapsed() <= Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    for stream in &mut silent {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
}

#[tokio::test]
async fn connections_end_with_the_server() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET ").await.unwrap();
    assert_eq!(server.ask("GET /healthz", "").await.code, 200);
    server.task.abort();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection is closed");
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let server = Server::start();
    let error = admin::bind(server.address).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot listen on {} for [admin] bind: ", server.address)),
        "{error}"
    );
    assert!(
        error.ends_with("another process uses this address (`ss -ltnp` shows which)"),
        "{error}"
    );
    // TEST-NET-1 is nobody's.
    let error = admin::bind("192.0.2.1:6080".parse().expect("an address"))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("no interface of this machine has this address (`ip address` lists them)"),
        "{error}"
    );
}
