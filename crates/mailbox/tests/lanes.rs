//! The order and the limits of messages between workers, and the wakes of sleeping workers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use veche_mailbox::{Class, Full, Mailbox, Options, Wake};

fn pair<T>(options: &Options) -> (Mailbox<T>, Mailbox<T>) {
    let mut ends = Mailbox::mesh(2, options);
    let second = ends.pop().expect("two ends");
    (ends.pop().expect("two ends"), second)
}

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Counted {
    fn wake(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Default)]
struct Counted(Arc<Count>);

impl Counted {
    fn wakes(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

#[test]
fn one_order_for_both_classes() {
    let (mut a, mut b) = pair(&Options::default());
    for number in 0..10 {
        let class = if number % 3 == 0 {
            Class::Control
        } else {
            Class::Data
        };
        a.post(1, class, number).expect("there is room");
        if number == 4 {
            a.flush();
        }
    }
    assert_eq!(
        b.pop(),
        Some((0, 0)),
        "flushed mail is there, the rest is not yet"
    );
    a.flush();
    for number in 1..10 {
        assert_eq!(b.pop(), Some((0, number)));
    }
    assert_eq!(b.pop(), None);
}

#[test]
fn nothing_arrives_before_flush() {
    let (mut a, mut b) = pair(&Options::default());
    a.post(1, Class::Data, ()).expect("there is room");
    assert_eq!(b.pop(), None);
    a.flush();
    assert_eq!(b.pop(), Some((0, ())));
}

#[test]
fn credits_come_back_when_data_is_finished() {
    let (mut a, mut b) = pair(&Options {
        credits: 2,
        control_max: 3,
    });
    let wakes = Counted::default();
    a.attach(wakes.clone());
    assert!(a.post(1, Class::Data, 1).is_ok());
    assert!(a.post(1, Class::Data, 2).is_ok());
    assert_eq!(a.post(1, Class::Data, 3), Err(Full(3)));
    assert!(
        a.post(1, Class::Control, 4).is_ok(),
        "control has room of its own"
    );
    a.flush();
    assert_eq!(b.pop(), Some((0, 1)));
    assert!(!a.has_credit(1), "taken is not finished");
    assert!(a.sleep());
    b.done(0);
    assert_eq!(wakes.wakes(), 1, "the sender waits for a credit");
    a.awake();
    assert_eq!(a.pop(), None);
    assert!(a.has_credit(1));
    assert!(a.post(1, Class::Data, 5).is_ok());
    assert!(!a.has_credit(1));
}

#[test]
fn a_credit_that_came_before_sleep_keeps_awake() {
    let (mut a, mut b) = pair(&Options {
        credits: 1,
        control_max: 1,
    });
    let wakes = Counted::default();
    a.attach(wakes.clone());
    a.post(1, Class::Data, ()).expect("there is room");
    a.flush();
    assert!(!a.has_credit(1));
    b.pop();
    b.done(0);
    assert!(!a.sleep());
    assert_eq!(wakes.wakes(), 0);
    assert!(a.has_credit(1));
}

#[test]
fn control_has_a_maximum() {
    let (mut a, mut b) = pair(&Options {
        credits: 1,
        control_max: 3,
    });
    for number in 0..3 {
        assert!(a.post(1, Class::Control, number).is_ok());
    }
    assert_eq!(a.post(1, Class::Control, 3), Err(Full(3)));
    a.flush();
    assert_eq!(a.post(1, Class::Control, 3), Err(Full(3)));
    assert_eq!(b.pop(), Some((0, 0)));
    assert!(
        a.post(1, Class::Control, 3).is_ok(),
        "the receiver took the batch"
    );
}

#[test]
fn only_sleeping_receivers_are_woken() {
    let (mut a, mut b) = pair(&Options::default());
    let wakes = Counted::default();
    b.attach(wakes.clone());
    a.post(1, Class::Data, 1).expect("there is room");
    a.flush();
    assert_eq!(wakes.wakes(), 0);
    assert!(!b.sleep(), "mail is there");
    b.pop();
    assert!(b.sleep());
    for number in 0..10 {
        a.post(1, Class::Data, number).expect("there is room");
        a.flush();
    }
    assert_eq!(wakes.wakes(), 1, "the first wake is enough");
}

#[test]
fn a_worker_that_is_awake_is_not_woken() {
    let (mut a, mut b) = pair(&Options::default());
    let wakes = Counted::default();
    b.attach(wakes.clone());
    assert!(b.sleep());
    b.awake();
    a.post(1, Class::Data, ()).expect("there is room");
    a.flush();
    assert_eq!(wakes.wakes(), 0);
    assert_eq!(b.pop(), Some((0, ())));
}

#[test]
fn only_a_credit_that_was_refused_wakes_its_sender() {
    let (mut a, mut b) = pair(&Options {
        credits: 2,
        control_max: 1,
    });
    let wakes = Counted::default();
    a.attach(wakes.clone());
    for number in 0..2 {
        a.post(1, Class::Data, number).expect("there is room");
    }
    a.flush();
    assert!(a.sleep());
    assert_eq!(b.pop(), Some((0, 0)));
    b.done(0);
    assert_eq!(wakes.wakes(), 0, "none was refused");
    a.awake();
    a.post(1, Class::Data, 2).expect("there is room");
    a.flush();
    assert!(!a.has_credit(1));
    assert!(a.sleep());
    b.done(0);
    assert_eq!(wakes.wakes(), 1);
    a.awake();
    assert_eq!(a.pop(), None);
    assert!(a.has_credit(1));
    assert!(a.sleep(), "the bell was answered");
    b.done(0);
    assert_eq!(wakes.wakes(), 1, "a refusal is answered once");
    a.awake();
}

#[test]
fn mail_waits_for_a_worker_that_starts_late() {
    let (mut a, mut b) = pair(&Options::default());
    a.post(1, Class::Data, 1).expect("there is room");
    a.flush();
    b.attach(Counted::default());
    assert!(!b.sleep());
    assert_eq!(b.pop(), Some((0, 1)));
}

#[test]
fn no_sender_starves_another() {
    let mut ends = Mailbox::mesh(3, &Options::default());
    for round in 0..4 {
        for sender in ends.iter_mut().take(2) {
            sender.post(2, Class::Data, round).expect("there is room");
            sender.flush();
        }
        let mut seen = [false; 2];
        while let Some((from, mail)) = ends[2].pop() {
            assert_eq!(mail, round);
            seen[from] = true;
        }
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn the_sender_that_was_last_is_not_first_again() {
    let mut ends = Mailbox::mesh(3, &Options::default());
    let post = |ends: &mut [Mailbox<()>], from: usize| {
        ends[from].post(2, Class::Data, ()).expect("there is room");
        ends[from].flush();
    };
    post(&mut ends, 0);
    assert_eq!(ends[2].pop(), Some((0, ())));
    for _ in 0..3 {
        post(&mut ends, 0);
        post(&mut ends, 1);
        assert_eq!(ends[2].pop(), Some((1, ())));
        assert_eq!(ends[2].pop(), Some((0, ())));
        assert_eq!(ends[2].pop(), None);
    }
}

#[test]
fn an_end_knows_its_number_and_how_many_there_are() {
    let ends = Mailbox::<()>::mesh(3, &Options::default());
    for (number, end) in ends.iter().enumerate() {
        assert_eq!((end.me(), end.workers()), (number, 3));
        let text = format!("Mailbox {{ me: {number}, held: 0, .. }}");
        assert_eq!(format!("{end:?}"), text);
    }
    assert_eq!(
        Full(7).to_string(),
        "the mailbox lane to that worker is full"
    );
}

/// The waker of a test: it sends to an `mpsc` channel with one slot, on which the sleeping worker
/// waits.
struct Unpark(mpsc::SyncSender<()>);

impl Wake for Unpark {
    fn wake(&self) {
        let _ = self.0.try_send(());
    }
}

/// Tells the other threads that the owning thread has panicked; otherwise they would wait forever
/// for its credits.
struct Failure(Arc<AtomicBool>);

impl Drop for Failure {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Three workers pass data around a ring with few credits, and sleep whenever they have nothing to
/// do. If a wake for a message or a credit were lost, a worker would sleep until its timeout and
/// then panic.
#[test]
fn no_wake_is_lost() {
    const WORKERS: usize = 3;
    const MAIL: u64 = 100_000;
    let ends = Mailbox::<u64>::mesh(
        WORKERS,
        &Options {
            credits: 3,
            control_max: 10,
        },
    );
    let has_failed = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = ends
        .into_iter()
        .map(|mut mailbox| {
            let failure = Failure(Arc::clone(&has_failed));
            thread::spawn(move || {
                let (wake, woken) = mpsc::sync_channel(1);
                mailbox.attach(Unpark(wake));
                let to = (mailbox.me() + 1) % WORKERS;
                let (mut sent, mut received) = (0, 0);
                let mut starved = false;
                while sent < MAIL || received < MAIL || mailbox.unfinished(to) != 0 {
                    assert!(!failure.0.load(Ordering::Relaxed), "another has failed");
                    while let Some((from, mail)) = mailbox.pop() {
                        assert_eq!(mail, received, "in order");
                        received += 1;
                        mailbox.done(from);
                    }
                    if starved && mailbox.has_credit(to) {
                        starved = false;
                    }
                    // The batch size varies, so that workers go to sleep at different points.
                    for _ in 0..(sent % 5) + 1 {
                        if sent < MAIL && !starved {
                            if mailbox.post(to, Class::Data, sent).is_err() {
                                starved = true;
                                break;
                            }
                            sent += 1;
                        }
                    }
                    mailbox.flush();
                    // A worker without credits has nothing to post, so it may sleep until a credit returns.
                    let finished = sent == MAIL && received == MAIL;
                    if !finished && (starved || sent == MAIL) && mailbox.sleep() {
                        let woke = woken.recv_timeout(Duration::from_secs(20));
                        assert!(
                            woke.is_ok(),
                            "sent {sent}, received {received}: a wake was lost"
                        );
                        mailbox.awake();
                    } else if finished {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no wake was lost");
    }
}
