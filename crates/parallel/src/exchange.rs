//! Collectives as parts of a graph: each knows its adjoint, which runs in the backward pass.
//!
//! Gradients on the ranks are parts of a sum: where ranks compute the same thing from the same values, what
//! they owe to it together is the sum of what each owes. An exchange that fails in a backward pass, which
//! has no way to return an error, panics; that ends the other ranks too.

use burn::tensor::Tensor;
use comm::Group;

use crate::error::Result;

/// What every rank has, put together along `dim`, where sizes may differ. Its adjoint adds up what all ranks
/// owe and hands each its own part.
///
/// # Errors
/// The ranks do not agree or do not come.
pub fn gather<const D: usize>(group: &Group, x: Tensor<D>, dim: usize) -> Result<Tensor<D>> {
    let parts = group.all_gather(x.clone(), &[dim])?;
    let counts: Vec<usize> = parts.iter().map(|part| part.dims()[dim]).collect();
    let back = back(group);
    let adjoint = move |gradient: Tensor<D>| {
        let parts = gradient.split_with_sizes(counts.clone(), dim);
        finish(back.reduce_scatter(parts, &[dim]))
    };
    Ok(known(x, Tensor::cat(parts, dim), adjoint))
}

/// The sum of what every rank has, of which each keeps its own part along `dim`. The adjoint of
/// [`gather`].
///
/// # Errors
/// The ranks do not agree or do not come, or `counts` does not say how to cut `dim`.
pub fn reduce_scatter<const D: usize>(
    group: &Group,
    x: Tensor<D>,
    dim: usize,
    counts: &[usize],
) -> Result<Tensor<D>> {
    let parts = x.clone().split_with_sizes(counts.to_vec(), dim);
    let sum = group.reduce_scatter(parts, &[dim])?;
    let back = back(group);
    let adjoint =
        move |gradient: Tensor<D>| Tensor::cat(finish(back.all_gather(gradient, &[dim])), dim);
    Ok(known(x, sum, adjoint))
}

/// Cuts `x` along `cut` and gives each rank its part, of sizes `counts`; what the ranks gave to this one is
/// put together along `join`. Its adjoint goes the other way.
///
/// # Errors
/// The ranks do not agree or do not come.
pub fn all_to_all<const D: usize>(
    group: &Group,
    x: Tensor<D>,
    (cut, counts): (usize, &[usize]),
    join: usize,
) -> Result<(Tensor<D>, Vec<usize>)> {
    let (out, found) = swap(group, x.clone().inner(), cut, counts, join)?;
    let (back, there) = (back(group), found.clone());
    let adjoint = move |gradient: Tensor<D>| finish(swap(&back, gradient, join, &there, cut)).0;
    Ok((known(x, out, adjoint), found))
}

/// The exchange itself, and how much every rank gave along `join`.
fn swap<const D: usize>(
    group: &Group,
    x: Tensor<D>,
    cut: usize,
    counts: &[usize],
    join: usize,
) -> comm::Result<(Tensor<D>, Vec<usize>)> {
    let parts = x.split_with_sizes(counts.to_vec(), cut);
    let parts = group.all_to_all(parts, &[cut, join])?;
    let found = parts.iter().map(|part| part.dims()[join]).collect();
    Ok((Tensor::cat(parts, join), found))
}

/// The sum over all ranks. What each owes to it is what all owe together.
///
/// # Errors
/// The ranks do not agree or do not come.
pub fn all_reduce<const D: usize>(group: &Group, x: Tensor<D>) -> Result<Tensor<D>> {
    let sum = group.all_reduce(x.clone())?;
    let back = back(group);
    Ok(known(x, sum, move |gradient| finish(back.all_reduce(gradient))))
}

/// The sum over all ranks, where every rank goes on to compute the same with it: what one owes to it is what
/// they owe together.
///
/// # Errors
/// The ranks do not agree or do not come.
pub fn sum_for_all<const D: usize>(group: &Group, x: Tensor<D>) -> Result<Tensor<D>> {
    let sum = group.all_reduce(x.clone())?;
    Ok(known(x, sum, |gradient| gradient))
}

/// The same values, where every rank goes on to compute something else with them: what is owed to them is
/// added up. The adjoint of [`sum_for_all`].
pub fn fan_out<const D: usize>(group: &Group, x: Tensor<D>) -> Tensor<D> {
    let back = back(group);
    known(x.clone(), x.inner(), move |gradient| finish(back.all_reduce(gradient)))
}

/// What rank `root` has; the others bring a tensor of the same shape for its place in their graphs. The root
/// owes what all owe together, the others nothing.
///
/// # Errors
/// The ranks do not agree or do not come.
pub fn broadcast<const D: usize>(group: &Group, root: usize, x: Tensor<D>) -> Result<Tensor<D>> {
    let is_root = group.rank() == root;
    let out = group.broadcast(root, is_root.then(|| x.clone()))?;
    let back = back(group);
    let adjoint = move |gradient: Tensor<D>| {
        let sum = finish(back.all_reduce(gradient));
        if is_root { sum } else { sum.zeros_like() }
    };
    Ok(known(x, out, adjoint))
}

/// `out`, whose gradient with respect to `x` is `adjoint` of its own.
fn known<const D: usize>(
    x: Tensor<D>,
    out: Tensor<D>,
    adjoint: impl Fn(Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D> {
    kernels::with_gradient([x], out, move |gradient| [adjoint(gradient)])
}

/// The group, whose calls say that they belong to the backward pass.
fn back(group: &Group) -> Group {
    group.named(match group.label() {
        Some(label) => format!("the gradient of {label}"),
        None => "a gradient".to_owned(),
    })
}

/// The result of an exchange inside a backward pass. The panic wakes the other ranks.
pub(crate) fn finish<T>(result: comm::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
