//! A password that the server does not know: it asks PAM, by the plugin `pam`, which talks with the client in
//! one of two ways.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use e2e::{Setup, client, kind};
use sandbox::{Certificates, Kind, Lent, Sandbox, Spec};

const RIGHT: &str = "known to PAM alone";

/// A service of PAM, for as long as the test runs. PAM looks for it in one place only, which is root's.
struct Service {
    name: String,
    path: PathBuf,
}

impl Service {
    /// One that asks a script in `folder` whether a password is right.
    fn make(folder: &Path) -> Self {
        let script = folder.join("check");
        let text = format!("#!/bin/sh\nIFS= read -r word\n[ \"$PAM_USER:$word\" = 'maria:{RIGHT}' ]\n");
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let name = format!("forebay-e2e-{}", std::process::id());
        let service = Self {
            path: Path::new("/etc/pam.d").join(&name),
            name,
        };
        let script = script.display();
        service.as_root(&format!(
            "printf 'auth required pam_exec.so expose_authtok quiet {script}\\naccount required pam_permit.so\\n' >\"$0\""
        ));
        service
    }

    /// Runs a command of the shell that knows the file as `$0`.
    fn as_root(&self, command: &str) {
        let words: &[&str] = if is_root() {
            &["sh", "-c"]
        } else {
            &["sudo", "-n", "sh", "-c"]
        };
        let done = Command::new(words[0])
            .args(&words[1..])
            .arg(command)
            .arg(&self.path)
            .stdin(Stdio::null())
            .status();
        assert!(
            done.is_ok_and(|status| status.success()),
            "{} could not be written: PAM takes its services from there. Run this as root, or allow sudo without a password",
            self.path.display()
        );
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.as_root("rm -f \"$0\"");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server with the account `maria` of that service. Its plugin asks in the words of PAM (`dialog`), or for
/// the password as it is.
fn server(service: &Service, in_clear: bool) -> Lent {
    // The newer one asks PAM in a program of its own, which only root and the package's own user may run.
    let plugin = if is_root() { "auth_pam" } else { "auth_pam_v1" };
    let started = Sandbox::lend(
        Spec::new(Kind::Mariadb)
            .option(format!("--plugin-load-add={plugin}"))
            .option(format!("--loose-pam-use-cleartext-plugin={in_clear}")),
    );
    let server = started.unwrap();
    let account = format!("CREATE USER maria IDENTIFIED VIA pam USING '{}'", service.name);
    server
        .primary()
        .sql(&format!("{account}; GRANT SELECT ON test.* TO maria"))
        .unwrap_or_else(|error| panic!("{error}\nThe server's plugin pam: apt-get install mariadb-server"));
    server
}

/// Who is logged in; or the error, in the client's words.
fn log_in(port: u16, password: &str, more: &[&str]) -> Result<String, String> {
    let password = format!("--password={password}");
    let mut arguments = vec!["--user=maria", &password];
    arguments.extend(more);
    let result = client::command_line(port, &arguments, "SELECT CURRENT_USER()");
    if let Err(error) = &result {
        assert!(
            !error.contains("ERROR 2059"),
            "{error}The plugins of the command line client: apt-get install libmariadb3"
        );
    }
    result
}

#[tokio::test]
async fn in_its_words_and_as_it_is() {
    if kind() != Kind::Mariadb {
        return; // MySQL has the plugin in its commercial edition only
    }
    let folder = tempfile::tempdir().unwrap();
    let service = Service::make(folder.path());
    let certificates = Certificates::make(folder.path()).unwrap();
    let Certificates {
        ca,
        server_cert,
        server_key,
        ..
    } = &certificates;
    let ca = format!("--ssl-ca={}", ca.display());
    for in_clear in [false, true] {
        let server = [server(&service, in_clear)];
        let gateway = |tls: &str, more: &str| {
            Setup::in_front_of(&server)
                .listener_tls(&format!(
                    "mode = \"preferred\"\ncert = {server_cert:?}\nkey = {server_key:?}"
                ))
                .cluster(more)
                .cluster_tls(&format!("mode = {tls:?}\nverify = \"off\""))
                .start()
        };
        let (plain, secure) = (gateway("off", ""), gateway("required", ""));
        let links = [
            (plain.port(), &["--skip-ssl"][..], "plain and plain"),
            (secure.port(), &["--skip-ssl"], "plain and secure"),
            (secure.port(), &[&ca], "secure and secure"),
        ];
        for (port, options, link) in links {
            let who = log_in(port, RIGHT, options);
            assert_eq!(who.as_deref(), Ok("maria@%\n"), "{link}, in clear: {in_clear}");
            let error = log_in(port, "a wrong one", options).unwrap_err();
            assert!(error.contains("ERROR 1045"), "{link}: {error}");
        }
        // A password that the client gave in private is not told aloud.
        let error = log_in(plain.port(), RIGHT, &[&ca]).unwrap_err();
        assert!(error.contains("allow_cleartext_passwords"), "{error}");
        let allowed = gateway("off", "allow_cleartext_passwords = true");
        assert_eq!(log_in(allowed.port(), RIGHT, &[&ca]).as_deref(), Ok("maria@%\n"));
        // In mode `split` the gateway logs in for the client, and can say a password but not hold a
        // conversation.
        let split = Setup::in_front_of(&server)
            .mode("split")
            .servers([format!(
                "{{ address = {:?}, role = \"primary\" }}",
                server[0].primary().address()
            )])
            .listener_tls(&format!(
                "mode = \"preferred\"\ncert = {server_cert:?}\nkey = {server_key:?}"
            ))
            .cluster("accounts = \"pass-through\"")
            .cluster_tls("mode = \"required\"\nverify = \"off\"")
            .start();
        let [who, refused] = [RIGHT, "a wrong one"].map(|word| log_in(split.port(), word, &[&ca]));
        if in_clear {
            assert_eq!(who.as_deref(), Ok("maria@%\n"));
            assert!(
                refused.as_ref().is_err_and(|error| error.contains("ERROR 1045")),
                "{refused:?}"
            );
        } else {
            let error = who.unwrap_err();
            assert!(error.contains("ERROR 1429"), "{error}");
            e2e::eventually("the log says why", async || {
                split.log().contains("dialog, which is not supported here")
            })
            .await;
        }
    }
}
