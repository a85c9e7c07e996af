//! `FLUSH`: mapping tables are read again, and what cannot be served is tried again. What is served is not
//! disturbed, and no row is thrown away: `FLUSHALL` and `FLUSHDB` of Redis, which do that, are refused.

use dataplane::extension::ProtocolSession;
use resp_wire::Writer;

use super::Service;
use super::refusal::Refusal;
use super::session::Session;

/// Executes it. The work is done by the feed, after the reply.
pub(crate) async fn flush(
    service: &Service,
    session: &Session,
    control: &ProtocolSession,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let identity = session.identity.as_ref().ok_or(Refusal::NotLoggedIn)?;
    let may_flush = service.rights.may_flush(control, identity).await;
    if !may_flush.map_err(Refusal::NotAsked)? {
        return Err(Refusal::NoFlush);
    }
    tracing::info!(
        user = identity.user(),
        "cache flushed: what is not served is tried again"
    );
    service.reader.feed_status().flush();
    out.simple("OK");
    Ok(())
}
