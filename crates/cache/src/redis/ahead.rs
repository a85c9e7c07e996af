//! Requests of a pipeline behind one for which the server has to be asked: as long as they need rows of the server, too, they are asked
//! for with the same question. The first that needs none ends that: behind what memory shows then, what the server said before could
//! be older.

use std::collections::VecDeque;

use resp_wire::{Parser, Step};

use super::execute::Execution;
use super::rows::Wanted;

/// Rows that one question is for, with which no further request is added.
const ROWS_MAX: usize = 200;

/// Rows that the server gave, by request.
pub(crate) type Fetched = VecDeque<Vec<Option<Vec<u8>>>>;

/// Adds the rows that the requests in `bytes` want; returns how many each of them wants.
pub(crate) fn look(execution: &mut Execution<'_>, mut bytes: &[u8], wanted: &mut Vec<Wanted>) -> Vec<usize> {
    let (mut parser, mut counts) = (Parser::default(), Vec::new());
    while wanted.len() < ROWS_MAX {
        let Ok(Step::Request(n)) = parser.parse(bytes, execution.session.limits()) else {
            break;
        };
        let args = parser.args(bytes);
        if !execution.asks(args) {
            break;
        }
        let before = wanted.len();
        wanted.extend(execution.wanted(args));
        counts.push(wanted.len() - before);
        bytes = &bytes[n..];
    }
    counts
}
