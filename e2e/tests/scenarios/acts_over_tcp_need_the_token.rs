use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use e2e::{Gateway, Setup, program};

/// What `forebay` prints with these arguments, where it is to succeed, or to fail.
fn run(arguments: &[&str], succeeds: bool) -> String {
    let output = Command::new(program()).args(arguments).output().unwrap();
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.success(), succeeds, "{arguments:?}: {printed}");
    printed
}

fn header(file: &Path) -> String {
    let token = fs::read_to_string(file).unwrap();
    format!("Authorization: Bearer {}\r\n", token.trim())
}

fn pause(gateway: &Gateway, headers: &str) -> u16 {
    gateway.put_over_tcp("/pause", headers).0
}

#[test]
fn they_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let path = file.to_str().unwrap();
    run(&["token", path], true);
    // No server is needed for this.
    let gateway = Setup::of_addresses(["127.0.0.1:1".to_owned()])
        .admin(&format!("token_file = {path:?}"))
        .start_unready();
    let first = header(&file);
    // Whoever is refused often is counted, and does not fill the log.
    for _ in 0..50 {
        assert_eq!(pause(&gateway, ""), 401);
    }
    let refused = gateway.metric("forebay_admin_refused_total", &["why=\"token\""]);
    assert_eq!(refused as usize, 50);
    assert_eq!(pause(&gateway, &first), 200);
    assert_eq!(gateway.put_over_tcp("/pause", "Host: evil.example\r\n").0, 421);
    let log = gateway.log();
    assert!(log.matches("admin request refused").count() < 5, "{log}");
    // Each reason has its line, although another one was told just before.
    assert!(
        log.contains("evil.example") && log.contains("why=\"host\""),
        "{log}"
    );
    assert!(
        log.contains("act by=127.0.0.1:") && log.contains("PUT /pause"),
        "{log}"
    );

    // `forebay ctl` does it, too.
    let address = format!("127.0.0.1:{}", gateway.admin_port());
    let ctl = ["ctl", "--address", &address];
    assert!(run(&[&ctl[..], &["status"]].concat(), true).contains("process_id"));
    let said = run(&[&ctl[..], &["resume"]].concat(), false);
    assert!(said.contains("--token-file"), "{said}");
    run(&[&ctl[..], &["--token-file", path, "resume"]].concat(), true);
    let output = Command::new(program())
        .args(["ctl", "pause"])
        .envs([
            ("FOREBAY_ADDRESS", address.as_str()),
            ("FOREBAY_TOKEN_FILE", path),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (status, said) = gateway.put("/drain?server=127.0.0.1:1&end_after=1e19");
    assert!(status == 409 && said.contains("end_after"), "{status} {said}");
    what_is_said_counts_before_the_environment(&gateway, path);
    each_is_in_the_log(&gateway, &first);

    // Another token counts from the next reload on.
    assert!(run(&["token", path], false).contains("--replace"));
    run(&["token", "--replace", path], true);
    let second = header(&file);
    assert_eq!(
        [&first, &second].map(|header| pause(&gateway, header)),
        [200, 401]
    );
    let (status, said) = gateway.put("/reload");
    assert!(status == 200 && said.contains("another token"), "{status} {said}");
    assert_eq!(
        [&first, &second].map(|header| pause(&gateway, header)),
        [401, 200]
    );

    // So it does beside another change. With a mistake beside it the old one goes on to count.
    let config = gateway.folder().join("forebay.toml");
    let good = fs::read_to_string(&config).unwrap();
    run(&["token", "--replace", path], true);
    let third = header(&file);
    fs::write(&config, format!("workrs = 1\n{good}")).unwrap();
    let (status, said) = gateway.put("/reload");
    assert!(status == 422 && said.contains("workrs"), "{status} {said}");
    assert_eq!(pause(&gateway, &second), 200);
    fs::write(&config, format!("upgrade_timeout = \"7m\"\n{good}")).unwrap();
    let (status, said) = gateway.put("/reload");
    assert!(
        status == 200 && said.contains("upgrade_timeout") && said.contains("another token"),
        "{status} {said}"
    );
    assert_eq!(
        [&second, &third].map(|header| pause(&gateway, header)),
        [401, 200]
    );

    refuse_unsafe_files(&gateway, &file, &third);
}

/// Before it is done, with who has asked; and afterwards, with what came of it.
fn each_is_in_the_log(gateway: &Gateway, header: &str) {
    for (act, status) in [
        ("/drain?server=127.0.0.1:1", 409), // it is the only one
        ("/undrain?server=127.0.0.1:1", 200),
        ("/pause?cluster=main", 200),
        ("/resume?cluster=main", 200),
        ("/switchover?to=127.0.0.1:1", 409),
        ("/kill?id=1", 409), // there is none
        ("/readyz?ready=true", 200),
        ("/log?level=info", 200),
        ("/cache/flush", 404),
        ("/reload", 200),
    ] {
        let (answered, said) = gateway.put_over_tcp(act, header);
        assert_eq!(answered, status, "{act}: {said}");
        let log = gateway.log();
        let lines: Vec<_> = log
            .lines()
            .filter(|line| line.contains("by=127.0.0.1:") && line.contains(&format!("PUT {act}")))
            .collect();
        let [asked, done] = lines[..] else {
            panic!("{act}: {lines:#?}");
        };
        assert!(asked.contains("act by=127.0.0.1:"), "{asked}");
        assert!(
            done.contains("act answered by=127.0.0.1:") && done.contains(&format!("status={status}")),
            "{done}"
        );
    }
}

/// Those that others may read or change are refused, and the token in force stays.
fn refuse_unsafe_files(gateway: &Gateway, file: &Path, in_force: &str) {
    fs::set_permissions(file, Permissions::from_mode(0o640)).unwrap();
    let (status, said) = gateway.put("/reload");
    assert!(
        status == 422 && said.contains("admin.token_file") && said.contains("chmod 600"),
        "{status} {said}"
    );
    assert_eq!(pause(gateway, in_force), 200);
    let config = gateway.folder().join("forebay.toml");
    for command in ["serve", "check"] {
        let said = run(&[command, "--config", config.to_str().unwrap()], false);
        assert!(said.contains("chmod 600"), "{said}");
    }
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    // Root alone can give a file away.
    if std::os::unix::fs::chown(file, Some(65534), None).is_ok() {
        let (status, said) = gateway.put("/reload");
        assert!(
            status == 422 && said.contains("belongs to system user 65534"),
            "{status} {said}"
        );
    }
    assert_eq!(pause(gateway, in_force), 200);
}

/// The address of the environment is nobody's here.
fn what_is_said_counts_before_the_environment(gateway: &Gateway, token: &str) {
    let config = gateway.folder().join("forebay.toml");
    let config = config.to_str().unwrap();
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(program());
        command
            .arg("ctl")
            .args(arguments)
            .env("FOREBAY_ADDRESS", "127.0.0.1:1");
        let output = command.current_dir(gateway.folder()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = ctl(&["status"]);
    assert!(code == Some(1) && said.contains("127.0.0.1:1"), "{said}");
    let (code, said) = ctl(&["--config", config, "status"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = ctl(&["--config", config, "--token-file", token, "status"]);
    assert!(code == Some(1) && said.contains("--address"), "{said}");

    // A mistake is not told as what comes of a drain or a switchover.
    for wrong in [&["drain"][..], &["switchover", "main"], &["no-such-act"], &[]] {
        let (code, said) = ctl(wrong);
        assert_eq!(code, Some(1), "{wrong:?}: {said}");
    }
    assert_eq!(ctl(&["drain", "--help"]).0, Some(0));
}
