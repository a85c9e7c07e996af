//! Values of prepared statements in the binary protocol.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_binary_resultset.html>

use inputs::Random;

/// One value with its type.
#[derive(Clone)]
pub struct Parameter {
    /// Field type, and 0x80 in the second byte for unsigned.
    pub kind: [u8; 2],
    /// None is NULL.
    pub value: Option<Vec<u8>>,
}

const TEXTS: &[&str] = &[
    "",
    "ann",
    "12",
    "-1.5",
    "2024-02-29",
    "ünï",
    "a longer text that is no number",
    "{\"a\": 1}",
];
const STRINGS: &[u8] = &[0x0f, 0xf6, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe];

impl Parameter {
    pub fn small_int(value: u32) -> Self {
        Self {
            kind: [3, 0],
            value: Some(value.to_le_bytes().to_vec()),
        }
    }

    pub fn text(value: &[u8]) -> Self {
        Self {
            kind: [0xfe, 0],
            value: Some(lenenc_bytes(value)),
        }
    }

    pub fn random(dice: &mut Random) -> Self {
        let sign = if dice.one_in(2) { 0x80 } else { 0 };
        let small = dice.below(12) as u8;
        let (kind, value) = match dice.below(12) {
            0 => (1, vec![small]),
            1 => (2, vec![small, 0]),
            2 => (3, vec![small, 0, 0, 0]),
            3 => (8, [&[small][..], &dice.bytes(7)].concat()),
            4 => (4, f32::from(small).to_le_bytes().to_vec()),
            5 => (5, (f64::from(small) * -1.25e10).to_le_bytes().to_vec()),
            6 => (10, dice.pick(&[&b"\x00"[..], b"\x04\xe8\x07\x02\x1d"]).to_vec()),
            7 => (
                12,
                dice.pick(&[
                    &b"\x07\xe8\x07\x02\x1d\x0a\x0b\x0c"[..],
                    b"\x0b\xe8\x07\x02\x1d\x0a\x0b\x0c\x40\xe2\x01\x00",
                ])
                .to_vec(),
            ),
            8 => (
                11,
                dice.pick(&[&b"\x08\x01\x02\x00\x00\x00\x03\x04\x05"[..], b"\x00"])
                    .to_vec(),
            ),
            9 => {
                return Self {
                    kind: [6, 0],
                    value: None,
                };
            }
            10 => (
                dice.pick(STRINGS),
                lenenc_bytes(&vec![b's'; dice.pick(&[1, 250, 251, 5000])]),
            ),
            _ => (dice.pick(STRINGS), lenenc_bytes(dice.pick(TEXTS).as_bytes())),
        };
        let value = if dice.one_in(6) { None } else { Some(value) };
        Self {
            kind: [kind, sign],
            value,
        }
    }
}

pub fn lenenc_bytes(bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u32;
    let mut out = match len {
        0..251 => vec![len as u8],
        251..0x1_0000 => [&[0xfc][..], &len.to_le_bytes()[..2]].concat(),
        _ => [&[0xfd][..], &len.to_le_bytes()[..3]].concat(),
    };
    out.extend(bytes);
    out
}

/// What comes after the iteration count of COM_STMT_EXECUTE. With `named` every parameter has a name and
/// their count comes first (query attributes). `long` are parameters whose data was sent before.
pub fn encode(parameters: &[Parameter], named: bool, with_types: bool, long: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    if named {
        out.push(parameters.len() as u8);
    }
    if parameters.is_empty() {
        return out;
    }
    let mut bitmap = vec![0; parameters.len().div_ceil(8)];
    for (index, parameter) in parameters.iter().enumerate() {
        if parameter.value.is_none() && !long.contains(&index) {
            bitmap[index / 8] |= 1 << (index % 8);
        }
    }
    out.extend(bitmap);
    out.push(u8::from(with_types));
    if with_types {
        for parameter in parameters {
            out.extend(parameter.kind);
            out.extend(named.then_some(0));
        }
    }
    for (index, parameter) in parameters.iter().enumerate() {
        if !long.contains(&index) {
            out.extend(parameter.value.iter().flatten());
        }
    }
    out
}
