//! The requests and their answers.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, put};
use fleet::Deed;
use serde::Deserialize;
use telemetry::Format;

use crate::access::{self, Sight};
use crate::answer::{Asked, INDEX, Refused, done, lines};
use crate::fleet_routes;
use crate::{
    BalanceStatus, CaptureOrder, DrainStatus, MirrorStatus, SessionStatus, Status, SwitchoverOrder,
    SwitchoverStatus,
};

pub(crate) fn router(sight: Sight) -> Router {
    Router::new()
        .route("/", get(|| async { INDEX }).options(readyz))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/sessions", get(sessions))
        .route("/cache", get(cache))
        .route("/log", get(log_level))
        .route("/drains", get(drains))
        .route("/switchovers", get(switchovers))
        .route("/balance", get(balance))
        .merge(fleet_routes::questions(&sight))
        .route("/traffic/capture", get(capture))
        .merge(texts(&sight))
        .merge(acts(&sight))
        .fallback(|| async { (StatusCode::NOT_FOUND, INDEX) })
        .method_not_allowed_fallback(another_method)
        .layer(from_fn_with_state(sight.clone(), access::refuse_browsers))
        .layer(from_fn_with_state(sight.clone(), access::refuse_foreign_names))
        .layer(map_response(never_cache))
        .with_state(sight)
}

/// What shows texts of clients, if without values.
fn texts(sight: &Sight) -> Router<Sight> {
    Router::new()
        .route("/mirrors", get(mirrors))
        .layer(from_fn_with_state(sight.clone(), access::show_to_operators))
}

/// Everything that changes something.
fn acts(sight: &Sight) -> Router<Sight> {
    Router::new()
        .route("/reload", put(reload).post(reload))
        .route("/log", put(change_log).post(change_log))
        .route("/cache/flush", put(flush_cache).post(flush_cache))
        .route("/readyz", put(set_ready).post(set_ready))
        .route("/drain", put(drain).post(drain))
        .route("/undrain", put(undrain).post(undrain))
        .route("/pause", put(pause).post(pause))
        .route("/resume", put(resume).post(resume))
        .route("/switchover", put(switchover).post(switchover))
        .route("/upgrade", put(upgrade).post(upgrade))
        .route("/kill", put(kill).post(kill))
        .merge(fleet_routes::acts())
        .route("/traffic/capture", put(start_capture).post(start_capture))
        .route("/traffic/capture/stop", put(stop_capture).post(stop_capture))
        .layer(from_fn_with_state(sight.clone(), access::take_acts))
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyQuery {
    ready: bool,
    reason: Option<String>,
    /// Seconds after which it is ready again; only by another such act where nothing is said.
    #[serde(rename = "for")]
    limit: Option<f64>,
}

async fn set_ready(State(sight): State<Sight>, Asked(query): Asked<ReadyQuery>) -> Response {
    const REASON_MAX: usize = 200;
    let set = || -> Result<(), String> {
        let reason = query.reason.unwrap_or_default();
        // It becomes a line of /readyz.
        let is_plain = |letter: &char| !letter.is_control();
        let reason = reason.chars().filter(is_plain).take(REASON_MAX).collect();
        let limit = query.limit.map(Duration::try_from_secs_f64).transpose();
        let limit = limit.map_err(|error| format!("for: {error}"))?;
        if query.ready && limit.is_some() {
            return Err("for: only with ready=false".to_owned());
        }
        sight.gateway.set_unready((!query.ready).then_some(reason), limit)
    };
    done(set())
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
    Asked(query): Asked<SessionsQuery>,
) -> Result<Json<Vec<SessionStatus>>, Refused> {
    let limit = if query.pinned { usize::MAX } else { query.limit };
    let mut sessions = sight.gateway.sessions(limit).await;
    sessions.retain(|session| !query.pinned || !session.pins.is_empty());
    sessions.truncate(query.limit.saturating_mul(sight.telemetry.workers().len()));
    Ok(Json(sessions))
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

async fn change_log(State(sight): State<Sight>, Asked(query): Asked<LogQuery>) -> Response {
    match sight.gateway.change_log_level(&query.level) {
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
    Asked(query): Asked<BalanceQuery>,
) -> Result<Json<Vec<BalanceStatus>>, Refused> {
    let mut balance = sight.gateway.balance();
    let Some(wanted) = query.cluster else {
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
    /// By this gateway alone.
    #[serde(default)]
    here: bool,
}

async fn drain(State(sight): State<Sight>, Asked(query): Asked<DrainQuery>) -> Response {
    let (cluster, server) = (query.cluster.as_deref(), query.server);
    let drain = || -> Result<String, String> {
        let end_after = query.end_after.map(Duration::try_from_secs_f64).transpose();
        let end_after = end_after.map_err(|error| format!("end_after: {error}"))?;
        let name = sight.gateway.cluster_name(cluster, Some(&server))?;
        sight.gateway.drain(cluster, &server, end_after)?;
        Ok(name)
    };
    let deed = drain().map(|cluster| Deed::Drain {
        cluster,
        server: server.clone(),
        end_after: query.end_after,
    });
    done(fleet_routes::for_all(&sight, query.here, deed).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndrainQuery {
    cluster: Option<String>,
    server: String,
    #[serde(default)]
    here: bool,
}

async fn undrain(State(sight): State<Sight>, Asked(query): Asked<UndrainQuery>) -> Response {
    let (cluster, server) = (query.cluster.as_deref(), query.server);
    let name = sight.gateway.cluster_name(cluster, Some(&server));
    let undrained = name.clone().and_then(|_| sight.gateway.undrain(cluster, &server));
    let undrained = undrained.map_err(|why| match (&name, cluster) {
        (Err(_), None) if sight.gateway.fleet().is_some() => {
            format!("{why}; with its cluster (--cluster) a drain of all gateways is taken back")
        }
        _ => why,
    });
    let deed = name.ok().or(query.cluster).map(|cluster| Deed::Drain {
        cluster,
        server,
        end_after: None,
    });
    done(fleet_routes::for_none(&sight, query.here, deed, undrained).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterQuery {
    /// Not needed where there is but one.
    cluster: Option<String>,
    /// Of this gateway alone.
    #[serde(default)]
    here: bool,
}

async fn pause(State(sight): State<Sight>, Asked(query): Asked<ClusterQuery>) -> Response {
    // A pause that is begun here is done or taken back, also where nobody waits for the answer any more.
    let task = tokio::spawn(async move {
        let pause = || -> Result<(String, bool), String> {
            let cluster = sight.gateway.cluster_name(query.cluster.as_deref(), None)?;
            let was_off = sight.gateway.pause(query.cluster.as_deref())?;
            Ok((cluster, was_off))
        };
        let begun = pause();
        let deed = begun.clone().map(|(cluster, _)| Deed::Pause { cluster });
        let paused = fleet_routes::for_all(&sight, query.here, deed).await;
        if let (Ok((cluster, true)), Err(_)) = (begun, &paused) {
            // All or none; a pause that was there before stays.
            let _ = sight.gateway.resume(Some(&cluster));
        }
        paused
    });
    done(task.await.unwrap_or_else(|error| Err(error.to_string())))
}

async fn resume(State(sight): State<Sight>, Asked(query): Asked<ClusterQuery>) -> Response {
    let name = sight.gateway.cluster_name(query.cluster.as_deref(), None);
    let resumed = name
        .clone()
        .and_then(|_| sight.gateway.resume(query.cluster.as_deref()));
    let cluster = match (name, &resumed) {
        (Ok(name), Ok(())) => Some(name),
        // A switchover is under way in it.
        (Ok(_), Err(_)) => None,
        (Err(_), _) => query.cluster,
    };
    let deed = cluster.map(|cluster| Deed::Pause { cluster });
    done(fleet_routes::for_none(&sight, query.here, deed, resumed).await)
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

async fn switchover(State(sight): State<Sight>, Asked(query): Asked<SwitchoverQuery>) -> Response {
    let order = SwitchoverOrder {
        to: query.to,
        check_only: query.check_only,
    };
    done(sight.gateway.switch_over(query.cluster.as_deref(), order))
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

async fn kill(State(sight): State<Sight>, Asked(query): Asked<KillQuery>) -> Response {
    done(sight.gateway.kill(query.id, query.query).await)
}

async fn start_capture(State(sight): State<Sight>, Asked(order): Asked<CaptureOrder>) -> Response {
    done(sight.gateway.start_capture(order).await)
}

async fn stop_capture(State(sight): State<Sight>) -> Response {
    done(sight.gateway.stop_capture())
}

async fn capture(State(sight): State<Sight>) -> Response {
    Json(sight.gateway.capture()).into_response()
}

async fn mirrors(State(sight): State<Sight>) -> Json<Vec<MirrorStatus>> {
    Json(sight.gateway.mirrors())
}

async fn reload(State(sight): State<Sight>) -> Response {
    match sight.gateway.reload() {
        Ok(changes) => lines(&[changes]).into_response(),
        Err(reason) => (StatusCode::UNPROCESSABLE_ENTITY, lines(&[reason])).into_response(),
    }
}

/// An answer is true at the moment it is given.
async fn never_cache(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
