//! Where the fleet keeps what all have in common: an etcd, or a folder.

use std::io;
use std::time::Duration;

use upstream::etcd::{Change, Etcd, Outcome, Range, Snapshot, Transaction, Watch};

/// A store. What it promises: a read sees every change that was made before it was asked, a change counts as
/// a whole, and changes are told in their order.
pub(crate) trait Store {
    type Watch: Changes;

    /// All keys of a range.
    fn read(&mut self, range: &Range) -> impl Future<Output = io::Result<Snapshot>>;

    /// What changes there behind a moment. An error where that is forgotten.
    fn watch(&mut self, range: &Range, behind: i64) -> impl Future<Output = io::Result<Self::Watch>>;

    /// Makes changes where all guards hold.
    fn change(&mut self, transaction: &Transaction) -> impl Future<Output = Outcome>;

    /// A lease that ends after this time.
    fn grant(&mut self, time: Duration) -> impl Future<Output = io::Result<i64>>;

    /// Has it last as long again; false where it is over.
    fn renew(&mut self, lease: i64) -> impl Future<Output = io::Result<bool>>;

    /// Ends it.
    fn revoke(&mut self, lease: i64) -> impl Future<Output = io::Result<()>>;

    /// Who has answered last is asked last from here on.
    fn doubt(&mut self);
}

/// Changes as they happen.
pub(crate) trait Changes {
    /// The next ones; none where there is only a sign of life. May be given up and begun again.
    fn next(&mut self) -> impl Future<Output = io::Result<Vec<Change>>>;
}

impl Store for Etcd {
    type Watch = Watch;

    async fn read(&mut self, range: &Range) -> io::Result<Snapshot> {
        Etcd::read(self, range).await
    }

    async fn watch(&mut self, range: &Range, behind: i64) -> io::Result<Watch> {
        Etcd::watch(self, range, behind).await
    }

    async fn change(&mut self, transaction: &Transaction) -> Outcome {
        Etcd::change(self, transaction).await
    }

    async fn grant(&mut self, time: Duration) -> io::Result<i64> {
        Etcd::grant(self, time).await
    }

    async fn renew(&mut self, lease: i64) -> io::Result<bool> {
        Etcd::renew(self, lease).await
    }

    async fn revoke(&mut self, lease: i64) -> io::Result<()> {
        Etcd::revoke(self, lease).await
    }

    fn doubt(&mut self) {
        Etcd::doubt(self);
    }
}

impl Changes for Watch {
    async fn next(&mut self) -> io::Result<Vec<Change>> {
        Watch::next(self).await
    }
}
