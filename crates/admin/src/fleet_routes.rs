//! What is asked of a gateway that has its configuration in common with others.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::StringRejection;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, put};
use axum::{Extension, Router};
use fleet::{Deed, Fleet, Wanted};
use serde::Deserialize;

use crate::access::{self, Caller, Sight};
use crate::answer::{Asked, Refused, lines};

/// Longest name that somebody gives himself, in characters.
const NAME_MAX: usize = 64;

pub(crate) fn questions(sight: &Sight) -> Router<Sight> {
    let of_configurations = Router::new()
        .route("/fleet/history", get(history))
        .route("/fleet/diff", get(diff))
        .layer(from_fn_with_state(sight.clone(), access::show_to_operators));
    Router::new()
        .route("/fleet/members", get(members))
        .route("/fleet/order", get(order))
        .merge(of_configurations)
}

pub(crate) fn acts() -> Router<Sight> {
    Router::new()
        .route("/fleet/apply", put(apply).post(apply))
        .route("/fleet/rollback", put(rollback).post(rollback))
        .route("/fleet/text", put(text).post(text))
}

fn fleet(sight: &Sight) -> Result<Arc<Fleet>, Refused> {
    let none = || (StatusCode::NOT_FOUND, "no [store] is configured\n".to_owned());
    sight.gateway.fleet().ok_or_else(none)
}

fn conflict(why: String) -> Refused {
    (StatusCode::CONFLICT, lines(&[why]))
}

async fn members(State(sight): State<Sight>) -> Result<Response, Refused> {
    Ok(Json(fleet(&sight)?.members()).into_response())
}

async fn history(State(sight): State<Sight>) -> Result<Response, Refused> {
    let history = fleet(&sight)?.history().await.map_err(conflict)?;
    Ok(Json(history).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiffQuery {
    from: u64,
    to: u64,
}

async fn diff(State(sight): State<Sight>, Asked(query): Asked<DiffQuery>) -> Result<String, Refused> {
    let diff = fleet(&sight)?.diff(query.from, query.to).await;
    Ok(lines(&[diff.map_err(conflict)?]))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderQuery {
    id: String,
}

async fn order(State(sight): State<Sight>, Asked(query): Asked<OrderQuery>) -> Result<Response, Refused> {
    match fleet(&sight)?.order(&query.id) {
        Some(order) => Ok(Json(order).into_response()),
        None => Err((
            StatusCode::NOT_FOUND,
            "this change is not known here (any more): the history tells whether it was committed\n"
                .to_owned(),
        )),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyQuery {
    expect: Option<u64>,
    #[serde(default)]
    why: String,
    by: Option<String>,
}

async fn apply(
    State(sight): State<Sight>,
    Extension(caller): Extension<Caller>,
    query: Result<Asked<ApplyQuery>, Refused>,
    text: Result<String, StringRejection>,
) -> Result<String, Refused> {
    let Asked(query) = query?;
    let text = text.map_err(|error| (error.status(), lines(&[error.body_text()])))?;
    let wanted = Wanted {
        text,
        expect: query.expect,
        who: who(query.by, &caller),
        why: query.why,
    };
    let order = fleet(&sight)?.apply(wanted).map_err(conflict)?;
    Ok(lines(&[order]))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackQuery {
    to: u64,
    #[serde(default)]
    accounts: bool,
    expect: Option<u64>,
    #[serde(default)]
    why: String,
    by: Option<String>,
}

async fn rollback(
    State(sight): State<Sight>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<RollbackQuery>,
) -> Result<String, Refused> {
    let fleet = fleet(&sight)?;
    let why = format!("rollback to {}", query.to);
    let wanted = Wanted {
        text: String::new(),
        expect: query.expect,
        who: who(query.by, &caller),
        why: match query.why.as_str() {
            "" => why,
            words => format!("{why}: {words}"),
        },
    };
    let order = fleet.roll_back(query.to, query.accounts, wanted).await;
    Ok(lines(&[order.map_err(conflict)?]))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextQuery {
    revision: Option<u64>,
}

async fn text(State(sight): State<Sight>, Asked(query): Asked<TextQuery>) -> Result<String, Refused> {
    let (_, text) = fleet(&sight)?.text(query.revision).await.map_err(conflict)?;
    Ok(text)
}

/// Has all gateways do what this one has done, where it is one of several.
pub(crate) async fn for_all(sight: &Sight, here: bool, deed: Result<Deed, String>) -> Result<(), String> {
    let deed = deed?;
    match sight.gateway.fleet().filter(|_| !here) {
        Some(fleet) => fleet.wish(deed, true).await,
        None => Ok(()),
    }
}

/// Takes a deed back for all gateways. `undone`: what came of that on this one. A deed is taken back for all
/// even if this gateway lacks its server or cluster: a gateway that has them would do it again at its start.
pub(crate) async fn for_none(
    sight: &Sight,
    here: bool,
    deed: Option<Deed>,
    undone: Result<(), String>,
) -> Result<(), String> {
    let Some(fleet) = sight.gateway.fleet().filter(|_| !here) else {
        return undone;
    };
    let Some(deed) = deed else { return undone };
    let for_all = fleet.wish(deed, false).await;
    match (undone, for_all) {
        (Ok(()), for_all) => for_all,
        (Err(why), Ok(())) => Err(format!("{why}; for all gateways it is taken back")),
        (Err(why), Err(of_all)) => Err(format!("{why}; for all gateways: {of_all}")),
    }
}

/// The name that somebody gives himself, which nobody has checked, and by which door he has come.
fn who(by: Option<String>, caller: &Caller) -> String {
    let is_plain = |letter: &char| !letter.is_control();
    let by = by.unwrap_or_default();
    let by: String = by.chars().filter(is_plain).take(NAME_MAX).collect();
    match by.as_str() {
        "" => caller.to_string(),
        by => format!("{by} ({caller})"),
    }
}
