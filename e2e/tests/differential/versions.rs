//! Scripts run on an older server, are captured one by one, and are replayed on a newer one, as people do who
//! plan an upgrade: every answer that differs there is on a list.

use std::collections::BTreeMap;
use std::path::PathBuf;

use e2e::Setup;
use e2e::traffic::{forebay, replay_on, start, stop};
use inputs::asked;
use sandbox::{Kind, PASSWORD, Sandbox, Spec, USER};

use crate::schema::{OPEN, READER, READER_PASSWORD, Stage};
use crate::session::{Rig, SINGLE};
use crate::{ALWAYS_FROM, OPTIONS};

/// Scripts of a run; `FOREBAY_DIFF_VERSIONS` asks for more.
const SCRIPTS: u64 = 6;
/// The list of answers that are known to differ; its first lines say how to read it.
const KNOWN: &str = include_str!("versions_differ.txt");
/// The counts of a report of which each is a difference.
const COUNTS: [&str; 6] = [
    "new_errors",
    "gone_errors",
    "other_errors",
    "rows",
    "affected_rows",
    "values",
];

/// The server that is captured, and the one that the capture is replayed on.
fn servers(kind: Kind) -> [Sandbox; 2] {
    let programs = match kind {
        Kind::Mysql => [Some(sandbox::mysql_8().unwrap()), None],
        _ => [None, Some(sandbox::mariadb_11().unwrap())],
    };
    programs.map(|program: Option<PathBuf>| {
        let spec = OPTIONS
            .iter()
            .fold(Spec::new(kind), |spec, option| spec.option(*option));
        Sandbox::start(program.into_iter().fold(spec, Spec::program)).unwrap()
    })
}

#[test]
fn a_newer_version_answers_as_is_known() {
    let kind = e2e::kind();
    let [older, newer] = servers(kind);
    let address = older.primary().address();
    let gateway = Setup::of_addresses([address.clone()]).start();
    let mut rig = Rig {
        server: kind,
        direct: address.clone(),
        gateways: vec![gateway.address()],
        shared: false,
        logs_in: false,
        with_others: false,
        before_steps: None,
        stage: Stage::new(&address),
        commands: 0,
        packets: 0,
    };
    let mut stage = Stage::new(&newer.primary().address());
    if rig.stage.is_mysql_8() {
        stage.has_no_vectors();
    }
    let [users, result, report] =
        ["users.toml", "result", "report.json"].map(|name| gateway.folder().join(name).display().to_string());
    let accounts = [(USER, PASSWORD), (READER, READER_PASSWORD), (OPEN, "")]
        .map(|(name, password)| format!("[{name}]\npassword = {password:?}\n"));
    std::fs::write(&users, accounts.concat()).unwrap();

    // The seeds of a few scripts lie apart, so that each script is of another kind.
    let scripts = asked("FOREBAY_DIFF_VERSIONS").unwrap_or(SCRIPTS);
    let apart = (SINGLE / scripts).max(1);
    let seeds: Vec<_> = match asked("FOREBAY_SEED") {
        Some(seed) => vec![seed],
        None => (0..scripts).map(|script| ALWAYS_FROM + script * apart).collect(),
    };
    let (mut commands, mut compared, mut unknown) = (0, 0, BTreeMap::new());
    for seed in seeds {
        let captured = start(&gateway, "captured");
        commands += rig.play_once(seed);
        stop(&gateway);
        stage.set(kind);
        let more = [
            "--speed",
            "max",
            "--any-position",
            "--even-source",
            "--users",
            &users,
        ];
        let (code, said) = replay_on(newer.primary(), &captured, &result, &more);
        assert_eq!(code, Some(0), "FOREBAY_SEED={seed}: {said}");
        let (_, said) = forebay(&["traffic", "compare", &captured, &result, "--json", &report]);
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&report).expect(&said)).unwrap();
        // A login that fails, or a client that breaks the protocol, leaves nothing.
        compared += report["total"]["commands"].as_u64().unwrap();
        for statement in report["statements"].as_array().unwrap() {
            for count in COUNTS {
                let digest = statement["digest"].as_str().unwrap();
                let what = format!("{kind} {digest} {count} ");
                if statement[count] != 0 && !KNOWN.lines().any(|line| line.starts_with(&what)) {
                    unknown
                        .entry(what)
                        .or_insert_with(|| format!("FOREBAY_SEED={seed} {statement:#}"));
                }
            }
        }
        if asked("FOREBAY_SEED").is_some() {
            for folder in [&captured, &result] {
                println!("{}", forebay(&["traffic", "capture", "show", folder]).1);
            }
        }
        for folder in [captured, result.clone()] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
    println!("{scripts} scripts, {commands} commands, {compared} compared");
    let unknown: Vec<_> = unknown
        .into_iter()
        .map(|(what, example)| format!("{what}\n{example}"))
        .collect();
    assert!(
        unknown.is_empty(),
        "{} are other:\n{}",
        unknown.len(),
        unknown.join("\n")
    );
    let is_one = asked("FOREBAY_SEED").is_some();
    assert!(
        is_one || compared > commands as u64 / 2,
        "{compared} of {commands}"
    );
}
