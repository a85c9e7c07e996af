//! A gateway of a fleet as it runs, with a folder or a made-up etcd as its store.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use upstream::etcd::{Op, Outcome, Range, Transaction};

use crate::fleet::NO_TEXT;
use crate::folder::Folder;
use crate::keys::{Keys, written};
use crate::store::Store as _;
use crate::{Deed, Fate, Fleet, Host, Kill, Killer, NotKilled, OnKilled, Reached, Wanted};

const LIMIT: Duration = Duration::from_secs(30);

fn settings(folder: &Path, store: &str) -> config::Store {
    let file = folder.join("forebay.toml");
    fs::write(
        &file,
        format!("[store]\n{store}\nname = \"g1\"\nstate_dir = \"state\"\n"),
    )
    .unwrap();
    config::Config::load(file).unwrap().store.unwrap()
}

fn in_folder(folder: &Path) -> Arc<Fleet> {
    let store = settings(folder, "folder = \"shared\"");
    Fleet::open(&store, None, "1", None, Vec::new()).unwrap()
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, looking).await.expect("it does not come to be so");
}

/// Does something while a gateway runs, and passes on the result.
async fn during<T>(fleet: &Arc<Fleet>, host: Arc<dyn Host>, asks: impl Future<Output = T>) -> T {
    tokio::select! {
        result = asks => result,
        () = Arc::clone(fleet).run(host, None) => panic!("it has left"),
    }
}

/// A gateway that takes texts without `bad`, and looks at the store when it is asked.
#[derive(Default)]
struct Looking {
    store: PathBuf,
    was_proposed: AtomicBool,
    texts: Mutex<Vec<String>>,
    /// Tries of deeds, and whether they went well: the first does not.
    acts: Mutex<Vec<bool>>,
    /// Tries of their ends, likewise.
    undone: Mutex<Vec<bool>>,
    /// No try goes well meanwhile.
    fails: AtomicBool,
    /// What it has taken of the limits, one of so many parts.
    parts: Mutex<Vec<u32>>,
    has_more: AtomicBool,
    never_undoes: AtomicBool,
    number: AtomicU32,
    kills: AtomicUsize,
}

impl Looking {
    fn at(folder: &Path) -> Self {
        Self {
            store: folder.join("shared/store.json"),
            ..Self::default()
        }
    }

    fn attempt(&self, tries: &Mutex<Vec<bool>>, why: &str) -> Result<(), String> {
        let mut tries = tries.lock().unwrap();
        let goes_well = !tries.is_empty() && !self.fails.load(Ordering::Relaxed);
        tries.push(goes_well);
        match goes_well {
            true => Ok(()),
            false => Err(why.to_owned()),
        }
    }
}

impl Host for Looking {
    fn check(&self, text: &str) -> Result<(), String> {
        let store = fs::read_to_string(&self.store).unwrap_or_default();
        if text.contains("bad") {
            self.was_proposed
                .fetch_or(store.contains("apply/proposal"), Ordering::Relaxed);
            return Err("it is bad".to_owned());
        }
        Ok(())
    }

    fn apply(&self, _revision: u64, text: &Arc<str>) -> Result<(), String> {
        self.texts.lock().unwrap().push(text.to_string());
        Ok(())
    }

    fn share(&self, parts: u32) -> Result<(), String> {
        self.parts.lock().unwrap().push(parts);
        Ok(())
    }

    fn is_ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn is_within_share(&self) -> bool {
        !self.has_more.load(Ordering::Relaxed)
    }

    fn number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }

    fn kill(&self, kill: Kill, told: OnKilled) {
        self.kills.fetch_add(1, Ordering::Relaxed);
        told(match kill.id & 1 {
            0 => Ok(()),
            _ => Err(NotKilled::NotOwner),
        });
    }

    fn act(&self, _deed: &Deed) -> Result<(), String> {
        self.attempt(&self.acts, "not now")
    }

    fn undo(&self, _deed: &Deed) -> Result<(), String> {
        match self.never_undoes.load(Ordering::Relaxed) {
            true => Err("not here".to_owned()),
            false => self.attempt(&self.undone, "not yet"),
        }
    }
}

#[tokio::test]
async fn a_text_that_the_asked_gateway_refuses_is_never_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = in_folder(folder.path());
    let host = Arc::new(Looking::at(folder.path()));
    let asks = async {
        until(|| fleet.status().members == 1).await;
        let mut results = Vec::new();
        for text in ["bad", "good"] {
            let wanted = Wanted {
                text: text.to_owned(),
                expect: None,
                who: "me".to_owned(),
                why: String::new(),
            };
            let order = fleet.apply(wanted).unwrap();
            let result = || fleet.order(&order).and_then(|order| order.result);
            until(|| result().is_some()).await;
            results.push(result());
        }
        until(|| !host.texts.lock().unwrap().is_empty()).await;
        results
    };
    let results = during(&fleet, host.clone(), asks).await;
    assert!(
        matches!(&results[0], Some(Fate::Refused { by }) if by[0].gateway == "g1" && by[0].why == "it is bad"),
        "{results:?}"
    );
    assert_eq!(results[1], Some(Fate::Committed { revision: 1 }));
    assert!(
        !host.was_proposed.load(Ordering::Relaxed),
        "it was in the store before it was looked at"
    );
}

#[tokio::test]
async fn what_is_no_text_is_refused_by_name_and_the_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = in_folder(folder.path());
    let host = Arc::new(Looking::at(folder.path()));
    let asks = async {
        until(|| fleet.status().members == 1).await;
        let config = Keys::of("main").config();
        for value in [&b"good"[..], b"\xff"] {
            let transaction = Transaction {
                guards: Vec::new(),
                ops: vec![Op::Put(config.clone(), value.to_vec(), 0)],
            };
            let mut store = Folder::new(&folder.path().join("shared"));
            assert!(matches!(store.change(&transaction).await, Outcome::Made(_)));
            until(|| fleet.status().committed > 0 && !host.texts.lock().unwrap().is_empty()).await;
        }
        let is_named = |words: &str| words.contains("revision 2") && words.contains(NO_TEXT);
        until(|| fleet.status().problems.iter().any(|words| is_named(words))).await;
        until(|| fleet.members()[0].problem.as_deref().is_some_and(is_named)).await;
    };
    during(&fleet, host.clone(), asks).await;
    assert_eq!(*host.texts.lock().unwrap(), ["good"]);
    assert_eq!(fleet.status().revision, 1);
    let why = fleet.look().await.unwrap_err().to_string();
    assert_eq!(why, NO_TEXT, "nor does a gateway begin with it");
}

#[tokio::test]
async fn a_drain_or_its_end_that_fails_is_named_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = in_folder(folder.path());
    let host = Arc::new(Looking::at(folder.path()));
    let drain = Deed::Drain {
        cluster: "c".to_owned(),
        server: "s1".to_owned(),
        end_after: None,
    };
    let problem = || fleet.members()[0].problem.clone();
    // A second try comes a second later, by when a slow disk may not have what is said of the first.
    let fails = |fails: bool| host.fails.store(fails, Ordering::Relaxed);
    let asks = async {
        until(|| fleet.status().members == 1).await;
        fails(true);
        fleet.wish(drain.clone(), true).await.unwrap();
        until(|| problem().as_deref() == Some("drain of s1 in c: not now")).await;
        fails(false);
        until(|| problem().is_none()).await;
        fails(true);
        fleet.wish(drain, false).await.unwrap();
        until(|| problem().as_deref() == Some("drain of s1 in c, which is to end: not yet")).await;
        fails(false);
        until(|| problem().is_none()).await;
    };
    during(&fleet, host.clone(), asks).await;
    for tries in [&host.acts, &host.undone] {
        let tries = tries.lock().unwrap();
        let (last, before) = tries.split_last().unwrap();
        assert!(
            *last && !before.is_empty() && !before.contains(&true),
            "{tries:?}"
        );
    }
}

#[tokio::test]
async fn a_pause_that_somebody_asks_for_here_is_not_taken_back_with_that_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = in_folder(folder.path());
    let host = Arc::new(Looking::at(folder.path()));
    host.never_undoes.store(true, Ordering::Relaxed);
    let pause = Deed::Pause {
        cluster: "c".to_owned(),
    };
    let problem = || fleet.members()[0].problem.clone();
    let asks = async {
        until(|| fleet.status().members == 1).await;
        fleet.wish(pause.clone(), true).await.unwrap();
        fleet.wish(pause.clone(), false).await.unwrap();
        until(|| problem().as_deref() == Some("pause of c, which is to end: not here")).await;
        fleet.note_done_here(&pause);
        until(|| problem().is_none()).await;
    };
    during(&fleet, host.clone(), asks).await;
}

#[tokio::test]
async fn a_gateway_that_starts_in_a_pause_of_all_has_paused_before_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (fleet, keys) = (in_folder(folder.path()), Keys::of("main"));
    let host = Arc::new(Looking::at(folder.path()));
    let tries = [&host.acts, &host.undone];
    // The first try of each does not go well, and is over.
    tries.iter().for_each(|tries| tries.lock().unwrap().push(false));
    let counts = || tries.map(|tries| tries.lock().unwrap().len());
    let pause = Deed::Pause {
        cluster: "c".to_owned(),
    };
    let change = async |op: Op| {
        let transaction = Transaction {
            guards: Vec::new(),
            ops: vec![op],
        };
        let mut store = Folder::new(&folder.path().join("shared"));
        assert!(matches!(store.change(&transaction).await, Outcome::Made(_)));
    };
    change(Op::Put(pause.key(&keys), written(&pause), 0)).await;
    assert_eq!(fleet.look().await.unwrap(), None);
    fleet.begin(host.as_ref());
    assert_eq!(counts(), [2, 1]);
    // The pause is over before this gateway has looked again.
    change(Op::Delete(pause.key(&keys))).await;
    during(&fleet, host.clone(), until(|| counts() == [2, 2])).await;
}

#[tokio::test]
async fn operators_are_asked_for_whatever_clients_ask_for() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = in_folder(folder.path());
    fleet.note_connected();
    let kill = |by: Option<u8>| {
        Box::pin(fleet.kill(Kill {
            id: 1 << 30 | 9 << 24 | 2,
            query_only: true,
            by: by.map(|user| Killer {
                user: vec![user],
                cluster: "c".to_owned(),
                may_others: false,
            }),
        }))
    };
    let mut context = Context::from_waker(Waker::noop());
    // Nobody runs the fleet, so whoever is not refused at once waits.
    let mut waiting = Vec::new();
    for number in 0..64 {
        let mut asked = kill(Some(number / 16));
        assert!(asked.as_mut().poll(&mut context).is_pending());
        waiting.push(asked);
    }
    for number in 0..64 {
        assert!(kill(Some(4)).as_mut().poll(&mut context).is_ready());
        let mut asked = kill(None);
        assert!(asked.as_mut().poll(&mut context).is_pending(), "{number}");
        waiting.push(asked);
    }
    assert!(kill(None).as_mut().poll(&mut context).is_ready());
}

#[tokio::test]
async fn another_gateway_is_asked_to_end_its_session() {
    let place = tempfile::tempdir().unwrap();
    let shared = place.path().join("shared");
    let open = |name: &str| {
        let folder = place.path().join(name);
        fs::create_dir(&folder).unwrap();
        let mut store = settings(&folder, &format!("folder = {shared:?}"));
        store.name = Some(name.to_owned());
        let fleet = Fleet::open(&store, None, "1", None, Vec::new()).unwrap();
        (fleet, Arc::new(Looking::at(&folder)))
    };
    let ((one, of_one), (two, of_two)) = (open("g1"), open("g2"));
    let kill = |number: u32, id: u32| {
        one.kill(Kill {
            id: 1 << 30 | number << 24 | id,
            query_only: true,
            by: None,
        })
    };
    // Questions whose answer came too late, on a busy machine: whoever was asked may have done it.
    let late = AtomicUsize::new(0);
    let kill_in_time = async |number: u32, id: u32| loop {
        match kill(number, id).await {
            Err(NotKilled::Failed(_)) if late.fetch_add(1, Ordering::Relaxed) < 20 => {}
            answer => return answer,
        }
    };
    let asks = async {
        until(|| one.status().members == 2 && two.status().members == 2).await;
        let numbers = || [&of_one, &of_two].map(|host| host.number.load(Ordering::Relaxed));
        until(|| !numbers().contains(&0)).await;
        let [first, second] = numbers();
        assert_ne!(first, second);
        assert_eq!(one.status().number, Some(first));
        // What it says is passed on.
        assert_eq!(kill_in_time(second, 2).await, Ok(()));
        assert_eq!(kill_in_time(second, 3).await, Err(NotKilled::NotOwner));
        // Who asks may have gone before anybody was asked.
        tokio::select! {
            biased;
            answer = kill(second, 2) => panic!("{answer:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(kill_in_time(second, 2).await, Ok(()));
        let kills = of_two.kills.load(Ordering::Relaxed);
        let most = 3 + late.load(Ordering::Relaxed);
        assert!((3..=most).contains(&kills), "{kills} of {most}");
        // Nobody has that.
        for nobodys in [0, first, 9] {
            let unknown = Err(NotKilled::Unknown(String::new()));
            assert_eq!(kill(nobodys, 2).await, unknown);
        }
        two.leave();
        until(|| one.status().members == 1).await;
        let gone = kill(second, 2).await;
        assert!(
            matches!(&gone, Err(NotKilled::Unknown(why)) if why.contains("g2")),
            "{gone:?}"
        );
        // No question stays.
        let questions = Range::below(&Keys::of("main").kill(""));
        let none_is_left = async {
            while !Folder::new(&shared)
                .read(&questions)
                .await
                .unwrap()
                .entries
                .is_empty()
            {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, none_is_left).await.expect("a question is left");
    };
    tokio::select! {
        () = asks => {}
        () = Arc::clone(&one).run(of_one.clone(), None) => panic!("it has left"),
        () = async {
            Arc::clone(&two).run(of_two.clone(), None).await;
            std::future::pending().await
        } => {}
    }
}

/// Copies a folder, as whoever makes a machine from the image of another does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("state")).unwrap();
    for file in fs::read_dir(from.join("state")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join("state").join(file.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a_gateway_whose_folder_is_a_copy_leaves_the_place_to_the_first() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (place.path().join("one"), place.path().join("other"));
    fs::create_dir(&one).unwrap();
    let store = format!("folder = {:?}", place.path().join("shared"));
    let first = Fleet::open(&settings(&one, &store), None, "1", None, Vec::new()).unwrap();
    copy(&one, &other);
    let second = Fleet::open(&settings(&other, &store), None, "1", None, Vec::new()).unwrap();
    let host: Arc<dyn Host> = Arc::new(Looking::at(place.path()));
    let asks = async {
        until(|| {
            second
                .status()
                .problems
                .iter()
                .any(|words| words.contains("copies"))
        })
        .await;
        let problems = first.status().problems;
        assert!(
            !problems.iter().any(|words| words.contains("another")),
            "{problems:?}"
        );
        // One that comes back to the same folder is the same gateway, and goes before.
        let again = Fleet::open(&settings(&one, &store), None, "2", None, Vec::new()).unwrap();
        let is_there = || first.members().iter().any(|member| member.version == "2");
        during(&again, Arc::clone(&host), until(is_there)).await;
    };
    tokio::select! {
        () = asks => {}
        () = async {
            // It leaves once the other one has come after it.
            Arc::clone(&first).run(Arc::clone(&host), None).await;
            std::future::pending().await
        } => {}
        () = async {
            until(|| first.status().members == 1).await;
            Arc::clone(&second).run(Arc::clone(&host), None).await;
            panic!("it has left");
        } => {}
    }
}

#[tokio::test]
async fn a_gateway_takes_its_part_once_the_first_has_come_down_to_its_own() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (place.path().join("one"), place.path().join("other"));
    let shared = place.path().join("shared");
    let open = |folder: &Path, name: &str| {
        fs::create_dir(folder).unwrap();
        let mut store = settings(folder, &format!("folder = {shared:?}\nshare_limits = true"));
        store.name = Some(name.to_owned());
        Fleet::open(&store, None, "1", None, Vec::new()).unwrap()
    };
    let (first, second) = (open(&one, "g1"), open(&other, "g2"));
    let (of_first, of_second) = (Arc::new(Looking::at(&one)), Arc::new(Looking::at(&other)));
    let parts = |host: &Looking| host.parts.lock().unwrap().clone();
    let told = |name: &str| {
        let members = first.members();
        members
            .iter()
            .find(|member| member.name == name)
            .and_then(|member| member.parts)
    };
    let asks = async {
        until(|| parts(&of_first) == [1] && told("g1") == Some(1)).await;
        of_first.has_more.store(true, Ordering::Relaxed);
        let joins = async {
            until(|| parts(&of_first) == [1, 2]).await;
            until(|| told("g2") == Some(2)).await;
            assert_eq!(told("g1"), Some(1), "it has more than its part");
            assert!(parts(&of_second).is_empty(), "{:?}", parts(&of_second));
            of_first.has_more.store(false, Ordering::Relaxed);
            until(|| parts(&of_second) == [2]).await;
            assert_eq!(told("g1"), Some(2));
        };
        during(&second, of_second.clone(), joins).await;
    };
    during(&first, of_first.clone(), asks).await;
    assert_eq!(second.status().parts, Some(2));
}

/// Answers every request as an etcd with a login that has no keys, and counts logins.
async fn serve(listener: TcpListener, logins: &AtomicUsize) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        // A body of JSON ends with its brace.
        while !request.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        let is_login = request.starts_with(b"POST /v3/auth/authenticate");
        logins.fetch_add(usize::from(is_login), Ordering::Relaxed);
        let body = match is_login {
            true => r#"{"token":"t.1"}"#,
            false => r#"{"header":{"revision":"1"}}"#,
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn whoever_reads_does_it_with_the_one_login() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = format!("endpoints = [\"{address}\"]\nuser = \"u\"\npassword = \"p\"");
    let fleet = Fleet::open(&settings(folder.path(), &store), None, "1", None, Vec::new()).unwrap();
    let logins = AtomicUsize::new(0);
    let asks = async {
        for _ in 0..5 {
            assert_eq!(fleet.history().await, Ok(Vec::new()));
            fleet.diff(1, 2).await.unwrap_err();
        }
    };
    tokio::select! {
        () = asks => {}
        () = serve(listener, &logins) => {}
    }
    assert_eq!(logins.load(Ordering::Relaxed), 1);
}

/// A gateway has no time at its start for as many.
#[tokio::test(start_paused = true)]
async fn members_that_say_nothing_are_named_to_whoever_only_looks() {
    let folder = tempfile::tempdir().unwrap();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let members: Vec<String> = silent.iter().map(address).collect();
    let store = settings(folder.path(), &format!("endpoints = {members:?}"));
    let error = Reached::look(&store).await.unwrap_err().to_string();
    for member in members {
        assert!(error.contains(&format!("{member}: no answer in time")), "{error}");
    }
}

#[test]
fn certificates_of_the_link_to_the_etcd_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let make = |inside: &str| {
        let folder = folder.path().join(inside);
        fs::create_dir_all(&folder).unwrap();
        sandbox::Certificates::make(&folder).unwrap().ca
    };
    let ca = make("tls");
    let store = "endpoints = [\"127.0.0.1:2379\"]\ntls = { mode = \"required\", ca = \"tls/ca.pem\" }";
    let fleet = Fleet::open(&settings(folder.path(), store), None, "1", None, Vec::new()).unwrap();
    assert_eq!(fleet.reload_tls_if_changed(), None);
    fs::rename(make("renewed"), &ca).unwrap();
    assert_eq!(fleet.reload_tls_if_changed(), Some(Ok("[store] tls".to_owned())));
    assert_eq!(fleet.reload_tls_if_changed(), None);
    fs::remove_file(&ca).unwrap();
    let without = fleet.reload_tls_if_changed();
    assert!(matches!(without, Some(Err(_))), "{without:?}");
}
