//! A gateway as it should be: sessions on few connections, each given back after every statement that leaves
//! it free.

use std::collections::BTreeMap;
use std::rc::Rc;

use inputs::Random;
use mysql_wire::session_state::{Change, changes};
use mysql_wire::{Command, OkPacket, Outcome, StatusFlags};
use session::{
    Baseline, CANNOT, ClientTrackers, KnownConnection, PortableState, Prepared, Request, Session, Start,
    clear_diagnostics, cost, rebuild,
};
use sql_class::Dialect;

use super::Seen;
use super::connection::{self, Armed, Given, LOGIN_COLLATION};
use super::op::Op;
use super::server::{Reply, Server};

/// One client of the gateway.
struct Client {
    session: Session,
    held: Option<usize>,
    /// What was known of that when it came to hand.
    held_id: KnownConnection,
    /// The client's statements: their ids at the session, and whether they are prepared at all.
    slots: [Option<u32>; 3],
    /// A command of the gateway's own has got what the next OK would have told the client.
    trackers_differ: bool,
    /// Its last statement had SQL_CALC_FOUND_ROWS.
    calculated: bool,
}

pub(crate) struct Gateway {
    pub(crate) server: Server,
    clients: Vec<Client>,
    /// What each connection has, as the gateway knows it; `None` while a session holds it.
    idle: Vec<Option<Rc<PortableState>>>,
    /// What else is known of each.
    ids: Vec<KnownConnection>,
    baseline: Rc<Baseline>,
    /// Statements as they were when their clients prepared them.
    meanings: BTreeMap<u32, connection::Prepared>,
    /// The last statement's trackers need not be the client's own.
    pub(crate) trackers_differ: bool,
}

/// A text that means the same under any schema.
const QUALIFIED: &[u8] = b"SELECT ? FROM shop.t";

/// What a statement came to, for one that only the server can answer.
pub(crate) const UNKNOWN: &str = "only the server knows";

impl Gateway {
    pub(crate) fn new(dialect: Dialect, clients: usize, tracks: bool) -> Self {
        let values = [
            ("autocommit", "ON"),
            ("character_set_client", "utf8mb4"),
            ("character_set_connection", "utf8mb4"),
            ("character_set_results", "utf8mb4"),
            ("collation_connection", LOGIN_COLLATION),
            ("sql_mode", "STRICT_TRANS_TABLES"),
            ("time_zone", "SYSTEM"),
        ];
        let baseline: Rc<Baseline> = Rc::new(
            values
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
        );
        let start = Start {
            schema: None,
            dialect,
            multi_statements: true,
            wants: match tracks {
                true => ClientTrackers::server_defaults(),
                false => ClientTrackers::none(),
            },
            baseline: Rc::clone(&baseline),
            session_pooling: false,
            trusts_functions: false,
            statements_max: 16,
        };
        let client = |at: usize| Client {
            session: Session::new(Start {
                schema: Gateway::schema(at).map(Into::into),
                ..start.clone()
            }),
            held: None,
            held_id: KnownConnection::UNKNOWN,
            slots: [None; 3],
            trackers_differ: false,
            calculated: false,
        };
        Gateway {
            server: Server::new(dialect),
            clients: (0..clients).map(client).collect(),
            idle: Vec::new(),
            ids: Vec::new(),
            baseline,
            meanings: BTreeMap::new(),
            trackers_differ: false,
        }
    }

    /// The schema that a client logs in with.
    pub(crate) fn schema(client: usize) -> Option<&'static str> {
        (client % 3 != 2).then_some("shop")
    }

    pub(crate) fn pins(&self, client: usize) -> Vec<&'static str> {
        self.clients[client]
            .session
            .pins()
            .iter()
            .map(|pin| pin.reason.label())
            .collect()
    }

    pub(crate) fn run(&mut self, at: usize, op: &Op, random: &mut Random, now_ms: u64) -> Vec<Seen> {
        if *op == Op::ResetConnection {
            return self.reset(at);
        }
        self.trackers_differ = false;
        let (facts, text) = (op.facts(), op.text());
        let id = op
            .slot()
            .and_then(|slot| self.clients[at].slots[usize::from(slot)]);
        let is_query = op.command() == Command::QUERY;
        let statement = Request {
            command: op.command(),
            facts: is_query.then_some(&facts),
            argument: id.unwrap_or(u32::from(*op == Op::SetOption(false))),
            digest: 0xfeed,
            text: if is_query { text.as_bytes() } else { b"" },
            now_ms,
        };
        if self.clients[at].held.is_some() && !self.clients[at].session.needs_its_connection(&statement) {
            self.learn_insert_id(at);
            self.give_back(at);
        }
        if let Op::Close(slot) = op {
            return self.close(at, *slot, &statement);
        }
        if *op == Op::Ping && self.clients[at].held.is_none() {
            return vec![Seen::Nothing];
        }

        let was_held = self.clients[at].held.is_some();
        let connection = self.lease(at, random);
        self.prime(at, connection, &statement);
        if let Op::Prepare(slot, _) = op {
            self.learn_meaning(at, connection);
            return self.prepare(at, connection, *slot, op, &statement);
        }
        if let (Some(id), Some(_)) = (id, op.slot()) {
            self.server.connections[connection].make_room(id_on_server(at, id), random);
            if !self.server.connections[connection].has_statement(id_on_server(at, id)) {
                self.prepare_again(at, connection, id, op, was_held);
            }
        }
        let holds_found_rows = self.clients[at].calculated;
        let session = &mut self.clients[at].session;
        let (row_count, found_rows) = (session.row_count(), session.found_rows());
        // Which of two lists holds for what is reported late, the server does not say.
        self.clients[at].trackers_differ |= matches!(op, Op::Track(..)) && session.is_pinned();
        let session = &mut self.clients[at].session;
        session.begin(&statement);
        let replies = self.server.run(connection, op, id_on_server(at, id.unwrap_or(0)));
        let mut seen = self.observe(at, op, &replies);
        match op {
            Op::RowCount => answer(&mut seen, row_count.to_string()),
            Op::FoundRows if found_rows.is_some() || !holds_found_rows => {
                let count = found_rows.map_or(UNKNOWN.into(), |rows| rows.to_string());
                answer(&mut seen, count);
            }
            _ => {}
        }
        self.clients[at].calculated = *op == Op::CalcFoundRows;
        self.settle(at, connection);
        self.trackers_differ = self.clients[at].trackers_differ;
        self.clients[at].trackers_differ &= !matches!(seen.last(), Some(Seen::Done { .. }));
        seen
    }

    /// Gives the connection what the statement needs there.
    fn prime(&mut self, at: usize, connection: usize, statement: &Request<'_>) {
        while let Some(payload) = self.clients[at].session.prime(statement) {
            let ok = self.send(connection, &payload);
            // What a statement that failed has set may be reported with it, and is not shown to the client
            // then.
            self.clients[at].trackers_differ |= self.clients[at].session.is_pinned();
            self.clients[at].session.observe_primed(&ok);
            if self.clients[at].session.asks_by_a_row() {
                let id = self.server.connections[connection].last_insert_id;
                self.clients[at].session.learn_insert_id_asked(id);
            }
        }
    }

    /// Tells the session what the server said.
    fn observe(&mut self, at: usize, op: &Op, replies: &[Reply]) -> Vec<Seen> {
        let session = &mut self.clients[at].session;
        if !op.command().has_response() {
            return vec![Seen::Nothing];
        }
        let mut outcome = Outcome::default();
        let mut seen = Vec::new();
        for reply in replies {
            match reply {
                Err(code) => {
                    outcome = Outcome {
                        error: Some(*code),
                        warnings: 0,
                        ..outcome
                    };
                    seen.push(Seen::Error(*code));
                }
                Ok((given, ok)) => {
                    let shown = match ok.status.contains(StatusFlags::SESSION_STATE_CHANGED) {
                        true => session.observe_ok(ok),
                        false => Vec::new(),
                    };
                    outcome = Outcome {
                        status: ok.status,
                        error: None,
                        has_status: true,
                        is_result_set: given.rows.is_some(),
                        warnings: ok.warnings,
                        affected_rows: ok.affected_rows,
                        last_insert_id: if ok.last_insert_id > 0 {
                            ok.last_insert_id
                        } else {
                            outcome.last_insert_id
                        },
                        rows: given.rows.as_ref().map_or(0, |rows| rows.len() as u64),
                    };
                    seen.push(Seen::of(given, ok, &shown));
                }
            }
        }
        session.end(&outcome);
        seen
    }

    /// After a statement: what the server was not heard to say is asked for, and the connection given back.
    fn settle(&mut self, at: usize, connection: usize) {
        if !self.clients[at].session.is_pinned() {
            self.learn_insert_id(at);
        }
        if let Some(question) = self.clients[at].session.ask_unseen() {
            let reply = self.server.connections[connection].ask_by_setting(&question, self.server.dialect);
            // What the statement has set before it failed is reported with it, and not shown to the client
            // then.
            self.clients[at].trackers_differ = true;
            match reply {
                Some(ok) => drop(self.clients[at].session.observe_ok(&ok)),
                None => self.clients[at].session.remains_unseen(),
            }
        }
        let session = &mut self.clients[at].session;
        for name in session.take_unnamed() {
            let name = str::from_utf8(&name).unwrap();
            let value = self.server.variable(connection, name);
            session.learn_value(name.as_bytes(), Some(value.as_bytes()));
        }
        if session.needs_rearming() {
            let now = self.server.connections[connection].tracking();
            self.server.connections[connection].armed = Armed::for_gateway();
            let ours = self.server.connections[connection].tracking();
            for ((name, value), (_, ours)) in now.iter().zip(ours) {
                if *value != ours {
                    session.learn_wish(name.as_bytes(), value.as_bytes());
                }
            }
            session.rearmed();
        }
        if !session.is_pinned() {
            self.give_back(at);
        }
    }

    /// Asks the connection that is about to be given back.
    fn learn_insert_id(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(connection) = client.held
            && !client.session.knows_last_insert_id()
        {
            let id = self.server.connections[connection].last_insert_id;
            client.session.learn_last_insert_id(id);
        }
    }

    fn give_back(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(connection) = client.held.take() {
            self.ids[connection] = client.session.connection_left(client.held_id);
            self.idle[connection] = Some(client.session.leave());
        }
    }

    /// Any idle connection that can be made this session's; a new one where there is none.
    fn lease(&mut self, at: usize, random: &mut Random) -> usize {
        if let Some(held) = self.clients[at].held {
            return held;
        }
        let want = Rc::clone(self.clients[at].session.carried());
        let fits =
            |have: &Option<Rc<PortableState>>| have.as_ref().is_some_and(|have| cost(&want, have) != CANNOT);
        let idle: Vec<usize> = (0..self.idle.len())
            .filter(|connection| fits(&self.idle[*connection]))
            .collect();
        let connection = if idle.is_empty() || self.idle.len() < 2 {
            self.idle.push(Some(Rc::new(PortableState::fresh(None, true))));
            self.ids.push(KnownConnection::FRESH);
            self.server.connect(Armed::for_gateway(), None)
        } else {
            idle[random.below(idle.len())]
        };
        let mut have = self.idle[connection].take().unwrap();
        if random.one_in(16) {
            self.server.reset(connection);
            self.server.connections[connection].armed = Armed::for_gateway();
            have = Rc::new(have.after_reset(self.server.dialect, &self.baseline));
            self.ids[connection] = KnownConnection::UNKNOWN;
        }
        let mut warned = false;
        for payload in rebuild(&want, &have, &self.baseline) {
            warned |= self.send(connection, &payload).warnings > 0;
        }
        if warned {
            self.send(connection, &clear_diagnostics());
        }
        let client = &mut self.clients[at];
        (client.held, client.held_id) = (Some(connection), self.ids[connection]);
        client.session.note_connection(client.held_id);
        let id = self.server.connections[connection].last_insert_id;
        assert!(
            client.held_id.insert_id().is_none_or(|known| known == id),
            "{:?} {id}",
            client.held_id
        );
        connection
    }

    fn send(&mut self, connection: usize, payload: &[u8]) -> OkPacket {
        let mariadb = self.server.dialect.is_mariadb();
        let before = self.server.variable(connection, "autocommit");
        let ok = self.server.connections[connection].rebuild(payload, mariadb);
        if before == "OFF" && self.server.variable(connection, "autocommit") == "ON" {
            self.server.commit(connection);
        }
        ok
    }

    fn prepare(
        &mut self,
        at: usize,
        connection: usize,
        slot: u8,
        op: &Op,
        statement: &Request<'_>,
    ) -> Vec<Seen> {
        let client = &mut self.clients[at];
        let facts = Rc::new(Op::Execute { slot, cursor: false }.facts());
        let text = match op {
            Op::Prepare(_, true) => QUALIFIED,
            _ => b"SELECT ? FROM t",
        };
        let mut prepared = Prepared::new(Rc::from(text), facts, 0xfeed, 1);
        prepared.context = Rc::clone(client.session.carried());
        let id = client.session.statements().insert(prepared).unwrap();
        client.session.begin(statement);
        let reply = self.server.run(connection, op, id_on_server(at, id)).remove(0);
        let error = reply.err();
        client.session.end(&Outcome {
            error,
            ..Outcome::default()
        });
        match error {
            None => {
                client.slots[usize::from(slot)] = Some(id);
                let id = id_on_server(at, id);
                let known = self.server.connections[connection].statements[&id].clone();
                self.meanings.insert(id, known);
            }
            Some(_) => drop(client.session.statements().remove(id)),
        }
        self.settle(at, connection);
        vec![error.map_or(Seen::Nothing, Seen::Error)]
    }

    /// The connection does not have the statement: it is prepared there, and means what it meant.
    fn prepare_again(&mut self, at: usize, connection: usize, id: u32, op: &Op, was_held: bool) {
        let prepared = self.clients[at].session.statements().get(id).unwrap().clone();
        let warnings = self.server.connections[connection].warnings.clone();
        if was_held {
            for (_, ok) in self.server.run(connection, &Op::Ping, 0).into_iter().flatten() {
                self.clients[at].trackers_differ |= !ok.session_state.is_empty();
                let _ = self.clients[at].session.observe_ok(&ok);
            }
        }
        self.learn_meaning(at, connection);
        let session = &self.clients[at].session;
        let Some((there, back)) = session.excursion(&prepared.context, &self.baseline) else {
            // A gateway refuses the execution; here there is a way.
            let known = self.meanings[&id_on_server(at, id)].clone();
            let statements = &mut self.server.connections[connection].statements;
            statements.insert(id_on_server(at, id), known);
            return;
        };
        for payload in there {
            let ok = self.send(connection, &payload);
            self.clients[at].session.observe_excursion(&ok);
        }
        let again = Op::Prepare(0, *prepared.text == *QUALIFIED);
        let reply = self
            .server
            .run(connection, &again, id_on_server(at, id))
            .remove(0);
        assert!(reply.is_ok(), "{reply:?}");
        for payload in back {
            let ok = self.send(connection, &payload);
            self.clients[at].session.observe_excursion(&ok);
        }
        if !matches!(op, Op::Execute { .. }) {
            self.server.connections[connection].warnings = warnings; // lost, which is a pity, no more
        }
    }

    /// What nothing has reported.
    fn learn_meaning(&mut self, at: usize, connection: usize) {
        let Some(question) = self.clients[at].session.ask_meaning() else {
            return;
        };
        for (_, ok) in self.server.run(connection, &Op::Ping, 0).into_iter().flatten() {
            self.clients[at].trackers_differ |= !ok.session_state.is_empty();
            let _ = self.clients[at].session.observe_ok(&ok);
        }
        let asked = String::from_utf8(question[1..].to_vec()).unwrap();
        let connection = &self.server.connections[connection];
        let mut ok = OkPacket::default();
        for item in asked.strip_prefix("SET ").unwrap().split(", ") {
            let (name, same) = item.split_once("=@@").unwrap();
            assert_eq!(name, same);
            if let Some(value) = connection.variables.get(name) {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                Change::Variable { name, value }.encode(&mut ok.session_state);
            }
        }
        self.clients[at].session.learn_meaning(&ok);
    }

    fn close(&mut self, at: usize, slot: u8, statement: &Request<'_>) -> Vec<Seen> {
        let client = &mut self.clients[at];
        client.session.begin(statement);
        client.slots[usize::from(slot)] = None;
        if !client.session.is_pinned() {
            self.learn_insert_id(at);
            self.give_back(at);
        }
        vec![Seen::Nothing]
    }

    fn reset(&mut self, at: usize) -> Vec<Seen> {
        let client = &mut self.clients[at];
        if let Some(connection) = client.held.filter(|_| client.calculated) {
            let rows = self.server.connections[connection].found_rows;
            client.session.learn_found_rows(rows);
        }
        client.calculated = false;
        client.slots = [None; 3];
        client.session.reset();
        if let Some(connection) = client.held {
            self.server.reset(connection);
            self.server.connections[connection].armed = Armed::for_gateway();
            client.held_id = KnownConnection::UNKNOWN;
        }
        client.session.rearmed();
        assert!(!client.session.is_pinned());
        self.give_back(at);
        vec![Seen::Nothing]
    }
}

fn id_on_server(client: usize, id: u32) -> u32 {
    client as u32 * 1_000_000 + id
}

/// Without the variable that SET STATEMENT restores: MariaDB reports that late, and it may come to somebody
/// else, for whom it says nothing new. And without what the connection wrote last, which MariaDB 11 tells
/// again.
fn readable(change: Change<'_>) -> Option<String> {
    match change {
        Change::Variable {
            name: b"lc_time_names" | b"last_gtid",
            ..
        } => None,
        Change::Variable { name, value } => Some(format!(
            "{}={}",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value)
        )),
        change => Some(format!("{change:?}")),
    }
}

fn answer(seen: &mut [Seen], value: String) {
    if let Some(Seen::Done { rows: Some(rows), .. }) = seen.first_mut() {
        *rows = vec![value];
    }
}

impl Seen {
    pub(crate) fn of(given: &Given, ok: &OkPacket, shown: &[u8]) -> Seen {
        // They come in any order.
        let shown = changes(shown).filter_map(|change| readable(change.unwrap()));
        let mut trackers: Vec<_> = shown.collect();
        trackers.sort();
        Seen::Done {
            rows: given.rows.clone(),
            affected: ok.affected_rows,
            insert_id: ok.last_insert_id,
            warnings: ok.warnings,
            status: ok.status.without(StatusFlags::SESSION_STATE_CHANGED),
            trackers,
        }
    }
}
