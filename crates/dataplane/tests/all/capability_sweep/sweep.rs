//! One test: a stage, the combinations that are played on it side by side, and what both ends have of each
//! afterwards.

use std::rc::Rc;

use mysql_wire::Capabilities;
use testkit::scripted::{
    Client, ClientError, Compression, Identity, Packet, Plugin, Seen, ServerScript, Tape, Taped,
};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;

use super::combination::Combination;
use super::exchanges;
use super::logins::{self, Joining, Passed};
use super::stage::{PASSWORD, Stage};

/// What the gateway has on each link by itself.
const COMPRESSION: Capabilities = Capabilities::COMPRESS.with(Capabilities::ZSTD_COMPRESSION);
/// Failures that are told in full.
const TOLD: usize = 3;

/// What is played.
pub(crate) struct Sweep {
    pub(crate) script: ServerScript,
    /// Further options of every cluster.
    pub(crate) options: &'static str,
    /// What is different about the clients.
    pub(crate) client: fn(&mut Identity),
    /// The password of a change of user.
    pub(crate) changed_to: &'static [u8],
    pub(crate) combinations: Vec<Combination>,
    /// Sessions under way at the same time.
    pub(crate) side_by_side: usize,
}

impl Sweep {
    /// All combinations with servers that want this plugin.
    pub(crate) fn of(plugin: Plugin) -> Self {
        Self {
            script: ServerScript {
                plugin,
                password: PASSWORD.to_vec(),
                ..ServerScript::default()
            },
            options: "",
            client: |_| {},
            changed_to: PASSWORD,
            combinations: Combination::all(),
            side_by_side: 24,
        }
    }

    /// The combinations without what is different only after the login.
    pub(crate) fn logins_only(mut self) -> Self {
        self.combinations.retain(|one| {
            one.client_compression.is_none() && one.back.compression.is_none() && !one.session_track
        });
        self
    }

    /// Plays everything that [`exchanges`] has.
    pub(crate) fn run(self) {
        let password = self.script.password.clone();
        self.play(async move |client| exchanges::run(client, &password).await);
    }

    /// Logs in for each combination and does `act`, which ends the session. Fails with the names of those
    /// that failed.
    pub(crate) fn play(self, act: impl AsyncFn(Client) -> Result<(), String> + 'static) {
        block_on(async {
            let stage = Stage::start_with(&self.script, self.options, None).await;
            let combinations = self.combinations.clone();
            let scene = Rc::new((self, stage, act));
            let seats = Rc::new(Semaphore::new(scene.0.side_by_side));
            let begin = |combination: Combination| {
                let (seats, scene) = (Rc::clone(&seats), Rc::clone(&scene));
                spawn_local(async move {
                    let _seat = seats.acquire().await;
                    let (sweep, stage, act) = &*scene;
                    let played = sweep.session(stage, &combination, act).await;
                    played.map_err(|error| format!("{combination}: {error}"))
                })
            };
            let running: Vec<_> = combinations.into_iter().map(begin).collect();
            let mut failures = Vec::new();
            for session in running {
                failures.extend(session.await.unwrap().err());
            }
            let told = failures[..failures.len().min(TOLD)].join("\n");
            let plugin = scene.0.script.plugin;
            assert!(failures.is_empty(), "{plugin:?}: {} fail\n{told}", failures.len());
        });
    }

    /// One session from the connect to its end, and what both ends have of it.
    async fn session(
        &self,
        stage: &Stage,
        combination: &Combination,
        act: &impl AsyncFn(Client) -> Result<(), String>,
    ) -> Result<(), String> {
        let (address, server) = stage.front(combination.back);
        let (identity, tape) = (self.identity(stage, combination), Tape::default());
        let identity = Identity {
            tape: Some(tape.clone()),
            ..identity
        };
        let joining = self.joining(&identity, combination);
        let knows_password = identity.password == self.script.password;
        match (Client::connect(address, &identity).await, joining) {
            (Err(ClientError::Refused(error)), Joining::Refused) => logins::check_refusal(&error)?,
            (_, Joining::Refused) => return Err("the login should have been refused".into()),
            (Ok(client), _) if knows_password => {
                self.check_greeting(&identity, &client)?;
                act(client).await?;
            }
            (Ok(_), _) => return Err("the login should have been refused by the server".into()),
            (Err(ClientError::Refused(error)), _) if !knows_password && error.code == 1045 => {}
            (Err(error), _) => return Err(format!("login: {error}")),
        }
        let is_ours = |seen: &Seen| {
            let login = seen.login.as_ref();
            login.is_some_and(|login| login.database == identity.database)
        };
        let seen = server.take(is_ours).await;
        let seen = seen.ok_or("the server has not seen the session's end")?;
        self.compare(&identity, combination, &tape.take(), &seen)
    }

    /// Both sides get what both can.
    fn check_greeting(&self, identity: &Identity, client: &Client) -> Result<(), String> {
        let can = identity.capabilities & (self.script.capabilities | COMPRESSION);
        let missing = can.without(client.negotiated());
        if missing != Capabilities::default() {
            return Err(format!(
                "client and server both have {missing:?} and do not get it"
            ));
        }
        let version = &client.greeting().server_version;
        (version == self.script.version.as_bytes())
            .then_some(())
            .ok_or_else(|| format!("the greeting says {}", String::from_utf8_lossy(version)))
    }

    fn identity(&self, stage: &Stage, combination: &Combination) -> Identity {
        let mut identity = stage.identity(combination);
        identity.capabilities.insert(self.script.plugin.capabilities());
        if !self.script.capabilities.contains(Capabilities::LONG_PASSWORD) {
            identity.capabilities.remove(Capabilities::LONG_PASSWORD);
        }
        if combination.names_plugin {
            identity.plugin = self.script.plugin.name();
        }
        identity.database = Some(format!("sweep_{}", combination.number).into_bytes());
        (self.client)(&mut identity);
        identity
    }

    fn joining(&self, identity: &Identity, combination: &Combination) -> Joining {
        let two_factors = matches!(
            self.script.plugin,
            Plugin::TwoFactorsSha256 | Plugin::TwoFactorsClear
        );
        let ends_with_first = two_factors && identity.password != self.script.password;
        if self.script.accepts_anyone || ends_with_first {
            return Joining::AsItIs;
        }
        let empty = self.script.password.is_empty();
        logins::joining(self.script.plugin, combination, self.options, empty)
    }

    fn compare(
        &self,
        identity: &Identity,
        combination: &Combination,
        client: &[Taped],
        seen: &Seen,
    ) -> Result<(), String> {
        let (server, joining) = (seen.tape.take(), self.joining(identity, combination));
        let plain_behind_secure = combination.client_tls && !combination.back.tls;
        let may_be_shown = !self.options.is_empty() || identity.password.is_empty();
        let secrets = [identity.password.as_slice(), self.changed_to];
        let is_shown = || secrets.into_iter().any(|secret| logins::shows(&server, secret));
        if plain_behind_secure && !may_be_shown && is_shown() {
            return Err("the password is on the plain link to the server".into());
        }
        if seen.encrypted != combination.back.tls {
            return Err("TLS to the server is not as configured".into());
        }
        let asked = seen
            .login
            .as_ref()
            .map(|login| login.capabilities)
            .unwrap_or_default();
        let beyond = asked.without(self.script.capabilities | Capabilities::SSL);
        if beyond != Capabilities::default() {
            return Err(format!(
                "the server was asked for {beyond:?}, which it does not have"
            ));
        }
        let compression = match combination.back.compression {
            None => Capabilities::default(),
            Some(Compression::Zlib) => Capabilities::COMPRESS,
            Some(Compression::Zstd) => Capabilities::ZSTD_COMPRESSION,
        };
        if asked & COMPRESSION != compression & self.script.capabilities {
            return Err("compression to the server is not as configured".into());
        }
        let (client, server) = (Passed::at_client(client), Passed::at_server(&server));
        let (at_client, at_server) = (&client.logins, &server.logins);
        logins::compare(
            identity,
            combination,
            joining,
            self.changed_to,
            at_client,
            at_server,
        )?;
        if client.commands == server.commands {
            Ok(())
        } else {
            Err(first_difference(&client.commands, &server.commands))
        }
    }
}

/// Runs on a runtime of this thread.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default());
    runtime.unwrap().block_on(test);
}

fn first_difference(sent: &[Packet], received: &[Packet]) -> String {
    let same = |(one, other): &(&Packet, &Packet)| one == other;
    let at = sent.iter().zip(received).take_while(same).count();
    let show = |packets: &[Packet]| match packets.get(at) {
        Some(Packet { sequence, payload }) => {
            let start = &payload[..payload.len().min(24)];
            format!("number {sequence}, {} bytes {start:02x?}", payload.len())
        }
        None => "nothing".to_owned(),
    };
    let (sent, received) = (show(sent), show(received));
    format!("packet {at} of the client's commands: sent {sent}, received {received}")
}
