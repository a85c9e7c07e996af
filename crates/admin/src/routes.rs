//! The requests and their answers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, put};
use axum::{Extension, Router};
use serde::Deserialize;
use telemetry::{Format, Telemetry};

use crate::{BalanceStatus, DrainStatus, Gateway, SessionStatus, Status, SwitchoverOrder, SwitchoverStatus};

const INDEX: &str = "\
Forebay
GET  /metrics           metrics, for Prometheus
GET  /healthz           200 while the process answers
GET  /readyz            200 when new sessions are served, and what is wrong all the same; otherwise 503 and why
GET  /status            listeners, clusters, servers and workers, as JSON
GET  /sessions          what sessions are doing, and why they hold a server connection, as JSON; ?limit=N of each worker,
                        ?pinned=true only those that hold one
GET  /cache             mappings and how they are, as JSON
PUT  /cache/flush       reads mapping tables again, and tries again what cannot be served
GET  /log               what is logged
PUT  /log?level=LEVEL   changes what is logged: a level for all parts, PART=LEVEL, or `configured` for what the configuration says
PUT  /reload            reads the configuration again
GET  /drains            servers that drain, and what holds their sessions, as JSON
GET  /switchovers       the last switchover of each cluster, as JSON
GET  /balance           how sessions are spread over the servers, and who has moved for that, as JSON; ?cluster=NAME only that one
These are taken on the socket of [admin] alone: `forebay ctl`
PUT  /drain?cluster=C&server=S[&end_after=SECONDS]   has all leave a server
PUT  /undrain?cluster=C&server=S                     has it take sessions again
PUT  /pause[?cluster=C]                              has statements wait, but for those of transactions
PUT  /resume[?cluster=C]                             has them go on
PUT  /switchover?to=S[&cluster=C][&check_only=true]  makes another server the primary; /switchovers tells how it goes
PUT  /upgrade                                        a new process takes over; /status tells its `process_id`
PUT  /kill?id=N[&query=true]                         ends a session, or its statement
";

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Anybody who reaches the address.
    Tcp(SocketAddr),
    /// Root or the gateway's own system user.
    Socket { uid: u32 },
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Socket { uid } => write!(f, "system user {uid}"),
        }
    }
}

/// What every answer may need.
#[derive(Clone)]
struct Sight {
    telemetry: Arc<Telemetry>,
    gateway: Arc<dyn Gateway>,
}

/// All routes.
pub(crate) fn router(telemetry: Arc<Telemetry>, gateway: Arc<dyn Gateway>) -> Router {
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/sessions", get(sessions))
        .route("/cache", get(cache))
        .route("/cache/flush", put(flush_cache).post(flush_cache))
        .route("/log", get(log_level).put(change_log).post(change_log))
        .route("/reload", put(reload).post(reload))
        .route("/drains", get(drains))
        .route("/switchovers", get(switchovers))
        .route("/balance", get(balance))
        .merge(acts())
        .fallback(|| async { (StatusCode::NOT_FOUND, INDEX) })
        .method_not_allowed_fallback(another_method)
        .layer(middleware::from_fn(refuse_browsers))
        .layer(middleware::map_response(never_cache))
        .with_state(Sight { telemetry, gateway })
}

/// What ends sessions or moves them.
fn acts() -> Router<Sight> {
    Router::new()
        .route("/drain", put(drain).post(drain))
        .route("/undrain", put(undrain).post(undrain))
        .route("/pause", put(pause).post(pause))
        .route("/resume", put(resume).post(resume))
        .route("/switchover", put(switchover).post(switchover))
        .route("/upgrade", put(upgrade).post(upgrade))
        .route("/kill", put(kill).post(kill))
        .layer(middleware::from_fn(on_the_socket))
}

/// Takes acts from the socket alone, and notes who has asked for what.
async fn on_the_socket(Extension(caller): Extension<Caller>, request: Request, next: Next) -> Response {
    let asked = format!("{} {}", request.method(), request.uri());
    if let Caller::Tcp(_) = caller {
        let why = "refused: this is taken on the socket of [admin] alone (`socket`): forebay ctl\n";
        tracing::warn!(by = %caller, asked, "act refused: it did not come by the socket of [admin]");
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let response = next.run(request).await;
    tracing::info!(by = %caller, asked, status = response.status().as_u16(), "act");
    response
}

/// A `curl` without `-X` shows nothing but the body: an empty one would look like success.
async fn another_method() -> Response {
    let why = format!("refused: another method is needed for this\n\n{INDEX}");
    (StatusCode::METHOD_NOT_ALLOWED, why).into_response()
}

async fn metrics(State(sight): State<Sight>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    let format = Format::negotiate(accept);
    (
        [(CONTENT_TYPE, format.content_type())],
        sight.telemetry.encode_as(format),
    )
}

async fn readyz(State(sight): State<Sight>) -> Response {
    match sight.gateway.ready() {
        Ok(wrong) => format!("ok\n{}", lines(&wrong)).into_response(),
        Err(reasons) => (StatusCode::SERVICE_UNAVAILABLE, lines(&reasons)).into_response(),
    }
}

async fn status(State(sight): State<Sight>) -> Json<Status> {
    Json(sight.gateway.status())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionsQuery {
    #[serde(default = "sessions_shown")]
    limit: usize,
    #[serde(default)]
    pinned: bool,
}

/// Of each worker, where nobody says how many: as many as a person reads.
fn sessions_shown() -> usize {
    1000
}

async fn sessions(
    State(sight): State<Sight>,
    query: Result<Query<SessionsQuery>, QueryRejection>,
) -> Result<Json<Vec<SessionStatus>>, Refused> {
    let query = understood(query)?;
    let limit = if query.pinned { usize::MAX } else { query.limit };
    let mut sessions = sight.gateway.sessions(limit).await;
    sessions.retain(|session| !query.pinned || !session.pins.is_empty());
    sessions.truncate(query.limit.saturating_mul(sight.telemetry.workers().len()));
    Ok(Json(sessions))
}

type Refused = (StatusCode, String);

/// What stands behind the `?`. Whoever wrote something else is shown what there is: a slip such as
/// `pined=true` would show all.
fn understood<Q>(query: Result<Query<Q>, QueryRejection>) -> Result<Q, Refused> {
    query.map(|Query(query)| query).map_err(|error| {
        let text = error.body_text();
        let why = text
            .rsplit_once("query string: ")
            .map_or(text.as_str(), |(_, why)| why);
        (StatusCode::BAD_REQUEST, format!("refused: {why}\n\n{INDEX}"))
    })
}

async fn cache(State(sight): State<Sight>) -> Response {
    match sight.gateway.cache() {
        Some(cache) => Json(cache).into_response(),
        None => no_cache(),
    }
}

async fn flush_cache(State(sight): State<Sight>) -> Response {
    match sight.gateway.flush_cache() {
        true => "ok\n".into_response(),
        false => no_cache(),
    }
}

fn no_cache() -> Response {
    (StatusCode::NOT_FOUND, "no [cache] is configured\n").into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    level: String,
}

async fn log_level(State(sight): State<Sight>) -> String {
    lines(&[sight.gateway.log_level()])
}

async fn change_log(State(sight): State<Sight>, query: Result<Query<LogQuery>, QueryRejection>) -> Response {
    let level = match understood(query) {
        Ok(query) => query.level,
        Err(refused) => return refused.into_response(),
    };
    match sight.gateway.change_log_level(&level) {
        Ok(level) => lines(&[level]).into_response(),
        Err(reason) => (StatusCode::BAD_REQUEST, lines(&[reason])).into_response(),
    }
}

async fn drains(State(sight): State<Sight>) -> Json<Vec<DrainStatus>> {
    Json(sight.gateway.drains().await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BalanceQuery {
    cluster: Option<String>,
}

async fn balance(
    State(sight): State<Sight>,
    query: Result<Query<BalanceQuery>, QueryRejection>,
) -> Result<Json<Vec<BalanceStatus>>, Refused> {
    let wanted = understood(query)?.cluster;
    let mut balance = sight.gateway.balance();
    let Some(wanted) = wanted else {
        return Ok(Json(balance));
    };
    balance.retain(|balance| balance.cluster == wanted);
    match balance.is_empty() {
        true => Err((StatusCode::NOT_FOUND, format!("there is no cluster {wanted}\n"))),
        false => Ok(Json(balance)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainQuery {
    /// Not needed where one cluster alone has a server of that name.
    cluster: Option<String>,
    server: String,
    /// Seconds after which sessions end that are still there; they stay where nothing is said.
    end_after: Option<f64>,
}

async fn drain(State(sight): State<Sight>, query: Result<Query<DrainQuery>, QueryRejection>) -> Response {
    act(query, |query| {
        let end_after = query.end_after.map(Duration::try_from_secs_f64).transpose();
        let end_after = end_after.map_err(|error| format!("end_after: {error}"))?;
        sight
            .gateway
            .drain(query.cluster.as_deref(), &query.server, end_after)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndrainQuery {
    cluster: Option<String>,
    server: String,
}

async fn undrain(State(sight): State<Sight>, query: Result<Query<UndrainQuery>, QueryRejection>) -> Response {
    act(query, |query| {
        sight.gateway.undrain(query.cluster.as_deref(), &query.server)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterQuery {
    /// Not needed where there is but one.
    cluster: Option<String>,
}

async fn pause(State(sight): State<Sight>, query: Result<Query<ClusterQuery>, QueryRejection>) -> Response {
    act(query, |query| sight.gateway.pause(query.cluster.as_deref()))
}

async fn resume(State(sight): State<Sight>, query: Result<Query<ClusterQuery>, QueryRejection>) -> Response {
    act(query, |query| sight.gateway.resume(query.cluster.as_deref()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchoverQuery {
    /// Not needed where one cluster alone has a server of that name.
    cluster: Option<String>,
    to: String,
    #[serde(default)]
    check_only: bool,
}

async fn switchover(
    State(sight): State<Sight>,
    query: Result<Query<SwitchoverQuery>, QueryRejection>,
) -> Response {
    act(query, |query| {
        let order = SwitchoverOrder {
            to: query.to,
            check_only: query.check_only,
        };
        sight.gateway.switch_over(query.cluster.as_deref(), order)
    })
}

async fn upgrade(State(sight): State<Sight>) -> Response {
    sight.gateway.upgrade();
    done(Ok(()))
}

async fn switchovers(State(sight): State<Sight>) -> Json<Vec<SwitchoverStatus>> {
    Json(sight.gateway.switchovers())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillQuery {
    id: u32,
    #[serde(default)]
    query: bool,
}

async fn kill(State(sight): State<Sight>, query: Result<Query<KillQuery>, QueryRejection>) -> Response {
    let killed = match understood(query) {
        Ok(query) => sight.gateway.kill(query.id, query.query).await,
        Err(refused) => return refused.into_response(),
    };
    done(killed)
}

fn act<Q>(query: Result<Query<Q>, QueryRejection>, act: impl FnOnce(Q) -> Result<(), String>) -> Response {
    match understood(query) {
        Ok(query) => done(act(query)),
        Err(refused) => refused.into_response(),
    }
}

fn done(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::CONFLICT, lines(&[reason])).into_response(),
    }
}

async fn reload(State(sight): State<Sight>) -> Response {
    match sight.gateway.reload() {
        Ok(changes) => lines(&[changes]).into_response(),
        Err(reason) => (StatusCode::UNPROCESSABLE_ENTITY, lines(&[reason])).into_response(),
    }
}

/// Refuses requests that change something and come from a page in a browser.
///
/// Browsers send `Origin` with every PUT and POST, also to the page's own origin, so this holds against
/// cross-site forms and against DNS rebinding alike, where a check of `Host` would have to know every name
/// under which an operator reaches this address. Tools (`curl`, Kubernetes, Prometheus) do not send it. Reads
/// are not refused: a page of another origin cannot see the answer. One that rebinds its own name to this
/// address can see metrics and status, which hold names and addresses of servers but no secret; where that is
/// too much, listen on loopback behind a proxy that checks `Host`.
async fn refuse_browsers(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && request.headers().contains_key(ORIGIN) {
        let why = "refused: this request comes from a web page (it has an Origin header)\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

/// An answer is true at the moment it is given.
async fn never_cache(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn lines(texts: &[String]) -> String {
    texts
        .iter()
        .map(|text| text.trim_end().to_owned() + "\n")
        .collect()
}
