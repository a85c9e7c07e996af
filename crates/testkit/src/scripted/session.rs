//! One session of the scripted server.

use std::io;
use std::time::Duration;

use mysql_wire::{Capabilities, ChangeUser, Command, ErrPacket, Greeting, Login, SslRequest, StatusFlags};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::{
    Plugin, Reply, Script,
    client::compression_of,
    link::{Link, within},
    server::{ServerScript, Shared},
    state::State,
    tape::Tape,
};

pub(super) struct Session<'a> {
    pub shared: &'a Shared,
    pub number: usize,
    pub tape: Tape,
}

impl Session<'_> {
    pub(super) async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let script = &self.shared.script;
        let mut link = Link::new(stream, 0, Some(self.tape.clone()), script.cuts.clone());
        if let Some(refusal) = self.shared.refusal() {
            let mut payload = Vec::new();
            refusal.encode(&mut payload, Capabilities(0));
            return link.write_payload(&payload).await;
        }
        let mut payload = Vec::new();
        self.greeting().encode(&mut payload);
        link.write_payload(&payload).await?;

        let mut first = link.read_payload(false).await?;
        let encrypted = SslRequest::is_ssl_request(&first);
        if encrypted {
            (link, first) = self.encrypt(link).await?;
        }
        let login = Login::decode(&first).map_err(io::Error::other)?;
        let negotiated = login.capabilities & self.offered();
        self.shared.note(self.number, |seen| {
            (seen.encrypted, seen.negotiated, seen.login) = (encrypted, negotiated, Some(login.clone()));
        });
        let named = login.auth_plugin.unwrap_or_default();
        if script
            .refuses_plugin
            .is_some_and(|plugin| named == plugin.as_bytes())
        {
            return link.write_payload(&access_denied(negotiated)).await;
        }
        let response = (named == script.plugin.name().as_bytes() && script.plugin.starts_from_greeting())
            .then_some(login.auth_response);
        if !self
            .authenticate(&mut link, script.plugin, negotiated, response, encrypted)
            .await?
        {
            return Ok(());
        }
        if let Some(algorithm) = compression_of(negotiated) {
            link.compress(algorithm);
        }
        self.commands(link, negotiated, encrypted, login.database.unwrap_or_default())
            .await
    }

    async fn encrypt(&self, mut link: Link) -> io::Result<(Link, Vec<u8>)> {
        let config = self
            .shared
            .script
            .tls
            .clone()
            .ok_or_else(|| io::Error::other("TLS was not offered"))?;
        let (sequence, tape, cuts) = (link.sequence, link.tape.take(), link.cuts.take());
        let stream = within(TlsAcceptor::from(config).accept(link.into_stream())).await?;
        let mut link = Link::new(stream, sequence, tape, cuts);
        let first = link.read_payload(false).await?;
        Ok((link, first))
    }

    /// Asks for a switch where there is no response to this plugin yet, then sends the verdict. False: it was
    /// refused.
    async fn authenticate(
        &self,
        link: &mut Link,
        plugin: Plugin,
        negotiated: Capabilities,
        response: Option<Vec<u8>>,
        encrypted: bool,
    ) -> io::Result<bool> {
        let ServerScript {
            password,
            accepts_anyone,
            ..
        } = &self.shared.script;
        if *accepts_anyone {
            link.write_payload(&Script::new(negotiated).welcome()).await?;
            self.shared.note(self.number, |seen| seen.logged_in = true);
            return Ok(true);
        }
        let (nonce, response) = match response {
            Some(response) => (self.nonce(0), response),
            None => {
                let nonce = self.nonce(1);
                link.write_payload(&plugin.switch(&nonce)).await?;
                (nonce, link.read_payload(false).await?)
            }
        };
        let accepted = plugin.verify(link, &nonce, response, encrypted, password).await?;
        let payload = match accepted {
            true => Script::new(negotiated).welcome(),
            false => access_denied(negotiated),
        };
        link.write_payload(&payload).await?;
        self.shared.note(self.number, |seen| seen.logged_in = accepted);
        Ok(accepted)
    }

    async fn commands(
        &self,
        mut link: Link,
        negotiated: Capabilities,
        encrypted: bool,
        schema: Vec<u8>,
    ) -> io::Result<()> {
        let mut script = Script::new(negotiated);
        let new_state = |schema| {
            let initial = self.shared.script.remembers?;
            Some(State::new(negotiated, initial, schema))
        };
        let mut state = new_state(schema);
        loop {
            let request = link.read_payload(true).await?;
            self.shared
                .note(self.number, |seen| seen.requests.push(request.clone()));
            if request.first() == Some(&Command::CHANGE_USER.0) {
                let change = ChangeUser::decode(&request, negotiated).map_err(io::Error::other)?;
                self.shared.note(self.number, |seen| {
                    if let Some(login) = &mut seen.login {
                        login.user = change.user;
                    }
                });
                let plugin = self
                    .shared
                    .script
                    .change_plugin
                    .unwrap_or(self.shared.script.plugin);
                if !self
                    .authenticate(&mut link, plugin, negotiated, None, encrypted)
                    .await?
                {
                    return Ok(());
                }
                script = Script::new(negotiated);
                state = new_state(change.database);
                continue;
            }
            let special = self.special(&request).await;
            let of_state = || state.as_mut().and_then(|state| state.reply(&request));
            let reply = special.or_else(of_state);
            let mut reply = reply.unwrap_or_else(|| script.reply(&request));
            if let Some(state) = &state {
                state.mark(request.first(), &mut reply);
            }
            match reply {
                Reply::Payloads(payloads) => link.write_payloads(&payloads).await?,
                Reply::LocalInfile(ask, then) => {
                    link.write_payload(&ask).await?;
                    while !link.read_packet(false).await?.payload.is_empty() {}
                    link.write_payloads(&then).await?;
                }
                Reply::Cut(bytes) => return link.write(&bytes).await,
                Reply::Part(bytes) => link.write(&bytes).await?,
                Reply::Silence | Reply::Later => {}
            }
        }
    }

    /// What is answered in the place of the script. A server that has no answer yet reads nothing meanwhile.
    async fn special(&self, request: &[u8]) -> Option<Reply> {
        const AGAIN_AFTER: Duration = Duration::from_millis(1);
        let special = self.shared.script.special.as_ref()?;
        loop {
            match special(request) {
                Some(Reply::Later) => sleep(AGAIN_AFTER).await,
                reply => return reply,
            }
        }
    }

    fn greeting(&self) -> Greeting {
        let script = &self.shared.script;
        Greeting {
            server_version: script.version.clone().into(),
            connection_id: self.number as u32 + 1,
            nonce: self.nonce(0),
            capabilities: self.offered(),
            charset: 45,
            status: StatusFlags::AUTOCOMMIT,
            auth_plugin: script.plugin.name().into(),
        }
    }

    fn offered(&self) -> Capabilities {
        let ServerScript {
            capabilities, tls, ..
        } = &self.shared.script;
        if tls.is_some() {
            *capabilities | Capabilities::SSL
        } else {
            capabilities.without(Capabilities::SSL)
        }
    }

    /// Different for every session and challenge, so that a response to another one is noticed. No byte is 0.
    fn nonce(&self, challenge: u8) -> [u8; 20] {
        std::array::from_fn(|at| 1 + ((self.number * 31 + at * 7 + usize::from(challenge) * 59) % 120) as u8)
    }
}

fn access_denied(negotiated: Capabilities) -> Vec<u8> {
    let mut payload = Vec::new();
    ErrPacket {
        code: 1045,
        sql_state: *b"28000",
        message: b"Access denied: the password does not match".to_vec(),
    }
    .encode(&mut payload, negotiated);
    payload
}
