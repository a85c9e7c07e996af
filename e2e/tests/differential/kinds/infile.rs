//! LOAD DATA LOCAL: answered, refused, wrong, and in the middle of several statements.

use super::Maker;
use crate::script::Writes;

/// Longest file that is written a few bytes at a time.
const PIECEMEAL_MAX: usize = 400;

const LOADS: &[&str] = &[
    "LOAD DATA LOCAL INFILE 'f' INTO TABLE loaded FIELDS TERMINATED BY ','",
    "LOAD DATA LOCAL INFILE '/a/long/path' REPLACE INTO TABLE loaded FIELDS TERMINATED BY ','",
    "LOAD DATA LOCAL INFILE 'f' IGNORE INTO TABLE loaded FIELDS TERMINATED BY ',' (id, name, @n) SET n = @n * 2",
    "LOAD DATA LOCAL INFILE 'f' INTO TABLE missing",
    "LOAD DATA LOCAL INFILE '' INTO TABLE loaded",
    "LOAD DATA INFILE '/nowhere/at/all' INTO TABLE loaded",
    "LOAD DATA LOCAL INFILE 'f' INTO TABLE loaded CHARACTER SET binary LINES TERMINATED BY 'x'",
    "SELECT 1; LOAD DATA LOCAL INFILE 'f' REPLACE INTO TABLE loaded FIELDS TERMINATED BY ','; SELECT COUNT(*) FROM loaded",
    "LOAD DATA LOCAL INFILE 'f' REPLACE INTO TABLE loaded FIELDS TERMINATED BY ','; LOAD DATA LOCAL INFILE 'f' INTO TABLE loaded",
    "LOAD DATA LOCAL INFILE 'f' INTO TABLE child FIELDS TERMINATED BY ','",
];

pub fn add(make: &mut Maker) {
    let text = make.dice.pick(LOADS);
    let mut request = make.query(text);
    let file = file(make);
    let sizes: Vec<_> = file.iter().map(Vec::len).collect();
    request.label = format!("{text} (a file of {sizes:?} bytes)");
    if sizes.iter().sum::<usize>() < PIECEMEAL_MAX && make.dice.one_in(2) {
        request.file_writes = Writes::InPieces(make.dice.between(1, 9));
    }
    request.file = Some(file);
    make.add(request);
    make.add_query("SELECT COUNT(*), SUM(LENGTH(name)) FROM loaded");
}

/// The packets of a file. None: it is refused.
fn file(make: &mut Maker) -> Vec<Vec<u8>> {
    let rows = match make.dice.below(6) {
        0 => return Vec::new(),
        1 => return vec![b"no,numbers\n,,,\n\x00\xff\xfe".to_vec()],
        2 => 4000,
        _ => make.dice.between(1, 20),
    };
    let distinct = make.dice.pick(&[rows, 5]);
    let text: String = (0..rows)
        .map(|row| format!("{},name {row},{}\n", row % distinct, row * 2))
        .collect();
    let size = make
        .dice
        .pick(&[1, 7, 1000, 65_535, 1 << 20])
        .max(text.len() / 500);
    text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect()
}
