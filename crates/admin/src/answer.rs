//! What answers have in common: who is refused and why, acts that are done, lines of text.

use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

pub(crate) const INDEX: &str = "\
Forebay
GET  /metrics           metrics, for Prometheus
GET  /healthz           200 while the process answers
GET  /readyz            200 when new sessions are served, and what is wrong all the same; otherwise 503 and why
GET  /status            listeners, clusters, servers and workers, as JSON
GET  /sessions          what sessions are doing, and why they hold a server connection, as JSON; ?limit=N of each worker,
                        ?pinned=true only those that hold one
GET  /cache             mappings and how they are, as JSON
GET  /log               what is logged
GET  /drains            servers that drain, and what holds their sessions, as JSON
GET  /switchovers       the last switchover of each cluster, as JSON
GET  /balance           how sessions are spread over the servers, and who has moved for that, as JSON; ?cluster=NAME only that one
GET  /fleet/members     gateways with one configuration ([store]), and what each of them runs, as JSON
GET  /fleet/order       what became of a change; ?id=ORDER
GET  /traffic/capture   the capture of traffic, or the last one, as JSON
These are taken on the socket of [admin] (`forebay ctl`), and here with its token (`token_file`):
PUT  /reload                                         reads the configuration again
PUT  /log?level=LEVEL                                changes what is logged: a level for all parts, PART=LEVEL, or `configured` for
                                                     what the configuration says
PUT  /cache/flush                                    reads mapping tables again, and tries again what cannot be served
PUT  /readyz?ready=false[&reason=TEXT][&for=SECONDS] has /readyz say 503, so that balancers send nobody; ?ready=true ends that
PUT  /drain?cluster=C&server=S[&end_after=SECONDS]   has all leave a server
PUT  /undrain?cluster=C&server=S                     has it take sessions again
PUT  /pause[?cluster=C]                              has statements wait, but for those of transactions
PUT  /resume[?cluster=C]                             has them go on. These four are for all gateways of the fleet, or with &here=true
                                                     for this one alone
PUT  /switchover?to=S[&cluster=C][&check_only=true]  makes another server the primary; /switchovers tells how it goes
PUT  /upgrade                                        a new process takes over; /status tells its `process_id`
PUT  /kill?id=N[&query=true]                         ends a session, or its statement
PUT  /fleet/apply[?expect=N][&why=TEXT][&by=NAME]    has all gateways run the text of the body; /fleet/order tells what became of it
PUT  /fleet/rollback?to=N[&accounts=true][&expect=M][&why=TEXT][&by=NAME]
                                                     the same with the text of a former revision
PUT  /fleet/text[?revision=N]                        answers that text, or the present one
GET  /mirrors                                        statements that are answered differently by the cluster that gets copies of
                                                     them (mirror_compare of rules), as JSON
GET  /fleet/history                                  who has changed the configuration, when and why, as JSON
GET  /fleet/diff?from=N&to=M                         options that differ between two revisions
PUT  /traffic/capture?to=DIR|URL[&spool=DIR][&duration=SECONDS][&max_size=BYTES][&free_disk=PERCENT][&sample=SHARE]
                     [&user=U][&schema=S][&listener=L][&digest=HEX][&load_data=BYTES][&end_when_full=true]
                     [&key_file=FILE]
                                                     captures traffic into a new folder, or to an object store
PUT  /traffic/capture/stop                           ends that; once more: gives up what is not there yet
";

pub(crate) type Refused = (StatusCode, String);

/// What stands behind the `?`. Whoever wrote something else is shown what there is: a slip such as
/// `pined=true` would show all.
pub(crate) struct Asked<Q>(pub(crate) Q);

impl<Q: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<Q> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refused> {
        let query = Query::try_from_uri(&parts.uri);
        query.map(|Query(query)| Self(query)).map_err(|error| {
            let text = error.body_text();
            let why = text
                .rsplit_once("query string: ")
                .map_or(text.as_str(), |(_, why)| why);
            (StatusCode::BAD_REQUEST, format!("refused: {why}\n\n{INDEX}"))
        })
    }
}

pub(crate) fn done(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::CONFLICT, lines(&[reason])).into_response(),
    }
}

pub(crate) fn lines(texts: &[String]) -> String {
    texts
        .iter()
        .map(|text| text.trim_end().to_owned() + "\n")
        .collect()
}
