//! Who may ask for what.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use telemetry::{Refusal, Telemetry};

use crate::Gateway;

/// How much of a request is in the log.
const ASKED_MAX: usize = 300;
/// Refused requests have one line in the log for each such time and reason; all are counted.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What every answer may need.
#[derive(Clone)]
pub(crate) struct Sight {
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) gateway: Arc<dyn Gateway>,
    pub(crate) refusals: Arc<Refusals>,
    /// What this machine is called.
    pub(crate) machine: Arc<str>,
}

#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Anybody who reaches the address.
    Tcp(SocketAddr),
    /// Root or the gateway's own system user.
    Socket { uid: u32 },
}

impl Caller {
    fn is_local(&self) -> bool {
        matches!(self, Self::Socket { .. })
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Socket { uid } => write!(f, "system user {uid}"),
        }
    }
}

/// Counts requests that are refused, and has the log tell of some: whoever sends many would fill it.
pub(crate) struct Refusals {
    telemetry: Arc<Telemetry>,
    told: [Mutex<RefusalLog>; Refusal::ALL.len()],
}

#[derive(Default)]
struct RefusalLog {
    last: Option<Instant>,
    untold: u64,
}

impl Refusals {
    pub(crate) fn new(telemetry: Arc<Telemetry>) -> Self {
        Self {
            telemetry,
            told: Default::default(),
        }
    }

    pub(crate) fn note(&self, why: Refusal, by: &impl fmt::Display, asked: &str) {
        self.telemetry.control.admin_refused(why);
        let mut told = self.told[why as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.last.is_some_and(|last| last.elapsed() < TELL_EVERY) {
            told.untold += 1;
            return;
        }
        let untold = std::mem::take(&mut told.untold);
        told.last = Some(Instant::now());
        tracing::warn!(%by, asked, why = why.label(), refused_before = untold, "admin request refused");
    }
}

/// Takes acts from the socket, and from the address with the token; notes who has asked for what.
pub(crate) async fn take_acts(
    State(sight): State<Sight>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if !matches!(*request.method(), Method::PUT | Method::POST) {
        return next.run(request).await;
    }
    let asked = asked(&request);
    if !caller.is_local()
        && let Some((why, response)) = without_token(&sight, request.headers())
    {
        sight.refusals.note(why, &caller, &asked);
        return response;
    }
    // Before it is done, since it may change what is logged.
    tracing::info!(by = %caller, asked, "act");
    let response = next.run(request).await;
    tracing::info!(by = %caller, asked, status = response.status().as_u16(), "act answered");
    response
}

/// Shows what a configuration has, or texts of clients, to whoever may act, and to nobody else.
pub(crate) async fn show_to_operators(
    State(sight): State<Sight>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if !caller.is_local()
        && let Some((why, response)) = without_token(&sight, request.headers())
    {
        sight.refusals.note(why, &caller, &asked(&request));
        return response;
    }
    next.run(request).await
}

/// What an act is answered that does not come with the token.
fn without_token(sight: &Sight, headers: &HeaderMap) -> Option<(Refusal, Response)> {
    const NO_FILE: &str = "refused: this address takes no acts and shows neither configurations nor statements. Use forebay ctl on the gateway's machine (`socket` in [admin]), \
                           or set `token_file` in [admin]\n";
    // A token among the arguments of a program is shown to everybody on the machine.
    const NO_TOKEN: &str = "refused: this needs the token of the file `token_file` in [admin]: \
                            forebay ctl --address HOST:PORT --token-file FILE, forebay ctl on the gateway's machine, or \
                            curl -H @<(printf 'Authorization: Bearer %s' \"$(cat FILE)\")\n";
    const WRONG_TOKEN: &str = "refused: this is not the token of the file `token_file` in [admin], as the gateway has read it last: \
                               at its start, or at a reload\n";
    let given = headers.get(AUTHORIZATION).map(|value| bearer(value.as_bytes()));
    let (challenge, text) = match (sight.gateway.is_token(given.flatten().unwrap_or_default()), given) {
        (Some(true), _) => return None,
        (None, _) => {
            let response = (StatusCode::FORBIDDEN, NO_FILE).into_response();
            return Some((Refusal::NoTokenFile, response));
        }
        (Some(false), None) => ("Bearer realm=\"forebay\"", NO_TOKEN),
        (Some(false), Some(_)) => ("Bearer realm=\"forebay\", error=\"invalid_token\"", WRONG_TOKEN),
    };
    let head = [(WWW_AUTHENTICATE, challenge)];
    Some((
        Refusal::Token,
        (StatusCode::UNAUTHORIZED, head, text).into_response(),
    ))
}

/// What stands behind `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Refuses requests by a name that is not this gateway's: a page that has given its own name to this address
/// could read here, since it is of the same origin then. Whoever asks without a name is no browser.
pub(crate) async fn refuse_foreign_names(
    State(sight): State<Sight>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    const NAME_MAX: usize = 100;
    let hosts = request.headers().get_all(HOST).into_iter();
    // The target may name somebody as well: `GET http://name/status`.
    let target = request.uri().host().map(str::as_bytes);
    let mut names = hosts.map(HeaderValue::as_bytes).chain(target);
    let is_foreign = |name: &&[u8]| !is_own(name, &sight);
    let foreign = names.find(is_foreign).filter(|_| !caller.is_local());
    let Some(foreign) = foreign else {
        return next.run(request).await;
    };
    let foreign: String = String::from_utf8_lossy(foreign).chars().take(NAME_MAX).collect();
    let asked = format!("{} of {foreign:?}", asked(&request));
    sight.refusals.note(Refusal::Host, &caller, &asked);
    let why = format!(
        "refused: {foreign:?} (Host) is no name of this gateway: add it to `hosts` in [admin], or ask by IP address\n"
    );
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

fn is_own(host: &[u8], sight: &Sight) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let name = without_port(host);
    let is = |own: &str| without_port(own).eq_ignore_ascii_case(name);
    let short = sight.machine.split('.').next().unwrap_or_default();
    name.is_empty()
        || is_address(name)
        || is("localhost")
        || is(&sight.machine)
        || is(short)
        || sight.gateway.hosts().iter().any(|own| is(own))
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    bare.unwrap_or(name).parse::<IpAddr>().is_ok()
}

fn without_port(host: &str) -> &str {
    let host = host.trim();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !is_address(host) && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Refuses requests that change something and come from a page in a browser.
///
/// Browsers send `Origin` with every PUT and POST, also to the page's own origin. Tools (`curl`, Kubernetes,
/// Prometheus) do not send it. Reads are not refused: a page of another origin cannot see the answer.
pub(crate) async fn refuse_browsers(
    State(sight): State<Sight>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && request.headers().contains_key(ORIGIN) {
        sight.refusals.note(Refusal::Page, &caller, &asked(&request));
        let why = "refused: this request comes from a web page (it has an Origin header)\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

/// A request for the log, cut short.
fn asked(request: &Request) -> String {
    let asked = format!("{} {}", request.method(), request.uri());
    asked.chars().take(ASKED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_no_part_of_names() {
        for (host, name) in [
            ("gateway", "gateway"),
            ("gateway.example.:6080", "gateway.example"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("[::1]:6080", "[::1]"),
            ("::1", "::1"),
            ("", ""),
        ] {
            assert_eq!(without_port(host), name);
        }
        assert!(["10.0.0.1", "[::1]", "::1"].into_iter().all(is_address));
        assert!(
            !["10.0.0.1.example", "[gateway]", "[::1"]
                .into_iter()
                .any(is_address)
        );
    }

    #[test]
    fn the_word_before_a_token_has_no_case() {
        for value in ["Bearer secret", "bearer  secret ", "BEARER secret"] {
            assert_eq!(bearer(value.as_bytes()), Some(&b"secret"[..]));
        }
        for value in ["", "secret", "Basic secret", "Bearersecret"] {
            assert_eq!(bearer(value.as_bytes()), None, "{value}");
        }
    }
}
