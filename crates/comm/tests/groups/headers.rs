//! What ranks tell each other before data moves, and what is said of one that stays away.

use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::tensor::{DType, Tensor};
use comm::{Error, Group, RankState, Ranks};

use super::{part, values};

/// Longer than a test may take: whoever waits this long has hung.
const LONG: Duration = Duration::from_secs(60);

/// Much longer than a thread of a busy machine is kept waiting.
const SHORT: Duration = Duration::from_millis(800);

/// The error of every rank, which must come well before anyone has waited in vain.
fn errors(size: usize, body: impl Fn(&Group) -> Result<(), Error> + Sync) -> Vec<String> {
    let start = Instant::now();
    let ranks = Ranks { deadline: LONG, ..Ranks::new(size) };
    let results = ranks.run(|group| body(&group).expect_err("the call cannot succeed").to_string());
    assert!(start.elapsed() < LONG / 2, "the ranks hung");
    results.into_iter().map(|result| result.expect("no rank panics")).collect()
}

#[test]
fn collectives_are_counted() {
    let errors = errors(2, |group| {
        group.all_reduce(part(0, 0, 1))?;
        match group.rank() {
            0 => group.all_gather(part(0, 0, 1), &[0]).map(drop),
            _ => group.all_reduce(part(0, 0, 1)).map(drop),
        }
    });
    for error in errors {
        assert!(error.contains("all_gather 1 of") && error.contains("all_reduce 1 of"), "{error}");
    }
}

#[test]
fn messages_are_counted_by_pair() {
    let errors = errors(2, |group| match group.rank() {
        0 => {
            group.send(0, part(0, 0, 1))?;
            group.send(1, part(0, 0, 1))?;
            group.send(1, part(0, 0, 1))?;
            group.recv::<2>(1).map(drop)
        }
        _ => {
            group.recv::<2>(0)?;
            group.recv::<3>(0).map(drop)
        }
    });
    for error in errors {
        assert!(error.contains("message 0 -> 1 1 of group `world` (f32 [1, 2])"), "{error}");
        assert!(error.contains("message 0 -> 1 1 of group `world` (any [*, *, *])"), "{error}");
    }
}

#[test]
fn types_of_elements_are_compared() {
    let errors = errors(2, |group| {
        let dtype = [DType::F32, DType::BF16][group.rank()];
        group.all_reduce(part(0, 0, 3).cast(dtype)).map(drop)
    });
    for error in errors {
        assert!(error.contains("(f32 [3, 2])") && error.contains("(bf16 [3, 2])"), "{error}");
    }
}

#[test]
fn numbers_of_dims_are_compared() {
    let errors = errors(2, |group| match group.rank() {
        0 => group.all_reduce(part(0, 0, 3)).map(drop),
        _ => group.all_reduce(part(0, 0, 3).reshape([3, 2, 1])).map(drop),
    });
    for error in errors {
        assert!(error.contains("(f32 [3, 2])") && error.contains("(f32 [3, 2, 1])"), "{error}");
    }
}

/// Two ranks that mean different dims to be uneven would put the parts together differently.
#[test]
fn uneven_dims_are_compared() {
    let errors = errors(2, |group| group.all_gather(part(0, 0, 3), &[group.rank()]).map(drop));
    for error in errors {
        assert!(error.contains("(f32 [*, 2])") && error.contains("(f32 [3, *])"), "{error}");
    }
}

#[test]
fn parts_of_several_types_are_refused() {
    let errors = errors(2, |group| {
        let parts = vec![part(0, 0, 1), part(0, 0, 1).cast(DType::BF16)];
        group.all_to_all(parts, &[0]).map(drop)
    });
    for error in errors {
        assert!(error.contains("F32") && error.contains("BF16"), "{error}");
    }
}

/// A difference between two ranks needs no third to be found.
#[test]
fn a_difference_does_not_wait_for_those_who_are_late() {
    let results = Ranks { deadline: LONG, ..Ranks::new(3) }.run(|group| {
        let start = Instant::now();
        match group.rank() {
            0 => drop(group.all_gather(part(0, 0, 1), &[0]).expect_err("a difference")),
            1 => drop(group.all_reduce(part(0, 0, 1)).expect_err("a difference")),
            _ => sleep(2 * SHORT),
        }
        start.elapsed()
    });
    for (rank, elapsed) in results.into_iter().enumerate().take(2) {
        let elapsed = elapsed.expect("no rank panics");
        assert!(elapsed < 2 * SHORT, "rank {rank} heard of it after {elapsed:?}");
    }
}

#[test]
fn all_that_stay_away_are_named_with_their_last_call() {
    let ranks = Ranks { deadline: SHORT, ..Ranks::new(4) };
    let results = ranks.run(|group| {
        group.named("the start").all_reduce(part(0, 0, 1)).expect("all come");
        if group.rank() % 2 == 1 {
            sleep(3 * SHORT);
            return None;
        }
        Some(group.all_reduce(part(0, 0, 1)).expect_err("two stay away"))
    });
    for error in results.into_iter().filter_map(|result| result.expect("no rank panics")) {
        let text = error.to_string();
        let Error::Missing { absent, .. } = error else { panic!("{text}") };
        assert_eq!(absent.iter().map(|absence| absence.rank).collect::<Vec<_>>(), [1, 3]);
        assert!(
            absent.iter().all(|absence| matches!(absence.state, RankState::After(_))),
            "{text}"
        );
        assert!(text.contains("its last call was all_reduce 0 of group `world` for the start"));
    }
}

#[test]
fn the_first_failure_stays() {
    let group = Group::solo();
    let first = group.send(7, part(0, 0, 1)).expect_err("there is no rank 7").to_string();
    let again = group.recv::<2>(8).expect_err("the group is broken").to_string();
    assert_eq!(again, first);
    assert!(first.contains("there is no rank 7"), "{first}");
    let next = group.all_to_all(vec![part(0, 0, 1); 2], &[0]).expect_err("the group is broken");
    assert_eq!(next.to_string(), first);
}

/// Inner work ends before outer work, which is still under way.
#[test]
fn announced_work_may_nest() {
    let ranks = Ranks { deadline: SHORT, ..Ranks::new(2) };
    let results = ranks.run(|group| {
        if group.rank() == 1 {
            let _outer = group.busy("the whole", LONG);
            drop(group.busy("a part", Duration::from_millis(1)));
            sleep(2 * SHORT);
        }
        group.all_reduce(part(0, 0, 1)).map(drop)
    });
    for result in results {
        assert_eq!(result.expect("no rank panics"), Ok(()));
    }
}

/// When work is over, the ordinary deadline holds again, however long it was announced for.
#[test]
fn finished_work_is_not_waited_for() {
    let ranks = Ranks { deadline: SHORT, ..Ranks::new(2) };
    let results = ranks.run(|group| {
        if group.rank() == 1 {
            drop(group.busy("vae decode", LONG));
            sleep(4 * SHORT);
            return None;
        }
        let start = Instant::now();
        let error = group.all_reduce(part(0, 0, 1)).expect_err("rank 1 stays away");
        Some((error.to_string(), start.elapsed()))
    });
    let (text, waited) = results.into_iter().find_map(Result::unwrap).expect("rank 0 waited");
    assert!(text.contains("rank 1 did not come: it has made no call yet"), "{text}");
    assert!(waited < 3 * SHORT, "it waited {waited:?}");
}

#[test]
fn any_duration_will_do() {
    let ranks = Ranks { deadline: Duration::MAX, ..Ranks::new(2) };
    let results = ranks.run(|group| {
        let busy = (group.rank() == 1).then(|| group.busy("something", Duration::MAX));
        sleep(SHORT / 8);
        drop(busy);
        group.all_reduce(part(0, 0, 1)).map(values)
    });
    for result in results {
        assert!(result.expect("no rank panics").is_ok());
    }
}

#[test]
fn a_message_is_outside_any_graph() {
    let group = Group::solo();
    let tracked: Tensor<2> = Tensor::from_inner(part(0, 0, 1)).require_grad();
    group.send(0, tracked).expect("a message to oneself");
    assert!(!group.recv::<2>(0).expect("the message").device().is_autodiff());
}
