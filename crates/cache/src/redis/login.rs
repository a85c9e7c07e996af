//! `AUTH` and `HELLO`: who a client is, and which protocol it speaks.

use dataplane::extension::ProtocolSession;
use dataplane::password_login::NotAdmitted;
use resp_wire::{Args, Version, Writer, parse_integer};

use super::client::said;
use super::refusal::{Refusal, shown};
use super::session::Session;

/// Of Redis: what this server's commands and replies are like. Some clients want to know that much: those
/// that keep values themselves ask for a server `redis` of at least this version.
pub(crate) const REDIS_VERSION: &str = "7.4.0";

/// The user of `AUTH` with a password alone.
const DEFAULT_USER: &[u8] = b"default";

/// `AUTH [user] password`.
pub(crate) async fn auth(
    session: &mut Session,
    control: &ProtocolSession,
    args: Args<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let (user, password) = match (args.get(1), args.get(2), args.len()) {
        (Some(password), None, 2) => (DEFAULT_USER, password),
        (Some(user), Some(password), 3) => (user, password),
        _ => return Err(Refusal::Syntax),
    };
    match log_in(session, control, user, password).await {
        Err(Refusal::Denied(reason)) if args.len() == 2 => return Err(Refusal::DeniedWithoutUser(reason)),
        done => done?,
    }
    out.simple("OK");
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
///
/// # Errors
/// What the client is told. Nothing has changed then, but perhaps the user.
pub(crate) async fn hello(
    session: &mut Session,
    control: &ProtocolSession,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let version = match args.get(1).map(parse_integer) {
        None => session.version,
        Some(Some(2)) => Version::V2,
        Some(Some(3)) => Version::V3,
        Some(Some(_)) => return Err(Refusal::Protocol),
        Some(None) => {
            let text = "Protocol version is not an integer or out of range";
            return Err(Refusal::Other(text.into()));
        }
    };
    let (mut login, mut name) = (None, None);
    let mut rest = args.from(2);
    while let Some(option) = rest.get(0) {
        let taken = match option.to_ascii_lowercase().as_slice() {
            b"auth" if rest.len() >= 3 => {
                login = rest.get(1).zip(rest.get(2));
                3
            }
            b"setname" if rest.len() >= 2 => {
                name = Some(said(rest, 1, "Client names")?);
                2
            }
            _ => {
                let option = shown(option);
                return Err(Refusal::Other(format!("Syntax error in HELLO option '{option}'")));
            }
        };
        rest = rest.from(taken);
    }
    match login {
        Some((user, password)) => log_in(session, control, user, password).await?,
        None if session.identity.is_none() => return Err(Refusal::HelloWithoutLogin),
        None => {}
    }
    if let Some(name) = name {
        session.listed.tell(|told| told.name = name);
    }
    session.speak(version);
    greet(control, &mut Writer::new(out, version));
    Ok(())
}

fn greet(control: &ProtocolSession, out: &mut Writer<'_>) {
    let text = |out: &mut Writer<'_>, name: &str, value: &str| {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    };
    out.map(7);
    text(out, "server", "redis");
    text(out, "version", REDIS_VERSION);
    out.bulk(b"proto");
    out.integer(out.version() as i64);
    out.bulk(b"id");
    out.integer(i64::from(control.id()));
    text(out, "mode", "standalone");
    text(out, "role", "master");
    out.bulk(b"modules");
    out.array(0);
}

async fn log_in(
    session: &mut Session,
    control: &ProtocolSession,
    user: &[u8],
    password: &[u8],
) -> Result<(), Refusal> {
    let denied = || Refusal::Denied(NotAdmitted::Denied.to_string());
    let user = str::from_utf8(user).map_err(|_| denied())?;
    let password = str::from_utf8(password).map_err(|_| denied())?;
    let admitted = control
        .authenticate(user, password, session.identity.as_mut())
        .await;
    let identity = admitted.map_err(|error| match error {
        NotAdmitted::Denied => Refusal::Denied(error.to_string()),
        NotAdmitted::TooMany(_) | NotAdmitted::TooManyFailures | NotAdmitted::Unchecked(_) => {
            Refusal::NotAdmitted(error.to_string())
        }
    })?;
    session.admit(identity);
    Ok(())
}
