//! Parts of a world: groups that are split off, meshes, and what is counted in them.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Int, Tensor, TensorData};
use comm::{Axis, Error, Mesh, MeshShape, Parcel, Ranks, Values, on_ranks};

use super::{part, values};

#[test]
fn reduce_scatter_adds_what_is_this_ranks_in_rank_order() {
    let numbers = [1.0e8_f32, 1.25, -1.0e8, 0.1];
    for size in [1, 2, 3, 4] {
        let expected = numbers[..size].iter().skip(1).fold(numbers[0], |sum, x| sum + x);
        let sums = on_ranks(size, |group| {
            let own = |to: usize| {
                let values = TensorData::new(vec![numbers[group.rank()]; to + 1], [to + 1]);
                Tensor::<1>::from_data(values, &Device::flex())
            };
            values(group.reduce_scatter((0..size).map(own).collect(), &[0]).unwrap())
        });
        for (rank, sum) in sums.into_iter().enumerate() {
            assert_eq!(sum, vec![expected; rank + 1], "rank {rank} of {size}");
        }
    }
}

#[test]
fn broadcast_gives_what_the_root_has() {
    for root in 0..3 {
        let got = on_ranks(3, |group| {
            let own = (group.rank() == root).then(|| part(root, 0, 2));
            let got = values(group.broadcast(root, own).unwrap());
            group.barrier().unwrap();
            got
        });
        assert_eq!(got, vec![values(part(root, 0, 2)); 3]);
    }
    let refused = Ranks::new(2).run(|group| group.broadcast::<2>(0, None).unwrap_err().to_string());
    for refused in refused {
        assert!(refused.unwrap().contains("the root gives nothing"));
    }
}

/// What was expected first is what was sent first, in whatever order it is waited for.
#[test]
fn receives_are_posted_ahead() {
    let got = on_ranks(2, |group| {
        if group.rank() == 0 {
            (0..3).for_each(|at| group.send(1, part(0, at, 1)).unwrap());
            return Vec::new();
        }
        let all: Vec<_> = (0..3).map(|_| group.expect::<2>(0).unwrap()).collect();
        all.into_iter().rev().map(|one| values(one.wait().unwrap())).collect()
    });
    let want: Vec<_> = (0..3).rev().map(|at| values(part(0, at, 1))).collect();
    assert_eq!(got[1], want);
}

#[test]
fn parcels_keep_names_shapes_and_types() {
    let got = on_ranks(2, |group| {
        if group.rank() == 0 {
            let integers: Tensor<1, Int> = Tensor::from_ints([3, -4], &Device::flex());
            let parcels = vec![
                Parcel {
                    name: "tokens".into(),
                    shape: vec![2, 1],
                    values: Values::Floats(Tensor::from_floats([0.5, 1.5], &Device::flex())),
                },
                Parcel {
                    name: "index".into(),
                    shape: vec![1, 2],
                    values: Values::Integers(integers),
                },
                Parcel { name: "picture".into(), shape: Vec::new(), values: Values::Nothing },
            ];
            group.named("a bag").send_parcels(1, parcels).unwrap();
            return Vec::new();
        }
        let got = group.named("a bag").recv_parcels(0).unwrap();
        got.iter()
            .map(|parcel| (parcel.name.to_string(), parcel.shape.clone(), parcel.bytes()))
            .collect()
    });
    let bytes = got[1].iter().map(|(_, _, bytes)| *bytes).collect::<Vec<_>>();
    let names: Vec<_> =
        got[1].iter().map(|(name, shape, _)| (name.as_str(), shape.clone())).collect();
    assert_eq!(names, [("tokens", vec![2, 1]), ("index", vec![1, 2]), ("picture", vec![])]);
    assert_eq!((bytes[0], bytes[2]), (8, 0));
}

/// Groups do not hear each other: each counts its own calls.
#[test]
fn groups_of_a_mesh_exchange_apart() {
    let shape = MeshShape::default().with(Axis::Ulysses, 2).with(Axis::Cfg, 2);
    let got = on_ranks(4, |group| {
        let rank = group.rank();
        let mesh = Mesh::of(group, shape).unwrap();
        if rank < 2 {
            // The other half of the world makes no such call.
            mesh.axis(Axis::Ulysses).all_reduce(part(rank, 0, 1)).unwrap();
        }
        let [sequence, cfg] = [mesh.sequence(), mesh.axis(Axis::Cfg)].map(|group| {
            let all = group.all_gather(part(rank, 0, 1), &[0]).unwrap();
            all.into_iter().map(|one| values(one)[0] as usize / 1000).collect::<Vec<_>>()
        });
        (sequence, cfg, mesh.axis(Axis::Data).size(), mesh.replica().size())
    });
    assert_eq!(got[0], (vec![0, 1], vec![0, 2], 1, 4));
    assert_eq!(got[3], (vec![2, 3], vec![1, 3], 1, 4));
    let refused = Mesh::of(comm::Group::solo(), shape).unwrap_err();
    assert!(matches!(refused, Error::Mesh { ranks: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("ulysses 2") && refused.to_string().contains("cfg 2"));
}

/// A failure in one group wakes those who wait in another.
#[test]
fn a_failure_anywhere_ends_the_world() {
    let start = Instant::now();
    let ranks = Ranks { deadline: Duration::from_secs(60), ..Ranks::new(4) };
    let errors = ranks.run(|group| {
        let pair = [[0, 1], [2, 3]][group.rank() / 2];
        let half = group.split("half", &pair);
        match group.rank() {
            3 => half.named("another").all_reduce(part(0, 0, 1)).unwrap_err(),
            0 => half.recv::<2>(1).unwrap_err(),
            1 => group.all_gather(part(0, 0, 1), &[0]).unwrap_err(),
            _ => half.all_reduce(part(0, 0, 1)).unwrap_err(),
        }
    });
    assert!(start.elapsed() < Duration::from_secs(30), "the ranks hung");
    for error in errors {
        let text = error.unwrap().to_string();
        assert!(text.contains("all_reduce 0 of group `half [2, 3]` for another"), "{text}");
        assert!(text.contains("rank 2") && text.contains("rank 3"), "{text}");
    }
}

/// Two groups of one name are two groups.
#[test]
fn names_are_not_shared() {
    let got = on_ranks(2, |group| {
        let [first, second] = [0, 1].map(|_| group.split("pair", &[0, 1]));
        let [left, right] = match group.rank() {
            0 => [&first, &second].map(|own| own.send(1, part(own.rank(), 7, 1)).map(|()| None)),
            // Received in the other order than they were sent.
            _ => [&second, &first].map(|own| own.recv::<2>(0).map(Some)),
        };
        (left.unwrap().is_some(), right.unwrap().is_some(), format!("{second:?}"))
    });
    assert_eq!(got[1], (true, true, "rank 1 of 2 in group `pair [0, 1] #1`".to_owned()));
}

/// Payload bytes are what the formulas of the reference say, headers apart.
#[test]
fn bytes_are_counted() {
    let elements = 24 * 4;
    for size in [1, 2, 3, 4] {
        let counted = on_ranks(size, |group| {
            let tensor = || Tensor::<1>::zeros([elements], &Device::flex());
            let parts = || tensor().split_with_sizes(vec![elements / size; size], 0);
            let mut bytes = Vec::new();
            let mut before = 0;
            let mut count = |group: &comm::Group| {
                let now = group.traffic().bytes;
                bytes.push(now - before);
                before = now;
            };
            group.all_reduce(tensor()).unwrap();
            count(&group);
            group.all_to_all(parts(), &[0]).unwrap();
            count(&group);
            group.reduce_scatter(parts(), &[0]).unwrap();
            count(&group);
            group.all_gather(parts().remove(0), &[0]).unwrap();
            count(&group);
            group.barrier().unwrap();
            count(&group);
            bytes
        });
        let all = 4 * elements as u64;
        let part = all / size as u64 * (size as u64 - 1);
        assert_eq!(counted, vec![vec![2 * part, part, part, part, 0]; size], "{size} ranks");
    }
}

/// Unchecked calls do the same work; that is all they are for.
#[test]
fn headers_can_be_left_uncompared() {
    let ranks = Ranks { checked: false, ..Ranks::new(2) };
    let got = ranks.run(|group| {
        let label = ["one", "other"][group.rank()];
        values(group.named(label).all_reduce(part(0, 0, 1)).unwrap())
    });
    for got in got {
        assert_eq!(got.unwrap(), [0.0, 2.0]);
    }
}
