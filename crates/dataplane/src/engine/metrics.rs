//! The counters of one worker in mode `split`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use routing::rebalance::Factor;
use session::PinReason;
use telemetry::{Counter, Gauge, Samples, catalog, labels};

use crate::engine::pipeline::went_alone::WentAlone;
use crate::engine::replay::why::Why;

labels! {
    /// The place where a statement ran.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Ran {
        /// On the primary, over a connection that others share.
        Primary = "primary",
        /// On a replica, likewise.
        Replica = "replica",
        /// On the connection that its session holds.
        Held = "held",
    }
}

labels! {
    /// Why a read that could have gone to a replica went to the primary.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum AtPrimary {
        /// No replica had what it must see, and waiting for one took too long.
        NotFresh = "not_fresh",
        /// The writes that it must see are not known, since the primary does not say.
        PositionUnknown = "position_unknown",
        /// There was no replica, or none that may be used.
        NoReplica = "no_replica",
        /// Some replicas refuse the account, and no other could take it.
        AccountRefused = "account_refused",
    }
}

labels! {
    /// The fate of a transaction that reads on a replica before it writes.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum OnReplica {
        /// The transaction has begun there.
        Begun = "begun",
        /// The transaction has gone on to the primary.
        Moved = "moved",
    }
}

labels! {
    /// Why a statement was prepared, or the state set, without the execution behind it.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Apart {
        /// The statement means something else under what the session has set since.
        Meaning = "meaning",
        /// The statement asks for what the one before has left.
        Last = "last",
        /// The statement has a comment for servers of some versions.
        Versions = "versions",
        /// The id that the server gives is not to be guessed.
        Id = "id",
        /// The command is long, compressed, or not as commands are.
        Command = "command",
        /// The server has refused to prepare it, or has given another id than was guessed.
        Refused = "refused",
    }
}

labels! {
    /// The fate of a transaction whose server was lost in the middle.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Replayed {
        /// The transaction went on on the new primary.
        Done = "done",
        /// An answer was another one there.
        Differs = "differs",
        /// There was no primary in time, or the statements came to nothing on it.
        Failed = "failed",
        /// The new primary lacks what the session had written before.
        Behind = "behind",
        /// There was no room for the transaction's statements.
        TooLarge = "too-large",
        /// The transaction has done something that cannot be done again.
        NotReplayable = "not-replayable",
        /// The transaction's COMMIT or ROLLBACK was under way.
        Ended = "ended",
    }
}

impl Replayed {
    pub(crate) fn not(why: Why) -> Self {
        match why {
            Why::TooLarge | Why::NoMemory => Self::TooLarge,
            _ => Self::NotReplayable,
        }
    }
}

labels! {
    /// Why a session does not leave its connection with its user variables.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum VariablesStay {
        /// The names of the variables are not known for certain.
        Names = "names",
        /// The values are long, or the server takes short commands only.
        Long = "long",
        /// The values do not come out as they were.
        Values = "values",
    }
}

/// The series of one worker, cluster and listener, written by the worker's thread only.
#[derive(Debug, Default)]
pub(crate) struct SplitMetrics {
    /// Sessions that hold a connection between two statements, now.
    pub(crate) pinned: Gauge,
    /// Reads that were sent again to another server, after theirs was lost before it answered.
    pub(crate) retried: Counter,
    /// Times that a session has left its connection with its user variables.
    pub(crate) user_variables_left: Counter,
    variables_stay: [Counter; VariablesStay::ALL.len()],
    /// Sessions of whose writes some were lost with the primary that had them.
    pub(crate) lost_writes: Counter,
    /// Statements that wait for an answer together with others, now.
    pub(crate) in_pipelines: Gauge,
    /// Statements that were answered so.
    pub(crate) pipelined: Counter,
    pipelines_left: [Counter; PIPELINES_LEFT.len()],
    prepared_apart: [Counter; Apart::ALL.len()],
    moved: [Counter; MOVED.len()],
    moves_failed: Pins,
    ended: Pins,
    ran: [Counter; Ran::ALL.len()],
    at_primary: [Counter; AtPrimary::ALL.len()],
    on_replicas: [Counter; OnReplica::ALL.len()],
    replayed: [Counter; Replayed::ALL.len()],
    not_replayable: [Counter; Why::ALL.len()],
    /// Bytes of statements that are kept to be executed again, now.
    pub(crate) replay_bytes: Gauge,
    pins: Pins,
}

/// The reason why a session went to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The session's server drains, or is no longer in the cluster.
    Left,
    /// The move evens out the load.
    For(Factor),
    /// The session's server is gone.
    Lost,
    /// Other servers have the label of the session's listener.
    Label,
}

#[derive(Debug)]
struct Pins([Counter; PinReason::ALL.len()]);

impl Default for Pins {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Pins {
    fn count(&self, reason: PinReason) {
        if let Some(place) = PinReason::ALL.iter().position(|known| *known == reason) {
            self.0[place].inc();
        }
    }
}

const MOVED: [Moved; 8] = [
    Moved::Left,
    Moved::Lost,
    Moved::Label,
    Moved::For(Factor::Health),
    Moved::For(Factor::Memory),
    Moved::For(Factor::Cpu),
    Moved::For(Factor::Location),
    Moved::For(Factor::Connections),
];

const PIPELINES_LEFT: [&str; 6] = ["no_connection", "lost", "slow", "unclean", "long", "unprepared"];

impl Moved {
    fn label(self) -> &'static str {
        match self {
            Self::Left => "drain",
            Self::Lost => "lost",
            Self::Label => "label",
            Self::For(factor) => factor.label(),
        }
    }
}

impl SplitMetrics {
    /// Counts a statement that takes one more round trip until it is executed.
    pub(crate) fn prepared_apart(&self, why: Apart) {
        self.prepared_apart[why as usize].inc();
    }

    /// Counts a connection that others wanted and did not get, since a session holds it for its user
    /// variables alone.
    pub(crate) fn user_variables_stay(&self, why: VariablesStay) {
        self.variables_stay[why as usize].inc();
    }

    /// Counts a statement that was to be answered together with others, and was not.
    pub(crate) fn pipeline_left(&self, left: &WentAlone) {
        let place = match left {
            WentAlone::NoConnection(_) => 0,
            WentAlone::Lost => 1,
            WentAlone::Slow => 2,
            WentAlone::Unclean => 3,
            WentAlone::Long => 4,
            WentAlone::Unprepared => 5,
        };
        self.pipelines_left[place].inc();
    }

    pub(crate) fn ran(&self, ran: Ran) {
        self.ran[ran as usize].inc();
    }

    pub(crate) fn at_primary(&self, why: AtPrimary) {
        self.at_primary[why as usize].inc();
    }

    pub(crate) fn on_replica(&self, what: OnReplica) {
        self.on_replicas[what as usize].inc();
    }

    /// Counts a transaction whose server was lost in the middle.
    pub(crate) fn replayed(&self, what: Replayed) {
        self.replayed[what as usize].inc();
    }

    /// Counts a transaction that cannot be executed again, from here on.
    pub(crate) fn not_replayable(&self, why: Why) {
        if let Some(place) = Why::ALL.iter().position(|known| *known == why) {
            self.not_replayable[place].inc();
        }
    }

    /// Counts a session that keeps its connection for this reason.
    pub(crate) fn pin(&self, reason: PinReason) {
        self.pins.count(reason);
    }

    /// Counts a session that went to another server.
    pub(crate) fn moved(&self, cause: Moved) {
        if let Some(place) = MOVED.iter().position(|known| *known == cause) {
            self.moved[place].inc();
        }
    }

    /// Counts a session that could not leave its server for this reason.
    pub(crate) fn move_failed(&self, reason: PinReason) {
        self.moves_failed.count(reason);
    }

    pub(crate) fn ended_with_server(&self, reason: PinReason) {
        self.ended.count(reason);
    }

    fn collect(&self, cluster: &str, listener: &str, out: &mut Samples) {
        let of = &[cluster, listener];
        out.gauge(&catalog::SESSIONS_PINNED, of, self.pinned.get());
        out.counter(&catalog::READS_RETRIED, of, self.retried.get());
        out.counter(&catalog::USER_VARIABLES_LEFT, of, self.user_variables_left.get());
        out.counter(&catalog::LOST_WRITES, of, self.lost_writes.get());
        out.gauge(&catalog::READS_IN_PIPELINES, of, self.in_pipelines.get());
        out.counter(&catalog::READS_PIPELINED, of, self.pipelined.get());
        out.gauge(&catalog::TRANSACTION_REPLAY_BYTES, of, self.replay_bytes.get());
        for (why, count) in Apart::ALL.iter().zip(&self.prepared_apart) {
            out.counter(&catalog::PREPARED_APART, &[why.label()], count.get());
        }
        let mut add = |metric, label: &str, count: &Counter| {
            out.counter(metric, &[cluster, listener, label], count.get());
        };
        for (cause, count) in MOVED.iter().zip(&self.moved) {
            add(&catalog::SESSIONS_MOVED, cause.label(), count);
        }
        for (reason, count) in PinReason::ALL.iter().zip(&self.ended.0) {
            // There are many reasons, and few are met.
            if reason.is_of_moves() || count.get() > 0 {
                add(&catalog::SESSIONS_ENDED_WITH_SERVER, reason.label(), count);
            }
        }
        for (reason, count) in PinReason::ALL.iter().zip(&self.moves_failed.0) {
            // Sessions that are pinned are not tried.
            if reason.is_of_moves() {
                add(&catalog::MOVES_FAILED, reason.label(), count);
            }
        }
        for (why, count) in VariablesStay::ALL.iter().zip(&self.variables_stay) {
            add(&catalog::USER_VARIABLES_STAY, why.label(), count);
        }
        for (label, count) in PIPELINES_LEFT.iter().zip(&self.pipelines_left) {
            add(&catalog::PIPELINES_LEFT, label, count);
        }
        for (ran, count) in Ran::ALL.iter().zip(&self.ran) {
            add(&catalog::STATEMENTS, ran.label(), count);
        }
        for (why, count) in AtPrimary::ALL.iter().zip(&self.at_primary) {
            add(&catalog::READS_AT_PRIMARY, why.label(), count);
        }
        for (what, count) in OnReplica::ALL.iter().zip(&self.on_replicas) {
            add(&catalog::TRANSACTIONS_ON_REPLICAS, what.label(), count);
        }
        for (what, count) in Replayed::ALL.iter().zip(&self.replayed) {
            add(&catalog::TRANSACTION_REPLAYS, what.label(), count);
        }
        for (why, count) in Why::ALL.iter().zip(&self.not_replayable) {
            // There are many reasons, and few are met.
            if count.get() > 0 {
                add(&catalog::TRANSACTIONS_NOT_REPLAYABLE, why.label(), count);
            }
        }
        for (reason, count) in PinReason::ALL.iter().zip(&self.pins.0) {
            add(&catalog::PINS, reason.label(), count);
        }
    }
}

/// Pairs of cluster and listener that a worker tells apart; sessions of further ones are counted together,
/// under `other`.
const PAIRS_MAX: usize = 256;

/// The series of one worker. Series of removed listeners stay, so that their counts are not lost between two
/// scrapes.
#[derive(Debug, Default)]
pub(crate) struct WorkerSplitMetrics(Mutex<BTreeMap<[Box<str>; 2], Arc<SplitMetrics>>>);

impl WorkerSplitMetrics {
    /// The series of a cluster and listener, looked up once a session.
    pub(crate) fn of(&self, cluster: &str, listener: &str) -> Arc<SplitMetrics> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = [cluster.into(), listener.into()];
        if let Some(found) = pairs.get(&key) {
            return Arc::clone(found);
        }
        let key = if pairs.len() < PAIRS_MAX {
            key
        } else {
            ["other".into(), "other".into()]
        };
        Arc::clone(pairs.entry(key).or_default())
    }

    pub(crate) fn collect(&self, out: &mut Samples) {
        let pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ([cluster, listener], metrics) in pairs.iter() {
            metrics.collect(cluster, listener, out);
        }
    }
}
