//! A child process that listens on a port, and ends with its owner.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Free ports are picked before the child binds them; another process may be faster.
const START_ATTEMPTS: usize = 3;

/// The children that run, and that nobody has waited for: their ids are nobody else's.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Whether children are out of reach of the terminal's Ctrl-C.
static ARE_APART: AtomicBool = AtomicBool::new(false);

/// From now on the terminal's Ctrl-C is for this process alone, which ends what it has started.
pub(crate) fn keep_apart() {
    ARE_APART.store(true, Ordering::Relaxed);
}

type AtExit = Box<dyn FnOnce() + Send>;

/// What has to be done before this process ends, whether by itself or at once.
static AT_EXIT: Mutex<Option<AtExit>> = Mutex::new(None);

/// Has something done before the end: by [`run_at_exit`], or by [`exit`]. One thing at a time.
pub(crate) fn at_exit(act: impl FnOnce() + Send + 'static) {
    *AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
}

/// Does it now, and not again.
pub(crate) fn run_at_exit() {
    // Whoever comes meanwhile waits until it is done.
    let mut at_exit = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(act) = at_exit.take() {
        act();
    }
}

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for the files of a bench, which may have passwords in them: its owner's alone. Dropping it
/// removes it.
pub(crate) fn folder() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix(&folder_prefix())
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
}

/// The program that is the gateway: the one that is named, or this one.
pub(crate) fn gateway(named: Option<&Path>) -> io::Result<PathBuf> {
    named.map_or_else(std::env::current_exe, |path| Ok(path.to_path_buf()))
}

/// A command that runs on one core, where one is named.
pub(crate) fn pinned(core: Option<usize>, program: &Path) -> Command {
    let Some(core) = core else {
        return Command::new(program);
    };
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

fn folder_prefix() -> String {
    format!("forebay-bench-{}-", std::process::id())
}

/// Ends all children: whoever has started them sees them fail.
pub(crate) fn end_all() {
    kill(&running());
}

/// Ends this process at once, and with it what dropping would have ended: children and folders. Servers end
/// by themselves.
pub(crate) fn exit(code: i32) -> ! {
    // Nothing can be started any more.
    let running = running();
    kill(&running);
    run_at_exit();
    let prefix = folder_prefix();
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    std::process::exit(code);
}

/// Runs a program to its end, and ends it with this process. Its output is read.
pub(crate) fn output(mut command: Command) -> anyhow::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let process = spawn(command)?;
    let id = process.id();
    let output = process.wait_with_output();
    running().retain(|running| *running != id);
    Ok(output?)
}

fn spawn(mut command: Command) -> anyhow::Result<Child> {
    if ARE_APART.load(Ordering::Relaxed) {
        command.process_group(0);
    }
    let mut running = running();
    let process = command.spawn().with_context(|| format!("starting {command:?}"))?;
    running.push(process.id());
    Ok(process)
}

fn kill(ids: &[u32]) {
    if !ids.is_empty() {
        let _ = Command::new("kill")
            .arg("-KILL")
            .args(ids.iter().map(u32::to_string))
            .status();
    }
}

/// A running child. Dropping it kills it.
pub(crate) struct ListeningChild {
    process: Child,
}

impl ListeningChild {
    /// Runs what `command` makes for `N` free loopback addresses, with its output in the file `log`, and
    /// waits until it accepts connections on all of them. Tries again with other ports when it exits before.
    pub(crate) fn start<const N: usize>(
        log: &Path,
        mut command: impl FnMut([SocketAddr; N]) -> anyhow::Result<Command>,
    ) -> anyhow::Result<(Self, [SocketAddr; N])> {
        for _ in 0..START_ATTEMPTS {
            let addresses = free_addresses()?;
            let mut child = Self::spawn(command(addresses)?, log)?;
            if child.accepts_connections(&addresses) {
                return Ok((child, addresses));
            }
        }
        Err(accepts_none(log))
    }

    /// The same of a child that listens on a Unix socket, once.
    pub(crate) fn start_at(log: &Path, command: Command, socket: &Path) -> anyhow::Result<Self> {
        let mut child = Self::spawn(command, log)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while UnixStream::connect(socket).is_err() {
            if child.has_ended() || Instant::now() > deadline {
                return Err(accepts_none(log));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(child)
    }

    fn spawn(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let output = fs::File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let process = spawn(command)?;
        Ok(Self { process })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        let mut running = running();
        let has_ended = matches!(self.process.try_wait(), Ok(Some(_)) | Err(_));
        if has_ended {
            running.retain(|id| *id != self.process.id());
        }
        has_ended
    }

    fn accepts_connections(&mut self, addresses: &[SocketAddr]) -> bool {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut open = 0;
        while Instant::now() < deadline {
            if self.has_ended() {
                return false;
            }
            let Some(address) = addresses.get(open) else {
                return true;
            };
            match TcpStream::connect_timeout(address, Duration::from_secs(1)) {
                Ok(_) => open += 1,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        false
    }
}

fn accepts_none(log: &Path) -> anyhow::Error {
    let output = fs::read_to_string(log).unwrap_or_default();
    anyhow::anyhow!("it does not accept connections; it said:\n{output}")
}

impl Drop for ListeningChild {
    fn drop(&mut self) {
        let _ = self.process.kill();
        running().retain(|id| *id != self.process.id());
        let _ = self.process.wait();
    }
}

/// A process that a child has started to take its place. Dropping it kills it.
pub(crate) struct Successor(u32);

impl Successor {
    pub(crate) fn new(id: u32) -> Self {
        running().push(id);
        Self(id)
    }

    pub(crate) fn has_ended(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0));
        let has_ended = status.map_or(true, |status| status.contains("State:\tZ"));
        if has_ended {
            self.forget();
        }
        has_ended
    }

    /// Its id may be another process's from here on.
    fn forget(&self) {
        running().retain(|id| *id != self.0);
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.has_ended() {
            kill(&[self.0]);
            self.forget();
        }
    }
}

/// All bound at the same time, so that they differ.
fn free_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_exits_is_reported_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let started = ListeningChild::start::<1>(&folder.path().join("log"), |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo no such luck"]);
            Ok(command)
        });
        let error = started.err().unwrap().to_string();
        assert!(error.contains("no such luck"), "{error}");
    }

    #[test]
    fn those_that_run_are_known_and_can_be_killed() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut child = ListeningChild::spawn(command, Path::new("/dev/null")).unwrap();
        let id = child.pid();
        assert!(running().contains(&id) && !child.has_ended());
        kill(&[id]);
        child.process.wait().unwrap();
        assert!(child.has_ended() && !running().contains(&id));
    }

    #[test]
    fn a_successor_ends_with_its_owner() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut child = ListeningChild::spawn(command, Path::new("/dev/null")).unwrap();
        let successor = Successor::new(child.pid());
        assert!(!successor.has_ended());
        drop(successor);
        child.process.wait().unwrap();
        assert!(Successor::new(child.pid()).has_ended());
    }

    #[test]
    fn folders_are_told_by_their_names() {
        let folder = folder().unwrap();
        assert_eq!(folder.path().parent(), Some(&*std::env::temp_dir()));
        let name = folder.path().file_name().unwrap().to_string_lossy();
        assert!(name.starts_with(&folder_prefix()), "{name}");
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn free_addresses_differ() {
        let [one, other] = free_addresses().unwrap();
        assert_ne!(one, other);
    }
}
