//! What every rank holds after an exchange.

use burn::tensor::{Device, Tensor, TensorData};
use comm::{Group, Parcel, Ranks, Values, on_ranks};

use super::{part, values};

#[test]
fn all_to_all_gives_every_rank_its_uneven_parts_in_rank_order() {
    for size in [1, 2, 3, 4] {
        let received = on_ranks(size, |group| {
            let parts = (0..size).map(|to| part(group.rank(), to, 1 + group.rank() + 2 * to));
            group.all_to_all(parts.collect(), &[0]).unwrap().into_iter().map(values).collect()
        });
        for (rank, received) in received.into_iter().enumerate() {
            let expected = (0..size).map(|from| values(part(from, rank, 1 + from + 2 * rank)));
            let received: Vec<Vec<f32>> = received;
            assert_eq!(received, expected.collect::<Vec<_>>(), "rank {rank} of {size}");
        }
    }
}

#[test]
fn all_gather_takes_uneven_tensors() {
    for size in [1, 2, 3, 4] {
        let expected: Vec<_> = (0..size).map(|from| values(part(from, 9, 4 - from))).collect();
        let gathered = on_ranks(size, |group| {
            let own = part(group.rank(), 9, 4 - group.rank());
            group.all_gather(own, &[0]).unwrap().into_iter().map(values).collect::<Vec<_>>()
        });
        assert_eq!(gathered, vec![expected; size]);
    }
}

/// Numbers whose sum depends on the order in which they are added.
#[test]
fn all_reduce_adds_in_rank_order_to_the_same_bits_everywhere() {
    let numbers = [1.0e8_f32, 1.25, -1.0e8, 0.1];
    for size in [1, 2, 3, 4] {
        let expected = numbers[..size].iter().skip(1).fold(numbers[0], |sum, x| sum + x);
        let sums = on_ranks(size, |group| {
            let own = TensorData::new(vec![numbers[group.rank()]; 3], [3]);
            values(group.all_reduce(Tensor::<1>::from_data(own, &Device::flex())).unwrap())
        });
        for sum in sums {
            let bits: Vec<u32> = sum.iter().map(|x| x.to_bits()).collect();
            assert_eq!(bits, [expected.to_bits(); 3]);
        }
    }
}

#[test]
fn messages_come_in_order_beside_collectives() {
    let received = on_ranks(2, |group| {
        if group.rank() == 0 {
            group.send(1, part(0, 1, 2)).unwrap();
            group.send(1, part(0, 2, 3)).unwrap();
            group.all_reduce(part(0, 0, 1)).unwrap();
            return values(group.recv::<2>(1).unwrap());
        }
        group.all_reduce(part(1, 0, 1)).unwrap();
        let [first, second] = [0, 1].map(|_| values(group.recv::<2>(0).unwrap()));
        group.send(0, part(1, 0, 1)).unwrap();
        [first, second].concat()
    });
    let both = [values(part(0, 1, 2)), values(part(0, 2, 3))].concat();
    assert_eq!(received, [values(part(1, 0, 1)), both]);
}

#[test]
fn a_group_of_one_is_a_group() {
    let group = Group::solo();
    assert_eq!((group.rank(), group.size()), (0, 1));
    let own = || part(0, 0, 2);
    assert_eq!(values(group.all_reduce(own()).unwrap()), values(own()));
    assert_eq!(values(group.all_gather(own(), &[0]).unwrap().remove(0)), values(own()));
    assert_eq!(values(group.all_to_all(vec![own()], &[0]).unwrap().remove(0)), values(own()));
    group.send(0, own()).unwrap();
    assert_eq!(values(group.recv::<2>(0).unwrap()), values(own()));
}

/// A tensor in a graph arrives as its values, so that no two ranks share a graph.
#[test]
fn what_arrives_is_outside_any_graph() {
    let tracked = on_ranks(2, |group| {
        let own = Tensor::from_inner(part(group.rank(), 0, 1)).require_grad();
        let gathered = group.all_gather(own, &[0]).unwrap();
        gathered.into_iter().any(|tensor| tensor.device().is_autodiff())
    });
    assert_eq!(tracked, [false, false]);
}

#[test]
fn each_rank_has_its_own_workers() {
    let ranks = Ranks { threads: 2, ..Ranks::new(3) };
    // With a pool in common, three waiting ranks would leave no worker to anyone.
    let threads = ranks.run(|group| {
        let sum = rayon::join(|| 1, || 2);
        group.all_reduce(part(0, 0, 1)).unwrap();
        (rayon::current_num_threads(), sum)
    });
    for threads in threads {
        assert_eq!(threads.unwrap(), (2, (1, 2)));
    }
}

/// A trade is posted at once and waited for later, in whatever order; ranks give each other different numbers of parcels.
#[test]
fn trades_are_on_their_way_until_they_are_waited_for() {
    on_ranks(3, |group| {
        let parcel = |value: usize| Parcel {
            name: format!("{value}").into(),
            shape: vec![1],
            values: Values::Floats(Tensor::from_floats([value as f32], &Device::flex())),
        };
        // Rank `to` is given as many parcels as its number.
        let given = |from: usize, to: usize, round: usize| {
            (0..to).map(|at| 100 * round + 10 * from + at).collect::<Vec<_>>()
        };
        let own = |round| {
            let list = |to| given(group.rank(), to, round).into_iter().map(parcel).collect();
            (0..3).map(list).collect::<Vec<Vec<Parcel>>>()
        };
        let [first, second] = [1, 2].map(|round| group.trade(own(round)).unwrap());
        for (round, trade) in [(2, second), (1, first)] {
            for (from, parcels) in trade.wait().unwrap().into_iter().enumerate() {
                let names: Vec<String> =
                    parcels.iter().map(|parcel| parcel.name.to_string()).collect();
                let want = given(from, group.rank(), round);
                assert_eq!(names, want.iter().map(usize::to_string).collect::<Vec<_>>());
            }
        }
        let posts = group.traffic().posts;
        assert_eq!(posts, 4, "one message to each of two others, twice");
    });
}
