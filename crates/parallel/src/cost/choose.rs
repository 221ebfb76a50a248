//! Which layouts there are for so many ranks, and which of them is the cheapest.

use std::cmp::Ordering;

use comm::{Axis, MeshShape};

use super::hardware::Hardware;
use super::network::Work;
use super::{Forecast, forecast};
use crate::plan::{Layout, Plan, Refusal};

/// A layout that could be, and what it costs.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The layout.
    pub plan: Plan,
    /// What it costs.
    pub forecast: Forecast,
    /// Whether it makes what one rank makes, but for rounding: patches look at keys that are a step old.
    pub exact: bool,
    /// Whether it makes the same bits: sums over rings and matrices have another order.
    pub same_bits: bool,
    /// Whether it fits into memory.
    pub fits: bool,
}

impl Candidate {
    /// A plan with what it costs.
    pub fn of(plan: Plan, work: &Work, hardware: &Hardware) -> Candidate {
        let forecast = forecast(&plan, work, hardware);
        let exact = !work.is_patched(&plan) || plan.patches() == 1;
        let fits = forecast.host_bytes <= hardware.memory;
        let mesh = plan.layout().mesh;
        let same_bits = exact && mesh.degree(Axis::Ring) * mesh.degree(Axis::Tensor) == 1;
        Candidate { plan, forecast, exact, same_bits, fits }
    }

    /// Whether there are replicas without samples.
    fn idles(&self) -> bool {
        self.plan.samples().iter().any(std::ops::Range::is_empty)
    }

    /// The better one first: what fits, then what is exact, then what leaves no rank idle, then the sooner. Of those that take the same time
    /// to a part in a thousand, the one with the larger degrees of the outer axes, which exchange the least.
    fn order(&self, other: &Candidate) -> Ordering {
        let rank = |own: &Candidate| (!own.fits, !own.exact, own.idles());
        let time =
            |own: &Candidate| (own.forecast.seconds.all.max(1e-12).ln() * 1e3).round() as i64;
        let degrees = |own: &Candidate| {
            let mesh = own.plan.layout().mesh;
            Axis::ALL.map(|axis| mesh.degree(axis))
        };
        let outer = |own: &Candidate| {
            let mut all = degrees(own);
            all.reverse();
            all
        };
        rank(self)
            .cmp(&rank(other))
            .then_with(|| time(self).cmp(&time(other)))
            .then_with(|| outer(other).cmp(&outer(self)))
    }
}

/// Every layout of so many ranks that a workload allows, the best first. Stages come with as many patches
/// as there are stages, and one exact step.
pub fn candidates(ranks: usize, work: &Work, hardware: &Hardware) -> Vec<Candidate> {
    decoding(ranks, 1, work, hardware)
}

/// The same for layouts of which so many ranks of a replica decode.
fn decoding(ranks: usize, vae_ranks: usize, work: &Work, hardware: &Hardware) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = meshes(ranks)
        .into_iter()
        .filter(|mesh| mesh.degree(Axis::Cfg) <= work.workload.branches)
        .map(|mesh| Layout { vae_ranks, ..Layout::new(ranks, mesh) })
        .filter_map(|layout| Plan::new(&layout, &work.workload).ok())
        .map(|plan| Candidate::of(plan, work, hardware))
        .collect();
    all.sort_by(Candidate::order);
    all
}

impl Plan {
    /// The cheapest layout of so many ranks that fits into memory: of those that make what one rank makes, if
    /// any of them does, else with PipeFusion. One that makes the same bits may take a little longer.
    ///
    /// # Errors
    /// None of so many ranks is legal, or none fits into memory.
    pub fn auto(ranks: usize, work: &Work, hardware: &Hardware) -> Result<Plan, Refusal> {
        Plan::auto_decoding(ranks, 1, work, hardware)
    }

    /// The same, of layouts of which so many ranks of a replica decode.
    ///
    /// # Errors
    /// None of so many ranks is legal, or none fits into memory.
    pub fn auto_decoding(
        ranks: usize,
        vae_ranks: usize,
        work: &Work,
        hardware: &Hardware,
    ) -> Result<Plan, Refusal> {
        let refuse = |reason: String| Err(Refusal { axis: "ranks".to_owned(), reason });
        let all = decoding(ranks, vae_ranks, work, hardware);
        let Some(best) = all.first() else {
            if vae_ranks == 1 {
                return refuse(format!("no layout of {ranks} ranks fits; give fewer"));
            }
            // It is who decodes that does not fit, and a plan says why.
            let plan = Plan::auto(ranks, work, hardware)?;
            let layout = Layout { vae_ranks, ..plan.layout().clone() };
            return Plan::new(&layout, &work.workload);
        };
        if !best.fits {
            let least = all.iter().map(|own| own.forecast.host_bytes).min().unwrap_or(0);
            // Threads of one process share its memory; ranks of their own bring theirs.
            let remedy = match (hardware.shared_memory, ranks) {
                (true, 1) => "give a smaller size",
                (true, _) => "give fewer ranks, or a smaller size",
                (false, _) => "give more ranks, or a smaller size",
            };
            return refuse(format!(
                "no layout of {ranks} ranks fits into {:.1} GiB of {}: the smallest takes {:.1} GiB; {remedy}",
                hardware.memory as f64 / GIB,
                hardware.name,
                least as f64 / GIB
            ));
        }
        let near = |own: &&Candidate| {
            let seconds = own.forecast.seconds.all;
            own.fits
                && own.same_bits
                && own.idles() == best.idles()
                && seconds <= best.forecast.seconds.all * NEAR
        };
        Ok(all.iter().find(near).unwrap_or(best).plan.clone())
    }
}

/// How much longer the same bits may take.
const NEAR: f64 = 1.05;

const GIB: f64 = (1_u64 << 30) as f64;

/// All ways to write a number of ranks as a product of degrees.
fn meshes(ranks: usize) -> Vec<MeshShape> {
    let mut all = vec![(MeshShape::default(), ranks)];
    for axis in [Axis::Data, Axis::Cfg, Axis::Pipeline, Axis::Ring, Axis::Ulysses] {
        let split = |(mesh, rest): (MeshShape, usize)| {
            divisors(rest).map(move |degree| (mesh.with(axis, degree), rest / degree))
        };
        all = all.into_iter().flat_map(split).collect();
    }
    all.into_iter().map(|(mesh, rest)| mesh.with(Axis::Tensor, rest)).collect()
}

fn divisors(number: usize) -> impl Iterator<Item = usize> {
    (1..=number).filter(move |other| number.is_multiple_of(*other))
}
