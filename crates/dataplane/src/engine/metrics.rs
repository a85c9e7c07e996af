//! What one worker counts in mode `split`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use routing::rebalance::Factor;
use session::PinReason;
use telemetry::{Counter, Gauge, Samples, catalog};

use crate::engine::pipeline::went_alone::WentAlone;
use crate::engine::replay::why::Why;

/// Where a statement ran.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ran {
    /// On the primary, over a connection that others share.
    Primary,
    /// On a replica, likewise.
    Replica,
    /// On the connection that its session holds.
    Held,
}

/// Why a read that could have gone to a replica went to the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtPrimary {
    /// No replica had what it must see, and waiting for one took too long.
    NotFresh,
    /// What it must see is not known, since the primary does not say.
    PositionUnknown,
    /// There was no replica, or none that may be used.
    NoReplica,
    /// Of the replicas some refuse the account, and no other could take it.
    AccountRefused,
}

/// What became of a transaction that reads on a replica before it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OnReplica {
    /// It has begun there.
    Begun,
    /// It has gone on to the primary.
    Moved,
}

/// Why a statement was prepared, or the state set, without the execution behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Apart {
    /// The statement means something else under what the session has set since.
    Meaning,
    /// It asks for what the statement before has left.
    Last,
    /// It has a comment for servers of some versions.
    Versions,
    /// The id that the server gives is not to be guessed.
    Id,
    /// The command is long, compressed, or not as commands are.
    Command,
    /// The server has refused to prepare it, or has given another id than was guessed.
    Refused,
}

/// What became of a transaction whose server was lost in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// It went on on the new primary.
    Done,
    /// An answer was another one there.
    Differs,
    /// There was no primary in time, or the statements came to nothing on it.
    Failed,
    /// The new primary lacks what the session had written before.
    Behind,
    /// There was no room for its statements.
    TooLarge,
    /// What it has done cannot be done again.
    NotReplayable,
    /// Its COMMIT or ROLLBACK was under way.
    Ended,
}

impl Replayed {
    pub(crate) fn not(why: Why) -> Self {
        match why {
            Why::TooLarge | Why::NoMemory => Self::TooLarge,
            _ => Self::NotReplayable,
        }
    }
}

/// Why a session does not leave its connection with its user variables.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VariablesStay {
    /// It is not known for certain which there are.
    Names,
    /// They are long, or their server takes short commands only.
    Long,
    /// What they are does not come out as it was.
    Values,
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
    variables_stay: [Counter; VARIABLES_STAY.len()],
    /// Sessions of whose writes some were lost with the primary that had them.
    pub(crate) lost_writes: Counter,
    /// Statements that wait for an answer together with others, now.
    pub(crate) in_pipelines: Gauge,
    /// Those that were answered so.
    pub(crate) pipelined: Counter,
    pipelines_left: [Counter; PIPELINES_LEFT.len()],
    prepared_apart: [Counter; PREPARED_APART.len()],
    moved: [Counter; MOVED.len()],
    moves_failed: Pins,
    ended: Pins,
    ran: [Counter; 3],
    at_primary: [Counter; 4],
    on_replicas: [Counter; 2],
    replayed: [Counter; REPLAYED.len()],
    not_replayable: [Counter; Why::ALL.len()],
    /// Bytes of statements that are kept to be executed again, now.
    pub(crate) replay_bytes: Gauge,
    pins: Pins,
}

/// Why a session went to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Its own drains, or is no longer in the cluster.
    Left,
    /// So that the load evens out.
    For(Factor),
    /// Its own is gone.
    Lost,
    /// Others have its listener's label.
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

const RAN: [(Ran, &str); 3] = [
    (Ran::Primary, "primary"),
    (Ran::Replica, "replica"),
    (Ran::Held, "held"),
];

pub(crate) const AT_PRIMARY: [(AtPrimary, &str); 4] = [
    (AtPrimary::NotFresh, "not_fresh"),
    (AtPrimary::PositionUnknown, "position_unknown"),
    (AtPrimary::NoReplica, "no_replica"),
    (AtPrimary::AccountRefused, "account_refused"),
];

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

const ON_REPLICAS: [(OnReplica, &str); 2] = [(OnReplica::Begun, "begun"), (OnReplica::Moved, "moved")];

const PIPELINES_LEFT: [&str; 6] = ["no_connection", "lost", "slow", "unclean", "long", "unprepared"];

const PREPARED_APART: [(Apart, &str); 6] = [
    (Apart::Meaning, "meaning"),
    (Apart::Last, "last"),
    (Apart::Versions, "versions"),
    (Apart::Id, "id"),
    (Apart::Command, "command"),
    (Apart::Refused, "refused"),
];

const VARIABLES_STAY: [(VariablesStay, &str); 3] = [
    (VariablesStay::Names, "names"),
    (VariablesStay::Long, "long"),
    (VariablesStay::Values, "values"),
];

const REPLAYED: [(Replayed, &str); 7] = [
    (Replayed::Done, "done"),
    (Replayed::Differs, "differs"),
    (Replayed::Failed, "failed"),
    (Replayed::Behind, "behind"),
    (Replayed::TooLarge, "too-large"),
    (Replayed::NotReplayable, "not-replayable"),
    (Replayed::Ended, "ended"),
];

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
    /// A statement takes one more round trip until it is executed.
    pub(crate) fn prepared_apart(&self, why: Apart) {
        self.prepared_apart[why as usize].inc();
    }

    /// Others wanted the connection that a session holds for its user variables alone, and did not get it.
    pub(crate) fn user_variables_stay(&self, why: VariablesStay) {
        self.variables_stay[why as usize].inc();
    }

    /// A statement was to be answered together with others, and was not.
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

    /// The server of a transaction was lost in the middle.
    pub(crate) fn replayed(&self, what: Replayed) {
        self.replayed[what as usize].inc();
    }

    /// A transaction would not be executed again, from here on.
    pub(crate) fn not_replayable(&self, why: Why) {
        if let Some(place) = Why::ALL.iter().position(|known| *known == why) {
            self.not_replayable[place].inc();
        }
    }

    /// A session keeps its connection for this reason.
    pub(crate) fn pin(&self, reason: PinReason) {
        self.pins.count(reason);
    }

    /// A session went to another server.
    pub(crate) fn moved(&self, cause: Moved) {
        if let Some(place) = MOVED.iter().position(|known| *known == cause) {
            self.moved[place].inc();
        }
    }

    /// A session could not leave its server for this reason.
    pub(crate) fn move_failed(&self, reason: PinReason) {
        self.moves_failed.count(reason);
    }

    /// A session has ended with its server, for this reason.
    pub(crate) fn ended_with_server(&self, reason: PinReason) {
        self.ended.count(reason);
    }

    fn collect(&self, cluster: &str, listener: &str, out: &mut Samples) {
        let of = &[cluster, listener];
        out.gauge(&catalog::SESSIONS_PINNED, of, self.pinned.get());
        out.counter(&catalog::READS_RETRIED, of, self.retried.get());
        for (cause, count) in MOVED.iter().zip(&self.moved) {
            let of = &[cluster, listener, cause.label()];
            out.counter(&catalog::SESSIONS_MOVED, of, count.get());
        }
        for (reason, count) in PinReason::ALL.iter().zip(&self.ended.0) {
            // There are many reasons, and few are met.
            if reason.is_of_moves() || count.get() > 0 {
                let of = &[cluster, listener, reason.label()];
                out.counter(&catalog::SESSIONS_ENDED_WITH_SERVER, of, count.get());
            }
        }
        for (reason, count) in PinReason::ALL.iter().zip(&self.moves_failed.0) {
            // Sessions that are pinned are not tried.
            if reason.is_of_moves() {
                out.counter(
                    &catalog::MOVES_FAILED,
                    &[cluster, listener, reason.label()],
                    count.get(),
                );
            }
        }
        out.counter(&catalog::USER_VARIABLES_LEFT, of, self.user_variables_left.get());
        for ((_, label), count) in VARIABLES_STAY.iter().zip(&self.variables_stay) {
            out.counter(
                &catalog::USER_VARIABLES_STAY,
                &[cluster, listener, label],
                count.get(),
            );
        }
        out.counter(&catalog::LOST_WRITES, of, self.lost_writes.get());
        out.gauge(&catalog::READS_IN_PIPELINES, of, self.in_pipelines.get());
        out.counter(&catalog::READS_PIPELINED, of, self.pipelined.get());
        for (label, count) in PIPELINES_LEFT.iter().zip(&self.pipelines_left) {
            out.counter(&catalog::PIPELINES_LEFT, &[cluster, listener, label], count.get());
        }
        for ((_, label), count) in PREPARED_APART.iter().zip(&self.prepared_apart) {
            out.counter(&catalog::PREPARED_APART, &[label], count.get());
        }
        for ((_, label), count) in RAN.iter().zip(&self.ran) {
            out.counter(&catalog::STATEMENTS, &[cluster, listener, label], count.get());
        }
        for ((_, label), count) in AT_PRIMARY.iter().zip(&self.at_primary) {
            out.counter(
                &catalog::READS_AT_PRIMARY,
                &[cluster, listener, label],
                count.get(),
            );
        }
        for ((_, label), count) in ON_REPLICAS.iter().zip(&self.on_replicas) {
            out.counter(
                &catalog::TRANSACTIONS_ON_REPLICAS,
                &[cluster, listener, label],
                count.get(),
            );
        }
        for ((_, label), count) in REPLAYED.iter().zip(&self.replayed) {
            let of = &[cluster, listener, label];
            out.counter(&catalog::TRANSACTION_REPLAYS, of, count.get());
        }
        for (why, count) in Why::ALL.iter().zip(&self.not_replayable) {
            // There are many reasons, and few are met.
            if count.get() > 0 {
                let of = &[cluster, listener, why.label()];
                out.counter(&catalog::TRANSACTIONS_NOT_REPLAYABLE, of, count.get());
            }
        }
        out.gauge(&catalog::TRANSACTION_REPLAY_BYTES, of, self.replay_bytes.get());
        for (reason, count) in PinReason::ALL.iter().zip(&self.pins.0) {
            out.counter(&catalog::PINS, &[cluster, listener, reason.label()], count.get());
        }
    }
}

/// Pairs of cluster and listener that a worker tells apart; sessions of further ones are counted together,
/// under `other`.
const PAIRS_MAX: usize = 256;

/// The series of one worker. Those of removed listeners stay, so that their counts are not lost between two
/// scrapes.
#[derive(Debug, Default)]
pub(crate) struct MetricsOfWorker(Mutex<BTreeMap<[Box<str>; 2], Arc<SplitMetrics>>>);

impl MetricsOfWorker {
    /// Looked up once a session.
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
