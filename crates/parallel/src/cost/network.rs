//! What a network multiplies, mixes and hands on in one forward pass, as numbers.

use std::collections::BTreeSet;
use std::ops::Range;

use comm::Axis;
use nn::Split;

use super::memory;
use super::share::Share;
use crate::plan::{Plan, Workload};

/// Rows of a matrix product, or tokens of an attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Tokens that ranks of a sequence share, and patches cut.
    pub spread: usize,
    /// Those that every rank has: text, an image, a noise level.
    pub whole: usize,
    /// Those of a context from which something is made that no step changes: patches take what the last exact
    /// step made.
    pub constant: usize,
}

/// A linear layer applied to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// What it is applied to.
    pub rows: Rows,
    /// Its width on the way in.
    pub inputs: usize,
    /// Its width on the way out.
    pub outputs: usize,
    /// How tensor ranks share it.
    pub split: Option<Split>,
}

/// An attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixing {
    /// Who looks.
    pub queries: Rows,
    /// What is looked at. Where some of it is spread, ranks exchange it.
    pub keys: Rows,
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head_width: usize,
}

/// A part of a network that runs as a whole: what stands around the blocks, or one block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Its linear layers.
    pub products: Vec<Product>,
    /// Its attentions.
    pub mixings: Vec<Mixing>,
    /// Rows of the norms over a width that tensor ranks share: each sums one number per row.
    pub norms: Vec<Rows>,
    /// Parameters that tensor ranks share.
    pub split_parameters: u64,
    /// Parameters that each of them has.
    pub whole_parameters: u64,
    /// Bytes of the former, as they are held.
    pub split_bytes: u64,
    /// Bytes of the latter.
    pub whole_bytes: u64,
    /// The names of all, those included that other parts have as well.
    pub names: BTreeSet<String>,
}

/// Tokens with so many values each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The tokens.
    pub rows: Rows,
    /// Values of one.
    pub width: usize,
}

/// One forward pass for one sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// What every stage computes before its blocks.
    pub shared: Part,
    /// What the first stage computes before them.
    pub embed: Part,
    /// The blocks.
    pub blocks: Vec<Part>,
    /// What the last stage computes after them.
    pub head: Part,
    /// What flows into each block, and out of the last: the second half of a U-shaped network is given more.
    pub streams: Vec<Vec<Stream>>,
    /// What is predicted.
    pub predictions: Vec<Stream>,
    /// What a solver makes of it: the tokens without references.
    pub made: Vec<Stream>,
}

impl Network {
    /// Parameters in all.
    pub fn parameters(&self) -> u64 {
        self.parts().map(|part| part.split_parameters + part.whole_parameters).sum()
    }

    /// Bytes of the parameters, as they are held.
    pub fn bytes(&self) -> u64 {
        self.parts().map(|part| part.split_bytes + part.whole_bytes).sum()
    }

    /// The names of the parameters that a stage of some of the blocks asks for.
    pub fn names(&self, blocks: Range<usize>) -> BTreeSet<String> {
        let (is_first, is_last) = (blocks.start == 0, blocks.end == self.blocks.len());
        let ends = [is_first.then_some(&self.embed), is_last.then_some(&self.head)];
        let parts = ends.into_iter().flatten().chain([&self.shared]).chain(&self.blocks[blocks]);
        parts.flat_map(|part| part.names.iter().cloned()).collect()
    }

    /// Operations of a pass by one rank.
    pub fn operations(&self) -> f64 {
        let all = |Rows { spread, whole, constant }: Rows| (spread + whole + constant) as f64;
        let products = self.parts().flat_map(|part| &part.products);
        let products = products.map(|own| 2.0 * all(own.rows) * (own.inputs * own.outputs) as f64);
        let mixings = self.parts().flat_map(|part| &part.mixings).map(|own| {
            4.0 * all(own.queries) * all(own.keys) * (own.heads * own.head_width) as f64
        });
        products.chain(mixings).sum()
    }

    /// Values that are alive at once while one rank runs a pass over a sample.
    pub fn activations(&self) -> f64 {
        memory::activations(self, &self.parts().collect::<Vec<_>>(), &Share::ALONE)
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.shared, &self.embed, &self.head].into_iter().chain(&self.blocks)
    }
}

/// One run of a sampler: what its branches of guidance are asked, and which of them each step asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Forward passes that differ. The first is that of the prompt, with all tracks and all attentions.
    pub networks: Vec<Network>,
    /// For each step, which of them its branches are, in their order.
    pub steps: Vec<Vec<usize>>,
    /// Steps at which other weights take over, which are taken by the whole sequence.
    pub switches: Vec<usize>,
}

impl Run {
    /// Operations of all steps for one sample by one rank.
    pub fn operations(&self) -> f64 {
        let one: Vec<f64> = self.networks.iter().map(Network::operations).collect();
        self.steps.iter().flatten().map(|network| one[*network]).sum()
    }

    /// The pass of the prompt, with all tracks and all attentions: it asks for every parameter.
    pub fn whole(&self) -> &Network {
        &self.networks[0]
    }
}

/// A request, as far as its cost goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// What a plan is checked against.
    pub workload: Workload,
    /// The runs of the sampler one after another: two where a clip is made smaller first.
    pub runs: Vec<Run>,
    /// Operations before the steps, which one rank of a replica computes: text and what is given.
    pub before: f64,
    /// Operations of decoding one sample, which ranks may share as strips.
    pub decode: f64,
    /// Bytes of what is computed while decoding.
    pub decode_bytes: u64,
    /// Bytes of the parameters of everything but the network: encoders, VAE, other experts.
    pub other_bytes: u64,
    /// Samples of a forward pass, at the most.
    pub together: usize,
}

/// Steps of a run that cost the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps<'a> {
    pub(super) run: &'a Run,
    /// The networks of their branches.
    pub(super) branches: &'a [usize],
    /// Whether patches take them.
    pub(super) patched: bool,
    /// How many there are.
    pub(super) count: usize,
}

impl<'a> Steps<'a> {
    /// The networks of the branches that a rank predicts.
    pub(super) fn own(&self, plan: &Plan, rank: usize) -> Vec<&'a Network> {
        let mesh = &plan.layout().mesh;
        let (degree, at) = (mesh.degree(Axis::Cfg), mesh.coordinate(rank, Axis::Cfg));
        let alone = self.branches.len() == 1;
        let branches = self.branches.iter().enumerate();
        let own = branches.filter(|(branch, _)| alone || branch % degree == at);
        own.map(|(_, network)| &self.run.networks[*network]).collect()
    }

    /// The networks of all branches.
    pub(super) fn networks(&self) -> impl Iterator<Item = &'a Network> {
        let run = self.run;
        self.branches.iter().map(|network| &run.networks[*network])
    }

    fn operations(&self) -> f64 {
        self.networks().map(Network::operations).sum()
    }
}

impl Work {
    /// The network that makes the clip.
    pub fn network(&self) -> &Network {
        self.runs.last().expect("there is a run").whole()
    }

    /// Steps of all runs.
    pub fn steps(&self) -> usize {
        self.runs.iter().map(|run| run.steps.len()).sum()
    }

    /// All steps, those that cost the same together, run after run.
    pub(super) fn alike(&self, plan: &Plan) -> Vec<Steps<'_>> {
        let mut all = Vec::new();
        for run in &self.runs {
            let warm = plan.warm_steps(run.steps.len());
            let mut own: Vec<Steps<'_>> = Vec::new();
            for (step, branches) in run.steps.iter().enumerate() {
                let patched = step >= warm && !run.switches.contains(&step);
                let like = |own: &&mut Steps<'_>| {
                    (own.branches, own.patched) == (branches.as_slice(), patched)
                };
                match own.iter_mut().find(like) {
                    Some(own) => own.count += 1,
                    None => own.push(Steps { run, branches, patched, count: 1 }),
                }
            }
            all.extend(own);
        }
        all
    }

    /// Whether patches take any step.
    pub(super) fn is_patched(&self, plan: &Plan) -> bool {
        self.alike(plan).iter().any(|steps| steps.patched)
    }

    /// The steps with the most operations, of those that patches take, where there are any.
    pub(super) fn fullest(&self, plan: &Plan) -> Steps<'_> {
        let order = |one: &Steps<'_>, two: &Steps<'_>| {
            one.patched.cmp(&two.patched).then(one.operations().total_cmp(&two.operations()))
        };
        self.alike(plan).into_iter().max_by(order).expect("there is a step")
    }
}
