//! Every way in, and every state that an account may be in: who reads a row by a login here reads it by the
//! same login on the server; the few doors that are narrower are named.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Gateway, Setup, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, OptsBuilder, SslOpts};
use sandbox::{PASSWORD, Sandbox, Spec, USER, free_port};

/// Where accounts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The server decides, in mode `session`.
    Session,
    /// Mode `split`, and Redis, from here on.
    Listed,
    PassedThrough,
    Servers,
}
use Origin::{Listed, PassedThrough, Servers, Session};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    Tls,
    /// A Unix socket of the gateway.
    Socket,
    ChangeUser,
    Redis,
}
use Way::{ChangeUser, Redis, Socket, Tcp, Tls};

/// How the gateway reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    ByTcp,
    BySocket,
}
use Link::{BySocket, ByTcp};

type Door = (Origin, Way, Link);

/// What decides is the same over TLS and over a socket of the gateway, whoever decides: of those there are
/// fewer.
const DOORS: &[Door] = &[
    (Session, Tcp, ByTcp),
    (Session, Tls, ByTcp),
    (Session, Socket, ByTcp),
    (Session, ChangeUser, ByTcp),
    (Listed, Tcp, ByTcp),
    (Listed, Tls, ByTcp),
    (Listed, Socket, ByTcp),
    (Listed, ChangeUser, ByTcp),
    (Listed, Redis, ByTcp),
    (PassedThrough, Tcp, ByTcp),
    (PassedThrough, Tls, ByTcp),
    (PassedThrough, Socket, ByTcp),
    (PassedThrough, ChangeUser, ByTcp),
    (PassedThrough, Redis, ByTcp),
    (Servers, Tcp, ByTcp),
    (Servers, ChangeUser, ByTcp),
    (Servers, Redis, ByTcp),
    (Session, Tcp, BySocket),
    (Session, Socket, BySocket),
    (Session, ChangeUser, BySocket),
    (Listed, Tcp, BySocket),
    (PassedThrough, Tcp, BySocket),
    (PassedThrough, ChangeUser, BySocket),
    (PassedThrough, Redis, BySocket),
    (Servers, Tcp, BySocket),
];

/// A login, and where it comes to nothing though the server would take it.
struct Case {
    state: &'static str,
    user: &'static str,
    password: &'static str,
    /// What is done once somebody has logged in with that by all doors.
    change: &'static str,
    on_server: bool,
    narrower: fn(Origin, Way) -> bool,
}

const NONE: fn(Origin, Way) -> bool = |_, _| false;
/// Nobody has shown anything with an empty password; where one is listed, the operator has said that it
/// counts, for MySQL clients.
const NO_PASSWORD: fn(Origin, Way) -> bool = |from, way| from != Session && (from != Listed || way == Redis);
/// MySQL's packets end a name there, and it is another account's; Redis has names with such bytes, which are
/// nobody's.
const ZERO_BYTE: fn(Origin, Way) -> bool = |_, way| way == Redis;
const NOT_LISTED: fn(Origin, Way) -> bool = |from, _| from == Listed;

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { state: "right", user: "door_app", password: "hunter2", change: "", on_server: true, narrower: NONE },
    Case { state: "wrong", user: "door_app", password: "hunter3", change: "", on_server: false, narrower: NONE },
    Case { state: "empty, where there is one", user: "door_app", password: "", change: "", on_server: false, narrower: NONE },
    Case { state: "a zero byte", user: "door_app\0x", password: "hunter2", change: "", on_server: true, narrower: ZERO_BYTE },
    Case { state: "empty", user: "door_open", password: "", change: "", on_server: true, narrower: NO_PASSWORD },
    Case { state: "wrong, where there is none", user: "door_open", password: "hunter2", change: "", on_server: false, narrower: NONE },
    Case { state: "nobody", user: "door_nobody", password: "hunter2", change: "", on_server: false, narrower: NONE },
    Case { state: "nobody, empty", user: "door_nobody", password: "", change: "", on_server: false, narrower: NONE },
    Case { state: "not listed", user: "door_unlisted", password: "hunter2", change: "", on_server: true, narrower: NOT_LISTED },
    Case { state: "locked before", user: "door_locked", password: "hunter2", change: "", on_server: false, narrower: NONE },
    Case { state: "expired before", user: "door_expired", password: "hunter2", change: "", on_server: false, narrower: NONE },
    Case { state: "locked", user: "door_locking", password: "hunter2", change: "ALTER USER door_locking@'%' ACCOUNT LOCK", on_server: false, narrower: NONE },
    Case { state: "expired", user: "door_expiring", password: "hunter2", change: "ALTER USER door_expiring@'%' PASSWORD EXPIRE", on_server: false, narrower: NONE },
    Case { state: "dropped", user: "door_dropped", password: "hunter2", change: "DROP USER door_dropped@'%'", on_server: false, narrower: NONE },
    Case { state: "changed, the former", user: "door_changed", password: "hunter2", change: "ALTER USER door_changed@'%' IDENTIFIED BY 'hunter3'", on_server: false, narrower: NONE },
    Case { state: "changed, the new one", user: "door_changed", password: "hunter3", change: "", on_server: true, narrower: NOT_LISTED },
    Case { state: "revoked", user: "door_revoked", password: "hunter2", change: "REVOKE ALL ON test.* FROM door_revoked@'%'", on_server: false, narrower: NONE },
];

const ACCOUNTS: [&str; 10] = [
    "door_app",
    "door_open",
    "door_unlisted",
    "door_locked",
    "door_expired",
    "door_locking",
    "door_expiring",
    "door_dropped",
    "door_changed",
    "door_revoked",
];

/// A server with a row and the accounts.
fn server() -> Sandbox {
    let sandbox = Sandbox::start(Spec::new(kind())).unwrap();
    let mut statements =
        "CREATE TABLE test.door (id INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO test.door VALUES (1, 'row');"
            .to_owned();
    for name in ACCOUNTS {
        let identified = if name == "door_open" {
            ""
        } else {
            "IDENTIFIED BY 'hunter2'"
        };
        statements += &format!("CREATE USER {name}@'%' {identified}; GRANT ALL ON test.* TO {name}@'%';");
    }
    statements += "ALTER USER door_locked@'%' ACCOUNT LOCK; ALTER USER door_expired@'%' PASSWORD EXPIRE;";
    sandbox.primary().sql(&statements).unwrap();
    sandbox
}

/// One gateway for each origin of accounts, since those that are listed are listed for all.
struct Doors {
    listed: Entrance,
    passed_through: Entrance,
    servers: Entrance,
    /// Of mode `session`, at the second gateway.
    session: (u16, PathBuf),
}

struct Entrance {
    gateway: Gateway,
    redis: u16,
    socket: PathBuf,
}

/// What makes the gateways of one link.
struct Maker<'a> {
    sandbox: &'a Sandbox,
    folder: &'a Path,
    link: Link,
}

impl Maker<'_> {
    fn socket(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{:?}-{name}.sock", self.link))
    }

    fn tls(&self) -> String {
        let files = self.sandbox.certificates();
        format!(
            "mode = \"preferred\"\ncert = {:?}\nkey = {:?}\n",
            files.server_cert, files.server_key
        )
    }

    fn listener(&self, mode: &str, bind: &str) -> String {
        format!(
            "[[listener]]\nname = {bind:?}\nbind = {bind:?}\nmode = {mode:?}\ncluster = \"main\"\nlogin_delay_max = \"0s\"\n\
             [listener.tls]\n{}",
            self.tls()
        )
    }

    /// What changes counts within a second, with connections that stay for an hour; tries are as fast as they
    /// can be.
    fn entrance(&self, accounts: &str, tables: &str) -> Entrance {
        let redis = free_port().unwrap();
        let node = self.sandbox.primary();
        let address = match self.link {
            ByTcp => node.address(),
            BySocket => node.socket().display().to_string(),
        };
        let socket = self.socket(accounts);
        let by_socket = self.listener("split", socket.to_str().unwrap());
        let gateway = Setup::of_addresses([address.clone()])
            .servers([format!("{{ address = {address:?}, role = \"primary\" }}")])
            .mode("split")
            .listener("login_delay_max = \"0s\"")
            .listener_tls(&self.tls())
            .cluster(&format!(
                "accounts = {{ from = {accounts:?}, interval = \"1s\" }}\npool = {{ max_age = \"1h\" }}\n\
                 monitor = {{ user = {USER:?}, password = {PASSWORD:?} }}"
            ))
            .tables(&format!(
                "{by_socket}[[listener]]\nname = \"redis\"\nbind = \"127.0.0.1:{redis}\"\nprotocol = \"redis\"\nlogin_delay_max = \"0s\"\n\
                 [cache]\ncluster = \"main\"\n[[cache.mapping]]\nname = \"door\"\nkind = \"string\"\ntable = \"test.door\"\n\
                 key = [\"id\"]\nvalue = [\"v\"]\n{tables}"
            ))
            .start_unready();
        Entrance {
            gateway,
            redis,
            socket,
        }
    }

    fn doors(&self) -> Doors {
        let session = (free_port().unwrap(), self.socket("session"));
        let sessions = [
            format!("127.0.0.1:{}", session.0),
            session.1.display().to_string(),
        ]
        .map(|bind| self.listener("session", &bind))
        .concat();
        let mut users = format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}\n");
        let names = ACCOUNTS.iter().chain(&["door_nobody"]);
        for name in names.filter(|name| **name != "door_unlisted") {
            let password = if *name == "door_open" { "" } else { "hunter2" };
            users += &format!("[[user]]\nname = {name:?}\npassword = {password:?}\n");
        }
        Doors {
            listed: self.entrance("configured", &users),
            passed_through: self.entrance("pass-through", &sessions),
            servers: self.entrance("servers", ""),
            session,
        }
    }
}

impl Doors {
    async fn reads(&self, from: Origin, way: Way, user: &str, password: &str) -> bool {
        let entrance = match from {
            Listed => &self.listed,
            PassedThrough | Session => &self.passed_through,
            Servers => &self.servers,
        };
        let (port, socket) = match from {
            Session => (self.session.0, &self.session.1),
            _ => (entrance.gateway.port(), &entrance.socket),
        };
        match way {
            Tcp => reads_row(Conn::new(options(port, user, password)).await).await,
            Tls => {
                let tls = SslOpts::default().with_danger_accept_invalid_certs(true);
                let options = options(port, user, password).ssl_opts(tls);
                reads_row(Conn::new(options).await).await
            }
            Socket => {
                let options = options(1, user, password)
                    .socket(socket.to_str())
                    .prefer_socket(true);
                reads_row(Conn::new(options).await).await
            }
            ChangeUser => {
                let Ok(mut session) = Conn::new(options(port, USER, PASSWORD)).await else {
                    return false;
                };
                let other = ChangeUserOpts::default()
                    .with_user(Some(user.to_owned()))
                    .with_pass(Some(password.to_owned()).filter(|password| !password.is_empty()));
                let changed = session.change_user(other).await;
                reads_row(changed.map(|()| session)).await
            }
            Redis => reads_by_redis(entrance.redis, user, password),
        }
    }
}

fn options(port: u16, user: &str, password: &str) -> OptsBuilder {
    e2e::client::options_at(port)
        .user(Some(user))
        .pass(Some(password).filter(|password| !password.is_empty()))
        .db_name(None::<String>)
}

async fn reads_row(session: Result<Conn, mysql_async::Error>) -> bool {
    let Ok(mut session) = session else {
        return false;
    };
    let row: Result<Option<String>, _> = session.query_first("SELECT v FROM test.door WHERE id = 1").await;
    row.is_ok_and(|row| row.as_deref() == Some("row"))
}

fn reads_by_redis(port: u16, user: &str, password: &str) -> bool {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream = BufReader::new(stream);
    for words in [["AUTH", user, password].as_slice(), &["GET", "door@1"]] {
        let words: String = words
            .iter()
            .map(|word| format!("${}\r\n{word}\r\n", word.len()))
            .collect();
        let count = words.matches('$').count();
        stream
            .get_mut()
            .write_all(format!("*{count}\r\n{words}").as_bytes())
            .unwrap();
        let mut reply = String::new();
        stream.read_line(&mut reply).unwrap();
        match &reply[..1] {
            "+" => {}
            "$" => {
                let mut row = [0; 3];
                stream.read_exact(&mut row).unwrap();
                return &row == b"row";
            }
            _ => return false,
        }
    }
    false
}

#[tokio::test]
async fn for_all_states_of_an_account() {
    let sandbox = server();
    let folder = tempfile::tempdir().unwrap();
    let [by_tcp, by_socket] = [ByTcp, BySocket].map(|link| {
        let maker = Maker {
            sandbox: &sandbox,
            folder: folder.path(),
            link,
        };
        maker.doors()
    });
    let reads = async |(from, way, link): Door, user: &str, password: &str| {
        let doors = match link {
            ByTcp => &by_tcp,
            BySocket => &by_socket,
        };
        doors.reads(from, way, user, password).await
    };
    for door in DOORS {
        eventually("all doors are open", async || reads(*door, USER, PASSWORD).await).await;
    }
    for case in CASES {
        let Case {
            state,
            user,
            password,
            ..
        } = *case;
        if !case.change.is_empty() {
            for door in DOORS {
                // A read by Redis may come too late on a busy machine.
                let what = format!("{state}: {door:?} is open before");
                eventually(&what, async || reads(*door, user, password).await).await;
            }
            sandbox.primary().sql(case.change).unwrap();
        }
        let on_server = reads_row(Conn::new(options(sandbox.primary().port(), user, password)).await).await;
        assert_eq!(on_server, case.on_server, "{state}: the server itself");
        for door in DOORS {
            let expected = on_server && !(case.narrower)(door.0, door.1);
            let what = format!(
                "{state}: {door:?} is {}",
                if expected { "open" } else { "closed" }
            );
            if case.change.is_empty() && !expected {
                assert!(!reads(*door, user, password).await, "{what}");
            } else {
                // As soon as `accounts.interval` says.
                eventually(&what, async || reads(*door, user, password).await == expected).await;
            }
        }
    }
}
