//! Rules on statements, as every configuration has them that comes from another gateway, keep no lookup from
//! memory that they do not match, or only send to the replicas.

use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{Session, Setup, Stage, execute, query, run_with};

const RULES: &str = r#"
    [[rule]]
    name = "locking"
    digest_text = "^SELECT .* FOR UPDATE"
    route = "primary"
    [[rule]]
    name = "only there"
    table = ["test.k"]
    route = "primary"
    [[rule]]
    name = "refused"
    text = "id *= *2"
    refuse = "not this one"
    [[rule]]
    name = "rewritten"
    text = "SELECT c FROM t WHERE id=-3"
    rewrite = "SELECT 'another'"
    [[rule]]
    name = "reads"
    digest_text = "^SELECT"
    route = "replicas"
"#;

#[test]
fn mariadb() {
    run(Kind::Mariadb);
}

#[test]
fn mysql() {
    run(Kind::Mysql);
}

fn run(kind: Kind) {
    let setup = Setup {
        kind,
        mode: "split",
        consistency: "strong",
        nodes: 2,
        cache: "",
        rules: RULES,
    };
    run_with(setup, lookups_under_rules);
}

fn lookups_under_rules(stage: &Stage) {
    const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let expected = direct.sql(LOOKUP);
    stage.until_answered(&mut through, &query(LOOKUP), &expected);
    let one = |session: &mut Session| {
        let id = session.prepare("SELECT c FROM t WHERE id=?");
        execute(id, &[3, 0], &[0], &1_u32.to_le_bytes(), true)
    };
    let (asked, asked_through) = (one(&mut direct), one(&mut through));
    let expected = direct.ask(&asked);
    stage.until_answered(&mut through, &asked_through, &expected);

    let hits = |rule: &str| stage.count(&format!("forebay_rule_hits_total{{rule=\"{rule}\"}}"));
    let (answered, counted) = (stage.answered(), hits("reads"));
    for _ in 0..3 {
        through.sql(LOOKUP);
        through.ask(&asked_through);
    }
    assert_eq!((stage.answered(), hits("reads")), (answered + 6, counted + 6));
    assert_eq!(hits("locking"), 0);

    // What a rule says that memory cannot keep is said by a server, or by the gateway.
    for _ in 0..5 {
        let text = "SELECT v FROM k WHERE a='Key' AND b=7";
        assert!(through.sql(text) == direct.sql(text));
        let refused = through.sql("SELECT c FROM t WHERE id=2");
        assert!(String::from_utf8_lossy(&refused).contains("not this one"));
        let rewritten = through.sql("SELECT c FROM t WHERE id=-3");
        assert!(String::from_utf8_lossy(&rewritten).contains("another"));
    }
    assert_eq!(stage.answered(), answered + 6, "{}", stage.left());
    assert_eq!(["only there", "refused", "rewritten"].map(hits), [5, 5, 5]);
}
