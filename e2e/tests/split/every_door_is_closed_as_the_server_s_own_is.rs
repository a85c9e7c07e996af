//! Every way in, and every state that an account may be in: who reads a row by a login here reads it by the same login on the
//! server; the few doors that are narrower are named.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use e2e::{Gateway, Setup, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, OptsBuilder};
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
    /// A Unix socket of the gateway.
    Socket,
    /// The server is reached by its Unix socket.
    ServersSocket,
    ChangeUser,
    Redis,
}
use Way::{ChangeUser, Redis, ServersSocket, Socket, Tcp};

const DOORS: &[(Origin, Way)] = &[
    (Session, Tcp),
    (Session, Socket),
    (Session, ServersSocket),
    (Session, ChangeUser),
    (Listed, Tcp),
    (Listed, ChangeUser),
    (Listed, Redis),
    (PassedThrough, Tcp),
    (PassedThrough, ChangeUser),
    (PassedThrough, Redis),
    (Servers, Tcp),
    (Servers, ChangeUser),
    (Servers, Redis),
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
/// Nobody has shown anything with an empty password; where one is listed, the operator has said that it counts, for MySQL clients.
const NO_PASSWORD: fn(Origin, Way) -> bool = |from, way| from != Session && (from != Listed || way == Redis);
/// MySQL's packets end a name there, and it is another account's; Redis has names with such bytes, which are nobody's.
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
    Case { state: "locked", user: "door_locking", password: "hunter2", change: "ALTER USER door_locking@'%' ACCOUNT LOCK", on_server: false, narrower: NONE },
    Case { state: "expired", user: "door_expiring", password: "hunter2", change: "ALTER USER door_expiring@'%' PASSWORD EXPIRE", on_server: false, narrower: NONE },
    Case { state: "dropped", user: "door_dropped", password: "hunter2", change: "DROP USER door_dropped@'%'", on_server: false, narrower: NONE },
    Case { state: "changed, the former", user: "door_changed", password: "hunter2", change: "ALTER USER door_changed@'%' IDENTIFIED BY 'hunter3'", on_server: false, narrower: NONE },
    Case { state: "changed, the new one", user: "door_changed", password: "hunter3", change: "", on_server: true, narrower: NOT_LISTED },
    Case { state: "revoked", user: "door_revoked", password: "hunter2", change: "REVOKE ALL ON test.* FROM door_revoked@'%'", on_server: false, narrower: NONE },
];

const ACCOUNTS: [&str; 9] = [
    "door_app",
    "door_open",
    "door_unlisted",
    "door_locked",
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
    statements += "ALTER USER door_locked@'%' ACCOUNT LOCK;";
    sandbox.primary().sql(&statements).unwrap();
    sandbox
}

/// Gateways: one for each origin of accounts, since those that are listed are listed for all.
struct Doors {
    server: u16,
    listed: (Gateway, u16),
    passed_through: (Gateway, u16),
    servers: (Gateway, u16),
    /// Of the second gateway.
    session: u16,
    by_servers_socket: u16,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

/// What changes counts within a second; tries are as fast as they can be.
fn gateway(sandbox: &Sandbox, accounts: &str, tables: &str) -> (Gateway, u16) {
    let redis = free_port().unwrap();
    let address = format!(
        "{{ address = {:?}, role = \"primary\" }}",
        sandbox.primary().address()
    );
    let gateway = Setup::of_addresses([sandbox.primary().address()])
        .servers([address])
        .mode("split")
        .listener("login_delay_max = \"0s\"")
        .cluster(&format!(
            "accounts = {{ from = {accounts:?}, interval = \"1s\" }}\npool = {{ max_age = \"1s\" }}\n\
             monitor = {{ user = {USER:?}, password = {PASSWORD:?} }}"
        ))
        .tables(&format!(
            "[[listener]]\nname = \"redis\"\nbind = \"127.0.0.1:{redis}\"\nprotocol = \"redis\"\nlogin_delay_max = \"0s\"\n\
             [cache]\ncluster = \"main\"\n[[cache.mapping]]\nname = \"door\"\nkind = \"string\"\ntable = \"test.door\"\n\
             key = [\"id\"]\nvalue = [\"v\"]\n{tables}"
        ))
        .start_unready();
    (gateway, redis)
}

fn doors(sandbox: &Sandbox) -> Doors {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("forebay.sock");
    let (session, by_servers_socket) = (free_port().unwrap(), free_port().unwrap());
    let listener = |name: &str, bind: &str, cluster: &str| {
        format!(
            "[[listener]]\nname = {name:?}\nbind = {bind:?}\nmode = \"session\"\ncluster = {cluster:?}\nlogin_delay_max = \"0s\"\n"
        )
    };
    let sessions = [
        listener("session", &format!("127.0.0.1:{session}"), "main"),
        listener("socket", socket.to_str().unwrap(), "main"),
        listener("local", &format!("127.0.0.1:{by_servers_socket}"), "local"),
        format!("[cluster.local]\nservers = [{:?}]\n", sandbox.primary().socket()),
    ];
    let mut users = format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}\n");
    for name in ACCOUNTS
        .iter()
        .chain(&["door_nobody"])
        .filter(|name| **name != "door_unlisted")
    {
        let password = if *name == "door_open" { "" } else { "hunter2" };
        users += &format!("[[user]]\nname = {name:?}\npassword = {password:?}\n");
    }
    Doors {
        server: sandbox.primary().port(),
        listed: gateway(sandbox, "configured", &users),
        passed_through: gateway(sandbox, "pass-through", &sessions.concat()),
        servers: gateway(sandbox, "servers", ""),
        session,
        by_servers_socket,
        socket,
        _folder: folder,
    }
}

impl Doors {
    async fn reads(&self, from: Origin, way: Way, user: &str, password: &str) -> bool {
        let (gateway, redis) = match from {
            Listed => &self.listed,
            PassedThrough | Session => &self.passed_through,
            Servers => &self.servers,
        };
        let port = if from == Session {
            self.session
        } else {
            gateway.port()
        };
        match way {
            Tcp => reads_row(Conn::new(options(port, user, password)).await).await,
            ServersSocket => {
                reads_row(Conn::new(options(self.by_servers_socket, user, password)).await).await
            }
            Socket => {
                let options = options(1, user, password)
                    .socket(self.socket.to_str())
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
            Redis => reads_by_redis(*redis, user, password),
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
    let doors = doors(&sandbox);
    for (from, way) in DOORS {
        eventually("all doors are open", async || {
            doors.reads(*from, *way, USER, PASSWORD).await
        })
        .await;
    }
    for case in CASES {
        let Case {
            state,
            user,
            password,
            ..
        } = *case;
        if !case.change.is_empty() {
            for (from, way) in DOORS {
                assert!(
                    doors.reads(*from, *way, user, password).await,
                    "{state}: {from:?} {way:?}, before"
                );
            }
            sandbox.primary().sql(case.change).unwrap();
        }
        let on_server = reads_row(Conn::new(options(doors.server, user, password)).await).await;
        assert_eq!(on_server, case.on_server, "{state}: the server itself");
        for (from, way) in DOORS {
            let expected = on_server && !(case.narrower)(*from, *way);
            let what = format!(
                "{state}: {from:?} {way:?} is {}",
                if expected { "open" } else { "closed" }
            );
            if case.change.is_empty() {
                assert_eq!(doors.reads(*from, *way, user, password).await, expected, "{what}");
            } else {
                // As soon as `accounts.interval` and `max_age` say.
                eventually(&what, async || {
                    doors.reads(*from, *way, user, password).await == expected
                })
                .await;
            }
        }
    }
}
