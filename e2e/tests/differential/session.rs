//! One seed: a client, a script, both sides.

use e2e::packets::{Client, Identity, Physical};
use mysql_wire::Capabilities;
use sandbox::{Kind, PASSWORD, USER};

use crate::compare;
use crate::kinds::{KINDS, Maker, Scripts};
use crate::noise::Noise;
use crate::schema::{DATABASE, OPEN, READER, READER_PASSWORD, Stage};
use crate::script::{self, Request, Side, Step, Writes};
use inputs::Random;

/// Seeds whose remainder is below [`SINGLE`] are of one kind alone.
const SEEDS_PER_ROUND: u64 = 100_000;
/// Steps of a script, about.
const LENGTH: usize = 60;
/// Scripts of one kind: each kind with and without the capability that changes most.
pub const SINGLE: u64 = 2 * KINDS.len() as u64;

/// The gateway whose connections to the server are compressed.
const COMPRESSED: usize = 1;

/// What every client can.
pub const ALWAYS: Capabilities = Capabilities::LONG_FLAG
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::CONNECT_WITH_DB);

/// What a client can or cannot, by the dice.
const SOMETIMES: &[Capabilities] = &[
    Capabilities::DEPRECATE_EOF,
    Capabilities::SESSION_TRACK,
    Capabilities::MULTI_STATEMENTS,
    Capabilities::OPTIONAL_RESULTSET_METADATA,
    Capabilities::QUERY_ATTRIBUTES,
    Capabilities::LOCAL_FILES,
    Capabilities::FOUND_ROWS,
    Capabilities::IGNORE_SPACE,
    Capabilities::INTERACTIVE,
    Capabilities::CONNECT_ATTRS,
    Capabilities::CAN_HANDLE_EXPIRED_PASSWORDS,
    Capabilities::ODBC,
    Capabilities::MARIADB_PROGRESS,
    Capabilities::MARIADB_STMT_BULK,
    Capabilities::MARIADB_EXTENDED_METADATA,
    Capabilities::MARIADB_CACHE_METADATA,
    Capabilities::MARIADB_BULK_UNIT_RESULTS,
];

/// A server, and the two ways to it.
pub struct Rig {
    pub server: Kind,
    pub direct: String,
    pub gateways: Vec<String>,
    /// Sessions share connections, see [`compare::differences`].
    pub shared: bool,
    /// The gateway answers logins itself.
    pub logs_in: bool,
    /// Others use the gateway beside the script.
    pub with_others: bool,
    /// What happens before each step of the session through the gateway.
    pub before_steps: Option<Box<dyn FnMut()>>,
    pub stage: Stage,
    /// Compared so far.
    pub commands: usize,
    pub packets: usize,
}

impl Rig {
    /// Runs the script of a seed on both sides.
    ///
    /// # Errors
    /// The report of a difference.
    pub fn play(&mut self, seed: u64) -> Result<(), String> {
        let (mut dice, identity, kind) = self.client(seed);
        let way = dice.below(self.gateways.len());
        self.stage.set(self.server);
        let (mut client, verdict) = Client::connect(&self.direct, &identity).unwrap();
        let capabilities = client.capabilities;
        let steps = self.steps(dice, capabilities, way, kind);
        let direct = run(&mut client, &verdict, &steps, || ());
        drop(client);

        self.stage.set(self.server);
        let connected = Client::connect(&self.gateways[way], &identity);
        let (mut client, through_gateway) =
            connected.map_err(|error| format!("the gateway refuses: {error}"))?;
        let gateway = if self.with_others {
            let mut noise = Noise::beside(&self.gateways[way], &identity, Random::new(!seed));
            run(&mut client, &through_gateway, &steps, || noise.make())
        } else {
            let before = self.before_steps.as_mut();
            let mut nothing = Box::new(|| ()) as Box<dyn FnMut()>;
            run(
                &mut client,
                &through_gateway,
                &steps,
                before.unwrap_or(&mut nothing),
            )
        };
        self.commands += gateway.commands();
        self.packets += gateway.packets();
        let report = self
            .compare_logins(&verdict, &through_gateway, capabilities)
            .or_else(|| compare::differences(&steps, capabilities, &direct, &gateway, self.shared));
        let Some(report) = report else { return Ok(()) };
        let kind = kind.map_or("mixed", |(name, ..)| name);
        Err(format!(
            "FOREBAY_SEED={seed} FOREBAY_E2E_SERVER={} ({kind}, gateway {way})\n{:?} as {}\n{report}",
            self.server, capabilities, identity.user
        ))
    }

    /// Runs the script of a seed through the first gateway alone, and tells how many commands it had.
    pub fn play_once(&mut self, seed: u64) -> usize {
        let (dice, identity, kind) = self.client(seed);
        self.stage.set(self.server);
        let (mut client, verdict) = Client::connect(&self.gateways[0], &identity).unwrap();
        println!(
            "{seed}: {} with collation {} and {:?}",
            identity.user, identity.charset, client.capabilities
        );
        let steps = self.steps(dice, client.capabilities, 0, kind);
        run(&mut client, &verdict, &steps, || ()).commands()
    }

    /// The client of a seed, and the kind that its script is of, where that is one alone.
    fn client(&self, seed: u64) -> (Random, Identity, Option<Scripts>) {
        let mut dice = Random::new(seed);
        let mut identity = identity(&mut dice, self.server);
        let place = seed % SEEDS_PER_ROUND;
        let kind = (place < SINGLE).then(|| KINDS[place as usize / 2]);
        if kind.is_some() {
            identity.capabilities.remove(Capabilities::DEPRECATE_EOF);
            identity.capabilities.0 |= Capabilities::DEPRECATE_EOF.0 * (place % 2);
            (identity.user, identity.password, identity.database) = (USER, PASSWORD, Some(DATABASE));
        }
        if self.shared {
            // Not offered where statements are shared: columns that a server does not repeat may have been
            // told to another.
            identity.capabilities.remove(Capabilities::MARIADB_CACHE_METADATA);
        }
        (dice, identity, kind)
    }

    fn steps(
        &self,
        dice: Random,
        capabilities: Capabilities,
        way: usize,
        kind: Option<Scripts>,
    ) -> Vec<Step> {
        let mut make = Maker {
            dice,
            capabilities,
            server: self.server,
            compressed: way == COMPRESSED,
            shared: self.shared,
            is_mysql_8: self.stage.is_mysql_8(),
            steps: Vec::new(),
            statements: Vec::new(),
        };
        fill(&mut make, kind.map(|(_, add, _)| add));
        make.steps
    }

    /// The packets before the verdict differ: the gateway has a nonce of its own, so the server asks again.
    fn compare_logins(
        &self,
        direct: &Physical,
        gateway: &Physical,
        capabilities: Capabilities,
    ) -> Option<String> {
        let normal = |packet: &Physical| {
            let payload = match self.shared {
                true => compare::with_name_of_host(&packet.payload),
                false => packet.payload.clone(),
            };
            let payload = match self.logs_in {
                true => compare::login_ok(&payload, capabilities),
                false => payload,
            };
            compare::without_server_state(&payload, capabilities).unwrap_or(payload)
        };
        let (left, right) = (normal(direct), normal(gateway));
        (left != right)
            .then(|| format!("the login ends otherwise:\n  direct  {left:02x?}\n  gateway {right:02x?}\n"))
    }
}

fn identity(dice: &mut Random, server: Kind) -> Identity {
    let mut capabilities = ALWAYS;
    for &capability in SOMETIMES {
        if dice.one_in(2) {
            capabilities.insert(capability);
        }
    }
    // The absence of this flag is how MariaDB knows a client that reads its extended flags.
    if server == Kind::Mariadb && !dice.one_in(4) {
        capabilities.remove(Capabilities::LONG_PASSWORD);
    }
    let (user, password, database) = match dice.below(30) {
        0 => (USER, "wrong", Some(DATABASE)),
        1 => ("nobody_at_all", "", None),
        2 => (USER, PASSWORD, Some("nowhere")),
        3 => (READER, READER_PASSWORD, Some("held")),
        4 => (READER, READER_PASSWORD, Some(DATABASE)),
        5 => (OPEN, "", Some(DATABASE)),
        6 => (USER, PASSWORD, None),
        _ => (USER, PASSWORD, Some(DATABASE)),
    };
    Identity {
        user,
        password,
        database,
        charset: dice.pick(&[8, 33, 45, 63, 255]),
        capabilities,
    }
}

fn fill(make: &mut Maker, only: Option<fn(&mut Maker)>) {
    let all: usize = KINDS.iter().map(|&(.., share)| share).sum();
    let length = if only.is_some() { LENGTH / 2 } else { LENGTH };
    while make.steps.len() < length {
        let mut at = make.dice.below(all);
        let drawn = KINDS.iter().find(|&&(.., share)| match at.checked_sub(share) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        let add = only.unwrap_or_else(|| drawn.expect("one of them").1);
        add(make);
    }
    let goodbye = Request::new("quit", [mysql_wire::Command::QUIT.0]);
    make.steps.push(Step {
        requests: vec![goodbye],
        writes: Writes::AtOnce,
    });
}

fn run(client: &mut Client, verdict: &Physical, steps: &[Step], between: impl FnMut()) -> Side {
    if verdict.payload.first() == Some(&0xff) {
        return Side { steps: Vec::new() };
    }
    script::run(client, steps, between)
}
