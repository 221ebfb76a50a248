//! What cannot be spread is refused by every rank, before anyone sends a message.

use burn::tensor::Tensor;
use comm::{Group, on_ranks};
use nn::{Attention, Plain, Qkv, Reach, Site, Weights};
use parallel::{Ulysses, backward_sharded, forward_sharded};
use testkit::numbers::tensor;
use testkit::parity::{all, loss};

use super::toy;

const SITE: Site = Site { layer: 2, name: "own" };

fn refused(group: &Group, reach: Reach) -> String {
    let mut attention = Ulysses { group: group.clone(), inner: Plain };
    let x: Tensor<4> = tensor("x", [1, 6, 4, 3]);
    let qkv = Qkv { q: x.clone(), k: x.clone(), v: x };
    attention.attend(SITE, qkv, reach, None).expect_err("it is refused").to_string()
}

/// That the group still works afterwards shows that no message was under way.
fn is_intact(group: &Group) {
    group.all_reduce(tensor("after", [2])).expect("no message is under way");
}

#[test]
fn heads_that_do_not_divide_are_refused_by_every_rank() {
    for ranks in [3, 8] {
        let errors = on_ranks(ranks, |group| {
            let question = toy(1, 9);
            let mut attention = Ulysses { group: group.clone(), inner: Plain };
            let weights = Weights::new(&question.store);
            let inputs = &question.inputs;
            let result = forward_sharded(&question.model, &weights, inputs, &mut attention, &group);
            is_intact(&group);
            result.unwrap_err().to_string()
        });
        let expected = format!(
            "Ulysses cannot serve `own` of block 0: 4 heads cannot be shared evenly by {ranks} \
             ranks; use a number of ranks that divides 4"
        );
        assert_eq!(errors, vec![expected; ranks]);
    }
}

#[test]
fn fewer_tokens_than_ranks_are_refused_by_every_rank() {
    let errors = on_ranks(4, |group| {
        let error = parallel::shard(&toy(1, 3).inputs, &group).unwrap_err();
        is_intact(&group);
        error.to_string()
    });
    assert_eq!(errors, ["cannot spread 3 tokens over 4 ranks; use at most 3 ranks"; 4]);
}

#[test]
fn reaches_it_does_not_serve_are_named() {
    for (reach, expected) in [
        (Reach::Joint { text: 2 }, "it has no joint attention with text yet"),
        (Reach::Within { axis: 1 }, "tokens that share axis 1 may be on different ranks"),
    ] {
        let errors = on_ranks(2, |group| {
            let error = refused(&group, reach);
            is_intact(&group);
            error
        });
        let expected = format!("Ulysses cannot serve `own` of block 2: {expected}");
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
        let mut attention = Ulysses { group: group.clone(), inner: Plain };
        let weights = Weights::new(&question.store);
        let inputs = &question.inputs;
        let result = forward_sharded(&question.model, &weights, inputs, &mut attention, &group);
        result.unwrap_err().to_string()
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
        let mut attention = Ulysses { group: group.clone(), inner: Plain };
        let attention: (&mut dyn Attention, nn::Loss<'_>) = (&mut attention, &loss);
        let (store, inputs) = (&question.store, &question.inputs);
        let result = backward_sharded(&question.model, store, &all, inputs, attention, &group);
        result.unwrap_err().to_string()
    });
    assert!(errors[0].contains("for the prediction"), "{}", errors[0]);
    assert!(errors[0].contains("rank 1 has ended and will not come"), "{}", errors[0]);
    assert!(errors[1].contains("parameter `head.weight` is not in"), "{}", errors[1]);
}

#[test]
fn a_mask_for_another_number_of_queries_is_refused() {
    let errors = on_ranks(2, |group| {
        let mut attention = Ulysses { group, inner: Plain };
        let [q, k] = [3, 5].map(|length| tensor::<4>("x", [1, length, 4, 3]));
        let qkv = Qkv { q, k: k.clone(), v: k };
        let mask: Tensor<4> = tensor("mask", [1, 1, 9, 5]);
        attention.attend(SITE, qkv, Reach::Replicated, Some(&mask)).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.ends_with("a mask for 9 queries does not fit a shard of 3"), "{error}");
    }
}
