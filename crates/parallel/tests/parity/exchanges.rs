//! Every collective has the adjoint it should have: what it does to x, weighed by y, is x weighed by what
//! its adjoint does to y, summed over all ranks.

use burn::tensor::Tensor;
use comm::{Group, on_ranks, share};
use parallel::exchange;
use testkit::numbers::{tensor, values};

type Exchange = fn(&Group, Tensor<2>) -> Tensor<2>;

/// `sum over ranks of <f(x), y>` by the forward pass and by the gradient, and the same for each exchange.
#[track_caller]
fn check(name: &str, rows: fn(usize) -> usize, exchange: Exchange) {
    for ranks in [1, 2, 3] {
        let sums = on_ranks(ranks, |group| {
            let own = |name: &str, rows: usize| {
                tensor::<2>(&format!("{name} of {}", group.rank()), [rows, 3])
            };
            let plain = own("x", rows(group.rank()));
            let leaf = Tensor::from_inner(plain.clone()).require_grad();
            let out = exchange(&group.named(name), leaf.clone());
            let weight = own("y", out.dims()[0]);
            let value = (out * Tensor::from_inner(weight)).sum();
            let graph = value.clone().backward();
            let gradient = leaf.grad(&graph).unwrap_or_else(|| plain.zeros_like());
            let dot = values(&(gradient * plain)).iter().map(|x| f64::from(*x)).sum::<f64>();
            (f64::from(values(&value)[0]), dot)
        });
        let [forward, back] = [0, 1].map(|which| {
            sums.iter()
                .map(|(forward, back)| if which == 0 { *forward } else { *back })
                .sum::<f64>()
        });
        assert!((forward - back).abs() < 1e-5, "{name} on {ranks} ranks: {forward} and {back}");
        assert!(forward.abs() > 1e-3, "{name}: there is something to compare");
    }
}

#[test]
fn of_every_collective() {
    check("gather", |rank| 2 + rank, |group, x| exchange::gather(group, x, 0).unwrap());
    check(
        "reduce_scatter",
        |_| 7,
        |group, x| {
            let counts: Vec<usize> =
                (0..group.size()).map(|rank| share(7, rank, group.size()).len()).collect();
            exchange::reduce_scatter(group, x, 0, &counts).unwrap()
        },
    );
    check(
        "all_to_all",
        |rank| 4 + rank,
        |group, x| {
            let counts: Vec<usize> =
                (0..group.size()).map(|rank| share(3, rank, group.size()).len()).collect();
            let (out, _) = exchange::all_to_all(group, x, (1, &counts), 0).unwrap();
            let [rows, columns] = out.dims();
            out.reshape([rows * columns / counts[group.rank()].max(1), columns])
                .sum_dim(1)
                .repeat_dim(1, 3)
        },
    );
    check("all_reduce", |_| 4, |group, x| exchange::all_reduce(group, x).unwrap());
    check("broadcast", |_| 4, |group, x| exchange::broadcast(group, group.size() - 1, x).unwrap());
}

/// The pair of tensor parallelism: where all ranks go on alike, one of them counts.
#[test]
fn of_a_sum_for_all_and_what_fans_out() {
    let gradients = on_ranks(3, |group| {
        let leaf = Tensor::from_inner(tensor::<2>("x", [2, 3])).require_grad();
        let rank = group.rank() as f32 + 1.0;
        let own = exchange::fan_out(&group, leaf.clone()) * rank;
        let sum = exchange::sum_for_all(&group, own).unwrap();
        let graph = (sum.clone() * sum.clone()).sum().backward();
        (values(&sum), values(&leaf.grad(&graph).unwrap()))
    });
    let x = values(&tensor::<2>("x", [2, 3]));
    for (sum, gradient) in gradients {
        for at in 0..6 {
            assert!((sum[at] - 6.0 * x[at]).abs() < 1e-5);
            // The sum is 6 x, its square 36 x^2, on every rank.
            assert!((gradient[at] - 72.0 * x[at]).abs() < 1e-4, "{} {}", gradient[at], x[at]);
        }
    }
}
