//! Which rank does what: built and checked before anything is loaded, and never changed.

use std::ops::Range;
use std::sync::Arc;

use comm::{Axis, Group, Mesh, MeshShape, share};
use nn::{OneDevice, Schedule, Tracks};

use crate::branches::Branches;
use crate::pipefusion::{PipeFusion, stages};
use crate::sharded::Sharded;
use crate::strips::Strips;
use crate::tensor::Splits;

/// How many ranks there are, and how many of them do what together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// All of them.
    pub ranks: usize,
    /// Ranks along each axis.
    pub mesh: MeshShape,
    /// How the pipeline axis works, if it is to.
    pub pipeline: Pipeline,
    /// Ranks of a replica that decode strips of its frames.
    pub vae_ranks: usize,
}

/// How PipeFusion is to work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// Patches of a sequence; as many as stages if not said.
    pub patches: Option<usize>,
    /// Steps at the beginning that are exact; 1 if not said.
    pub warmup: Option<usize>,
    /// Blocks of each stage; as even as can be if not said.
    pub stages: Option<Vec<usize>>,
}

impl Layout {
    /// So many ranks on a mesh.
    pub fn new(ranks: usize, mesh: MeshShape) -> Layout {
        Layout { ranks, mesh, pipeline: Pipeline::default(), vae_ranks: 1 }
    }

    /// Patches of a sequence; one where there is no pipeline.
    fn patches(&self) -> usize {
        self.pipeline.patches.unwrap_or(self.mesh.degree(Axis::Pipeline))
    }
}

/// What is to be laid out: a network, and what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Blocks of the network.
    pub depth: usize,
    /// Heads of an attention.
    pub heads: usize,
    /// Tokens of a forward pass, references included.
    pub tokens: Tracks<usize>,
    /// Tokens that are made, references left out.
    pub own_tokens: Tracks<usize>,
    /// Rows of the video's latents, if there is a video to decode.
    pub latent_rows: Option<usize>,
    /// Whether frames are decoded in overlapping tiles.
    pub tiled: bool,
    /// Whether blocks are left out where steps differ little.
    pub caches_steps: bool,
    /// Whether matrices take whole rows of inputs: those in bytes round a row by its largest value.
    pub whole_rows: bool,
    /// What cannot be of some of the tokens, if something cannot, and what to do about it.
    pub needs_whole: Option<&'static str>,
    /// Predictions of a step: two where it is guided.
    pub branches: usize,
    /// Samples to make.
    pub samples: usize,
}

/// Why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{axis}: {reason}")]
pub struct Refusal {
    /// Which degree is at fault, in the words of [`Axis`], or `ranks`.
    pub axis: String,
    /// What is wrong with it, and the nearest that would do.
    pub reason: String,
}

fn refuse<T>(axis: impl ToString, reason: String) -> Result<T, Refusal> {
    Err(Refusal { axis: axis.to_string(), reason })
}

/// A layout that fits a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    layout: Layout,
    workload: Workload,
}

impl Plan {
    /// Checks that a layout fits a workload.
    ///
    /// # Errors
    /// It does not; the error names the degree at fault and the nearest that fits.
    pub fn new(layout: &Layout, workload: &Workload) -> Result<Plan, Refusal> {
        let degree = |axis| layout.mesh.degree(axis);
        if let Some(axis) = Axis::ALL.into_iter().find(|axis| degree(*axis) == 0) {
            return refuse(axis, "it is 0; give 1 or more".to_owned());
        }
        if layout.mesh.size() != Some(layout.ranks) {
            let degrees: Vec<String> =
                Axis::ALL.iter().map(|axis| format!("{axis} {}", degree(*axis))).collect();
            let product = layout.mesh.size().map_or("far more".to_owned(), |size| size.to_string());
            let reason = format!(
                "there are {} ranks, but {} take {product}; make them equal",
                layout.ranks,
                degrees.join(" x ")
            );
            return refuse("ranks", reason);
        }
        let (shared, branches) = (degree(Axis::Cfg), workload.branches);
        // Two ranks wait out what is not guided; whoever says more took the degree for the scale of guidance.
        if shared > branches.max(2) {
            let reason = format!(
                "{shared} ranks share the {branches} predictions of a step; the nearest is {}. How strong guidance is, \
                 --guidance says",
                branches.max(1)
            );
            return refuse(Axis::Cfg, reason);
        }
        let tensor = degree(Axis::Tensor);
        if !workload.heads.is_multiple_of(tensor) {
            let near = nearest(tensor, |other| workload.heads.is_multiple_of(other));
            let heads = workload.heads;
            let reason =
                format!("{heads} heads cannot be split {tensor} ways; the nearest is {near}");
            return refuse(Axis::Tensor, reason);
        }
        if tensor > 1 && workload.whole_rows {
            let reason = "matrices in bytes round a row of inputs by its largest value, and a tensor rank sees a \
                          part of the row; share tokens instead, by ulysses, or leave the bytes out";
            return refuse(Axis::Tensor, reason.to_owned());
        }
        let (ulysses, heads) = (degree(Axis::Ulysses), workload.heads / tensor);
        if heads < ulysses {
            let reason = format!("{heads} heads per tensor rank are fewer; the nearest is {heads}");
            return refuse(Axis::Ulysses, reason);
        }
        let sequence = ulysses * degree(Axis::Ring);
        let fewest = workload.tokens.into_iter().min().unwrap_or(0);
        if fewest < sequence {
            let axis = if ulysses > fewest { Axis::Ulysses } else { Axis::Ring };
            let near = match axis {
                Axis::Ulysses => fewest,
                _ => fewest / ulysses,
            };
            let reason = format!(
                "{sequence} ranks share a sequence of {fewest} tokens; the nearest is {near}"
            );
            return refuse(axis, reason);
        }
        check_pipeline(layout, workload, sequence)?;
        check_vae(layout, workload)?;
        Ok(Plan { layout: layout.clone(), workload: workload.clone() })
    }

    /// One rank with the same workload.
    pub(crate) fn alone(&self) -> Plan {
        let layout = Layout::new(1, MeshShape::default());
        Plan { layout, workload: self.workload.clone() }
    }

    /// Patches of a sequence; one where there is no pipeline.
    pub fn patches(&self) -> usize {
        self.layout.patches()
    }

    /// How many of so many steps are taken by the whole sequence.
    pub fn warm_steps(&self, steps: usize) -> usize {
        match self.patches() == 1 && self.layout.mesh.degree(Axis::Pipeline) == 1 {
            true => steps,
            false => self.layout.pipeline.warmup.unwrap_or(1).max(1).min(steps),
        }
    }

    /// The blocks of a stage.
    pub(crate) fn stage(&self, stage: usize) -> Range<usize> {
        let count = self.layout.mesh.degree(Axis::Pipeline);
        let asked = self.layout.pipeline.stages.as_deref();
        stages(self.workload.depth, count, asked)[stage].clone()
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The ranks of a group on the plan's mesh.
    ///
    /// # Errors
    /// The group has another number of ranks.
    pub fn mesh(&self, world: Group) -> comm::Result<Mesh> {
        Mesh::of(world, self.layout.mesh)
    }

    /// How a rank of the mesh runs a network whose layers split as its family says.
    pub fn schedule(&self, mesh: &Mesh, splits: Splits) -> Arc<dyn Schedule> {
        let alone = mesh.sequence().size() == 1 && mesh.axis(Axis::Tensor).size() == 1;
        let inner: Arc<dyn Schedule> = match alone {
            true => Arc::new(OneDevice::default()),
            false => Arc::new(Sharded::over(mesh, splits)),
        };
        match mesh.axis(Axis::Cfg).size() {
            1 => inner,
            _ => Arc::new(Branches { group: mesh.axis(Axis::Cfg).clone(), inner }),
        }
    }

    /// How a rank of the mesh runs the sampler, where there are stages or patches.
    pub fn pipefusion(&self, mesh: &Mesh, splits: Splits) -> Option<PipeFusion> {
        let (patches, count) = (self.layout.patches(), self.layout.mesh.degree(Axis::Pipeline));
        if count == 1 && patches == 1 {
            return None;
        }
        let asked = self.layout.pipeline.stages.as_deref();
        Some(PipeFusion {
            mesh: mesh.clone(),
            splits,
            stages: stages(self.workload.depth, count, asked),
            patches,
            warmup: self.layout.pipeline.warmup.unwrap_or(1),
        })
    }

    /// The ranks of a replica that decode together, where this is one of several.
    pub fn strips(&self, mesh: &Mesh) -> Option<Strips> {
        let (count, replica) = (self.layout.vae_ranks, mesh.replica());
        let members: Vec<usize> = (0..count).collect();
        let takes_part = count > 1 && replica.rank() < count;
        takes_part.then(|| Strips { group: replica.split("vae", &members) })
    }

    /// The samples of each replica.
    pub fn samples(&self) -> Vec<Range<usize>> {
        self.shares(Axis::Data, self.workload.samples)
    }

    /// The heads of each Ulysses rank, of those that a tensor rank has.
    pub fn heads(&self) -> Vec<Range<usize>> {
        self.shares(Axis::Ulysses, self.workload.heads / self.layout.mesh.degree(Axis::Tensor))
    }

    /// The tokens of each rank of a sequence.
    pub fn tokens(&self) -> Tracks<Vec<Range<usize>>> {
        let mesh = &self.layout.mesh;
        let ranks = mesh.degree(Axis::Ulysses) * mesh.degree(Axis::Ring);
        self.workload.tokens.map(|count| (0..ranks).map(|rank| share(count, rank, ranks)).collect())
    }

    fn shares(&self, axis: Axis, count: usize) -> Vec<Range<usize>> {
        let ranks = self.layout.mesh.degree(axis);
        (0..ranks).map(|rank| share(count, rank, ranks)).collect()
    }
}

/// Checks that stages and patches fit.
fn check_pipeline(layout: &Layout, workload: &Workload, sequence: usize) -> Result<(), Refusal> {
    let (count, depth) = (layout.mesh.degree(Axis::Pipeline), workload.depth);
    if count > depth {
        let reason =
            format!("{count} stages are more than the {depth} blocks; the nearest is {depth}");
        return refuse(Axis::Pipeline, reason);
    }
    if let Some(lengths) = &layout.pipeline.stages {
        let sum: usize = lengths.iter().fold(0, |sum, length| sum.saturating_add(*length));
        if lengths.len() != count || sum != depth || lengths.contains(&0) {
            let even: Vec<String> =
                stages(depth, count, None).iter().map(|blocks| blocks.len().to_string()).collect();
            let reason = format!(
                "{lengths:?} are not {count} stages of {depth} blocks together; one way is {}",
                even.join(",")
            );
            return refuse("stages", reason);
        }
    }
    let patches = layout.patches();
    if workload.caches_steps && (count > 1 || patches > 1) {
        let reason =
            "patches that flow are never at one step, which a step cache needs; choose one";
        return refuse(Axis::Pipeline, reason.to_owned());
    }
    if let Some(what) = workload.needs_whole
        && (count > 1 || patches > 1)
    {
        let reason = format!("stages work on some of the tokens, but {what}, or no stages");
        return refuse(Axis::Pipeline, reason);
    }
    let fewest = workload.own_tokens.into_iter().min().unwrap_or(0);
    if patches == 0 || patches * sequence > fewest {
        let most = (fewest / sequence).max(1);
        let reason = format!(
            "{patches} patches of {fewest} tokens leave none to some of {sequence} ranks; choose 1 to {most}"
        );
        return refuse("patches", reason);
    }
    Ok(())
}

/// Checks that every rank that decodes has rows.
fn check_vae(layout: &Layout, workload: &Workload) -> Result<(), Refusal> {
    let (count, replica) = (layout.vae_ranks, layout.ranks / layout.mesh.degree(Axis::Data));
    if count == 0 || count > replica {
        let reason =
            format!("it is {count}; a replica has {replica} ranks, so choose 1 to {replica}");
        return refuse("vae-ranks", reason);
    }
    if count > 1 && workload.tiled {
        let reason =
            "frames are to be decoded in overlapping tiles, which strips would cut; choose one";
        return refuse("vae-ranks", reason.to_owned());
    }
    match workload.latent_rows {
        None if count > 1 => {
            refuse("vae-ranks", "there is no video to decode; leave it out".to_owned())
        }
        Some(rows) if count > rows => {
            let reason =
                format!("{count} ranks share {rows} rows of latents; the nearest is {rows}");
            refuse("vae-ranks", reason)
        }
        _ => Ok(()),
    }
}

/// The number nearest to one that fits, the smaller of two.
fn nearest(to: usize, fits: impl Fn(usize) -> bool) -> usize {
    let far = (0..to).map(|off| [to - off, to + off]);
    far.flatten().find(|other| *other > 0 && fits(*other)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use comm::{Axis, MeshShape};
    use nn::Tracks;

    use super::{Layout, Pipeline, Plan, Workload};

    fn workload() -> Workload {
        let tokens = Tracks { video: Some(30), audio: Some(7) };
        Workload {
            depth: 4,
            heads: 6,
            tokens,
            own_tokens: tokens,
            latent_rows: Some(5),
            tiled: false,
            caches_steps: false,
            whole_rows: false,
            needs_whole: None,
            branches: 2,
            samples: 3,
        }
    }

    fn layout(degrees: &[(Axis, usize)]) -> Layout {
        let mesh = degrees
            .iter()
            .fold(MeshShape::default(), |mesh, (axis, degree)| mesh.with(*axis, *degree));
        Layout::new(mesh.size().unwrap_or(0), mesh)
    }

    #[test]
    fn refusals_name_the_nearest() {
        let refused = |degrees: &[(Axis, usize)]| {
            Plan::new(&layout(degrees), &workload()).unwrap_err().to_string()
        };
        let cases = [
            (&[(Axis::Tensor, 4)][..], "tensor: 6 heads cannot be split 4 ways; the nearest is 3"),
            (&[(Axis::Ulysses, 7)], "ulysses: 6 heads per tensor rank are fewer; the nearest is 6"),
            (&[(Axis::Tensor, 2), (Axis::Ulysses, 4)], "ulysses: 3 heads per tensor rank"),
            (&[(Axis::Ring, 8)], "ring: 8 ranks share a sequence of 7 tokens; the nearest is 7"),
            (
                &[(Axis::Ulysses, 2), (Axis::Ring, 4)],
                "8 ranks share a sequence of 7 tokens; the nearest is 3",
            ),
            (&[(Axis::Cfg, 0)], "cfg: it is 0; give 1 or more"),
            (&[(Axis::Cfg, 7)], "cfg: 7 ranks share the 2 predictions of a step; the nearest is 2"),
            (
                &[(Axis::Pipeline, 5)],
                "pipeline: 5 stages are more than the 4 blocks; the nearest is 4",
            ),
        ];
        for (degrees, want) in cases {
            let found = refused(degrees);
            assert!(found.contains(want), "{degrees:?}: {found}");
        }
        let pipeline = |pipeline: Pipeline| {
            let layout = Layout { pipeline, ..layout(&[(Axis::Pipeline, 2), (Axis::Ring, 2)]) };
            Plan::new(&layout, &workload()).unwrap_err().to_string()
        };
        let found = pipeline(Pipeline { stages: Some(vec![3, 2]), ..Pipeline::default() });
        assert!(
            found.contains("stages: [3, 2] are not 2 stages of 4 blocks") && found.contains("2,2"),
            "{found}"
        );
        let found = pipeline(Pipeline { patches: Some(4), ..Pipeline::default() });
        assert!(
            found.contains("4 patches of 7 tokens") && found.contains("choose 1 to 3"),
            "{found}"
        );
        let vae = |vae_ranks: usize, workload: &Workload| {
            let layout = Layout { vae_ranks, ..layout(&[(Axis::Ulysses, 6)]) };
            Plan::new(&layout, workload).unwrap_err().to_string()
        };
        let found = vae(6, &workload());
        assert!(found.contains("6 ranks share 5 rows of latents; the nearest is 5"), "{found}");
        assert!(vae(7, &workload()).contains("choose 1 to 6"));
        let tiled = Workload { tiled: true, ..workload() };
        assert!(vae(2, &tiled).contains("overlapping tiles"));
        let whole = Workload { needs_whole: Some("this is about all of them"), ..workload() };
        let staged = Plan::new(&layout(&[(Axis::Pipeline, 2)]), &whole).unwrap_err().to_string();
        assert!(staged.starts_with("pipeline: stages work on some of the tokens"), "{staged}");
        assert!(Plan::new(&layout(&[(Axis::Ulysses, 2)]), &whole).is_ok());
        let sound = Workload { latent_rows: None, ..workload() };
        assert!(vae(2, &sound).contains("no video to decode"));
        let wrong = Layout { ranks: 5, ..layout(&[(Axis::Ring, 4)]) };
        let found = Plan::new(&wrong, &workload()).unwrap_err().to_string();
        assert!(found.contains("there are 5 ranks") && found.contains("take 4"), "{found}");
    }

    /// Every sample, head and token is somebody's, once.
    #[test]
    fn tables_cover_everything() {
        let layout = layout(&[(Axis::Ulysses, 2), (Axis::Ring, 3), (Axis::Data, 4)]);
        let plan = Plan::new(&layout, &workload()).unwrap();
        let covered =
            |parts: Vec<std::ops::Range<usize>>| parts.into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(covered(plan.samples()), [0, 1, 2]);
        assert_eq!(covered(plan.heads()), Vec::from_iter(0..6));
        let Tracks { video, audio } = plan.tokens().map(covered);
        assert_eq!((video.unwrap().len(), audio.unwrap().len()), (30, 7));
    }
}
