//! Ranks on named axes.

use std::fmt;

use crate::error::{Error, Result};
use crate::group::Group;

/// What ranks that differ in one coordinate do together. The first axis varies fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// They share the layers' matrices.
    Tensor,
    /// They trade tokens for heads.
    Ulysses,
    /// They pass keys and values around.
    Ring,
    /// They run blocks one after another.
    Pipeline,
    /// They predict with and without the prompt.
    Cfg,
    /// They make different samples.
    Data,
}

impl Axis {
    /// All of them, the fastest first.
    pub const ALL: [Axis; 6] =
        [Axis::Tensor, Axis::Ulysses, Axis::Ring, Axis::Pipeline, Axis::Cfg, Axis::Data];
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Axis::Tensor => "tensor",
            Axis::Ulysses => "ulysses",
            Axis::Ring => "ring",
            Axis::Pipeline => "pipeline",
            Axis::Cfg => "cfg",
            Axis::Data => "data",
        })
    }
}

/// How many ranks there are along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshShape {
    degrees: [usize; Axis::ALL.len()],
}

impl Default for MeshShape {
    /// One rank.
    fn default() -> MeshShape {
        MeshShape { degrees: [1; Axis::ALL.len()] }
    }
}

impl MeshShape {
    /// The same with so many ranks along an axis.
    #[must_use]
    pub fn with(mut self, axis: Axis, degree: usize) -> MeshShape {
        self.degrees[axis as usize] = degree;
        self
    }

    /// Ranks along an axis.
    pub fn degree(&self, axis: Axis) -> usize {
        self.degrees[axis as usize]
    }

    /// Ranks in all; none if that is more than can be counted.
    pub fn size(&self) -> Option<usize> {
        self.degrees.iter().try_fold(1_usize, |product, degree| product.checked_mul(*degree))
    }

    /// Where a rank is along an axis.
    pub fn coordinate(&self, rank: usize, axis: Axis) -> usize {
        rank / self.stride(axis) % self.degree(axis)
    }

    /// The ranks that differ from `rank` at the most along `axes`, the first of which varies fastest.
    pub fn neighbours(&self, rank: usize, axes: &[Axis]) -> Vec<usize> {
        let origin = axes
            .iter()
            .fold(rank, |origin, axis| origin - self.coordinate(rank, *axis) * self.stride(*axis));
        axes.iter().fold(vec![origin], |ranks, axis| {
            let step = |at: usize| ranks.iter().map(move |rank| rank + at * self.stride(*axis));
            (0..self.degree(*axis)).flat_map(step).collect()
        })
    }

    /// How far neighbours along an axis are apart.
    fn stride(&self, axis: Axis) -> usize {
        self.degrees[..axis as usize].iter().product()
    }
}

/// Ranks on a mesh, as one of them sees it.
#[derive(Clone, Debug)]
pub struct Mesh {
    shape: MeshShape,
    world: Group,
    axes: Vec<Group>,
    /// Those that hold parts of one sequence: Ulysses within ring.
    sequence: Group,
    /// Those that work on the same samples.
    replica: Group,
    /// Those of them that run the same blocks.
    stage: Group,
}

impl Mesh {
    /// A mesh of one rank.
    pub fn solo() -> Mesh {
        Mesh::of(Group::solo(), MeshShape::default()).expect("a mesh of one rank has one rank")
    }

    /// All ranks of a group on a mesh. Nothing is exchanged.
    ///
    /// # Errors
    /// The mesh has another number of ranks.
    pub fn of(world: Group, shape: MeshShape) -> Result<Mesh> {
        if shape.size() != Some(world.size()) {
            let degrees: Vec<String> =
                Axis::ALL.iter().map(|axis| format!("{axis} {}", shape.degree(*axis))).collect();
            return Err(Error::Mesh { degrees: degrees.join(", "), ranks: world.size() });
        }
        let part =
            |name: &str, axes: &[Axis]| world.split(name, &shape.neighbours(world.rank(), axes));
        Ok(Mesh {
            shape,
            axes: Axis::ALL.iter().map(|axis| part(&axis.to_string(), &[*axis])).collect(),
            sequence: part("sequence", &[Axis::Ulysses, Axis::Ring]),
            replica: part("replica", &Axis::ALL[..Axis::Data as usize]),
            stage: part("stage", &[Axis::Tensor, Axis::Ulysses, Axis::Ring, Axis::Cfg]),
            world,
        })
    }

    /// Its extents.
    pub fn shape(&self) -> MeshShape {
        self.shape
    }

    /// All ranks.
    pub fn world(&self) -> &Group {
        &self.world
    }

    /// The ranks along an axis; this rank's place there is its rank in the group.
    pub fn axis(&self, axis: Axis) -> &Group {
        &self.axes[axis as usize]
    }

    /// The ranks that hold parts of the same sequence: neighbours are of one Ulysses group.
    pub fn sequence(&self) -> &Group {
        &self.sequence
    }

    /// The ranks that work on the same samples.
    pub fn replica(&self) -> &Group {
        &self.replica
    }

    /// The ranks that work on the same samples with the same blocks, and so at the same time.
    pub fn stage(&self) -> &Group {
        &self.stage
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, MeshShape};

    /// The digest's example of sixteen ranks: two each along sequence, pipeline, cfg and data.
    #[test]
    fn neighbours_are_those_of_the_reference() {
        let shape = Axis::ALL[1..].iter().fold(MeshShape::default(), |shape, axis| {
            shape.with(*axis, if *axis == Axis::Ring { 1 } else { 2 })
        });
        assert_eq!(shape.size(), Some(16));
        assert_eq!(shape.neighbours(14, &[Axis::Ulysses, Axis::Ring]), [14, 15]);
        assert_eq!(shape.neighbours(13, &[Axis::Pipeline]), [13, 15]);
        assert_eq!(shape.neighbours(2, &[Axis::Cfg]), [2, 6]);
        assert_eq!(shape.neighbours(6, &[Axis::Cfg]), [2, 6]);
        assert_eq!(shape.neighbours(9, &[Axis::Data]), [1, 9]);
        assert_eq!(shape.neighbours(11, &Axis::ALL[..5]), (8..16).collect::<Vec<_>>());
    }

    /// Tensor ranks are innermost, and Ulysses ranks within a ring: what xDiT's two group makers
    /// disagreed on.
    #[test]
    fn every_rank_is_in_one_group_of_each_kind() {
        let shape =
            MeshShape::default().with(Axis::Tensor, 2).with(Axis::Ulysses, 2).with(Axis::Ring, 3);
        assert_eq!(shape.neighbours(0, &[Axis::Ulysses]), [0, 2]);
        assert_eq!(shape.neighbours(5, &[Axis::Ring]), [1, 5, 9]);
        assert_eq!(shape.neighbours(5, &[Axis::Ulysses, Axis::Ring]), [1, 3, 5, 7, 9, 11]);
        for axes in [&[Axis::Tensor][..], &[Axis::Ulysses], &[Axis::Ring, Axis::Tensor]] {
            let mut seen = vec![0; 12];
            for rank in 0..12 {
                let group = shape.neighbours(rank, axes);
                assert!(group.contains(&rank));
                assert!(group.iter().all(|peer| shape.neighbours(*peer, axes) == group));
                group.iter().for_each(|peer| seen[*peer] += 1);
            }
            let size: usize = axes.iter().map(|axis| shape.degree(*axis)).product();
            assert_eq!(seen, vec![size; 12]);
        }
    }
}
