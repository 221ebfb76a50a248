//! A call that cannot succeed ends on every rank, with the ranks and calls named.

use std::thread::sleep;
use std::time::{Duration, Instant};

use comm::{Error, Group, RankState, Ranks};

use super::part;

/// Longer than a test may take: whoever waits this long has hung.
const LONG: Duration = Duration::from_secs(60);

/// Much longer than a thread of a busy machine is kept waiting.
const SHORT: Duration = Duration::from_millis(800);

fn short(size: usize) -> Ranks {
    Ranks { deadline: SHORT, ..Ranks::new(size) }
}

fn long(size: usize) -> Ranks {
    Ranks { deadline: LONG, ..Ranks::new(size) }
}

/// The error of every rank, which must come well before anyone has waited in vain.
fn errors(ranks: &Ranks, body: impl Fn(&Group) -> Result<(), Error> + Sync) -> Vec<Error> {
    let start = Instant::now();
    let results = ranks.run(|group| body(&group).expect_err("the call cannot succeed"));
    assert!(start.elapsed() < LONG / 2, "the ranks hung");
    results.into_iter().map(|result| result.expect("no rank panics")).collect()
}

#[test]
fn calls_that_differ_are_both_named_on_every_rank() {
    for size in [2, 3, 4] {
        let errors = errors(&long(size), |group| match group.rank() {
            0 => group.all_gather(part(0, 0, 3), &[0]).map(drop),
            _ => group.named("the loss").all_reduce(part(0, 0, 3)).map(drop),
        });
        assert_eq!(errors.len(), size);
        for error in errors {
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("all_gather 0 of group `world` (f32 [*, 2])"), "{text}");
            assert!(
                text.contains("all_reduce 0 of group `world` for the loss (f32 [3, 2])"),
                "{text}"
            );
        }
    }
}

#[test]
fn shapes_and_labels_are_compared() {
    let shapes = errors(&long(2), |group| group.all_reduce(part(0, 0, 3 + group.rank())).map(drop));
    for error in shapes {
        let text = error.to_string();
        assert!(text.contains("(f32 [3, 2])") && text.contains("(f32 [4, 2])"), "{text}");
    }
    let labels = errors(&long(2), |group| {
        let label = ["keys", "values"][group.rank()];
        group.named(label).all_reduce(part(0, 0, 3)).map(drop)
    });
    for error in labels {
        let text = error.to_string();
        assert!(text.contains("for keys") && text.contains("for values"), "{text}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_within_the_deadline() {
    let results = short(3).run(|group| {
        if group.rank() == 1 {
            sleep(3 * SHORT);
            return None;
        }
        let start = Instant::now();
        let error = group.all_reduce(part(0, 0, 1)).unwrap_err();
        Some((error, start.elapsed()))
    });
    for (error, waited) in results.into_iter().filter_map(Result::unwrap) {
        assert!(waited < 2 * SHORT, "waited {waited:?}");
        let text = error.to_string();
        assert!(text.contains("rank 1 did not come: it has made no call yet"), "{text}");
        assert!(text.contains("all_reduce 0 of group `world`"), "{text}");
        let Error::Missing { absent, .. } = error else { panic!("{error}") };
        assert_eq!(absent.len(), 1);
    }
}

/// The seed's story: rank 0 alone makes a call, the others go on to the next one.
#[test]
fn two_ranks_that_wait_for_each_other_are_told_apart() {
    let errors = errors(&short(2), |group| match group.rank() {
        0 => group.recv::<2>(1).map(drop),
        _ => group.all_gather(part(0, 0, 1), &[0]).map(drop),
    });
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("message 1 -> 0 0 of group `world`"), "{text}");
        assert!(text.contains("all_gather 0 of group `world`"), "{text}");
        assert!(text.contains("it waits in"), "{text}");
    }
}

/// Whoever waits hears of a failure at once, also when the one who failed goes on.
#[test]
fn a_failure_wakes_those_who_wait() {
    let results = long(2).run(|group| {
        if group.rank() == 0 {
            sleep(SHORT / 4);
            let refused = group.all_to_all(vec![part(0, 0, 1)], &[0]).map(drop);
            sleep(3 * SHORT);
            return (refused, Duration::ZERO);
        }
        let start = Instant::now();
        let refused = group.all_reduce(part(0, 0, 1)).map(drop);
        (refused, start.elapsed())
    });
    for result in results {
        let (refused, waited) = result.unwrap();
        assert!(refused.is_err());
        assert!(waited < 2 * SHORT, "it waited {waited:?}");
    }
}

#[test]
fn a_rank_that_ended_is_not_waited_for() {
    let start = Instant::now();
    let results = long(2)
        .run(|group| (group.rank() == 0).then(|| group.all_reduce(part(0, 0, 1)).unwrap_err()));
    let error = results.into_iter().find_map(Result::unwrap).unwrap();
    let Error::Missing { absent, .. } = &error else { panic!("{error}") };
    assert_eq!((absent[0].rank, &absent[0].state), (1, &RankState::Ended));
    assert!(start.elapsed() < LONG / 2, "it was waited for");
}

#[test]
fn a_panic_wakes_the_others_and_stays() {
    let results = long(4).run(|group| {
        assert!(group.rank() != 2, "planted in rank {}", group.rank());
        let first = group.all_reduce(part(0, 0, 1)).unwrap_err();
        (first, group.recv::<2>(0).unwrap_err())
    });
    let panicked = Error::Panicked { rank: 2, message: "planted in rank 2".to_owned() };
    for (rank, result) in results.into_iter().enumerate() {
        match rank {
            2 => assert_eq!(result.unwrap_err(), panicked),
            _ => assert_eq!(result.unwrap(), (panicked.clone(), panicked.clone())),
        }
    }
}

#[test]
#[should_panic(expected = "rank 1 panicked: planted")]
fn on_ranks_reports_the_rank_that_broke_the_group() {
    comm::on_ranks(3, |group| {
        assert!(group.rank() != 1, "planted");
        group.all_reduce(part(0, 0, 1)).unwrap();
    });
}

#[test]
fn announced_work_extends_the_deadline_and_gives_a_new_one() {
    let results = short(2).run(|group| {
        if group.rank() == 1 {
            let busy = group.busy("vae decode", LONG);
            sleep(SHORT + SHORT / 2);
            drop(busy);
            sleep(SHORT / 4);
        }
        group.all_reduce(part(0, 0, 1)).map(drop)
    });
    for result in results {
        assert_eq!(result.unwrap(), Ok(()));
    }
}

#[test]
fn work_beyond_its_limit_is_named() {
    let results = short(2).run(|group| {
        if group.rank() == 1 {
            let _busy = group.busy("vae decode", 2 * SHORT);
            sleep(4 * SHORT);
            return None;
        }
        let start = Instant::now();
        let error = group.all_reduce(part(0, 0, 1)).unwrap_err();
        Some((error.to_string(), start.elapsed()))
    });
    let (text, waited) = results.into_iter().find_map(Result::unwrap).unwrap();
    assert!(text.contains("rank 1 did not come: it is busy with vae decode"), "{text}");
    assert!(waited > SHORT + SHORT / 2, "waited {waited:?}");
}

#[test]
fn arguments_that_cannot_be_served_are_refused_everywhere() {
    let parts = errors(&long(2), |group| match group.rank() {
        0 => group.all_to_all(vec![part(0, 0, 1)], &[0]).map(drop),
        _ => group.all_to_all(vec![part(0, 0, 1); 2], &[0]).map(drop),
    });
    for error in parts {
        let expected = "rank 0 cannot call all_to_all: 1 parts for 2 ranks; give one to each";
        assert_eq!(error.to_string(), expected);
    }
    let error = Group::solo().send(3, part(0, 0, 1)).unwrap_err();
    assert!(error.to_string().contains("there is no rank 3 in a group of 1"), "{error}");
    let group = Group::solo();
    let error = group.all_to_all(vec![part(0, 0, 1)], &[0]).map(drop);
    assert_eq!(error, Ok(()));
}

#[test]
fn parts_that_differ_in_more_than_the_uneven_dim_are_refused() {
    let refused = errors(&long(2), |group| {
        group.all_to_all(vec![part(0, 0, 1), part(0, 0, 2)], &[1]).map(drop)
    });
    for error in refused {
        let text = error.to_string();
        assert!(text.contains("[1, 2]") && text.contains("[2, 2]"), "{text}");
        assert!(text.contains("differ in more than dim 1"), "{text}");
    }
}

#[test]
fn a_message_of_another_rank_is_named() {
    let results = long(2).run(|group| match group.rank() {
        0 => group.send(1, part(0, 1, 2)).err(),
        _ => group.recv::<3>(0).err(),
    });
    let error = results.into_iter().find_map(Result::unwrap).unwrap();
    let text = error.to_string();
    assert!(text.contains("(any [*, *, *])") && text.contains("(f32 [2, 2])"), "{text}");
}
