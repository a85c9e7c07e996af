//! The line of sessions that wait for a permit when every server is full: bounded, first come, first served.
//!
//! Nothing here is on the path of a session that finds a permit at once, except one look at
//! [`Queue::is_empty`].

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::oneshot;

use crate::lock::lock;
use crate::server::ServerId;

/// Sessions in line; `G` is what they are given in the end.
#[derive(Debug)]
pub(crate) struct Queue<G> {
    /// Length of the line. Sequentially consistent, together with the counts of sessions on the servers:
    /// whoever frees a permit sees the line, or whoever has just joined it sees the permit.
    waiting: AtomicUsize,
    line: Mutex<VecDeque<Waiter<G>>>,
    next_number: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

#[derive(Debug)]
struct Waiter<G> {
    number: u64,
    /// Servers that this session has tried, and does not want again.
    tried: Vec<ServerId>,
    answer: oneshot::Sender<G>,
}

/// A place in line. Dropping it leaves the line.
pub(crate) struct Ticket<'a, G> {
    queue: &'a Queue<G>,
    number: u64,
    pub(crate) answer: oneshot::Receiver<G>,
}

impl<G> Queue<G> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            line: Mutex::default(),
            next_number: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Joins the line, unless `max` are in it. After joining the caller must serve the queue once: a permit
    /// may have become free in between.
    pub(crate) fn join(&self, tried: Vec<ServerId>, max: usize) -> Option<Ticket<'_, G>> {
        let mut line = lock(&self.line);
        if line.len() >= max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        line.push_back(Waiter {
            number,
            tried,
            answer: sender,
        });
        self.publish(&line);
        Some(Ticket {
            queue: self,
            number,
            answer,
        })
    }

    /// Gives what `offer` has to the first in line who can use it; `false` when there is nothing to give or
    /// nobody to give it to. `offer` is told what the session has tried. The line is locked while it runs.
    ///
    /// What could not be handed over, because the session left at that moment, goes to `take_back`, which
    /// must not serve the queue: the caller calls this again anyway.
    pub(crate) fn serve_next(
        &self,
        mut offer: impl FnMut(&[ServerId]) -> Option<G>,
        take_back: impl FnOnce(G),
    ) -> bool {
        let mut line = lock(&self.line);
        let mut position = 0;
        while let Some(waiter) = line.get(position) {
            if let Some(gift) = offer(&waiter.tried) {
                let waiter = line.remove(position);
                self.publish(&line);
                drop(line);
                let refused = match waiter {
                    Some(waiter) => waiter.answer.send(gift).err(),
                    None => Some(gift),
                };
                if let Some(gift) = refused {
                    take_back(gift);
                }
                return true;
            }
            if waiter.tried.is_empty() {
                // Nothing for one who takes anything: nothing for anybody behind either.
                return false;
            }
            position += 1;
        }
        false
    }

    fn publish(&self, line: &VecDeque<Waiter<G>>) {
        self.waiting.store(line.len(), Ordering::SeqCst);
    }
}

impl<G> Drop for Ticket<'_, G> {
    fn drop(&mut self) {
        let mut line = lock(&self.queue.line);
        // Numbers ascend, and nobody overtakes on joining.
        if let Ok(position) = line.binary_search_by_key(&self.number, |waiter| waiter.number) {
            line.remove(position);
            self.queue.publish(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(queue: &Queue<u32>, gift: u32) -> bool {
        queue.serve_next(|_| Some(gift), |_| ())
    }

    #[test]
    fn first_come_first_served() {
        let queue = Queue::new();
        let mut tickets: Vec<_> = (0..3).map(|_| queue.join(Vec::new(), 3).unwrap()).collect();
        assert!(queue.join(Vec::new(), 3).is_none(), "the line is full");
        assert_eq!(queue.rejected.load(Ordering::Relaxed), 1);
        for gift in 0..3 {
            assert!(serve(&queue, gift));
        }
        assert!(!serve(&queue, 9));
        for (gift, ticket) in (0..).zip(&mut tickets) {
            assert_eq!(ticket.answer.try_recv(), Ok(gift));
        }
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let queue = Queue::new();
        let first = queue.join(Vec::new(), 9).unwrap();
        let mut second = queue.join(Vec::new(), 9).unwrap();
        drop(first);
        assert_eq!(queue.len(), 1);
        assert!(serve(&queue, 7));
        assert_eq!(second.answer.try_recv(), Ok(7));
        assert!(queue.is_empty());
    }

    #[test]
    fn one_who_cannot_use_it_does_not_hold_up_the_others() {
        let queue = Queue::new();
        let _picky = queue.join(vec![ServerId(1)], 9).unwrap();
        let mut other = queue.join(Vec::new(), 9).unwrap();
        let only_server_1 = |tried: &[ServerId]| (!tried.contains(&ServerId(1))).then_some(1);
        assert!(queue.serve_next(only_server_1, |_| ()));
        assert_eq!(other.answer.try_recv(), Ok(1));
        assert!(!queue.serve_next(only_server_1, |_| ()));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn what_nobody_took_comes_back() {
        let queue = Queue::new();
        let mut ticket = queue.join(Vec::new(), 9).unwrap();
        ticket.answer.close();
        let mut back = None;
        assert!(queue.serve_next(|_| Some(5), |gift| back = Some(gift)));
        assert_eq!(back, Some(5));
        assert!(queue.is_empty());
    }
}
