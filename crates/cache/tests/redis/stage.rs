//! A server with mapped tables, a gateway with a Redis listener, and clients of both.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cache::Cache;
use cache::feed::Phase;
use config::Config;
use dataplane::Gateway;
use dataplane::extension::Extension;
use rustls::{ClientConnection, StreamOwned};
use sandbox::{Kind, Lent, Sandbox, Spec};
use telemetry::Telemetry;
use testkit::certificates::Certificates;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;

/// Far above what anything here needs: a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) sandbox: Lent,
    pub(crate) telemetry: Arc<Telemetry>,
    certificates: Certificates,
    cache: Arc<Cache>,
    gateway: Arc<Gateway>,
    end: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// `words`: a string by `id`. `items`: a hash by `(shop, code)`.
const TABLES: &str = "
    CREATE DATABASE shop;
    CREATE TABLE shop.words (id INT PRIMARY KEY, word VARCHAR(100));
    CREATE TABLE shop.items (shop INT, code VARCHAR(20) COLLATE utf8mb4_bin, name VARCHAR(100), price DECIMAL(10, 2),
        PRIMARY KEY (shop, code)) CHARACTER SET utf8mb4;
    INSERT INTO shop.words VALUES (1, 'one'), (2, NULL);
    INSERT INTO shop.items VALUES (7, 'a:b', 'bolt', 1.50), (7, 'n', 'nut', NULL);
    CREATE USER reader@'%' IDENTIFIED BY 'secret';
    GRANT SELECT ON shop.words TO reader@'%';
";

const CONFIG: &str = r#"
workers = 2

[cluster.main]
servers = [{ name = "n0", address = "SERVER" }]

[cache]
cluster = "main"
MODE

[cache.account]
user = "USER"
password = "PASSWORD"

[[cache.mapping]]
name = "words"
kind = "string"
table = "shop.words"
key = ["id"]
value = ["word"]

[[cache.mapping]]
name = "items"
kind = "hash"
table = "shop.items"
key = ["shop", "code"]
value = ["name", "price"]

[[listener]]
bind = "127.0.0.1:0"
protocol = "redis"
LISTENER
"#;

impl Stage {
    /// `mode`: further options of `[cache]`; `listener`: of the listener. Files of certificates are in
    /// `FOLDER`. Strong reads that nobody gives a time wait longer than a busy machine takes.
    pub(crate) fn start(kind: Kind, mode: &str, listener: &str) -> Self {
        let mode = if mode.contains("strong_wait") {
            mode.to_owned()
        } else {
            format!("strong_wait = \"20s\"\n{mode}")
        };
        let sandbox = Sandbox::lend(Spec::new(kind)).unwrap();
        sandbox.primary().sql(TABLES).unwrap();
        let certificates = Certificates::generate().unwrap();
        let folder = sandbox.folder().join("listener");
        std::fs::create_dir(&folder).unwrap();
        certificates.write_to(&folder).unwrap();
        let text = CONFIG
            .replace("SERVER", &sandbox.primary().address())
            .replace("USER", sandbox::USER)
            .replace("PASSWORD", sandbox::PASSWORD)
            .replace("MODE", &mode)
            .replace("LISTENER", listener)
            .replace("FOLDER", folder.to_str().unwrap());
        let config = Config::parse(&text, "test.toml").unwrap();
        let telemetry = Telemetry::new(config.workers, |_| "");
        let (end, ended) = oneshot::channel();
        let (started, ready) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&telemetry);
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .unwrap();
            runtime.block_on(async {
                let mut made = None;
                let extension = Box::new(|clusters: &[Arc<upstream::Cluster>]| {
                    let cluster = Arc::clone(&clusters[0]);
                    let options = config.cache.as_ref().unwrap();
                    let cache =
                        Cache::start(options, cluster, &of_thread).map_err(|error| error.to_string())?;
                    made = Some(Arc::clone(&cache));
                    Ok(cache as Arc<dyn Extension>)
                });
                let gateway = Gateway::start(&config, Arc::clone(&of_thread), Some(extension)).unwrap();
                started.send((made.unwrap(), Arc::clone(&gateway))).unwrap();
                tokio::select! {
                    () = gateway.run() => {}
                    _ = ended => {}
                }
            });
        });
        let (cache, gateway) = ready.recv().unwrap();
        let stage = Self {
            sandbox,
            telemetry,
            certificates,
            cache,
            gateway,
            end: Some((end, thread)),
        };
        stage.until("the mappings are served", || {
            let states = stage.cache.feed_status().states();
            states.len() == 2 && states.iter().all(|state| state.phase == Phase::Serving)
        });
        stage
    }

    pub(crate) fn sql(&self, sql: &str) {
        self.sandbox.primary().sql(sql).unwrap();
    }

    pub(crate) fn follows(&self) -> bool {
        self.cache.feed_status().stream().starts_with("following ")
    }

    /// The sum of a metric's samples.
    pub(crate) fn count(&self, metric: &str) -> u64 {
        let text = self.telemetry.encode();
        let lines = text.lines().filter(|line| line.starts_with(metric));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.listeners()[0].address.to_string().parse().unwrap()
    }

    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            let states = self.cache.feed_status().states();
            assert!(begun.elapsed() < PATIENCE, "never: {what}; {states:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A client that has not logged in.
    pub(crate) fn stranger(&self) -> Client {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// A client of TLS. `identified`: it shows a certificate.
    pub(crate) fn tls_client(&self, identified: bool) -> Client<TlsStream> {
        let config = self.certificates.client_config(identified).unwrap();
        let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        let stream = self.stranger().0.into_inner();
        Client(BufReader::new(StreamOwned::new(connection, stream)))
    }

    /// A client that may read everything.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.stranger();
        assert_eq!(
            client.ask(&format!("AUTH {} {}", sandbox::USER, sandbox::PASSWORD)),
            "OK"
        );
        client
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.gateway.stop_now();
        self.gateway.join();
        if let Some((end, thread)) = self.end.take() {
            let _ = end.send(());
            let _ = thread.join();
        }
    }
}

/// A Redis client that shows replies in one line: strings as they are, `nil`, `(error …)`, `[a b]`, `{a b}`
/// for maps.
pub(crate) struct Client<S = TcpStream>(pub(crate) BufReader<S>);

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

impl<S: Read + Write> Client<S> {
    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a line and returns the reply.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.reply()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, cases: &[(&str, &str)]) {
        for (request, reply) in cases {
            assert_eq!(self.ask(request), *reply, "{request}");
        }
    }

    /// Whether the gateway has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }

    pub(crate) fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return "closed".to_owned();
        };
        match kind {
            "+" | ":" => rest.to_owned(),
            "-" => format!("({rest})"),
            "_" => "nil".to_owned(),
            "$" | "=" => self.bulk(rest),
            "*" if rest == "-1" => "nil".to_owned(),
            "*" | "~" | ">" => format!("[{}]", self.several(rest.parse().unwrap())),
            "%" => {
                let pairs: usize = rest.parse().unwrap();
                format!("{{{}}}", self.several(2 * pairs))
            }
            other => panic!("{other}{rest}"),
        }
    }

    fn bulk(&mut self, length: &str) -> String {
        let Ok(length) = length.parse::<usize>() else {
            return "nil".to_owned();
        };
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes[length..], b"\r\n");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn several(&mut self, count: usize) -> String {
        let replies: Vec<String> = (0..count).map(|_| self.reply()).collect();
        replies.join(" ")
    }
}
