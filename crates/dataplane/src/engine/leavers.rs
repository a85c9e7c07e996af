//! Sessions of a worker that may leave the connections which they hold, as soon as somebody wants one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use upstream::{Pool, Server};

use crate::control::Control;
use crate::engine::connection_state::ConnectionState;

/// Sessions that hold a connection for their user variables alone, those first that have done so for longest.
/// The list is empty, and nothing is looked at, where nobody has any.
#[derive(Default)]
pub(crate) struct Leavers(RefCell<VecDeque<Rc<Control>>>);

impl Leavers {
    pub(crate) fn add(&self, control: &Rc<Control>) {
        if !control.is_among_leavers.replace(true) {
            self.0.borrow_mut().push_back(Rc::clone(control));
        }
    }

    pub(crate) fn remove(&self, control: &Rc<Control>) {
        if control.is_among_leavers.replace(false) {
            self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, control));
        }
    }

    /// Has one session leave its connection to this server, for which somebody is about to wait: one whose
    /// client is silent. Sessions whose clients are not silent look themselves when they have their answer.
    #[inline]
    pub(crate) fn ask_one(&self, pool: &Pool<ConnectionState>, server: &Server) {
        if !self.0.borrow().is_empty() && server.is_full() && pool.idle_and_busy(server.id()).0 == 0 {
            self.ask_one_on(server);
        }
    }

    fn ask_one_on(&self, server: &Server) {
        let mut leavers = self.0.borrow_mut();
        for _ in 0..leavers.len() {
            let Some(control) = leavers.pop_front() else {
                return;
            };
            match control.server() {
                Some(key) if key.server != server.id() => leavers.push_back(control),
                there => {
                    control.is_among_leavers.set(false);
                    if there.is_some() && control.leaves_if_silent() {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once() {
        let (leavers, control) = (Leavers::default(), Rc::new(Control::new(1, Rc::default())));
        leavers.add(&control);
        leavers.add(&control);
        assert_eq!(leavers.0.borrow().len(), 1);
        leavers.remove(&control);
        leavers.remove(&control);
        assert!(leavers.0.borrow().is_empty());
    }
}
