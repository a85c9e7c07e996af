//! Data folders as they are right after installation, made once per server version and copied for each node:
//! making one takes seconds, copying it a tenth of one.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::SandboxError;
use crate::program::{Flavour, Program, build_folder};

/// What all MariaDB servers of a sandbox are told; the template is made with the same.
pub(crate) const MARIADB_STORAGE: &[&str] = &["--innodb-log-file-size=32M", "--innodb-buffer-pool-size=32M"];
/// The same for MySQL, which knows the first since 8.0.30.
pub(crate) const MYSQL_STORAGE: &[&str] = &[
    "--loose-innodb-redo-log-capacity=32M",
    "--innodb-buffer-pool-size=32M",
];

/// A bootstrapping MariaDB reads one statement a line and starts without the grant tables, which it has just
/// been told to create.
const MARIADB_ACCOUNTS: &str = "\
DELETE FROM mysql.global_priv WHERE User='root' AND Host<>'localhost';
FLUSH PRIVILEGES;
CREATE USER 'forebay'@'%' IDENTIFIED BY 'forebay';
GRANT ALL PRIVILEGES ON *.* TO 'forebay'@'%' WITH GRANT OPTION;
REVOKE READ_ONLY ADMIN ON *.* FROM 'forebay'@'%';
CREATE DATABASE test;
";

const MYSQL_ACCOUNTS: &str = "\
CREATE USER 'forebay'@'%' IDENTIFIED BY 'forebay';
GRANT ALL PRIVILEGES ON *.* TO 'forebay'@'%' WITH GRANT OPTION;
CREATE DATABASE test;
";

/// The scripts that make the system tables, in their order (those of `mariadb-install-db`, without the help
/// texts). Versions before 11 name some of them after MySQL.
const MARIADB_SCRIPTS: &[&[&str]] = &[
    &["mariadb_system_tables.sql", "mysql_system_tables.sql"],
    &["mariadb_performance_tables.sql", "mysql_performance_tables.sql"],
    &["mariadb_system_tables_data.sql", "mysql_system_tables_data.sql"],
    &["maria_add_gis_sp_bootstrap.sql"],
    &["mariadb_sys_schema.sql", "mysql_sys_schema.sql"],
];

/// Makes `target` a fresh data folder for `program`.
pub(crate) fn copy_to(program: &Program, target: &Path) -> Result<(), SandboxError> {
    copy(&ready(program)?, target)
}

/// What is empty takes no space, nor time where it was copied so before.
fn copy(from: &Path, to: &Path) -> Result<(), SandboxError> {
    let output = Command::new("cp")
        .args(["-a", "--reflink=auto", "--sparse=always", "--"])
        .args([from, to])
        .output()
        .map_err(|source| SandboxError::io("copy", from, source))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(SandboxError::io("copy", from, std::io::Error::other(message)))
}

/// The template's folder; made by the first who asks, while others wait for the lock.
fn ready(program: &Program) -> Result<PathBuf, SandboxError> {
    let cache = build_folder().join("sandbox");
    fs::create_dir_all(&cache).map_err(|source| SandboxError::io("make folder", &cache, source))?;
    let name = name(program);
    let template = cache.join(&name);
    if template.is_dir() {
        return Ok(template);
    }
    let lock_file = cache.join(format!("{name}.lock"));
    let lock = File::create(&lock_file).map_err(|source| SandboxError::io("create", &lock_file, source))?;
    lock.lock()
        .map_err(|source| SandboxError::io("lock", &lock_file, source))?;
    if template.is_dir() {
        return Ok(template);
    }
    let [unfinished, made] = ["unfinished", "made"].map(|word| cache.join(format!("{name}.{word}")));
    for folder in [&unfinished, &made] {
        remove(folder)?;
    }
    fs::create_dir(&unfinished).map_err(|source| SandboxError::io("make folder", &unfinished, source))?;
    match program.flavour {
        Flavour::Mariadb => make_mariadb(program, &unfinished)?,
        Flavour::Mysql => make_mysql(program, &unfinished)?,
    }
    // Servers write out what is empty: of 47 MB of a MariaDB, and 122 of a MySQL, 4 and 47 are left.
    copy(&unfinished, &made)?;
    remove(&unfinished)?;
    fs::rename(&made, &template).map_err(|source| SandboxError::io("rename", &made, source))?;
    Ok(template)
}

fn remove(folder: &Path) -> Result<(), SandboxError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(SandboxError::io("remove", folder, error))
        }
        _ => Ok(()),
    }
}

/// Differs for each server version and for each way of making a template.
fn name(program: &Program) -> String {
    let mut hasher = DefaultHasher::new();
    program.path.hash(&mut hasher);
    (
        MARIADB_STORAGE,
        MYSQL_STORAGE,
        MARIADB_ACCOUNTS,
        MYSQL_ACCOUNTS,
        MARIADB_SCRIPTS,
        "sparse",
    )
        .hash(&mut hasher);
    let user = rustix::process::geteuid().as_raw();
    let version: String = program
        .version
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '.' })
        .collect();
    format!("{version}-{:08x}-{user}", hasher.finish() as u32)
}

fn make_mariadb(program: &Program, folder: &Path) -> Result<(), SandboxError> {
    let scripts = share_folder(program)?;
    let mut sql = b"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n".to_vec();
    for names in MARIADB_SCRIPTS {
        let script = names
            .iter()
            .map(|name| scripts.join(name))
            .find(|path| path.is_file());
        let script = script.unwrap_or_else(|| scripts.join(names[0]));
        sql.extend(fs::read(&script).map_err(|source| SandboxError::io("read", &script, source))?);
        sql.push(b'\n');
    }
    sql.extend(MARIADB_ACCOUNTS.as_bytes());

    let mut command = Command::new(&program.path);
    command
        .args(["--no-defaults", "--bootstrap", "--skip-log-bin"])
        .args(MARIADB_STORAGE)
        .args(user_option());
    // A folder for temporary tables of its own, for the reason given in `node`.
    command.args(["datadir", "tmpdir"].map(|option| format!("--{option}={}", folder.display())));
    make(program, command, &sql, folder)
}

fn make_mysql(program: &Program, folder: &Path) -> Result<(), SandboxError> {
    let accounts = folder.with_extension("sql");
    fs::write(&accounts, MYSQL_ACCOUNTS).map_err(|source| SandboxError::io("write", &accounts, source))?;
    let mut command = Command::new(&program.path);
    command
        .args(["--no-defaults", "--initialize-insecure", "--disable-log-bin"])
        .args(MYSQL_STORAGE);
    command.arg(format!("--datadir={}", folder.display()));
    command
        .arg(format!("--init-file={}", accounts.display()))
        .args(user_option());
    let made = make(program, command, b"", folder);
    let _ = fs::remove_file(&accounts);
    made?;
    // The server's identity must not be copied: each node makes its own.
    let identity = folder.join("auto.cnf");
    fs::remove_file(&identity).map_err(|source| SandboxError::io("remove", identity, source))
}

/// Runs a server that makes its data folder.
fn make(program: &Program, command: Command, input: &[u8], folder: &Path) -> Result<(), SandboxError> {
    let ended = run_with_input(command, input);
    let (printed, is_done) = ended.map_err(|source| SandboxError::io("run", &program.path, source))?;
    // A bootstrapping server that meets a wrong statement says so and may still end with status 0.
    match is_done && folder.join("test").is_dir() {
        true => Ok(()),
        false => Err(failed(program, &printed)),
    }
}

/// Servers refuse to run as root unless told so.
pub(crate) fn user_option() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// Where the scripts are: below the server's own base folder, which it prints.
fn share_folder(program: &Program) -> Result<PathBuf, SandboxError> {
    let output = Command::new(&program.path)
        .args(["--no-defaults", "--verbose", "--help"])
        .args(user_option())
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SandboxError::io("run", &program.path, source))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let base = text
        .lines()
        .find_map(|line| line.strip_prefix("basedir "))
        .map_or("/usr", str::trim);
    let folders = ["share/mariadb", "share/mysql", "share"].map(|share| Path::new(base).join(share));
    let found = folders
        .into_iter()
        .find(|folder| folder.join("maria_add_gis_sp_bootstrap.sql").is_file());
    found.ok_or_else(|| SandboxError::Program {
        path: program.path.clone(),
        reason: format!("the scripts for its system tables are not below {base}/share"),
    })
}

/// Runs to the end; gives what it printed and whether it succeeded.
fn run_with_input(mut command: Command, input: &[u8]) -> std::io::Result<(String, bool)> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A server that fails early closes the pipe; what it printed says why.
            stdin.map(|mut pipe| pipe.write_all(input))
        });
        child.wait_with_output()
    })?;
    Ok((
        String::from_utf8_lossy(&output.stderr).into_owned(),
        output.status.success(),
    ))
}

fn failed(program: &Program, output: &str) -> SandboxError {
    let errors: Vec<&str> = output
        .lines()
        .filter(|line| line.to_ascii_uppercase().contains("ERROR"))
        .collect();
    let output = if errors.is_empty() {
        output.to_owned()
    } else {
        errors.join("\n")
    };
    SandboxError::Template {
        program: program.path.clone(),
        output,
    }
}
