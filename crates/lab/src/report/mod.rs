//! `forebay bench report`: a published report, repeated on this machine, with a page to look at.
//!
//! Every table of the reports has its place ([`catalogue`]): measured here ([`measure`]), taken from another
//! bench ([`benches`]), or with the reason why it is not. Ratios are formed within a round, and beside them
//! stand only ratios that a report forms of its own figures ([`published`]).

mod benches;
mod catalogue;
mod chart;
mod compare;
mod measure;
mod needs;
mod page;
mod published;
mod queries;
mod results;
mod stand;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use sandbox::Kind;
use tokio::signal::unix::{SignalKind, signal};

pub use self::{
    catalogue::Name,
    compare::{CompareArgs, compare},
};
use self::{
    catalogue::{How, Own, Table},
    results::{Results, Section},
    stand::Stand,
};
use crate::{cache::Part, child, machine::Machine, overhead::Kind as Contender, split::ServerKind};

/// Of a table with `--quick`, with what it takes to start its servers.
const QUICK: Duration = Duration::from_secs(80);
const INTERRUPTED: &str = "broken off";

/// What to repeat.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// The report.
    #[arg(value_enum)]
    pub name: Name,
    /// Tables of it, by name or number, such as `point-select` or `T1` [default: all of them].
    #[arg(long, value_delimiter = ',')]
    pub tables: Vec<String>,
    /// At most 90 seconds a table: rounds of a second, as many as there is time for.
    #[arg(long)]
    pub quick: bool,
    /// The folder for the page `index.html`, and for `results.json` [default: forebay-report-NAME].
    #[arg(long)]
    pub output: Option<PathBuf>,
    /// The servers [default: MySQL where it is installed, else MariaDB].
    #[arg(long, value_enum)]
    pub servers: Option<ServerKind>,
    /// How often everybody is measured in every run [default: 5]. The sizes that a table has had are in its
    /// notes: with `--quick` some have their own.
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Seconds of load a round, in whole seconds where sysbench makes it [default: 10; with `--quick` 1].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Rows of each table of sysbench's.
    #[arg(long, default_value_t = 100_000)]
    pub rows: u64,
    /// Who is compared [default: direct,haproxy,tcp,session,split].
    #[arg(long, value_delimiter = ',')]
    pub contenders: Vec<Contender>,
    /// The HAProxy to compare with.
    #[arg(long)]
    pub haproxy: Option<PathBuf>,
    /// The gateway, if not this executable itself.
    #[arg(long)]
    pub forebay: Option<PathBuf>,
    /// An option for it, such as 'listener.compression = false'; without `listener.` or `cluster.` one of the
    /// top level. May be repeated. Tables by `bench capture`, `cache` and `disruption` take none.
    #[arg(long)]
    pub forebay_option: Vec<String>,
}

/// The arguments with every default filled in.
struct Plan {
    quick: bool,
    rounds: usize,
    seconds: f64,
    tables: usize,
    rows: u64,
    kind: Kind,
    contenders: Vec<Contender>,
    haproxy: PathBuf,
    program: PathBuf,
    forebay_options: Vec<String>,
    output: PathBuf,
}

/// Repeats it. The page has what was done up to an error, or to Ctrl-C.
///
/// # Errors
/// Something is missing: then nothing was started. Or a table could not be made.
pub fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let tables = chosen(args)?;
    let plan = Plan::new(args, &tables)?;
    net::limits::raise_nofile().context("raising the limit of open files")?;
    let stop = Stop::on_signals()?;
    let mut results = Results {
        report: args.name.to_string(),
        title: args.name.title(),
        date: now(),
        machine: Machine::describe(),
        programs: plan.programs(),
        options: plan.in_words(),
        is_done: false,
        is_whole: false,
        left_out: left_out(args.name, &tables),
        sections: Vec::new(),
    };
    let mut stand = None;
    for (at, table) in tables.iter().enumerate() {
        if table.how.is_here() {
            eprintln!("{} of {}: {} {}", at + 1, tables.len(), table.number, table.title);
        }
        let section = make(table, &plan, &stop.for_table(plan.quick), &mut stand);
        print!("{}", section.summary());
        if let Some((_, stand)) = &stand {
            let version = stand.version();
            if !results.programs.contains(&version) {
                results.programs.push(version);
            }
        }
        results.sections.push(section);
        results.is_done = at + 1 == tables.len() && !stop.is_wanted();
        results.is_whole = results.is_done && results.left_out.is_empty();
        write(&results, &plan.output)?;
        if stop.is_wanted() {
            break;
        }
    }
    println!("\nthe page: {}", plan.output.join("index.html").display());
    ensure!(!stop.is_wanted(), "{INTERRUPTED}: the page has what was done");
    let numbers = |is_meant: fn(&Section) -> bool| {
        let sections = results.sections.iter().filter(|section| is_meant(section));
        let numbers: Vec<&str> = sections.map(|section| &section.number[..]).collect();
        numbers.join(", ")
    };
    let failed = numbers(|section| section.failed.is_some());
    ensure!(failed.is_empty(), "tables that were not made: {failed}");
    let broken = numbers(|section| !section.broken.is_empty());
    ensure!(broken.is_empty(), "promises were not kept: {broken}");
    Ok(())
}

/// Both files.
fn write(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(results)? + "\n";
    for (name, text) in [("results.json", json), ("index.html", page::page(results))] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Servers that stand from one table to the next of the same report, and whether they are a group.
type Standing = Option<(bool, Stand)>;

fn make(table: &Table, plan: &Plan, stop: &Stop, standing: &mut Standing) -> Section {
    let mut section = Section::new(table);
    let began = Instant::now();
    if let Err(error) = fill(table, plan, stop, standing, &mut section) {
        section.failed = Some(match stop.is_wanted() {
            true => INTERRUPTED.to_owned(),
            false => format!("{error:#}"),
        });
    }
    section.seconds = began.elapsed().as_secs_f64();
    section
}

fn fill(
    table: &Table,
    plan: &Plan,
    stop: &Stop,
    standing: &mut Standing,
    section: &mut Section,
) -> anyhow::Result<()> {
    match table.how {
        How::Sysbench(load) => measure::sysbench(stand(standing, false, plan)?, &load, plan, stop, section),
        How::Group(load) => measure::sysbench(stand(standing, true, plan)?, &load, plan, stop, section),
        How::Connects => measure::connects(stand(standing, false, plan)?, plan, stop, section),
        How::Own(load) => {
            let run = match load {
                Own::Tpcc => queries::tpcc,
                Own::Updates => queries::updates,
                Own::Joins => queries::joins,
            };
            run(stand(standing, false, plan)?, plan, stop, section)
        }
        How::NotHere => Ok(()),
        how => {
            // The other benches start servers of their own.
            *standing = None;
            match how {
                How::Idle => benches::idle(plan, stop, section),
                How::Workers => benches::workers(plan, section),
                How::Capture => benches::capture(plan, section),
                How::Cache(part) => benches::cache(part, plan, section),
                _ => benches::disruption(plan, section),
            }
        }
    }
}

fn stand<'a>(standing: &'a mut Standing, is_group: bool, plan: &Plan) -> anyhow::Result<&'a Stand> {
    if standing.as_ref().is_none_or(|(before, _)| *before != is_group) {
        // They end before others begin.
        *standing = None;
        eprintln!("  starting servers with {} x {} rows", plan.tables, plan.rows);
        let stand = if is_group {
            Stand::group(plan)
        } else {
            Stand::single(plan)
        }?;
        *standing = Some((is_group, stand));
    }
    let (_, stand) = standing.as_ref().context("no servers")?;
    Ok(stand)
}

/// The tables to make, in the order of the reports.
fn chosen(args: &ReportArgs) -> anyhow::Result<Vec<&'static Table>> {
    let all = catalogue::of(args.name);
    let unknown = args
        .tables
        .iter()
        .find(|name| !all.iter().any(|table| table.is_called(name)));
    if let Some(unknown) = unknown {
        let names: Vec<String> = all
            .iter()
            .map(|table| format!("{} ({})", table.name, table.number))
            .collect();
        bail!(
            "{} has no table {unknown:?}. Its tables: {}",
            args.name,
            names.join(", ")
        );
    }
    let wanted =
        |table: &&Table| args.tables.is_empty() || args.tables.iter().any(|name| table.is_called(name));
    Ok(all.into_iter().filter(wanted).collect())
}

fn left_out(report: Name, tables: &[&Table]) -> Vec<String> {
    let all = catalogue::of(report).into_iter();
    all.filter(|table| !tables.iter().any(|chosen| chosen.number == table.number))
        .map(|table| table.number.to_owned())
        .collect()
}

impl Plan {
    /// Whatever is missing is told before anything starts.
    fn new(args: &ReportArgs, tables: &[&Table]) -> anyhow::Result<Self> {
        let uses = |what: fn(How) -> bool| tables.iter().any(|table| what(table.how));
        let contenders = match &args.contenders[..] {
            [] => catalogue::CONTENDERS.to_vec(),
            given => text::distinct(given.iter().copied()),
        };
        ensure!(
            !contenders.contains(&Contender::Proxysql),
            "--contenders: ProxySQL is not one of those that run before real servers"
        );
        needs::contenders(tables, &contenders)?;
        needs::files(tables, args.quick, &contenders)?;
        needs::no_options(tables, &args.forebay_option)?;
        let by_sysbench = |how| {
            matches!(
                how,
                How::Sysbench(_)
                    | How::Group(_)
                    | How::Connects
                    | How::Capture
                    | How::Cache(Part::Operations)
            )
        };
        if uses(by_sysbench) {
            stand::find("sysbench", None, "apt-get install sysbench")?;
        }
        let of_contenders = |how| matches!(how, How::Sysbench(_) | How::Own(_) | How::Connects | How::Idle);
        let haproxy = if uses(|how| matches!(how, How::Cache(Part::Operations))) {
            let how_to_get = "apt-get install haproxy, name it with --haproxy, or leave out C1 with --tables";
            stand::find("haproxy", args.haproxy.as_deref(), how_to_get)?
        } else if contenders.contains(&Contender::Haproxy) && uses(of_contenders) {
            let how_to_get =
                "apt-get install haproxy, name it with --haproxy, or leave it out with --contenders";
            stand::find("haproxy", args.haproxy.as_deref(), how_to_get)?
        } else {
            "haproxy".into()
        };
        if uses(|how| matches!(how, How::Cache(_))) {
            let found = ["valkey-server", "redis-server"].map(|name| stand::find(name, None, ""));
            ensure!(
                found.iter().any(Result::is_ok),
                "neither valkey-server nor redis-server is on the PATH: apt-get install redis-server"
            );
        }
        if uses(|how| matches!(how, How::Group(_))) || args.servers == Some(ServerKind::Mysql) {
            sandbox::mysql_program()?;
        }
        let rounds = args.rounds.unwrap_or(5);
        let seconds = args.seconds.unwrap_or(if args.quick { 1.0 } else { 10.0 });
        ensure!(rounds > 0 && seconds > 0.0 && args.rows > 0, "nothing to measure");
        let folder = || PathBuf::from(format!("forebay-report-{}", args.name));
        let plan = Self {
            quick: args.quick,
            rounds,
            seconds,
            tables: if args.quick { 1 } else { 8 },
            rows: args.rows,
            kind: match args.servers {
                Some(kind) => kind.of_sandbox(),
                None if sandbox::mysql_program().is_ok() => Kind::Mysql,
                None => Kind::Mariadb,
            },
            contenders,
            haproxy,
            program: match &args.forebay {
                Some(path) => stand::find("forebay", Some(path), "name it with --forebay")?,
                None => std::env::current_exe()?,
            },
            forebay_options: args.forebay_option.clone(),
            output: args.output.clone().unwrap_or_else(folder),
        };
        needs::options(tables, &plan)?;
        writable(&plan.output)?;
        Ok(plan)
    }

    fn programs(&self) -> Vec<String> {
        let said = |program: &Path, option: &str| {
            let output = Command::new(program).arg(option).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().next()?;
            // HAProxy says its address, too.
            let line = line.split(" - ").next().unwrap_or(line);
            Some(line.trim().to_owned())
        };
        let programs = [
            (self.program.as_path(), "--version"),
            (self.haproxy.as_path(), "-v"),
            (Path::new("sysbench"), "--version"),
        ];
        programs
            .into_iter()
            .filter_map(|(program, option)| said(program, option))
            .collect()
    }

    /// What holds for all tables; in the notes of each are its sizes.
    fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.quick {
            words.push("--quick: as many rounds as there is time for".to_owned());
        }
        if cfg!(debug_assertions) {
            words.push("a build without optimization: only whether it works can be seen".to_owned());
        }
        words.extend(
            self.forebay_options
                .iter()
                .map(|option| format!("option: {option}")),
        );
        words
    }

    /// sysbench takes whole seconds.
    fn whole_seconds(&self) -> f64 {
        self.seconds.ceil().max(1.0)
    }
}

/// The folder is made, and can be written to.
fn writable(folder: &Path) -> anyhow::Result<()> {
    let attempt = || {
        fs::create_dir_all(folder)?;
        tempfile::tempfile_in(folder)
    };
    attempt().with_context(|| format!("cannot write to the folder {}", folder.display()))?;
    Ok(())
}

/// Whether it is to end, and when a table has to.
#[derive(Clone)]
struct Stop {
    is_wanted: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// The first signal ends it after what is being measured, another one at once.
    fn on_signals() -> anyhow::Result<Self> {
        let is_wanted = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_wanted);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut signals = {
            let _inside = runtime.enter();
            [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]
        };
        thread::spawn(move || {
            runtime.block_on(async {
                let [interrupt, terminate] = &mut signals;
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if told.swap(true, Ordering::Relaxed) {
                        child::exit(130);
                    }
                }
            });
        });
        Ok(Self {
            is_wanted,
            deadline: None,
        })
    }

    fn for_table(&self, quick: bool) -> Self {
        Self {
            is_wanted: Arc::clone(&self.is_wanted),
            deadline: quick.then(|| Instant::now() + QUICK),
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.is_wanted(), INTERRUPTED);
        Ok(())
    }

    fn time_left(&self) -> Duration {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.unwrap_or(Duration::MAX)
    }
}

/// `2026-11-27 19:30 UTC` (days from civil, Hinnant).
fn now() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    date(seconds)
}

fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + next;
    let (hour, minute) = (rest / 3600, rest / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: ReportArgs,
    }

    fn parse(words: &str) -> Result<ReportArgs, clap::Error> {
        let words = ["report"].into_iter().chain(words.split(' '));
        Cli::try_parse_from(words).map(|cli| cli.args)
    }

    #[test]
    fn a_report_that_there_is_not_is_answered_with_those_that_there_are() {
        let error = parse("no-such").unwrap_err().to_string();
        for name in ["tiproxy-2024", "polardb-tair", "disruption", "all"] {
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_table_that_there_is_not_is_answered_with_those_that_there_are() {
        let args = parse("tiproxy-2024 --tables point-select,update-index").unwrap();
        let error = chosen(&args).unwrap_err().to_string();
        assert!(
            error.contains("update-index") && error.contains("result-set (T5)"),
            "{error}"
        );
        let args = parse("all --tables read-write,t1").unwrap();
        let numbers: Vec<&str> = chosen(&args).unwrap().iter().map(|table| table.number).collect();
        assert_eq!(numbers, ["T1", "T4", "K7"]);
        let args = parse("tidb-ly-2024 --tables L1,L3").unwrap();
        assert_eq!(left_out(args.name, &chosen(&args).unwrap()), ["L2", "L4"]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_told_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = format!("{:#}", writable(&file.join("report")).unwrap_err());
        assert!(error.contains("cannot write to the folder"), "{error}");
        writable(&folder.path().join("a/b")).unwrap();
    }

    #[test]
    fn a_program_that_is_missing_is_told_with_how_to_get_it() {
        let error = stand::find("no-such-program", None, "apt-get install it")
            .unwrap_err()
            .to_string();
        assert!(error.contains("apt-get install it"), "{error}");
        assert!(stand::find("sh", Some(Path::new("/no/such")), "").is_err());
        assert!(stand::find("sh", None, "").is_ok());
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_868_740), "2000-02-29 23:59 UTC");
        assert_eq!(date(1_795_807_800), "2026-11-27 19:30 UTC");
    }
}
