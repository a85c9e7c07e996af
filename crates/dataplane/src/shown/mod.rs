//! The state of a session of mode `split` and its statement under way, for operators who look at sessions.

pub(crate) mod describe;
pub(crate) mod status;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use session::PortableState;
use sql_class::Syntax;

/// The part of a session that is shown beside what it waits for.
#[derive(Default)]
pub(crate) struct Shown {
    /// The state that the session had set at its last command.
    carried: Cell<Option<Rc<PortableState>>>,
    under_way: RefCell<UnderWay>,
}

/// The statement that a session of mode `split` has under way, for operators.
#[derive(Debug, Default)]
enum UnderWay {
    /// No statement, or one whose text is too long to be kept.
    #[default]
    Unknown,
    Prepared(u64),
    /// The text, of which a digest is made when somebody looks.
    Text(Box<[u8]>, Syntax),
}

/// The longest text, in bytes, that is kept for those who look at sessions.
const SHOWN_TEXT_MAX: usize = 4096;

impl Shown {
    /// Says that no statement is under way, and what the session has set.
    #[inline]
    pub(crate) fn state(&self, carried: &Rc<PortableState>) {
        self.under_way.take();
        let shown = self.carried.take();
        let shown = shown.filter(|shown| Rc::ptr_eq(shown, carried));
        self.carried
            .set(Some(shown.unwrap_or_else(|| Rc::clone(carried))));
    }

    /// Says which text is under way.
    #[inline]
    pub(crate) fn text(&self, text: &[u8], syntax: Syntax) {
        self.under_way.replace(match text.len() <= SHOWN_TEXT_MAX {
            true => UnderWay::Text(text.into(), syntax),
            false => UnderWay::Unknown,
        });
    }

    /// Says which prepared statement is under way.
    #[inline]
    pub(crate) fn prepared(&self, digest: u64) {
        self.under_way.replace(UnderWay::Prepared(digest));
    }

    pub(crate) fn digest(&self) -> Option<String> {
        let digest = match &*self.under_way.borrow() {
            UnderWay::Unknown => return None,
            UnderWay::Prepared(digest) => *digest,
            UnderWay::Text(text, syntax) => sql_class::digest(text, *syntax).hash,
        };
        Some(format!("{digest:016x}"))
    }

    pub(crate) fn schema(&self) -> Option<String> {
        let carried = self.carried.take()?;
        let schema = carried
            .schema()
            .map(|schema| String::from_utf8_lossy(schema).into_owned());
        self.carried.set(Some(carried));
        schema
    }
}
