//! Work in worlds of its own: what fails there, and what does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use comm::{Error, Group, Parcel, Ranks, Values};

use super::{part, values};

/// Longer than a test may take: whoever waits this long has hung.
const LONG: Duration = Duration::from_secs(60);

/// Much longer than a thread of a busy machine is kept waiting.
const SHORT: Duration = Duration::from_millis(800);

fn sum(group: &Group) -> comm::Result<f32> {
    Ok(values(group.all_reduce(part(group.rank(), 0, 1))?)[1])
}

/// A rank that fails or panics wakes those who wait for it, and the next piece of work is done as if nothing had been.
#[test]
fn what_fails_apart_leaves_the_ranks_together() {
    let ranks = Ranks { deadline: LONG, ..Ranks::new(3) };
    let begun = Instant::now();
    let heard = ranks.run(|group| {
        let mut heard = Vec::new();
        for fault in ["none", "an error", "none", "a panic", "none"] {
            let work = |world: Group| -> comm::Result<f32, String> {
                match (world.rank(), fault) {
                    (1, "an error") => Err("its disk is full".to_owned()),
                    (1, "a panic") => panic!("it lost its mind"),
                    _ => sum(&world).map_err(|error| error.to_string()),
                }
            };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                group.apart("a piece of work", work).expect("all come to its end")
            }));
            heard.push(match done {
                Ok(done) => done.map_or_else(|error| error, |sum| sum.to_string()),
                Err(_) => "it panicked here".to_owned(),
            });
            // What was left behind apart is not in the way of the world around it.
            assert_eq!(sum(&group).unwrap(), 3003.0);
        }
        heard
    });
    assert!(begun.elapsed() < LONG / 2, "the ranks hung");
    for (rank, heard) in heard.into_iter().enumerate() {
        let heard = heard.unwrap();
        for at in [0, 2, 4] {
            assert_eq!(heard[at], "3003", "rank {rank}");
        }
        let (error, panic) = match rank {
            1 => ("its disk is full", "it panicked here"),
            _ => ("rank 1 failed: its disk is full", "rank 1 panicked: it lost its mind"),
        };
        assert_eq!((&*heard[1], &*heard[3]), (error, panic), "rank {rank}");
    }
}

/// The first rank comes back when all have ended, however soon it was done itself.
#[test]
fn the_first_rank_waits_for_the_ends() {
    let ranks = Ranks { deadline: SHORT, ..Ranks::new(2) };
    let is_done = AtomicBool::new(false);
    let results = ranks.run(|group| {
        let work = |world: Group| -> comm::Result<()> {
            if world.rank() == 1 {
                let _busy = world.busy("a long encoding", LONG);
                world.barrier()?;
                sleep(2 * SHORT);
                is_done.store(true, Ordering::Relaxed);
                return Ok(());
            }
            world.barrier()
        };
        group.apart("a piece of work", work)??;
        Ok::<_, Error>(is_done.load(Ordering::Relaxed))
    });
    assert!(results[0].as_ref().unwrap().as_ref().unwrap(), "it did not wait");
}

/// One that does not end is named, and the world around is left to be ended.
#[test]
fn a_rank_that_does_not_end_is_named() {
    let ranks = Ranks { deadline: SHORT, ..Ranks::new(2) };
    let results = ranks.run(|group| {
        let work = |world: Group| -> comm::Result<()> {
            if world.rank() == 1 {
                sleep(4 * SHORT);
            }
            Ok(())
        };
        group.apart("a piece of work", work).map(drop).map_err(|error| error.to_string())
    });
    let first = results[0].as_ref().unwrap().as_ref().unwrap_err();
    assert!(first.contains("for a piece of work"), "{first}");
    assert!(first.contains("rank 1 did not come: it has made no call yet"), "{first}");
}

/// What is called off is that piece of work alone; a world that breaks ends all that is done within it.
#[test]
fn work_is_called_off_for_all() {
    let ranks = Ranks { deadline: LONG, ..Ranks::new(2) };
    let results = ranks.run(|group| {
        let until = |world: &Group| {
            let begun = Instant::now();
            while !world.is_called_off() {
                assert!(begun.elapsed() < LONG / 2, "it is not told");
                sleep(Duration::from_millis(1));
            }
        };
        let work = |world: Group| -> comm::Result<()> {
            assert!(world.rank() == 1 || !world.is_called_off());
            if world.rank() == 0 {
                world.call_off();
            }
            until(&world);
            world.barrier()
        };
        group.apart("unwanted work", work)??;
        assert!(!group.is_called_off(), "all is called off");
        let wanted = |world: Group| -> comm::Result<()> {
            assert!(!world.is_called_off(), "the next work too");
            world.barrier()?;
            if world.rank() == 1 {
                let split = group.split("half", &[1]);
                return split.apart("nothing", |_| Ok::<_, Error>(())).map(drop);
            }
            until(&world);
            Ok(())
        };
        let done = group.apart("wanted work", wanted);
        assert!(group.is_called_off(), "the world is whole");
        done?
    });
    for result in results {
        let error = result.unwrap().unwrap_err().to_string();
        assert!(error.contains("is a part of its world"), "{error}");
    }
}

/// Bytes go as they are, in the order they were sent.
#[test]
fn bytes_go_as_they_are() {
    let ranks = Ranks { deadline: LONG, ..Ranks::new(2) };
    let results = ranks.run(|group| {
        if group.rank() == 0 {
            let parcels = vec![
                Parcel::of_bytes("text", *b"a fox"),
                Parcel::of_bytes("file", Vec::<u8>::new()),
            ];
            assert_eq!(parcels.iter().map(Parcel::bytes).sum::<u64>(), 5);
            group.named("a request").send_parcels(1, parcels)?;
            return Ok(Vec::new());
        }
        let parcels = group.named("a request").recv_parcels(0)?;
        let bytes = |parcel: Parcel| match parcel.values {
            Values::Bytes(bytes) => (parcel.name.to_string(), bytes.to_vec()),
            other => panic!("{other:?}"),
        };
        Ok::<_, Error>(parcels.into_iter().map(bytes).collect::<Vec<_>>())
    });
    let got = results[1].as_ref().unwrap().as_ref().unwrap();
    assert_eq!(*got, [("text".to_owned(), b"a fox".to_vec()), ("file".to_owned(), Vec::new())]);
}
