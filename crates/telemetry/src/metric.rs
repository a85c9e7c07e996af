//! The table of all metrics: name, kind, unit, labels and meaning, each declared once.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Durations in buckets, with `_bucket`, `_sum` and `_count` series.
    Histogram,
}

impl Kind {
    /// The word of the exposition formats.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// What a metric is called and means.
#[derive(Debug, PartialEq, Eq)]
pub struct MetricDoc {
    /// Name, as in the exposition.
    pub name: &'static str,
    pub kind: Kind,
    /// `seconds`, `bytes`, or what is counted, in the plural.
    pub unit: &'static str,
    /// Names of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// What it means, in one sentence.
    pub help: &'static str,
}

/// Every metric, in the order of the exposition.
#[must_use]
pub fn metrics() -> &'static [&'static MetricDoc] {
    catalog::ALL
}

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $unit:literal: $help:literal;)+) => {
        /// The metrics themselves, to be named where values are given.
        pub mod catalog {
            use super::{Kind, MetricDoc};
            $(
                #[doc = $help]
                pub static $id: MetricDoc = MetricDoc {
                    name: $name, kind: Kind::$kind, unit: $unit, labels: &[$($label),*], help: $help,
                };
            )+
            pub(super) static ALL: &[&MetricDoc] = &[$(&$id),+];
        }
    };
}

metrics! {
    BUILD_INFO = Gauge "forebay_build_info" ["version"] "info": "Always 1; says which version runs.";

    SESSIONS_ACTIVE = Gauge "forebay_sessions_active" ["listener"] "sessions": "Client sessions open now.";
    SESSIONS_LIMIT = Gauge "forebay_sessions_limit" [] "sessions": "Sessions allowed in all (max_connections).";
    SESSIONS_ACCEPTED = Counter "forebay_sessions_accepted_total" ["listener"] "sessions": "Client connections that came in, including those turned away.";
    SESSIONS_REJECTED = Counter "forebay_sessions_rejected_total" ["listener"] "sessions": "Client connections turned away because a limit was reached.";
    SESSIONS_ENDED = Counter "forebay_sessions_ended_total" ["listener", "reason"] "sessions": "Sessions ended, by reason.";
    SESSION_DURATION = Histogram "forebay_session_duration_seconds" ["listener"] "seconds": "How long sessions lasted.";
    LOGINS_FAILED = Counter "forebay_logins_failed_total" ["listener"] "logins": "Logins that failed, whoever refused them.";
    LOGINS_DELAYED = Counter "forebay_logins_delayed_total" [] "logins": "Logins that had to wait, because too many of the account from the client's address had failed.";
    LOGINS_NOT_TRIED = Counter "forebay_logins_not_tried_total" [] "logins": "Logins that were refused without a look at the password, because too many of the account from the client's address were waiting already.";
    CLIENT_RECEIVED_BYTES = Counter "forebay_client_received_bytes_total" ["listener"] "bytes": "Bytes received from clients, before TLS is counted.";
    CLIENT_SENT_BYTES = Counter "forebay_client_sent_bytes_total" ["listener"] "bytes": "Bytes sent to clients, before TLS is counted.";

    COMMANDS = Counter "forebay_commands_total" ["command"] "commands": "Commands received from clients in mode session, by kind.";
    ERRORS = Counter "forebay_errors_total" ["code", "fault"] "errors": "Error packets that the gateway made itself, by MySQL error code and by whose fault it was: client, gateway or server. Errors of servers that are passed on are not among them.";
    SERVER_ERRORS = Counter "forebay_server_errors_total" ["code"] "errors": "Error packets of servers that were passed on to clients as the answer to a command, by MySQL error code. Not in mode tcp.";
    COMMAND_DURATION = Histogram "forebay_command_duration_seconds" ["cluster", "server"] "seconds": "Time from a command sent to a server to the end of its response.";

    SERVER_STATE = Gauge "forebay_server_state" ["cluster", "server", "state"] "servers": "1 for the state a server is in, 0 for the others.";
    SERVER_DRAINING = Gauge "forebay_server_draining" ["cluster", "server"] "servers": "1 for a server that drains: by the option drain, by ctl drain, or since it says so itself; 0 for others.";
    SERVER_CONNECTS = Counter "forebay_server_connects_total" ["cluster", "server"] "connections": "Connections made to a server for sessions.";
    SERVER_CONNECT_FAILURES = Counter "forebay_server_connect_failures_total" ["cluster", "server"] "connections": "Attempts to connect to a server for a session that failed.";
    SERVER_CONNECT_DURATION = Histogram "forebay_server_connect_duration_seconds" ["cluster", "server"] "seconds": "Time to connect to a server for a session, up to its greeting.";
    SERVER_SESSIONS_ACTIVE = Gauge "forebay_server_sessions_active" ["cluster", "server"] "sessions": "Sessions that hold a connection to a server now.";
    SERVER_RECEIVED_BYTES = Counter "forebay_server_received_bytes_total" ["cluster", "server"] "bytes": "Bytes received from a server, before TLS is counted.";
    SERVER_SENT_BYTES = Counter "forebay_server_sent_bytes_total" ["cluster", "server"] "bytes": "Bytes sent to a server, before TLS is counted.";

    CHECKS = Counter "forebay_checks_total" ["cluster", "server"] "checks": "Health checks done.";
    CHECKS_FAILED = Counter "forebay_checks_failed_total" ["cluster", "server"] "checks": "Health checks that failed.";
    CHECK_DURATION = Histogram "forebay_check_duration_seconds" ["cluster", "server"] "seconds": "How long health checks took, failed ones included.";

    SERVER_ROLE = Gauge "forebay_server_role" ["cluster", "server", "role"] "servers": "1 for the role a server has in its cluster, 0 for the others.";
    SERVER_LAG = Gauge "forebay_server_lag_seconds" ["cluster", "server"] "seconds": "How far the data of a replica are behind the primary's, where that is known.";
    SERVER_TRANSACTIONS_BEHIND = Gauge "forebay_server_transactions_behind" ["cluster", "server"] "transactions": "Transactions that a replica has received and not applied, where members count them (Group Replication, Galera).";
    LOOKS = Counter "forebay_looks_total" ["cluster", "server"] "looks": "Looks of the monitor at what a server is.";
    LOOKS_FAILED = Counter "forebay_looks_failed_total" ["cluster", "server"] "looks": "Looks of the monitor at what a server is that failed.";
    PD_ANSWERS = Gauge "forebay_pd_answers" ["cluster"] "state": "1 while the list of a cluster's TiDB servers comes from PD and is followed; 0 while PD cannot be asked, so that its last list stays.";
    ENDPOINT_SLICES_ANSWER = Gauge "forebay_endpoint_slices_answer" ["cluster"] "state": "1 while the list of a cluster's servers comes from Kubernetes and is followed; 0 while its API server cannot be asked or names no endpoint of use, so that its last list stays.";
    PRIMARY_CHANGES = Counter "forebay_primary_changes_total" ["cluster"] "changes": "Times that a server became the primary of its cluster, the first one and those that came back included.";
    PRIMARIES_DAMPED = Counter "forebay_primary_damped_total" ["cluster"] "changes": "Changes to a primary that were not believed at once, since it had become it several times within a minute (`monitor.damping`).";
    WRITES_REFUSED = Gauge "forebay_writes_refused" ["cluster"] "state": "1 while several servers claim to be the primary, so that none gets writes.";
    REPLICAS_TOO_FAR_BEHIND = Gauge "forebay_replicas_too_far_behind" ["cluster"] "state": "1 while all replicas of a cluster are further behind than `max_lag` or `max_transactions_behind`, so that reads go to the primary.";
    PRIMARY_MISSING = Gauge "forebay_primary_missing" ["cluster"] "state": "1 while a cluster whose roles are asked of its servers has no primary, so that writes wait. Not for topology static.";

    CERTIFICATE_EXPIRY = Gauge "forebay_certificate_expiry_timestamp_seconds" ["file"] "seconds": "When the certificates of a file in use end, in seconds since 1970: of a certificate and those between it and the root the first, of authorities (ca, client_ca) the last.";

    QUEUE_WAITING = Gauge "forebay_queue_waiting" ["cluster"] "sessions": "Sessions waiting for a place on a server of the cluster now.";
    QUEUE_TIMEOUTS = Counter "forebay_queue_timeouts_total" ["cluster"] "sessions": "Sessions that waited for queue_timeout in vain.";
    QUEUE_REJECTED = Counter "forebay_queue_rejected_total" ["cluster"] "sessions": "Sessions turned away because queue_max sessions were waiting already.";

    PAUSED = Gauge "forebay_paused" ["cluster"] "": "1 while statements of the cluster wait, since `forebay ctl pause` or a switchover says so.";
    PAUSE_WAITING = Gauge "forebay_pause_waiting" ["cluster"] "statements": "Statements that wait for the end of a pause now.";
    PAUSE_TIMEOUTS = Counter "forebay_pause_timeouts_total" ["cluster"] "statements": "Statements that waited for pause_timeout in vain, and were refused.";
    PAUSE_REJECTED = Counter "forebay_pause_rejected_total" ["cluster"] "statements": "Statements refused because pause_max of them waited for the end of a pause already.";
    RELEASE_WAITING = Gauge "forebay_release_waiting" ["cluster"] "statements": "Statements and sessions that have waited for a new primary, or have lost their server, and wait now since failover_release of them are under way already.";
    RELEASED = Counter "forebay_released_total" ["cluster"] "statements": "Statements and sessions that were let through after such a wait.";

    POOL_IDLE = Gauge "forebay_pool_idle" ["cluster", "server"] "connections": "Connections of the pools that no session uses now.";
    POOL_BUSY = Gauge "forebay_pool_busy" ["cluster", "server"] "connections": "Connections of the pools that a session uses now.";
    POOL_OPENED = Counter "forebay_pool_opened_total" ["cluster", "server"] "connections": "Connections that the pools opened.";
    POOL_OPEN_FAILURES = Counter "forebay_pool_open_failures_total" ["cluster", "server"] "connections": "Connections that the pools could not open, whatever the reason.";
    POOL_CLOSED = Counter "forebay_pool_closed_total" ["cluster", "server", "reason"] "connections": "Connections of the pools that were closed, by reason: dropped (by its session), max_age, idle_timeout, broken, ping, server (down or removed, now or since it was opened), size (fewer do, see `adaptive`), login (older than `accounts.interval`, or than a change of accounts, when a new session came), moved (its server has another address), config, handover (of its seat to another account, or a session with a connection of its own), limit, shutdown.";
    POOL_MOVED = Counter "forebay_pool_moved_total" ["cluster", "server"] "connections": "Live connections of the pools that went from one worker to another.";
    POOL_SIZE = Gauge "forebay_pool_size" ["cluster", "server"] "connections": "Connections in use for a short time that the pools take for useful (`adaptive` of `pool`); those that are held for long, or idle, come on top. 0: no such size.";
    POOL_GROWN = Counter "forebay_pool_grown_total" ["cluster", "server"] "connections": "Connections by which that size has grown.";
    POOL_SHRUNK = Counter "forebay_pool_shrunk_total" ["cluster", "server"] "connections": "Connections by which it has shrunk.";
    POOL_WAITING = Gauge "forebay_pool_waiting" ["cluster", "server"] "sessions": "Sessions waiting in line for a connection of the pools now.";
    POOL_WAITS = Counter "forebay_pool_waits_total" ["cluster", "server"] "sessions": "Waits in line for a connection of the pools.";
    POOL_WAIT_DURATION = Histogram "forebay_pool_wait_duration_seconds" ["cluster", "server"] "seconds": "How long waits in line for a connection of the pools lasted, those in vain included.";
    POOL_WAIT_TIMEOUTS = Counter "forebay_pool_wait_timeouts_total" ["cluster", "server"] "sessions": "Waits in line that lasted queue_timeout, in vain.";
    POOL_WAIT_REJECTED = Counter "forebay_pool_wait_rejected_total" ["cluster", "server"] "sessions": "Sessions turned away because queue_max sessions were in line for the server already.";
    POOL_LEASE_DURATION = Histogram "forebay_pool_lease_duration_seconds" ["cluster", "server"] "seconds": "How long sessions used a connection before they gave it back.";

    ACCOUNTS_KNOWN = Gauge "forebay_accounts_known" ["cluster"] "accounts": "Accounts that nobody has listed and that the gateway knows: those of the servers, where `accounts` is servers; those with a password that a server has let in, where it is pass-through.";
    ACCOUNT_TRIALS = Counter "forebay_account_trials_total" ["cluster", "result"] "logins": "Logins on servers by which accounts that nobody has listed were tried, where `accounts` is pass-through, by result: let_in, denied (no such account, or another password), refused (for another reason), no_verdict (the server was away, full, or too busy to say).";

    STATEMENTS = Counter "forebay_split_statements_total" ["cluster", "listener", "ran"] "statements": "Statements of mode split, by where they ran: primary, replica, or held (on the connection that their session holds).";
    READS_AT_PRIMARY = Counter "forebay_split_reads_at_primary_total" ["cluster", "listener", "why"] "statements": "Reads that could have gone to a replica and went to the primary: not_fresh (no replica had what they must see within read_wait), position_unknown (the primary does not say what has been written), account_refused (replicas do not let the account in), no_replica.";
    TRANSACTIONS_ON_REPLICAS = Counter "forebay_split_transactions_on_replicas_total" ["cluster", "listener", "what"] "transactions": "Transactions that may write, where `transaction_reads` is replica: begun (on a replica), moved (to the primary, by their first statement that was no plain read).";
    TRANSACTION_REPLAYS = Counter "forebay_transaction_replays_total" ["cluster", "listener", "result"] "transactions": "Transactions whose server was lost in the middle, with `transaction_replay`, by result: done (it went on on the new primary, unnoticed), differs (an answer was another one there), failed (no primary in time, or the statements came to nothing on it), behind (the new primary lacks what the session had written before), too-large (there was no room for its statements), not-replayable (for what it has done: see forebay_transactions_not_replayable_total; or its client has seen a part of an answer), ended (its COMMIT or ROLLBACK was under way). All but the first have ended as without.";
    TRANSACTIONS_NOT_REPLAYABLE = Counter "forebay_transactions_not_replayable_total" ["cluster", "listener", "reason"] "transactions": "Transactions that would not have been executed again, with `transaction_replay`, had their server been lost, by the first reason; counted when the reason comes up.";
    TRANSACTION_REPLAY_BYTES = Gauge "forebay_transaction_replay_bytes" ["cluster", "listener"] "bytes": "Statements of open transactions that are kept now to be executed again (`transaction_replay`).";
    READS_RETRIED = Counter "forebay_split_reads_retried_total" ["cluster", "listener"] "statements": "Reads that were sent to another server because theirs was lost before it answered.";
    LOST_WRITES = Counter "forebay_split_writes_lost_total" ["cluster", "listener"] "sessions": "Sessions that had written what was lost with the primary that had it, as found out when they came to the next one.";
    READS_PIPELINED = Counter "forebay_split_reads_pipelined_total" ["cluster", "listener"] "statements": "Reads that were sent together with those of other sessions down one connection, while all connections to their server were in use (`pipeline_max`), and were answered there.";
    READS_IN_PIPELINES = Gauge "forebay_split_reads_in_pipelines" ["cluster", "listener"] "statements": "Reads that wait together for a connection, or there for their answers, now.";
    PIPELINES_LEFT = Counter "forebay_split_reads_left_pipeline_total" ["cluster", "listener", "why"] "statements": "Reads that were sent together with others and had to go alone after that: no_connection (none in time; they fail), lost (the connection), slow (they, or one before them, took more than 20 ms), unclean (an error, a warning, a change of the session), long (an answer of more than 64 KiB), unprepared (on that connection).";
    SESSIONS_PINNED = Gauge "forebay_split_sessions_pinned" ["cluster", "listener"] "sessions": "Sessions that hold a server connection between two commands.";
    PINS = Counter "forebay_split_pins_total" ["cluster", "listener", "reason"] "pins": "Times that a session kept its server connection after a statement, by reason.";
    USER_VARIABLES_LEFT = Counter "forebay_split_user_variables_left_total" ["cluster", "listener"] "times": "Times that a session which held its server connection for its user variables alone gave it to others while its client was silent; they are set again before its next statement.";
    USER_VARIABLES_STAY = Counter "forebay_split_user_variables_stay_total" ["cluster", "listener", "why"] "times": "Times that a session could not give it to others then, and tries again after three seconds: names (the server does not let its account list its user variables, or they are too many, or have unusual names), long (more than 16 KiB, or the server's max_allowed_packet is small), values (one does not come out as it was when it is set again).";
    REPREPARES = Counter "forebay_statements_prepared_again_total" [] "statements": "Prepared statements of clients that were prepared again on another server connection.";
    PREPARED_APART = Counter "forebay_statements_prepared_apart_total" ["why"] "statements": "Executions that waited for their preparation on another connection (or for the session's state there), where both usually go in one write: meaning (under what the session has set since it is another statement), last (asks for what the statement before has left), versions (has a comment for some servers), id (the server gives other ids than expected), command (long, or compressed), refused (by the server, or under another id).";
    EVICTED_STATEMENTS = Counter "forebay_statements_evicted_total" [] "statements": "Prepared statements that were closed on connections because their server had as many as it takes (`max_prepared_stmt_count`).";
    SESSIONS_MOVED = Counter "forebay_sessions_moved_total" ["cluster", "listener", "cause"] "sessions": "Moves of sessions of mode session to another server, where `moves` is on, by cause: drain (their server drains, or was removed), lost (their server is gone, or was restarted), label (others have that of their listener); so that the load evens out (`rebalance`): health (connections to their server fail), memory (it runs out of that), cpu (it computes more than others), location (their server is in another zone), connections (it had more sessions than others).";
    MOVES_FAILED = Counter "forebay_session_moves_failed_total" ["cluster", "listener", "reason"] "moves": "Moves that came to nothing, so that the session stayed on its server, by reason: no-credentials (the gateway does not know the account's password), login-refused (by the other server, or it takes the account for another one), behind (it lacks what the session has written), incompatible (it cannot be made what the session's server is), no-server (none that is up has room, or it failed). Sessions that something holds on their server are not tried: see their pins.";
    SESSIONS_ENDED_WITH_SERVER = Counter "forebay_sessions_ended_with_server_total" ["cluster", "listener", "reason"] "sessions": "Sessions of mode session, where `moves` is on, that have ended because their server was gone: by what held them on it, by the reason of forebay_session_moves_failed_total why no other could take their place, or not-understood (what they had set is not known for certain). Where a command was sent to the server before its loss was seen, the session is counted only if that was a read that may be sent again.";
    MOVE_DURATION = Histogram "forebay_session_move_duration_seconds" [] "seconds": "How long moves of sessions took, from the decision to the first command on the other server.";
    READ_WAIT_DURATION = Histogram "forebay_read_wait_duration_seconds" [] "seconds": "How long reads waited for a replica to have what they must see, those in vain included.";

    LOOKUPS_ANSWERED = Counter "forebay_lookups_answered_total" [] "statements": "Point lookups that were answered from memory.";
    LOOKUPS_LEFT = Counter "forebay_lookups_left_total" ["reason"] "statements": "Point lookups that were left to a server: session (in a transaction, or bound to its connection), routed (a rule or the client says where), settings (of the session, not known well enough), not_mapped, columns (that are not kept, or that only the server prints), value (that only the server compares), learned (for the first time, or again after a change of a definition or of grants), not_fresh (within strong_wait), not_served.";

    CACHE_MAPPING_STATE = Gauge "forebay_cache_mapping_state" ["mapping", "state"] "mappings": "1 for the state a mapping is in, 0 for the others: waiting, reading (its definition), copying, catching_up, serving or stopped.";
    CACHE_ROWS = Gauge "forebay_cache_rows" ["mapping"] "rows": "Rows of a mapping in memory; 0 while it is not served.";
    CACHE_FEED_TRANSACTIONS = Counter "forebay_cache_feed_transactions_total" [] "transactions": "Transactions of the primary's binary log that the feed has read, with those that change no mapped table.";
    CACHE_FEED_ROWS = Counter "forebay_cache_feed_rows_total" [] "rows": "Changes of rows in the binary log that were applied to memory.";
    CACHE_FEED_CONNECTS = Counter "forebay_cache_feed_connects_total" [] "connections": "Streams of the binary log that were begun; more than one means that the stream was cut or another server became the primary.";
    CACHE_FEED_LAG = Gauge "forebay_cache_feed_lag_seconds" [] "seconds": "How far memory is behind the primary: the age of the last statement when it was applied, in whole seconds of both clocks, and how long nothing has been heard of the primary beyond a second.";
    CACHE_COPIES = Counter "forebay_cache_copies_total" [] "copies": "Copies of tables that were begun; more than one a mapping means that it was copied again, after a change of its definition say.";
    CACHE_COPIED_ROWS = Counter "forebay_cache_copied_rows_total" [] "rows": "Rows of copies that were kept.";
    CACHE_MEMORY = Gauge "forebay_cache_memory_bytes" [] "bytes": "Memory that the cache holds for rows, their index and its own notes.";
    CACHE_MEMORY_MAX = Gauge "forebay_cache_memory_max_bytes" [] "bytes": "Memory that it may hold: memory_max.";
    CACHE_EVICTED = Counter "forebay_cache_evicted_rows_total" [] "rows": "Rows that made room for others, in mode bounded.";

    CACHE_READS = Counter "forebay_cache_reads_total" ["consistency"] "reads": "Commands and statements that wanted rows from memory, by how fresh they had to be: strong, session or eventual.";
    CACHE_READS_FAILED = Counter "forebay_cache_reads_not_fresh_total" [] "reads": "Reads that failed because memory was not as new as they had to see within strong_wait.";
    CACHE_READ_WAIT_DURATION = Histogram "forebay_cache_read_wait_duration_seconds" [] "seconds": "How long strong and session reads waited for memory to be as new as they had to see, those in vain included.";
    CACHE_PROBES = Counter "forebay_cache_probes_total" ["result"] "probes": "Questions to the primary for its position, each for all strong reads that waited, by result: answered or failed.";
    CACHE_PROBE_DURATION = Histogram "forebay_cache_probe_duration_seconds" [] "seconds": "How long the primary took to answer with its position.";
    CACHE_FETCHES = Counter "forebay_cache_fetches_total" ["result"] "questions": "Questions to the primary for rows that memory could not tell of, by result: answered or failed.";
    CACHE_FETCH_DURATION = Histogram "forebay_cache_fetch_duration_seconds" [] "seconds": "How long it took until the primary had answered with rows that may be shown.";
    CACHE_FILLS = Counter "forebay_cache_fills_total" ["result"] "rows": "Rows, and keys without one, that the primary told of and that were offered to memory in mode bounded, by result: kept (as far as nothing newer came) or dropped.";

    REDIS_COMMANDS = Counter "forebay_redis_commands_total" [] "commands": "Commands of Redis clients, with those that were refused.";
    REDIS_ERRORS = Counter "forebay_redis_error_replies_total" [] "replies": "Commands of Redis clients that were answered with an error.";
    REDIS_TOO_LARGE = Counter "forebay_redis_too_large_total" ["bound"] "commands": "Commands of Redis clients that were refused for their size, by bound: request (more than 1 MiB, those between MULTI and EXEC together), reply (more than 64 MiB) or rows (read for one command, more than 64 MiB).";
    REDIS_TRACKING_CLIENTS = Gauge "forebay_redis_tracking_clients" [] "clients": "Redis clients that keep values themselves and are told when rows change (CLIENT TRACKING).";
    REDIS_TRACKING_KEYS = Gauge "forebay_redis_tracking_keys" [] "keys": "Keys that are remembered for these clients, as tracking_keys_max counts them.";
    REDIS_TRACKING_EVICTED = Counter "forebay_redis_tracking_evicted_total" [] "keys": "Keys that made room for others, because tracking_keys_max was reached; their clients were told that they have changed.";
    REDIS_INVALIDATIONS = Counter "forebay_redis_invalidations_total" [] "keys": "Keys that clients were told to forget, and times that a client was told to forget all.";

    RULE_HITS = Counter "forebay_rule_hits_total" ["rule"] "statements": "Statements that met a rule; prepared ones at each execution.";
    MIRRORED = Counter "forebay_mirrored_total" ["cluster", "result"] "statements": "Statements that a rule has copied to another cluster, by result: sent, failed, dropped (too many under way) or left_out (they need more of their session than its settings).";
    MIRROR_COMPARED = Counter "forebay_mirror_compared_total" ["cluster", "result"] "statements": "Answers to such copies that were compared with the client's own (mirror_compare), by the first that differs: errors, rows, affected_rows, values, warnings, or equal.";
    MIRROR_SKIPPED = Counter "forebay_mirror_skipped_total" ["cluster", "reason"] "statements": "Answers that were to be compared and were not, or whose values were not and nothing else differs: transaction, copy_failed, original_lost, masked (a function whose value is another each time), too_long, no_room, unread or queue_full.";
    MIRROR_DURATION = Histogram "forebay_mirror_duration_seconds" ["cluster", "side"] "seconds": "Time from a statement sent to the end of its answer, where both were compared: original (until its client has the answer) or copy.";

    BUFFERS_IN_USE = Gauge "forebay_buffers_in_use" ["worker"] "buffers": "Buffers of 64 KiB that hold bytes on their way now.";
    BUFFERS_FREE = Gauge "forebay_buffers_free" ["worker"] "buffers": "Buffers of 64 KiB kept for reuse.";
    WORKER_SESSIONS = Gauge "forebay_worker_sessions" ["worker"] "sessions": "Sessions on a worker now.";
    SESSIONS_WAITING = Gauge "forebay_sessions_waiting" ["waits_for"] "sessions": "Sessions by what they wait for, as of the last quarter of a second: client (its next command), server (its answer), seat (a connection to a server, or that rules let the statement in), primary (a server that takes writes), position (a server with what the statement must see), pause (the end of a pause of the cluster), login or stream (in mode tcp, and readers of binary logs).";
    WORKER_TURNS = Counter "forebay_worker_turns_total" ["worker"] "turns": "Turns of a worker's event loop.";

    CAPTURE_RUNNING = Gauge "forebay_capture_running" [] "state": "1 while traffic is captured (forebay traffic capture).";
    CAPTURE_COMMANDS = Gauge "forebay_capture_commands" [] "commands": "Commands that the present capture, or the last one, has written.";
    CAPTURE_BYTES = Gauge "forebay_capture_bytes" [] "bytes": "Bytes that it has written.";
    CAPTURE_QUEUED = Gauge "forebay_capture_queued_bytes" [] "bytes": "Bytes of copies that wait for its thread.";
    CAPTURE_QUEUE_MAX = Gauge "forebay_capture_queued_max_bytes" [] "bytes": "Bytes that may wait; a session that finds no room is not captured any further.";
    CAPTURE_THINNED = Gauge "forebay_capture_thinned_sessions" [] "sessions": "Sessions that it has not captured to their end, since its queue was full.";
    CAPTURE_WAITING = Gauge "forebay_capture_waiting_bytes" [] "bytes": "Bytes that wait in its folder for an object store to take them; 0 where it goes to none.";
    CAPTURE_UPLOAD_FAILURES = Gauge "forebay_capture_upload_failures" [] "attempts": "Attempts to bring a file of it to an object store that have failed.";

    CONFIG_RELOADS = Counter "forebay_config_reloads_total" ["result"] "reloads": "Loads of the configuration, the first one included, by result: ok or failed.";
    CONFIG_LAST_RELOAD = Gauge "forebay_config_last_reload_success_timestamp_seconds" [] "seconds": "When the configuration was last loaded without an error, in seconds since 1970.";
    ADMIN_REFUSED = Counter "forebay_admin_refused_total" ["why"] "requests": "Requests that the admin server has refused, by why: token (an act without the right token), no_token_file (an act on an address that takes none), host (a name that is not the gateway's), page (from a web page) or user (another system user on the socket).";
    STORE_CONNECTED = Gauge "forebay_store_connected" [] "state": "1 while the store that several gateways have their configuration in answers; only with `[store]`.";
    FLEET_REVISION = Gauge "forebay_fleet_revision" [] "revision": "The revision of the configuration of all gateways that this one runs; 0 is none. Only with `[store]`.";
    FLEET_COMMITTED = Gauge "forebay_fleet_committed_revision" [] "revision": "The revision that was committed last, as this gateway has seen it. Only with `[store]`.";
    FLEET_MEMBERS = Gauge "forebay_fleet_members" [] "gateways": "Gateways of the fleet that live, as this gateway has seen it. Only with `[store]`.";
    FLEET_BEHIND = Gauge "forebay_fleet_members_behind" [] "gateways": "Those of them that do not run the revision that was committed last (forebay ctl members names them). Only with `[store]`.";
    FLEET_NUMBER = Gauge "forebay_fleet_number" [] "number": "The number that the connection ids of this gateway begin with, 1 to 63; 0: it has none, and `KILL` on other gateways does not find its sessions. Only with `[store]`.";
    FLEET_PARTS = Gauge "forebay_fleet_parts" [] "parts": "Of the limits that all gateways have together this one has one of so many equal parts; 0: one of each limit, until the others have made room. Only with `share_limits` in `[store]`.";
    VIP_HELD = Gauge "forebay_vip_held" ["address"] "state": "1 while this gateway has the virtual address. Only with `[vip]`.";
    UNREADY = Gauge "forebay_unready" [] "state": "1 while an operator has the gateway say that it is not ready (forebay ctl unready).";
    MEMORY_MAX = Gauge "forebay_memory_max_bytes" [] "bytes": "Memory that the process may have (memory_max, or the limit of its cgroup); process_resident_memory_bytes is what it has. 0: there is no limit.";
    MEMORY_SHORT = Gauge "forebay_memory_short" [] "state": "1 while the process has so much of its memory that new clients are refused (memory_max).";
    SHUTTING_DOWN = Gauge "forebay_shutting_down" [] "state": "1 once a shutdown has begun.";
    UPGRADE_SESSIONS_TAKEN = Counter "forebay_upgrade_sessions_taken_total" [] "sessions": "Sessions that this process has taken over from the one before it (forebay ctl upgrade).";
    UPGRADE_SESSIONS_LEFT = Gauge "forebay_upgrade_sessions_left" ["reason"] "sessions": "Sessions that are still with the process before this one, by why they stay: busy (a command or a login is under way), transaction, tls and compressed (the client's link, for good), server-tls, unfinished, stream (binary logs, Redis), signalled, large (over 1 MiB of prepared statements), figures, listener, account and server (this process has not the same), terms (its connection was opened with other TLS, compression or pool.init), number, line, refused or version.";
    LOG_LINES_DROPPED = Counter "forebay_log_lines_dropped_total" [] "lines": "Log lines dropped because whoever reads the log was too slow, or its disk full.";
    SERIES_OVERFLOW = Counter "forebay_series_overflow_total" [] "lookups": "Look-ups of series that were counted under \"other\" because the limit of series was reached.";

    PROCESS_CPU = Counter "process_cpu_seconds_total" [] "seconds": "CPU time used by the process, user and system.";
    CPU = Counter "forebay_thread_cpu_seconds_total" ["thread", "mode"] "seconds": "CPU time used by the threads of a name, by mode: user or system.";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" [] "fds": "File descriptors open now.";
    PROCESS_MAX_FDS = Gauge "process_max_fds" [] "fds": "File descriptors that may be open (soft limit).";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" [] "bytes": "Memory in RAM.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "bytes": "Address space in use.";
    PROCESS_START = Gauge "process_start_time_seconds" [] "seconds": "When the process started, in seconds since 1970.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let mut names = BTreeSet::new();
        for metric in metrics() {
            let name = metric.name;
            assert!(names.insert(name), "{name} twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(
                name.starts_with("forebay_") || name.starts_with("process_"),
                "{name}"
            );
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            let base = name.trim_end_matches("_total");
            for unit in ["seconds", "bytes"] {
                assert_eq!(metric.unit == unit, base.ends_with(unit), "{name}: unit {unit}");
            }
            assert!(
                metric.kind != Kind::Histogram || metric.unit == "seconds",
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}: help is a sentence");
            assert!(
                metric
                    .labels
                    .iter()
                    .all(|label| !["le", "quantile"].contains(label)),
                "{name}"
            );
        }
    }
}
