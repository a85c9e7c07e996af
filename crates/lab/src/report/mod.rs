//! `forebay bench report`: a published report, repeated on this machine, with a page to look at.
//!
//! Every table of the reports has its place ([`catalogue`]): measured here ([`measure`]), taken from another
//! bench ([`benches`]), or with the reason why it is not. Ratios are formed within a round, and beside them
//! stand only ratios that a report forms of its own figures ([`published`]).

mod benches;
mod beside;
mod catalogue;
mod chart;
mod compare;
mod foreign;
#[cfg(all(test, feature = "browser"))]
mod look;
mod markdown;
mod measure;
mod needs;
mod network;
mod of_benches;
mod own;
mod page;
mod published;
mod queries;
mod relay;
mod results;
mod stand;
mod text;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use mysql_wire::binlog::Date;
use sandbox::Kind;
use tokio::signal::unix::{SignalKind, signal};

pub use self::{
    catalogue::Name,
    compare::{CompareArgs, compare},
    foreign::Foreign,
    of_benches::{write_figures, write_matrix},
};
use self::{
    catalogue::{How, Own as OwnLoad, Table},
    network::Network,
    own::{Asked, Own, Servers},
    results::{Results, Section},
    stand::Stand,
};
use crate::{cache::Part, child, machine::Machine, overhead::Kind as Contender, split::ServerKind};

/// Of a table with `--quick`, with what it takes to start its servers.
const QUICK: Duration = Duration::from_secs(80);
/// What is not done then is ended.
const QUICK_MAX: Duration = Duration::from_secs(90);
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
    /// A file for the same as Markdown.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Nothing is run: the Markdown is made of an earlier run, its `results.json` or its folder.
    #[arg(long, value_name = "RUN", requires = "markdown")]
    pub from: Option<PathBuf>,
    /// The servers: `mysql` or `mariadb`, which are started and removed [default: MySQL where it is
    /// installed, else MariaDB], or your own, as `HOST:PORT`: one, or a primary and behind it its replicas,
    /// for mode `split`. The lab's tables are in a schema `forebay_bench` there, which is removed afterwards.
    #[arg(long, value_delimiter = ',', value_name = "mysql|mariadb|HOST:PORT")]
    pub servers: Vec<Servers>,
    /// The account on your own servers, with all grants on `forebay_bench`.
    #[arg(long)]
    pub user: Option<String>,
    /// The environment variable that has its password [default: it has none].
    #[arg(long, value_name = "VARIABLE")]
    pub password_env: Option<String>,
    /// A schema `forebay_bench` that is there already is written into. It stays, and only the lab's tables
    /// are removed. Otherwise that is asked on a terminal, and refused without one.
    #[arg(long)]
    pub reuse_schema: bool,
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
    /// Another contender, which runs already and leads to your own servers: `proxysql=10.0.0.5:6033`. It lets
    /// the account of `--user` in. May be repeated.
    #[arg(long, value_name = "NAME=HOST:PORT")]
    pub contender: Vec<Foreign>,
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
    /// The user's servers, in place of those that are started.
    own: Option<Own>,
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
    if let Some(run) = &args.from {
        return write_markdown(&compare::read(run)?, args.markdown.as_deref());
    }
    let tables = chosen(args)?;
    let stop = Stop::on_signals()?;
    child::keep_apart();
    let plan = Plan::new(args, &tables)?;
    net::limits::raise_nofile().context("raising the limit of open files")?;
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
        say!("{}", section.summary().trim_end());
        if let Some((_, stand)) = &stand {
            let version = stand.version();
            if !results.programs.iter().any(|known| known == version) {
                results.programs.push(version.to_owned());
            }
        }
        results.sections.push(section);
        results.is_done = at + 1 == tables.len() && !stop.is_wanted();
        results.is_whole = results.is_done && results.left_out.is_empty();
        write_with(page::page, &results, &plan.output)?;
        write_markdown(&results, args.markdown.as_deref())?;
        if stop.is_wanted() {
            break;
        }
    }
    say!("\nthe page: {}", plan.output.join("index.html").display());
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

fn write_markdown(results: &Results, file: Option<&Path>) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    fs::write(file, markdown::markdown(results)).with_context(|| format!("writing {}", file.display()))
}

/// Writes both files.
fn write_with(page: fn(&Results) -> String, results: &Results, folder: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(results)? + "\n";
    for (name, text) in [("results.json", json), ("index.html", page(results))] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Servers that stand from one table to the next.
type Standing = Option<(Kept, Stand)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Single,
    Group,
    Zones,
}

/// Something that was promised is not so, whatever else has come of the run.
#[derive(Debug)]
struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

fn make(table: &Table, plan: &Plan, stop: &Stop, standing: &mut Standing) -> Section {
    let mut section = Section::new(table);
    if let (Some(reason), true) = (table.how.not_on_own(), plan.own.is_some()) {
        section.leave_out(&format!("Left out on your own servers. {reason}"));
        return section;
    }
    let began = Instant::now();
    let limit = plan.quick.then_some(QUICK_MAX);
    let (filled, is_over) = within(limit, stop, child::end_all, || {
        fill(table, plan, stop, standing, &mut section)
    });
    if is_over {
        // Its gateways were ended.
        *standing = None;
    }
    if let Err(error) = filled {
        let said = format!("{error:#}");
        match (stop.is_wanted(), is_over) {
            _ if error.is::<Violation>() => section.broken.push(said),
            (true, _) => section.failed = Some(INTERRUPTED.to_owned()),
            (false, true) => {
                let late = format!("it took longer than {} s, and was ended", QUICK_MAX.as_secs());
                section.failed = Some(late);
            }
            (false, false) => section.failed = Some(said),
        }
    }
    section.seconds = began.elapsed().as_secs_f64();
    section
}

/// Runs it, and whether it took longer than that: then it is told to end, as are its children by `end`.
fn within<T>(limit: Option<Duration>, stop: &Stop, end: fn(), run: impl FnOnce() -> T) -> (T, bool) {
    let Some(limit) = limit else {
        return (run(), false);
    };
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let is_over = is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_over {
                stop.is_over.store(true, Ordering::Relaxed);
                end();
            }
            is_over
        });
        let result = run();
        drop(done);
        (result, watch.join().unwrap_or(false))
    })
}

fn fill(
    table: &Table,
    plan: &Plan,
    stop: &Stop,
    standing: &mut Standing,
    section: &mut Section,
) -> anyhow::Result<()> {
    match table.how {
        How::Sysbench(load) => {
            measure::sysbench(stand(standing, Kept::Single, plan)?, &load, plan, stop, section)
        }
        How::Group(load) => {
            measure::sysbench(stand(standing, Kept::Group, plan)?, &load, plan, stop, section)
        }
        How::Zones(load) => {
            let measured = measure::sysbench(stand(standing, Kept::Zones, plan)?, &load, plan, stop, section);
            measure::tell_what_zones_won(section);
            measured
        }
        How::Bridge(load) => {
            *standing = None;
            match Network::new() {
                Ok(network) => measure::sysbench(&Stand::bridge(plan, network)?, &load, plan, stop, section),
                Err(error) => {
                    section.leave_out(&format!(
                        "It needs network namespaces, which cannot be made here (root can, where the kernel lets it): {error:#}"
                    ));
                    Ok(())
                }
            }
        }
        How::Connects => measure::connects(stand(standing, Kept::Single, plan)?, plan, stop, section),
        How::Own(load) => {
            let run = match load {
                OwnLoad::Tpcc => queries::tpcc,
                OwnLoad::Updates => queries::updates,
                OwnLoad::Joins => queries::joins,
            };
            run(stand(standing, Kept::Single, plan)?, plan, stop, section)
        }
        How::NotHere => Ok(()),
        how => {
            // The other benches start servers of their own.
            *standing = None;
            match how {
                How::Idle => benches::idle(plan, stop, section),
                How::Workers => benches::workers(plan, stop, section),
                How::Capture => benches::capture(plan, section),
                How::Cache(part) => benches::cache(part, plan, stop, section),
                _ => benches::disruption(plan, section),
            }
        }
    }
}

fn stand<'a>(standing: &'a mut Standing, kept: Kept, plan: &Plan) -> anyhow::Result<&'a Stand> {
    if standing.as_ref().is_none_or(|(before, _)| *before != kept) {
        // They end before others begin.
        *standing = None;
        let (what, tables, rows) = (plan.what_it_does_to_servers(), plan.tables, plan.rows);
        eprintln!("  {what} servers with {tables} x {rows} rows");
        let stand = match kept {
            Kept::Single => Stand::single(plan),
            Kept::Group => Stand::group(plan),
            Kept::Zones => Stand::zones(plan),
        }?;
        *standing = Some((kept, stand));
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
        let (kind, addresses) = servers(args)?;
        let is_own = !addresses.is_empty();
        foreign::fit(&args.contender, is_own)?;
        let tables: Vec<&Table> = tables
            .iter()
            .copied()
            .filter(|table| !is_own || table.how.not_on_own().is_none())
            .collect();
        let tables = &tables[..];
        ensure!(
            tables.iter().any(|table| table.how.is_here()) || !is_own,
            "none of these tables is made on servers of your own; see `forebay bench report --help`"
        );
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
                    | How::Zones(_)
                    | How::Bridge(_)
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
        if uses(|how| matches!(how, How::Group(_))) || kind == Some(ServerKind::Mysql) {
            sandbox::mysql_program()?;
        }
        let rounds = args.rounds.unwrap_or(5);
        let seconds = args.seconds.unwrap_or(if args.quick { 1.0 } else { 10.0 });
        ensure!(rounds > 0 && seconds > 0.0 && args.rows > 0, "nothing to measure");
        let folder = || PathBuf::from(format!("forebay-report-{}", args.name));
        let mut plan = Self {
            quick: args.quick,
            rounds,
            seconds,
            tables: if args.quick { 1 } else { 8 },
            rows: args.rows,
            own: None,
            kind: match kind {
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
        if let Some(file) = &args.markdown {
            let opened = fs::OpenOptions::new().append(true).create(true).open(file);
            opened.with_context(|| format!("--markdown {}", file.display()))?;
        }
        if is_own {
            plan.own = Some(Own::new(&Asked {
                servers: addresses,
                user: args.user.as_deref(),
                password_env: args.password_env.as_deref(),
                reuses_schema: args.reuse_schema,
                contenders: &args.contender,
            })?);
        }
        Ok(plan)
    }

    /// Contenders of the user's.
    fn foreign(&self) -> Vec<&str> {
        let own = self.own.iter().flat_map(|own| &own.contenders);
        own.map(|(name, _)| &name[..]).collect()
    }

    fn what_it_does_to_servers(&self) -> &'static str {
        match self.own {
            Some(_) => "filling your",
            None => "starting",
        }
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
        if let Some(own) = &self.own {
            let addresses: Vec<String> = own.servers.iter().map(ToString::to_string).collect();
            words.push(format!("own servers: {}", addresses.join(", ")));
            words.extend(
                own.contenders
                    .iter()
                    .map(|(name, address)| format!("contender {name}: at {address}")),
            );
        }
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

/// The kind of those that are to be started, or the addresses of the user's own.
fn servers(args: &ReportArgs) -> anyhow::Result<(Option<ServerKind>, Vec<&str>)> {
    let kinds = args.servers.iter().filter_map(|servers| match servers {
        Servers::Started(kind) => Some(*kind),
        Servers::Own(_) => None,
    });
    let kinds: Vec<ServerKind> = kinds.collect();
    let own = args.servers.iter().filter_map(|servers| match servers {
        Servers::Own(address) => Some(&address[..]),
        Servers::Started(_) => None,
    });
    let own: Vec<&str> = own.collect();
    ensure!(
        kinds.is_empty() || kinds.len() + own.len() == 1,
        "--servers: one kind, or addresses of your own servers"
    );
    ensure!(
        !own.is_empty() || (args.user.is_none() && args.password_env.is_none() && !args.reuse_schema),
        "--user, --password-env and --reuse-schema are for servers of your own: --servers HOST:PORT"
    );
    Ok((kinds.first().copied(), own))
}

/// Makes the folder, and a file in it that is gone at once.
pub(crate) fn writable(folder: &Path) -> anyhow::Result<()> {
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
    /// The table has taken too long.
    is_over: Arc<AtomicBool>,
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
            [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ]
        };
        thread::spawn(move || {
            runtime.block_on(async {
                let [interrupt, terminate, hangup] = &mut signals;
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                    if told.swap(true, Ordering::Relaxed) {
                        child::exit(130);
                    }
                }
            });
        });
        Ok(Self {
            is_wanted,
            is_over: Arc::default(),
            deadline: None,
        })
    }

    fn for_table(&self, quick: bool) -> Self {
        Self {
            is_wanted: Arc::clone(&self.is_wanted),
            is_over: Arc::default(),
            deadline: quick.then(|| Instant::now() + QUICK),
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.is_wanted(), INTERRUPTED);
        ensure!(!self.is_over.load(Ordering::Relaxed), "its time is over");
        Ok(())
    }

    fn time_left(&self) -> Duration {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.unwrap_or(Duration::MAX)
    }
}

/// `2026-11-27 19:30 UTC`
fn now() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    date(seconds)
}

fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let Date { year, month, day } = Date::from_days(days.cast_signed());
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
    fn servers_are_of_one_kind_or_the_users_own() {
        let refused = |words: &str| {
            servers(&parse(words).unwrap())
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(refused("all --servers mysql"), None);
        assert_eq!(refused("all --servers a:1,b:2 --user lab"), None);
        assert!(
            refused("all --servers mysql,a:1").is_some() && refused("all --servers mysql,mariadb").is_some()
        );
        let error = refused("all --servers mysql --user lab").unwrap();
        assert!(error.contains("for servers of your own"), "{error}");
        let args = parse("tiproxy-2024 --tables T7 --servers a:1 --user lab").unwrap();
        let error = Plan::new(&args, &chosen(&args).unwrap())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("none of these tables"), "{error}");
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
    fn what_takes_too_long_is_ended() {
        let stop = Stop {
            is_wanted: Arc::default(),
            is_over: Arc::default(),
            deadline: None,
        };
        let limit = Some(Duration::from_millis(50));
        assert_eq!(within(Some(QUICK_MAX), &stop, || (), || 1), (1, false));
        stop.check().unwrap();
        let wait = || {
            let began = Instant::now();
            while stop.check().is_ok() && began.elapsed() < QUICK_MAX {
                thread::sleep(Duration::from_millis(1));
            }
            stop.check().is_err()
        };
        assert_eq!(within(limit, &stop, || (), wait), (true, true));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_868_740), "2000-02-29 23:59 UTC");
        assert_eq!(date(1_795_807_800), "2026-11-27 19:30 UTC");
    }
}
