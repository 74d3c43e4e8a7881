//! Two workers with one credit, under thousands of thread schedules chosen by a model checker. If a
//! wake were lost, both workers would sleep. The checker would report this as a deadlock, together
//! with the schedule. Run by `cargo test -p veche-mailbox --features model --lib model_tests` and
//! `make test`.

use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::{Class, Mailbox, Options, Wake};

/// The number of schedules per model, for each of the checker's strategies.
const ORDERS: usize = 3000;

/// Number of messages per worker. It is enough for a credit to return twice while the sender, which
/// waits for it, is about to sleep.
const MAIL: u32 = 4;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    shuttle::check_random(move || model(), ORDERS);
    shuttle::check_pct(move || again(), ORDERS, 3);
}

fn one_credit() -> [Mailbox<u32>; 2] {
    let options = Options {
        credits: 1,
        control_max: MAIL,
    };
    let ends = Mailbox::mesh(2, &options);
    ends.try_into().expect("two ends")
}

/// A wait of one worker without a timeout, so that only a wake ends it.
#[derive(Clone, Default)]
struct Wait(Arc<(Mutex<bool>, Condvar)>);

impl Wake for Wait {
    fn wake(&self) {
        *self.0.0.lock().expect("not poisoned") = true;
        self.0.1.notify_one();
    }
}

impl Wait {
    fn until_woken(&self) {
        let mut is_woken = self.0.0.lock().expect("not poisoned");
        while !*is_woken {
            is_woken = self.0.1.wait(is_woken).expect("not poisoned");
        }
        *is_woken = false;
    }
}

/// The worker's next step after a turn.
#[derive(PartialEq)]
enum Next {
    /// Takes another turn immediately, as a worker does after a socket event.
    Turn,
    /// Sleeps if the mailbox permits it.
    Sleep,
    End,
}

fn run(mut mailbox: Mailbox<u32>, mut turn: impl FnMut(&mut Mailbox<u32>) -> Next) {
    let wait = Wait::default();
    mailbox.attach(wait.clone());
    loop {
        match turn(&mut mailbox) {
            Next::Turn => {}
            Next::Sleep if !mailbox.sleep() => {}
            Next::Sleep => {
                wait.until_woken();
                mailbox.awake();
            }
            Next::End => break,
        }
    }
}

/// Posts a number to the other worker in each turn, and waits if it has no credit.
#[derive(Default)]
struct Source {
    sent: u32,
    is_waiting: bool,
}

impl Source {
    fn turn(&mut self, mailbox: &mut Mailbox<u32>) -> Next {
        let to = 1 - mailbox.me();
        if self.is_waiting && mailbox.has_credit(to) {
            self.is_waiting = false;
        }
        if self.sent == MAIL {
            return Next::End;
        }
        if !self.is_waiting {
            match mailbox.post(to, Class::Data, self.sent) {
                Ok(()) => self.sent += 1,
                Err(_) => self.is_waiting = true,
            }
        }
        mailbox.flush();
        match self.is_waiting {
            true => Next::Sleep,
            false => Next::Turn,
        }
    }
}

#[test]
fn a_waiter_is_woken_by_the_only_credit() {
    check(|| {
        let [source, sink] = one_credit();
        let sink = thread::spawn(|| {
            let mut received = 0;
            run(sink, move |mailbox| {
                while let Some((from, number)) = mailbox.pop() {
                    assert_eq!((from, number), (0, received));
                    received += 1;
                    mailbox.done(from);
                }
                if received == MAIL {
                    Next::End
                } else {
                    Next::Sleep
                }
            });
        });
        let mut state = Source::default();
        run(source, |mailbox| {
            assert!(mailbox.pop().is_none());
            state.turn(mailbox)
        });
        sink.join().expect("done");
    });
}

/// Another message of the same turn takes the returned credit before the waiting source retries; the source must still
/// be woken when the next credit returns.
#[test]
fn a_waiter_is_woken_although_another_took_the_credit() {
    const URGENT: u32 = 1000;
    check(|| {
        let [source, sink] = one_credit();
        let sink = thread::spawn(|| {
            let mut received = 0;
            run(sink, move |mailbox| {
                while let Some((from, number)) = mailbox.pop() {
                    if number != URGENT {
                        assert_eq!(number, received);
                        received += 1;
                    }
                    mailbox.done(from);
                }
                if received == MAIL {
                    Next::End
                } else {
                    Next::Sleep
                }
            });
        });
        let mut state = Source::default();
        let mut urgent = 3;
        run(source, |mailbox| {
            assert!(mailbox.pop().is_none());
            if urgent > 0 && mailbox.post(1, Class::Data, URGENT).is_ok() {
                urgent -= 1;
            }
            state.turn(mailbox)
        });
        sink.join().expect("done");
    });
}

/// Each worker sends data to the other worker and replies with control messages, which have a
/// separate limit.
#[test]
fn both_ways_with_answers() {
    const ANSWER: u32 = 1000;
    fn worker(mailbox: Mailbox<u32>) {
        let mut state = Source::default();
        let (mut received, mut answers) = (0, 0);
        run(mailbox, move |mailbox| {
            let other = 1 - mailbox.me();
            while let Some((from, mail)) = mailbox.pop() {
                assert_eq!(from, other);
                if mail >= ANSWER {
                    assert_eq!(mail, ANSWER + answers, "in order");
                    answers += 1;
                } else {
                    assert_eq!(mail, received, "in order");
                    let answer = mailbox.post(other, Class::Control, ANSWER + received);
                    answer.expect("room for all answers");
                    received += 1;
                    mailbox.done(from);
                }
            }
            mailbox.flush();
            match state.turn(mailbox) {
                Next::End if received < MAIL || answers < MAIL => Next::Sleep,
                next => next,
            }
        });
    }
    check(|| {
        let [one, other] = one_credit();
        let other = thread::spawn(|| worker(other));
        worker(one);
        other.join().expect("done");
    });
}
