//! What cannot be spread is refused by every rank, before anyone sends a message.

use burn::tensor::Tensor;
use comm::{Group, on_ranks};
use nn::{Attention, Error, Mask, Qkv, Reach, Schedule, Site, TrackName};
use parallel::{Sharded, Spread};
use testkit::numbers::tensor;
use testkit::parity::Question;

use super::toy;

const SITE: Site = Site { layer: 2, name: "own", track: TrackName::Video };

fn refused(group: &Group, reach: Reach) -> String {
    let mut attention = Spread::ulysses(group);
    let x: Tensor<4> = tensor("x", [1, 6, 4, 3]);
    let qkv = Qkv { q: x.clone(), k: x.clone(), v: x };
    attention.attend(SITE, qkv, reach, None).expect_err("it is refused").to_string()
}

/// Why a question has no answer on this rank.
fn unpredicted(question: &Question, group: &Group) -> Error {
    let Question { network, store, inputs } = question;
    let schedule = Sharded::ulysses(group);
    schedule.predict(&**network, store, inputs).expect_err("it is refused")
}

/// That the group still works afterwards shows that no message was under way.
fn is_intact(group: &Group) {
    group.all_reduce(tensor("after", [2])).expect("no message is under way");
}

#[test]
fn fewer_heads_than_ranks_are_refused_by_every_rank() {
    for ranks in [5, 8] {
        let errors = on_ranks(ranks, |group| {
            let error = unpredicted(&toy(1, 9), &group);
            is_intact(&group);
            error.to_string()
        });
        let expected = format!(
            "sequence parallelism cannot serve `own` of block 0: 4 heads cannot be shared by {ranks} \
             Ulysses ranks; use 4 at the most"
        );
        assert_eq!(errors, vec![expected; ranks]);
    }
}

#[test]
fn fewer_tokens_than_ranks_are_refused_by_every_rank() {
    let errors = on_ranks(4, |group| {
        let error = unpredicted(&toy(1, 3), &group);
        is_intact(&group);
        let Error::Outside(source) = &error else { panic!("{error} has no source") };
        assert!(source.is::<parallel::Error>(), "it travels as what it is");
        error.to_string()
    });
    assert_eq!(errors, ["cannot spread 3 tokens over 4 ranks; use at most 3 ranks"; 4]);
}

#[test]
fn reaches_it_does_not_serve_are_named() {
    let reaches =
        [(Reach::Within { axis: 1 }, "tokens that share axis 1 may be on different ranks")];
    for (reach, expected) in reaches {
        let errors = on_ranks(2, |group| {
            let error = refused(&group, reach);
            is_intact(&group);
            error
        });
        let expected = format!("sequence parallelism cannot serve `own` of block 2: {expected}");
        assert_eq!(errors, [expected.clone(), expected]);
    }
}

/// A model that fails on one rank only ends the others with an error that names it.
#[test]
fn a_rank_that_fails_alone_is_named_by_the_others() {
    let errors = on_ranks(2, |group| {
        let mut question = toy(1, 8);
        if group.rank() == 1 {
            question.store.remove("blocks.1.own.qkv.weight");
        }
        unpredicted(&question, &group).to_string()
    });
    assert!(errors[0].contains("q of `own` of block 1"), "{}", errors[0]);
    assert!(errors[0].contains("rank 1 has ended and will not come"), "{}", errors[0]);
    assert!(errors[1].contains("parameter `blocks.1.own.qkv.weight` is not in"), "{}", errors[1]);
}

/// The same where the others have got as far as putting the prediction together.
#[test]
fn a_rank_that_fails_at_the_end_is_named_by_the_others() {
    let errors = on_ranks(2, |group| {
        let mut question = toy(1, 8);
        if group.rank() == 1 {
            question.store.remove("head.weight");
        }
        question.slope(&Sharded::ulysses(&group)).unwrap_err().to_string()
    });
    assert!(errors[0].contains("for the video prediction"), "{}", errors[0]);
    assert!(errors[0].contains("rank 1 has ended and will not come"), "{}", errors[0]);
    assert!(errors[1].contains("parameter `head.weight` is not in"), "{}", errors[1]);
}

/// A loss that fails ends the pass with what it said, on every rank and before gradients are exchanged.
#[test]
fn a_loss_that_fails_is_handed_on() {
    let errors = on_ranks(2, |group| {
        let Question { network, store, inputs } = toy(1, 8);
        let schedule = Sharded::ulysses(&group);
        let parameters = nn::Parameters { provider: &store, trainable: &testkit::parity::all };
        let mut loss = |_: &nn::Prediction| Err(Error::outside(std::fmt::Error));
        let error = schedule.backward(&*network, parameters, &inputs, &mut loss).unwrap_err();
        is_intact(&group);
        matches!(error, Error::Outside(source) if source.is::<std::fmt::Error>())
    });
    assert_eq!(errors, [true, true]);
}

#[test]
fn a_mask_for_another_number_of_queries_is_refused() {
    let errors = on_ranks(2, |group| {
        let mut attention = Spread::ulysses(&group);
        let [q, k] = [3, 5].map(|length| tensor::<4>("x", [1, length, 4, 3]));
        let qkv = Qkv { q, k: k.clone(), v: k };
        let mask = Mask::Dense(tensor("mask", [1, 1, 9, 5]));
        attention.attend(SITE, qkv, Reach::Replicated, Some(&mask)).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.ends_with("a mask for 9 queries does not fit a shard of 3"), "{error}");
    }
}
