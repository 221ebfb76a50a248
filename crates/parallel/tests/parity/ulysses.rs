//! Ulysses on any number of ranks that divides the heads, for even and uneven numbers of tokens.

use comm::Ranks;
use testkit::parity::{Bounds, Question, check};

use super::{SUMS, toy, ulysses};

#[test]
fn on_one_rank_it_is_the_plain_model() {
    check(&toy(1, 8), 1, Bounds::BITS, ulysses);
    check(&toy(3, 13), 1, Bounds::BITS, ulysses);
}

#[test]
fn on_two_ranks_with_even_tokens() {
    check(&toy(1, 8), 2, SUMS, ulysses);
    check(&toy(3, 8), 2, SUMS, ulysses);
}

#[test]
fn on_two_ranks_with_uneven_tokens() {
    check(&toy(1, 13), 2, SUMS, ulysses);
    check(&toy(3, 13), 2, SUMS, ulysses);
}

#[test]
fn on_four_ranks_with_even_tokens() {
    check(&toy(1, 8), 4, SUMS, ulysses);
    check(&toy(3, 8), 4, SUMS, ulysses);
}

#[test]
fn on_four_ranks_with_uneven_tokens() {
    check(&toy(1, 13), 4, SUMS, ulysses);
    check(&toy(3, 13), 4, SUMS, ulysses);
}

#[test]
fn with_one_token_on_each_rank() {
    check(&toy(2, 4), 4, SUMS, ulysses);
}

/// Long enough that kernels cut their work, at places that differ between a shard and the whole.
#[test]
fn on_more_tokens_than_a_tile() {
    check(&toy(1, 333), 2, SUMS, ulysses);
}

#[test]
fn with_several_workers_per_rank() {
    let question = toy(1, 150);
    let predict = |group| {
        let Question { network, store, inputs } = &question;
        ulysses(&group).predict(&**network, store, inputs).unwrap().video.unwrap().into_data()
    };
    let want = predict(comm::Group::solo());
    let ranks = Ranks { threads: 3, ..Ranks::new(2) };
    for got in ranks.run(predict) {
        assert_eq!(got.unwrap(), want);
    }
}
