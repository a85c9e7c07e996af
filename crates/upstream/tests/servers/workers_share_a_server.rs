//! Pools of several workers and the limit of one server.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;
use upstream::{Cluster, Pool};

use crate::host;
use crate::play::{take_lease, until};
use crate::sessions_share_connections::{State, cluster_of, lease, on_a_worker};

/// Workers as in production: threads with a runtime each, leasing, holding, giving back and dropping at
/// random, for several accounts, some of them giving up while they wait. The limit holds at every moment,
/// everybody is served, and nothing is left.
#[test]
fn limits_hold_and_no_wakeup_is_lost() {
    const WORKERS: u64 = 4;
    const SESSIONS: u64 = 6;
    const ROUNDS: u64 = 120;
    const PERMITS: u32 = 3;
    let host = host::start();
    let cluster = cluster_of(&host, |config| {
        config.servers[0].max_connections = PERMITS;
        // Whoever waits this long has been forgotten.
        config.queue_timeout = Duration::from_secs(60);
        config.login_timeout = Duration::from_secs(60);
        config.connect_timeout = Duration::from_secs(60);
    });
    let exceeded = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cluster, exceeded, served) = (&cluster, &exceeded, &served);
            scope.spawn(move || {
                on_a_worker(async {
                    let server = Arc::clone(&cluster.servers()[0]);
                    let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
                    let keeping = spawn_local(Rc::clone(&pool).run());
                    let mut tasks = JoinSet::new();
                    for session in 0..SESSIONS {
                        let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
                        tasks.spawn_local(async move {
                            let (mut over, mut leases) = (false, 0);
                            for round in 0..ROUNDS {
                                let dice = (worker * 7 + session * 13 + round * 31) % 11;
                                let user = ["u", "u", "u", "v"][((worker + session + round) % 4) as usize];
                                if dice == 0 {
                                    let patience = Duration::from_micros(50 * (round % 200));
                                    let _ = timeout(patience, lease(&pool, &server, user)).await;
                                    continue;
                                }
                                let connection = lease(&pool, &server, user).await.unwrap();
                                over |= server.sessions() > PERMITS;
                                leases += 1;
                                for _ in 0..dice {
                                    tokio::task::yield_now().await;
                                }
                                if dice == 1 {
                                    drop(connection);
                                } else {
                                    pool.give_back(connection);
                                }
                            }
                            (over, leases)
                        });
                    }
                    while let Some(done) = tasks.join_next().await {
                        let (over, leases) = done.unwrap();
                        exceeded.fetch_or(over, Ordering::SeqCst);
                        served.fetch_add(leases, Ordering::SeqCst);
                    }
                    assert_eq!((pool.waiting(), pool.busy()), (0, 0));
                    keeping.abort();
                    let _ = keeping.await;
                });
            });
        }
    });
    assert!(!exceeded.load(Ordering::SeqCst), "max_connections was exceeded");
    assert!(served.load(Ordering::SeqCst) as u64 > WORKERS * SESSIONS * ROUNDS * 8 / 10);
    assert_eq!(cluster.servers()[0].sessions(), 0, "every permit came back");
}

/// Who is served as well as others is so in one of three runs at least: a machine that is busy with something
/// else may hold up a thread at any moment, and the times of that run show nothing.
fn in_one_of_three(run: impl Fn() -> Result<(), String>) {
    let unfair: Vec<String> = (0..3).map_while(|_| run().err()).collect();
    assert!(unfair.len() < 3, "{unfair:?}");
}

/// Workers with the same load under a full server keep their connections, and nobody waits much longer than
/// others.
#[test]
fn workers_with_the_same_load_keep_their_connections() {
    in_one_of_three(workers_with_the_same_load);
}

fn workers_with_the_same_load() -> Result<(), String> {
    const WORKERS: usize = 2;
    const SESSIONS: usize = 20;
    const ROUNDS: usize = 50;
    const PERMITS: u32 = 4;
    let host = host::start();
    let cluster = cluster_of(&host, |config| {
        config.servers[0].max_connections = PERMITS;
        config.queue_timeout = Duration::from_secs(60);
        // A run that takes a second would have it close a connection, to see whether fewer do.
        config.pool.adaptive = false;
    });
    let (begun, done) = (Instant::now(), AtomicUsize::new(0));
    let ends: Vec<Duration> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (cluster, ended) = (&cluster, &done);
                scope.spawn(move || {
                    on_a_worker(async {
                        let server = Arc::clone(&cluster.servers()[0]);
                        let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
                        let keeping = spawn_local(Rc::clone(&pool).run());
                        let mut tasks = JoinSet::new();
                        for _ in 0..SESSIONS {
                            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
                            tasks.spawn_local(async move {
                                for _ in 0..ROUNDS {
                                    let connection = lease(&pool, &server, "u").await.unwrap();
                                    // A statement that takes its time.
                                    tokio::time::sleep(Duration::from_millis(1)).await;
                                    pool.give_back(connection);
                                }
                            });
                        }
                        while let Some(done) = tasks.join_next().await {
                            done.unwrap();
                        }
                        let end = begun.elapsed();
                        // What is left here is of use to others.
                        ended.fetch_add(1, Ordering::SeqCst);
                        until("all are done", || ended.load(Ordering::SeqCst) == WORKERS).await;
                        keeping.abort();
                        let _ = keeping.await;
                        end
                    })
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let leases = WORKERS * SESSIONS * ROUNDS;
    assert_eq!(host.logins(), PERMITS as usize, "for {leases} leases");
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    if *last < *first * 3 {
        Ok(())
    } else {
        Err(format!("{ends:?}"))
    }
}

/// One worker holds all connections and does not use them: another one that needs them gets them.
#[test]
fn idle_connections_of_one_worker_make_room_for_another() {
    let host = host::start();
    let cluster = cluster_of(&host, |config| {
        config.servers[0].max_connections = 2;
        config.queue_timeout = Duration::from_secs(60);
    });
    let (held, holding) = std::sync::mpsc::channel();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (cluster, done) = (&cluster, &done);
        scope.spawn(move || {
            on_a_worker(async {
                let server = Arc::clone(&cluster.servers()[0]);
                let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
                let keeping = spawn_local(Rc::clone(&pool).run());
                let a = lease(&pool, &server, "u").await.unwrap();
                let b = lease(&pool, &server, "u").await.unwrap();
                pool.give_back(a);
                pool.give_back(b);
                held.send(()).unwrap();
                until("the other one is done", || done.load(Ordering::SeqCst)).await;
                assert_eq!(pool.idle(), 0, "both permits have gone over");
                keeping.abort();
            });
        });
        scope.spawn(move || {
            holding.recv().unwrap();
            on_a_worker(async {
                let server = Arc::clone(&cluster.servers()[0]);
                let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
                spawn_local(Rc::clone(&pool).run());
                let begun = Instant::now();
                let _a = lease(&pool, &server, "u").await.unwrap();
                let _b = lease(&pool, &server, "u").await.unwrap();
                assert!(begun.elapsed() < Duration::from_secs(30));
                assert_eq!(server.sessions(), 2);
                done.store(true, Ordering::SeqCst);
            });
        });
    });
    assert_eq!(host.logins(), 2, "both have gone over alive");
}

/// Fewer connections than workers: they go round, alive, and nobody waits much longer than others.
#[test]
fn more_workers_than_connections_take_turns() {
    in_one_of_three(more_workers_than_connections);
}

fn more_workers_than_connections() -> Result<(), String> {
    const WORKERS: usize = 16;
    const SESSIONS: usize = 3;
    const ROUNDS: usize = 12;
    const PERMITS: u32 = 8;
    let host = host::start();
    let cluster = cluster_of(&host, |config| {
        config.servers[0].max_connections = PERMITS;
        config.queue_timeout = Duration::from_secs(60);
        // A run that takes a second would have it close a connection, to see whether fewer do.
        config.pool.adaptive = false;
    });
    let done = AtomicUsize::new(0);
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (cluster, done) = (&cluster, (&done, WORKERS));
                scope.spawn(move || on_a_worker(waits_of(cluster, SESSIONS, ROUNDS, done)))
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert_eq!(host.logins(), PERMITS as usize);
    assert_eq!(cluster.servers()[0].sessions(), 0);
    // Those of one session together: a thread of a busy machine may be held up at any moment.
    waits.sort_unstable();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    if longest <= median * 3 {
        Ok(())
    } else {
        Err(format!("{median:?} {longest:?}"))
    }
}

/// How long each of so many sessions of a worker has waited in all for its connections. It ends with the last
/// of the workers.
async fn waits_of(
    cluster: &Arc<Cluster>,
    sessions: usize,
    rounds: usize,
    (done, workers): (&AtomicUsize, usize),
) -> Vec<Duration> {
    let server = Arc::clone(&cluster.servers()[0]);
    let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
    let keeping = spawn_local(Rc::clone(&pool).run());
    let mut tasks = JoinSet::new();
    for _ in 0..sessions {
        let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
        tasks.spawn_local(async move {
            let mut waited = Duration::ZERO;
            for _ in 0..rounds {
                let begun = Instant::now();
                let connection = lease(&pool, &server, "u").await.unwrap();
                waited += begun.elapsed();
                tokio::time::sleep(Duration::from_millis(3)).await;
                pool.give_back(connection);
            }
            waited
        });
    }
    let waits = tasks.join_all().await;
    // What is left here is of use to others.
    done.fetch_add(1, Ordering::SeqCst);
    until("all are done", || done.load(Ordering::SeqCst) == workers).await;
    keeping.abort();
    waits
}

/// A worker whose sessions never let a connection rest does not starve those of another.
#[test]
fn a_busy_worker_leaves_others_their_share() {
    let host = host::start();
    let cluster = cluster_of(&host, |config| {
        config.servers[0].max_connections = 1;
        config.queue_timeout = Duration::from_secs(60);
    });
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, going) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (cluster, stop) = (&cluster, &stop);
        scope.spawn(move || {
            on_a_worker(async {
                let server = Arc::clone(&cluster.servers()[0]);
                let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
                let mut tasks = JoinSet::new();
                for _ in 0..4 {
                    let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
                    let (tell, stop) = (tell.clone(), Arc::clone(stop));
                    tasks.spawn_local(async move {
                        while !stop.load(Ordering::SeqCst) {
                            let connection = lease(&pool, &server, "u").await.unwrap();
                            let _ = tell.send(());
                            tokio::task::yield_now().await;
                            pool.give_back(connection);
                        }
                    });
                }
                while let Some(done) = tasks.join_next().await {
                    done.unwrap();
                }
            });
        });
        scope.spawn(move || {
            going.recv().unwrap();
            on_a_worker(async {
                let server = Arc::clone(&cluster.servers()[0]);
                let pool: Rc<Pool<State>> = Pool::new(Arc::clone(cluster), |_| 0);
                for _ in 0..3 {
                    // In the line of a worker that never rests this would never come.
                    let connection = timeout(Duration::from_secs(30), lease(&pool, &server, "u")).await;
                    drop(connection.unwrap().unwrap());
                }
                stop.store(true, Ordering::SeqCst);
            });
        });
    });
}

/// Sessions with a connection of their own (mode `session`) share the limit: idle connections of pools make
/// room.
#[test]
fn a_session_without_a_pool_gets_the_permit_of_an_idle_connection() {
    let host = host::start();
    on_a_worker(async {
        let cluster = cluster_of(&host, |config| config.servers[0].max_connections = 1);
        let server = Arc::clone(&cluster.servers()[0]);
        let pool: Rc<Pool<State>> = Pool::new(Arc::clone(&cluster), |_| 0);
        let keeping = spawn_local(Rc::clone(&pool).run());
        let connection = lease(&pool, &server, "u").await.unwrap();
        pool.give_back(connection);
        let own = take_lease(&cluster).await.unwrap();
        assert_eq!((pool.idle(), server.sessions()), (0, 1));
        let waiting = {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            spawn_local(async move { lease(&pool, &server, "u").await.is_ok() })
        };
        until("it is in line", || pool.waiting() == 1).await;
        drop(own);
        assert!(waiting.await.unwrap());
        keeping.abort();
    });
}
