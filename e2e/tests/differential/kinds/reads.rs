//! SELECT in all types, sizes and shapes; several statements in one; CALL.

use super::Maker;

const COLUMNS: &[&str] = &[
    "*",
    "id",
    "t, tu, s, m, i",
    "b, bu, z",
    "f, d, n",
    "c, v, bin, vb",
    "tx, mt, bl",
    "e, st, js",
    "da, ti, dt, ts, y",
    "bi, g, l",
    "id, NULL, v",
    "MAX(n), MIN(da), COUNT(*)",
    "HEX(bl), LENGTH(mt)",
    "CAST(v AS BINARY), CONVERT(l USING utf8mb4)",
];

const TAILS: &[&str] = &[
    "",
    " WHERE id = %",
    " WHERE id > 9",
    " ORDER BY id DESC",
    " WHERE v IS NULL ORDER BY 1",
    " LIMIT 2",
    " WHERE id IN (1, 3) LIMIT 1",
    " GROUP BY id HAVING id > 2",
    " UNION ALL SELECT 'x' FROM bare",
    " LOCK IN SHARE MODE",
];

const OTHERS: &[&str] = &[
    "SELECT 1",
    "SELECT NULL",
    "SELECT ''",
    "SELECT 1, 'a', NULL, 2.5, 1e10, x'00', DATE'2024-01-01', TIME'10:00:00'",
    "SELECT 'a' AS `näme`, 1 AS ``",
    "SELECT ~0, -1, 18446744073709551615, 0.1 + 0.2, 7 / 3, 7 DIV 2, 1 / 0",
    "SELECT * FROM bare",
    "SELECT * FROM shown ORDER BY id",
    "SELECT twice(%), twice(NULL)",
    "SELECT s.*, c.* FROM small s LEFT JOIN child c ON c.small_id = s.id ORDER BY s.id",
    "SELECT SQL_CALC_FOUND_ROWS id FROM small ORDER BY id LIMIT 1",
    "SELECT FOUND_ROWS(), ROW_COUNT(), LAST_INSERT_ID()",
    "SELECT GROUP_CONCAT(name ORDER BY id) FROM small GROUP BY amount > 0 WITH ROLLUP",
    "VALUES (1), (2)",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY amount, id) FROM small ORDER BY id",
    "TABLE small ORDER BY id",
    "SELECT DISTINCT note IS NULL FROM small ORDER BY 1",
    "SELECT RAND(%) < 2, MD5('x'), SHA2('y', 256), CRC32('z')",
    "SELECT USER(), CURRENT_USER(), DATABASE(), @@character_set_client, @@collation_connection, @@autocommit",
    "SELECT command, info, db FROM information_schema.processlist WHERE id = CONNECTION_ID()",
    "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = 'diff' ORDER BY 1",
    "SELECT JSON_OBJECT('a', 1), JSON_ARRAY(1, 'b', NULL)",
    "DO 1",
    "DO 1 / 0",
    "SELECT 'semi;colon' ; ",
    "/* a comment */ SELECT 2 -- end",
    "SELECT SLEEP(0.02), BENCHMARK(10, 1)",
    "(SELECT 1) UNION (SELECT 2) ORDER BY 1 DESC",
    "SELECT 1 INTO @one",
    "EXPLAIN SELECT * FROM small WHERE name = 'ann'",
    "EXPLAIN UPDATE small SET amount = 1 WHERE id = %",
    "DESC small",
    "HELP 'nothing at all'",
    "SELECT CONVERT(x'e4' USING latin1), _latin1 x'e4', _utf8mb4 'ä', CAST('1.5' AS DECIMAL(5,2)), CAST(NULL AS SIGNED)",
];

/// Sizes of values beside the borders of length-encoded integers, buffers and packets.
const SIZES: &[usize] = &[
    0, 1, 250, 251, 252, 16_379, 16_380, 65_498, 65_530, 65_535, 65_536, 131_072, 200_001,
];

const ROWS: &[usize] = &[0, 1, 2, 200, 253, 254, 255, 256, 257, 1000];

pub fn add(make: &mut Maker) {
    let text = match make.dice.below(10) {
        0..4 => format!(
            "SELECT {} FROM types{}",
            make.dice.pick(COLUMNS),
            make.statement(TAILS)
        ),
        4..8 => make.statement(OTHERS),
        8 => sized(make),
        _ if make.is_mariadb() => make.statement(&[
            "ANALYZE SELECT id FROM small ORDER BY id",
            "SELECT * FROM seq_1_to_300",
            "SELECT NEXT VALUE FOR nothing",
            "SELECT id FROM small ORDER BY id OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY",
            "SELECT ip, uid, js FROM types ORDER BY id",
        ]),
        _ => make.statement(&[
            "SELECT vec FROM types ORDER BY id",
            "SELECT mysql_query_attribute_string('a0')",
            "SELECT ST_AsText(g) FROM types ORDER BY id",
            "SELECT * FROM JSON_TABLE('[1,2]', '$[*]' COLUMNS (a INT PATH '$')) t",
            "SELECT /*+ MAX_EXECUTION_TIME(9000) */ 1",
        ]),
    };
    make.add_query(&text);
}

fn sized(make: &mut Maker) -> String {
    let size = make.dice.pick(SIZES);
    if make.dice.one_in(2) {
        return format!("SELECT REPEAT('x', {size}), 'end'");
    }
    let (rows, size) = (make.dice.pick(ROWS), size.min(1 << 10) + make.dice.below(40));
    format!(
        "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < {rows}) \
         SELECT n, REPEAT(CHAR(65 + n % 26), {size}), IF(n % 7, n, NULL) FROM r WHERE n <= {rows}"
    )
}

const PARTS: &[&str] = &[
    "SELECT %",
    "DO 0",
    "SELECT id FROM small ORDER BY id",
    "SELECT * FROM bare",
    "UPDATE small SET amount = % WHERE id < 3",
    "INSERT INTO bare VALUES (%, 'm')",
    "SET @m = %",
    "CALL two()",
    "CALL nothing()",
    "CALL fails(0)",
    "SELECT REPEAT('m', 70000)",
    "DELETE FROM bare",
    "SHOW WARNINGS",
    "SELECT nothing FROM nowhere",
    "INSERT INTO small VALUES (1, 'dup', 0, '')",
    "",
    "CALL fails(1)",
    "COMMIT",
    "BEGIN",
    "CREATE TABLE IF NOT EXISTS bare (id INT)",
    "/* only a comment */",
    "SELECT FROM WHERE",
];

const CALLS: &[&str] = &[
    "CALL two()",
    "CALL outs(%, @b, @c)",
    "SELECT @b, @c",
    "SET @c = %",
    "CALL only_out(@o)",
    "CALL fails(%)",
    "CALL nothing()",
    "CALL writes(%)",
    "DELETE FROM bare",
    "CALL outs(1, 2, 3)",
    "CALL two(1)",
    "CALL missing()",
    "CALL diff.two",
    "SELECT @o",
];

/// Several statements in one command (also where MULTI_STATEMENTS was not agreed on), and CALL.
pub fn add_several(make: &mut Maker) {
    if make.dice.one_in(2) {
        let text = make.statement(CALLS);
        return make.add_query(&text);
    }
    let count = make.dice.between(2, 5);
    let parts: Vec<_> = (0..count).map(|_| make.statement(PARTS)).collect();
    make.add_query(&parts.join("; "));
}
