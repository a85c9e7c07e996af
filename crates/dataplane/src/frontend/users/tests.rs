use super::*;

/// `PASSWORD('secret')`
const HASH: &str = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
const NONCE: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz!#%&()";

fn password(name: &str, password: &str) -> config::User {
    config::User::new(name, Some(Secret::new(password)))
}

fn hash(name: &str) -> config::User {
    let mut user = config::User::new(name, None);
    user.native_hash = Some(Secret::new(HASH));
    user
}

fn answer(plugin: Plugin, password: &str) -> Vec<u8> {
    let short = NONCE.first_chunk().unwrap();
    match plugin {
        Plugin::Native => auth::native_password(short, password.as_bytes()),
        Plugin::CachingSha2 => auth::caching_sha2_password(short, password.as_bytes()),
        Plugin::Ed25519 => auth::ed25519(&NONCE, password.as_bytes()).to_vec(),
    }
}

fn logs_in(users: &Users, name: &str, plugin: Plugin, password: &str) -> Option<CredentialSecret> {
    let applicant = users.applicant(name.as_bytes(), None);
    let credential = applicant.check(plugin, &NONCE, &answer(plugin, password))?;
    assert_eq!(&*credential.user, name);
    Some(credential.secret)
}

fn known(password: &str) -> Option<CredentialSecret> {
    Some(CredentialSecret::Password(Secret::new(password)))
}

#[test]
fn a_password_logs_in_with_every_plugin() {
    let mut changing = password("changing", "new");
    changing.previous_password = Some(Secret::new("old"));
    let users = Users::new(&[password("app", "secret"), password("open", ""), changing], None);
    for plugin in Plugin::ALL {
        assert_eq!(logs_in(&users, "app", plugin, "secret"), known("secret"));
        assert_eq!(logs_in(&users, "open", plugin, ""), known(""));
        assert_eq!(logs_in(&users, "changing", plugin, "new"), known("new"));
        assert_eq!(logs_in(&users, "changing", plugin, "old"), known("old"));
        for (name, wrong) in [
            ("app", "Secret"),
            ("app", ""),
            ("open", "x"),
            ("changing", ""),
            ("none", "secret"),
        ] {
            assert_eq!(logs_in(&users, name, plugin, wrong), None, "{name} {plugin:?}");
        }
    }
}

#[test]
fn what_no_plugin_takes_is_refused() {
    let users = Users::new(
        &[password("app", "secret"), password("open", ""), hash("hashed")],
        None,
    );
    for plugin in Plugin::ALL {
        for name in ["app", "hashed", "none"] {
            for wrong in [&b""[..], b"\0", &[0; 20], &[0; 32], &[0; 64], &[0xff; 1000]] {
                let applicant = users.applicant(name.as_bytes(), None);
                assert_eq!(
                    applicant.check(plugin, &NONCE, wrong),
                    None,
                    "{name} {plugin:?} {wrong:?}"
                );
            }
        }
        let open = users.applicant(b"open", None);
        assert_eq!(open.check(plugin, &NONCE, &[0; 20]), None, "{plugin:?}");
    }
}

#[test]
fn a_hash_logs_in_with_the_native_plugin_and_reveals_what_servers_take() {
    let users = Users::new(&[hash("app")], None);
    let applicant = users.applicant(b"app", None);
    assert!(applicant.can_use(Plugin::Native));
    assert!(!applicant.can_use(Plugin::CachingSha2) && !applicant.can_use(Plugin::Ed25519));
    let Some(CredentialSecret::NativeStage1(stage1)) = logs_in(&users, "app", Plugin::Native, "secret")
    else {
        panic!("the password is right");
    };
    let elsewhere = [7; 20];
    assert_eq!(
        auth::native_from_stage1(&elsewhere, &stage1).to_vec(),
        auth::native_password(&elsewhere, b"secret")
    );
    for plugin in Plugin::ALL {
        assert_eq!(logs_in(&users, "app", plugin, "Secret"), None);
    }
}

#[test]
fn a_password_and_a_hash_can_only_be_told_apart_by_the_native_plugin() {
    let mut user = password("app", "new");
    user.previous_native_hash = Some(Secret::new(HASH));
    let users = Users::new(&[user], None);
    let applicant = users.applicant(b"app", None);
    assert!(!applicant.can_use(Plugin::CachingSha2));
    let stage1 = applicant
        .check(Plugin::Native, &NONCE, &answer(Plugin::Native, "secret"))
        .unwrap();
    assert!(matches!(stage1.secret, CredentialSecret::NativeStage1(_)));
    assert_eq!(
        applicant.other_than(&stage1).map(|other| other.secret),
        known("new")
    );
}

#[test]
fn servers_may_have_the_other_password() {
    let mut user = password("app", "new");
    let users = Users::new(std::slice::from_ref(&user), None);
    let applicant = users.applicant(b"app", None);
    let used = applicant.check_password(&Secret::new("new")).unwrap();
    assert_eq!(applicant.other_than(&used), None);
    assert_eq!(applicant.check_password(&Secret::new("old")), None);

    user.previous_password = Some(Secret::new("old"));
    let users = Users::new(&[user], None);
    let applicant = users.applicant(b"app", None);
    for (used, other) in [("new", "old"), ("old", "new")] {
        let used = applicant.check_password(&Secret::new(used)).unwrap();
        assert_eq!(
            applicant.other_than(&used).map(|other| other.secret),
            known(other)
        );
    }
}

#[test]
fn accounts_that_do_not_exist_look_like_those_that_do() {
    let only_passwords = Users::new(&[password("app", "secret")], None);
    let only_hashes = Users::new(&[hash("app")], None);
    let both = Users::new(&[password("one", "secret"), hash("two")], None);
    let none = Users::new(&[], None);
    let names: Vec<String> = (0..200).map(|index| format!("user{index}")).collect();
    let with_hash = |users: &Users| {
        names
            .iter()
            .filter(|name| {
                !users
                    .applicant(name.as_bytes(), None)
                    .can_use(Plugin::CachingSha2)
            })
            .count()
    };
    assert_eq!(with_hash(&none), 0);
    assert_eq!(with_hash(&only_passwords), 0);
    assert_eq!(with_hash(&only_hashes), names.len());
    assert!((20..180).contains(&with_hash(&both)));
    // A name is always of one kind, also after a reload.
    let again = Users::new(&[password("one", "secret"), hash("two")], Some(&both));
    for name in &names {
        let kind = |users: &Users| {
            users
                .applicant(name.as_bytes(), None)
                .can_use(Plugin::CachingSha2)
        };
        assert_eq!(kind(&both), kind(&again));
    }
    // The password of the stand-in is no way in.
    assert_eq!(
        logs_in(&none, "", Plugin::Native, "an account that does not exist"),
        None
    );
    assert!(!none.applicant(b"", None).needs_no_password());
}

/// `app` and `elsewhere` as a server has them for the native plugin, `slow` for the other one.
fn of_servers() -> ServerAccounts {
    let native = StoredSecret::Native(auth::native_stage2(b"secret"));
    let other = StoredSecret::Native(auth::native_stage2(b"another"));
    [
        (&b"app"[..], native.clone()),
        (b"elsewhere", native),
        (b"elsewhere", other),
        (b"slow", StoredSecret::Slow(SlowHash::of_nobody(5000))),
    ]
    .into_iter()
    .collect()
}

#[test]
fn accounts_of_servers_log_in_behind_the_configured_ones() {
    let servers = of_servers();
    let users = Users::new(&[password("app", "configured")], None);
    let check = |name: &str, password| {
        let applicant = users.applicant(name.as_bytes(), Some(&servers));
        applicant.check(Plugin::Native, &NONCE, &answer(Plugin::Native, password))
    };
    assert!(check("app", "secret").is_none());
    assert_eq!(check("app", "configured").unwrap().account, 0);
    let [one, other] = ["secret", "another"].map(|password| check("elsewhere", password).unwrap());
    assert!(matches!(one.secret, CredentialSecret::NativeStage1(_)));
    // The two may be different accounts, for clients of different hosts: nothing is shared between them.
    assert!(one.account != 0 && other.account != 0 && one.account != other.account);
    assert_eq!(
        users.applicant(b"elsewhere", Some(&servers)).other_than(&one),
        None
    );
    assert!(check("elsewhere", "wrong").is_none() && check("nobody", "secret").is_none());
    assert!(check("slow", "").is_none());
}

#[test]
fn a_slow_hash_wants_the_password_itself_until_that_is_kept() {
    let servers = of_servers();
    let users = Users::new(&[], None);
    let applicant = users.applicant(b"slow", Some(&servers));
    assert!(applicant.can_use(Plugin::CachingSha2) && !applicant.can_use(Plugin::Native));
    assert!(!applicant.can_use(Plugin::Ed25519) && !applicant.needs_no_password());
    let fast = |password| {
        applicant.check(
            Plugin::CachingSha2,
            &NONCE,
            &answer(Plugin::CachingSha2, password),
        )
    };
    assert_eq!((fast("secret"), fast("")), (None, None));
    let given = Secret::new("secret");
    assert_eq!(applicant.check_password(&given), None);
    let [secret] = applicant.in_full().collect::<Vec<_>>()[..] else {
        panic!("one, and once");
    };
    let proved = applicant.proved_by(secret, &given).unwrap();
    assert_eq!(
        (proved.account, &proved.secret),
        (secret.id(), &known("secret").unwrap())
    );
    secret.keep(&given);
    assert_eq!(fast("secret"), Some(proved));
    assert_eq!(fast("Secret"), None);
}

#[test]
fn accounts_that_do_not_exist_look_like_those_of_servers() {
    let (servers, users) = (of_servers(), Users::new(&[], None));
    let names = (0..200).map(|index| format!("user{index}"));
    let slow = names.filter(|name| {
        let applicant = users.applicant(name.as_bytes(), Some(&servers));
        let slow: Vec<_> = applicant.in_full().collect();
        assert_eq!(slow.is_empty(), !applicant.can_use(Plugin::CachingSha2));
        assert!(
            slow.iter()
                .all(|secret| applicant.proved_by(secret, &Secret::new("x")).is_none())
        );
        !slow.is_empty()
    });
    assert!((20..180).contains(&slow.count()));
}

/// `secret` as MySQL 9.7.4 has stored it, and as MariaDB has for `ed25519`.
const SHA2_HASH: &str = "0x24412430304124646E2D42527C72726465020C16731B64280148744A5833634B43\
    6E3766727A616249653132375955487262647839755275454F7431383351676B734245732E";
const ED25519_KEY: &str = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY";

fn sha2(name: &str) -> config::User {
    let mut user = config::User::new(name, None);
    user.sha2_hash = Some(Secret::new(SHA2_HASH));
    user
}

fn ed25519(name: &str) -> config::User {
    let mut user = config::User::new(name, None);
    user.ed25519_key = Some(Secret::new(ED25519_KEY));
    user
}

/// Sends `secret` in full, and has it kept.
fn proves(users: &Users, name: &str) -> Credential {
    let applicant = users.applicant(name.as_bytes(), None);
    let (given, wrong) = (Secret::new("secret"), Secret::new("Secret"));
    assert_eq!(applicant.check_password(&given), None);
    let [secret, again] = applicant.in_full().collect::<Vec<_>>()[..] else {
        panic!("two checks, whatever there is");
    };
    assert_eq!(secret.stored(), again.stored());
    assert!(secret.stored().verify(b"secret") && !secret.stored().verify(wrong.reveal().as_bytes()));
    secret.keep(&given);
    assert_eq!(applicant.check_password(&wrong), None);
    assert_eq!(
        applicant.check_password(&given),
        applicant.proved_by(secret, &given)
    );
    applicant.proved_by(secret, &given).unwrap()
}

#[test]
fn a_hash_of_the_configuration_wants_the_password_itself_once() {
    let configured = [sha2("sha2"), ed25519("ed25519")];
    let users = Users::new(&configured, None);
    assert!(users.wants_passwords());
    for name in ["sha2", "ed25519"] {
        let applicant = users.applicant(name.as_bytes(), None);
        assert!(applicant.can_use(Plugin::CachingSha2) && !applicant.needs_no_password());
        assert!(!applicant.can_use(Plugin::Native) && !applicant.can_use(Plugin::Ed25519));
        let fast = |users: &Users| logs_in(users, name, Plugin::CachingSha2, "secret");
        assert_eq!(fast(&users), None);
        let credential = proves(&users, name);
        assert_eq!(
            (credential.account, Some(credential.secret)),
            (0, known("secret"))
        );
        assert_eq!(fast(&users), known("secret"));
        assert_eq!(logs_in(&users, name, Plugin::CachingSha2, ""), None);
        // The password is kept for as long as the hash is the same and the operator has nothing against it.
        let reloaded = Users::new(&configured, Some(&users));
        assert_eq!(fast(&reloaded), known("secret"));
        assert_eq!(fast(&Users::keeping(&configured, Some(&users), false)), None);
        let others = [ed25519("sha2"), sha2("ed25519")];
        assert_eq!(fast(&Users::new(&others, Some(&users))), None);
    }
    // A hash that the configuration should not have let through lets nobody in.
    let mut broken = config::User::new("broken", None);
    broken.sha2_hash = Some(Secret::new("$A$005$"));
    let users = Users::new(&[broken], None);
    let applicant = users.applicant(b"broken", None);
    assert!(!applicant.needs_no_password() && applicant.check_password(&Secret::new("")).is_none());
    assert!(applicant.in_full().all(|secret| !secret.stored().verify(b"")));
}

#[test]
fn a_hash_may_be_one_of_two_secrets() {
    let mut user = password("app", "new");
    user.previous_sha2_hash = Some(Secret::new(SHA2_HASH));
    let users = Users::new(std::slice::from_ref(&user), None);
    let applicant = users.applicant(b"app", None);
    assert!(applicant.can_use(Plugin::CachingSha2) && !applicant.can_use(Plugin::Native));
    let new = logs_in(&users, "app", Plugin::CachingSha2, "new");
    assert_eq!(new, known("new"));
    assert_eq!(logs_in(&users, "app", Plugin::CachingSha2, "secret"), None);
    let old = proves(&users, "app");
    assert_eq!(
        logs_in(&users, "app", Plugin::CachingSha2, "secret"),
        known("secret")
    );
    // Servers may have either, as far as it is known.
    let new = applicant.check_password(&Secret::new("new")).unwrap();
    assert_eq!(applicant.other_than(&old), Some(new.clone()));
    assert_eq!(applicant.other_than(&new), Some(old));
    // With a native hash beside it, a client has to send the password, whichever it is.
    (user.password, user.native_hash) = (None, Some(Secret::new(HASH)));
    let applicant = Users::new(&[user], None).applicant(b"app", None);
    assert!(applicant.can_use(Plugin::CachingSha2) && !applicant.can_use(Plugin::Native));
    assert!(applicant.check_password(&Secret::new("secret")).is_some());
}

#[test]
fn accounts_that_do_not_exist_cost_what_others_cost() {
    let users = Users::new(
        &[
            sha2("one"),
            ed25519("two"),
            password("three", "secret"),
            hash("four"),
        ],
        None,
    );
    let mut costs: HashMap<_, u32> = HashMap::new();
    for index in 0..400 {
        let applicant = users.applicant(format!("user{index}").as_bytes(), None);
        let rounds: Vec<_> = applicant
            .in_full()
            .map(|secret| secret.stored().clone())
            .collect();
        let plugin = applicant.can_use(Plugin::CachingSha2);
        let cost = rounds.iter().map(|stored| match stored {
            StoredSecret::Slow(hash) => hash.rounds(),
            other => panic!("{other:?}"),
        });
        *costs.entry((plugin, cost.collect::<Vec<_>>())).or_default() += 1;
    }
    let kinds = [
        (true, vec![10_000; 2]),
        (true, vec![0; 2]),
        (true, vec![]),
        (false, vec![]),
    ];
    assert!(
        costs.len() == 4 && kinds.iter().all(|kind| costs[kind] > 50),
        "{costs:?}"
    );
}

#[test]
fn sessions_of_an_account_are_counted_over_reloads() {
    let mut user = password("app", "secret");
    user.max_connections = Some(2);
    let users = Users::new(std::slice::from_ref(&user), None);
    let begin = |users: &Users| users.applicant(b"app", None).user.begin_session();
    let first = begin(&users).unwrap();
    assert_eq!(first.config.name, "app");

    let reloaded = Users::new(&[user.clone(), password("new", "")], Some(&users));
    let second = begin(&reloaded).unwrap();
    assert_eq!(begin(&reloaded).unwrap_err(), 2);
    assert_eq!(begin(&users).unwrap_err(), 2);
    drop(first);
    let third = begin(&reloaded).unwrap();

    user.max_connections = None;
    let unlimited = Users::new(&[user], Some(&reloaded));
    let more: Vec<_> = (0..5).map(|_| begin(&unlimited).unwrap()).collect();
    drop((second, third, more));
    assert_eq!(unlimited.by_name[&b"app"[..]].active.load(Ordering::Relaxed), 0);
}

#[test]
fn no_secret_is_printed() {
    let user = User::new(password("app", "hunter2"), None, true);
    assert_eq!(format!("{user:?}"), "User { name: \"app\", .. }");
}
