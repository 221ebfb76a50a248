//! Whose turn it is, and what a crash leaves.

use std::sync::Arc;

use super::{Failure, Job, Jobs, Outcome, Status, now};
use crate::ask::{Ask, Makes};
use crate::limits::Retention;

fn jobs(folder: &std::path::Path) -> Arc<Jobs> {
    Arc::new(Jobs::open(folder, 8, Retention::default()).unwrap())
}

fn accept(jobs: &Arc<Jobs>, client: &str) -> String {
    let place = jobs.reserve(client).ok().unwrap();
    let id = jobs.new_id(Makes::Video).ok().unwrap();
    let ask = Ask {
        model: "m".to_owned(),
        prompt: "a fox".to_owned(),
        seed: 7,
        ..Ask::lost(Makes::Video)
    };
    let job = Job {
        number: 0,
        id: id.clone(),
        client: client.to_owned(),
        ask,
        status: Status::Queued,
        created_at: now(),
        started_at: None,
        begun: 0,
        completed_at: None,
        size: [5, 32, 32],
        fps: Some(16.0),
        failure: None,
        bytes: 0,
        made: None,
    };
    jobs.accept(&job, jobs.incoming(&id).ok().unwrap(), place).ok().unwrap();
    id
}

/// Who asks for much does not keep others waiting.
#[test]
fn clients_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs(folder.path());
    let a: Vec<String> = (0..4).map(|_| accept(&jobs, "anna")).collect();
    let b: Vec<String> = (0..2).map(|_| accept(&jobs, "bert")).collect();
    let mut order = Vec::new();
    for _ in 0..3 {
        let taken = jobs.next().unwrap().unwrap();
        let failure = Failure { code: "x".to_owned(), message: "x".to_owned() };
        jobs.finish(&taken.job.id, Outcome::Failed(failure)).unwrap();
        order.push(taken.job.id);
    }
    // One who has just come is next, and then the others go on.
    let c = accept(&jobs, "carl");
    for _ in 0..4 {
        let taken = jobs.next().unwrap().unwrap();
        jobs.finish(&taken.job.id, Outcome::GivenUp).unwrap();
        order.push(taken.job.id);
    }
    assert_eq!(order, [&a[0], &b[0], &a[1], &c, &b[1], &a[2], &a[3]].map(String::clone));
}

/// Who joins a run does so in turn, as far as there is room, and only if it is alike.
#[test]
fn a_run_is_shared_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs(folder.path());
    let a: Vec<String> = (0..3).map(|_| accept(&jobs, "anna")).collect();
    let b: Vec<String> = (0..2).map(|_| accept(&jobs, "bert")).collect();
    let first = jobs.next().unwrap().unwrap();
    assert_eq!(first.job.id, a[0]);
    let others = jobs.join(|job| job.id != b[0], || 2).unwrap();
    let ids: Vec<&String> = others.iter().map(|own| &own.job.id).collect();
    assert_eq!(ids, [&b[1], &a[1]]);
    for id in [&a[0], &a[1], &b[1]] {
        assert_eq!(jobs.find(id, None).ok().unwrap().status, Status::InProgress);
    }
    // One of them is given up, and the others are not.
    jobs.remove(&b[1]).ok().unwrap();
    let given_up = |own: &super::Taken| own.abort.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(others.iter().map(given_up).collect::<Vec<_>>(), [true, false]);
    assert!(jobs.place(&b[1]).exists(), "it is still written to");
    jobs.finish(&b[1], Outcome::GivenUp).unwrap();
    assert!(!jobs.place(&b[1]).exists());
    assert!(jobs.join(|_| false, || panic!("nobody asks for room")).unwrap().is_empty());
}

/// What ran begins again after a crash, first in its place; what was removed is gone.
#[test]
fn a_crash_loses_nothing_that_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, third) = {
        let jobs = jobs(folder.path());
        let ids = (accept(&jobs, "anna"), accept(&jobs, "anna"), accept(&jobs, "anna"));
        assert_eq!(jobs.next().unwrap().unwrap().job.id, ids.0);
        jobs.remove(&ids.1).ok().unwrap();
        ids
    };
    let jobs = jobs(folder.path());
    assert_eq!(jobs.find(&first, None).ok().unwrap().status, Status::Queued);
    assert!(jobs.find(&second, None).is_err() && !jobs.place(&second).exists());
    assert_eq!(jobs.next().unwrap().unwrap().job.id, first);
    jobs.finish(&first, Outcome::Stopped).unwrap();
    assert_eq!(jobs.next().unwrap().unwrap().job.id, first);
    jobs.finish(&first, Outcome::GivenUp).unwrap();
    assert_eq!(jobs.find(&third, None).ok().unwrap().ask.seed, 7);
}

#[test]
fn a_queue_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs(folder.path());
    (0..8).for_each(|at| _ = accept(&jobs, &format!("client {at}")));
    assert!(jobs.check_room().is_err());
    jobs.next().unwrap();
    assert!(jobs.check_room().is_ok());
    jobs.stop();
    assert!(jobs.next().unwrap().is_none());
    assert!(jobs.check_room().is_err());
}

/// Whoever asks for much leaves places for others, and each who comes finds one.
#[test]
fn no_client_fills_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs(folder.path());
    let fill = |client: &str| {
        let mut count = 0;
        while jobs.reserve(client).is_ok() {
            accept(&jobs, client);
            count += 1;
        }
        count
    };
    // Eight places: half of them, half of what is left, and so on.
    let counts = ["anna", "bert", "carl", "dora"].map(fill);
    assert_eq!(counts, [4, 2, 1, 1]);
    assert!(jobs.check_room().is_err());
}

/// What is being sent has its place from its first byte on, and gives it back if nothing comes of it.
#[test]
fn what_is_being_sent_takes_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs(folder.path());
    let mut sending: Vec<_> = (0..4).map(|_| jobs.reserve("anna").ok().unwrap()).collect();
    assert!(jobs.reserve("anna").is_err(), "four places are for others");
    sending.extend(["bert", "carl", "dora", "emil"].map(|own| jobs.reserve(own).ok().unwrap()));
    assert!(jobs.check_room().is_err() && jobs.reserve("fred").is_err());
    drop(sending);
    accept(&jobs, "anna");
    assert_eq!(jobs.table.count_waiting(Some("anna")).unwrap(), [1, 1]);
    assert!(jobs.turns().reserved.is_empty());
}

/// A row that cannot be read is one job that failed, and the rest goes on.
#[test]
fn a_damaged_row_harms_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs(folder.path());
    let ids: Vec<String> = (0..3).map(|_| accept(&jobs, "anna")).collect();
    std::fs::write(jobs.place(&ids[0]).join("000.png"), b"x").unwrap();
    let table = rusqlite::Connection::open(folder.path().join("jobs.sqlite3")).unwrap();
    let change = "UPDATE jobs SET ask = '{\"scale\": null}' WHERE id = ?1";
    table.execute(change, [&ids[0]]).unwrap();
    let page =
        super::Page { client: None, makes: "video", after: None, ascending: true, limit: 10 };
    let listed = jobs.list(&page).ok().unwrap();
    assert_eq!(
        listed.iter().map(|job| &job.id).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
    assert_eq!((listed[0].status, listed[1].status), (Status::Failed, Status::Queued));
    let taken = jobs.next().unwrap().unwrap();
    assert_eq!(taken.job.id, ids[1]);
    // It has failed in the table too, what was given to it is gone, and it can be deleted.
    assert_eq!(jobs.table.count_waiting(None).unwrap(), [1, 0]);
    assert!(jobs.place(&ids[0]).exists() && !jobs.place(&ids[0]).join("000.png").exists());
    jobs.remove(&ids[0]).ok().unwrap();
    // So it is with one that would share a run.
    table.execute(change, [&ids[2]]).unwrap();
    assert!(jobs.join(|_| true, || 4).unwrap().is_empty());
    assert_eq!(jobs.find(&ids[2], None).ok().unwrap().status, Status::Failed);
}

/// A job that the process ended with twice keeps no other waiting and shares no run, and is made when there is no other.
/// A table of before that was counted is read.
#[test]
fn what_may_end_the_process_waits_behind_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let poison = {
        let jobs = jobs(folder.path());
        let id = accept(&jobs, "anna");
        jobs.next().unwrap().unwrap();
        id
    };
    {
        let path = folder.path().join("jobs.sqlite3");
        let table = rusqlite::Connection::open(path).unwrap();
        table.execute_batch("ALTER TABLE jobs DROP COLUMN begun; PRAGMA user_version = 1").unwrap();
    }
    for _ in 0..2 {
        let jobs = jobs(folder.path());
        let other = accept(&jobs, "anna");
        let taken = jobs.next().unwrap().unwrap();
        assert_eq!(
            taken.job.id, poison,
            "it begins again first, for it may have been a loss of power"
        );
        assert!(!taken.job.is_suspect());
        let joined = jobs.join(|_| true, || 1).unwrap();
        assert_eq!(joined[0].job.id, other);
        jobs.finish(&other, Outcome::GivenUp).unwrap();
        jobs.remove(&other).ok().unwrap();
    }
    let jobs = jobs(folder.path());
    let others = [accept(&jobs, "anna"), accept(&jobs, "bert")];
    for other in others {
        let taken = jobs.next().unwrap().unwrap();
        assert_eq!(taken.job.id, other);
        assert!(jobs.join(|job| job.id == poison, || 1).unwrap().is_empty());
        jobs.finish(&other, Outcome::GivenUp).unwrap();
    }
    let taken = jobs.next().unwrap().unwrap();
    assert!(taken.job.id == poison && taken.job.is_suspect());
}
