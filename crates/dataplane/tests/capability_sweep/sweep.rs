//! All combinations of one plugin, side by side.

use std::sync::Arc;

use testkit::scripted::{Client, ClientError, Identity, Plugin, Seen, ServerScript, Tape, Taped};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::combination::Combination;
use crate::exchanges;
use crate::logins::{self, Joining};
use crate::stage::{PASSWORD, Stage};

/// Sessions under way at the same time.
const SESSIONS: usize = 16;

/// Sweeps with servers that want this plugin.
pub(crate) fn run(plugin: Plugin) {
    run_with(plugin, |_| {});
}

/// The same with servers that differ in other ways, too.
pub(crate) fn run_with(plugin: Plugin, change: impl Fn(&mut ServerScript)) {
    let mut script = ServerScript {
        plugin,
        ..ServerScript::default()
    };
    change(&mut script);
    block_on(async {
        let stage = Arc::new(Stage::start(&script).await);
        let script = Arc::new(script);
        let failures = each(Combination::all(), |combination| {
            session(Arc::clone(&stage), Arc::clone(&script), combination)
        });
        let failures = failures.await;
        assert!(
            failures.is_empty(),
            "{plugin:?}: {} fail\n{}",
            failures.len(),
            failures[..failures.len().min(3)].join("\n")
        );
    });
}

/// Runs on a runtime of this thread.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(test);
}

/// Runs the combinations, some at a time; returns what failed, with the combination's name.
pub(crate) async fn each<F>(combinations: Vec<Combination>, run: impl Fn(Combination) -> F) -> Vec<String>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let seats = Arc::new(Semaphore::new(SESSIONS));
    let mut running = JoinSet::new();
    for combination in combinations {
        let seats = Arc::clone(&seats);
        let session = run(combination);
        running.spawn(async move {
            let _seat = seats.acquire().await;
            session.await.map_err(|error| format!("{combination}: {error}"))
        });
    }
    let ended = running.join_all().await;
    ended.into_iter().filter_map(Result::err).collect()
}

/// One session from the connect to COM_QUIT, and what both ends have of it afterwards.
async fn session(
    stage: Arc<Stage>,
    script: Arc<ServerScript>,
    combination: Combination,
) -> Result<(), String> {
    let (address, server) = stage.front(combination.back);
    let database = format!("sweep_{}", combination.number).into_bytes();
    let tape = Tape::default();
    let default = stage.identity(&combination);
    let plugin = if combination.names_plugin {
        script.plugin.name()
    } else {
        default.plugin
    };
    let mut identity = Identity {
        capabilities: default.capabilities | script.plugin.capabilities(),
        plugin,
        database: Some(database.clone()),
        tape: Some(tape.clone()),
        ..default
    };
    if !script
        .capabilities
        .contains(mysql_wire::Capabilities::LONG_PASSWORD)
    {
        identity
            .capabilities
            .remove(mysql_wire::Capabilities::LONG_PASSWORD);
    }
    let joining = if script.accepts_anyone {
        Joining::AsItIs
    } else {
        logins::joining(script.plugin, &combination)
    };
    match (Client::connect(address, &identity).await, joining) {
        (Ok(client), Joining::AsItIs | Joining::TowardServer(_) | Joining::TowardClient(_)) => {
            exchanges::run(client).await?;
        }
        (Err(ClientError::Refused(error)), Joining::Refused) => logins::check_refusal(&error)?,
        (Ok(_), Joining::Refused) => return Err("the login should have been refused".into()),
        (Err(error), _) => return Err(format!("login: {error}")),
    }
    let is_ours = |seen: &Seen| {
        seen.login
            .as_ref()
            .is_some_and(|login| login.database.as_ref() == Some(&database))
    };
    let seen = server
        .take(is_ours)
        .await
        .ok_or("the server has not seen the session's end")?;
    compare(&identity, &combination, joining, &tape.take(), &seen)
}

fn compare(
    identity: &Identity,
    combination: &Combination,
    joining: Joining,
    client: &[Taped],
    seen: &Seen,
) -> Result<(), String> {
    let server = seen.tape.take();
    if combination.plain_server_behind_secure_client() && logins::shows(&server, PASSWORD) {
        return Err("the password is on the plain link to the server".into());
    }
    if seen.encrypted != combination.back.tls {
        return Err("TLS to the server is not as configured".into());
    }
    let client = logins::Passed::at_client(client, seen.negotiated);
    let server = logins::Passed::at_server(&server, seen.negotiated);
    logins::compare(identity, combination, joining, &client.logins, &server.logins)?;
    if client.commands != server.commands {
        return Err(first_difference(&client.commands, &server.commands));
    }
    Ok(())
}

fn first_difference(sent: &[testkit::scripted::Packet], received: &[testkit::scripted::Packet]) -> String {
    let at = sent
        .iter()
        .zip(received)
        .take_while(|(one, other)| one == other)
        .count();
    let show = |packet: Option<&testkit::scripted::Packet>| match packet {
        Some(packet) => format!(
            "number {}, {} bytes {:02x?}",
            packet.sequence,
            packet.payload.len(),
            &packet.payload[..packet.payload.len().min(24)]
        ),
        None => "nothing".to_owned(),
    };
    format!(
        "packet {at} of the client's commands: sent {}, received {}",
        show(sent.get(at)),
        show(received.get(at))
    )
}
