//! Patch-parallel VAE: each rank decodes a strip of rows, borrows its neighbours' edges for convolutions, and
//! takes statistics and attention over the strips of all.
//!
//! Layers stay those of the model; what they see of an image comes from the provider of their parameters.

use std::sync::Arc;

use burn::tensor::Tensor;
use comm::{Group, share};
use nn::{Halo, ImageStrip, Provider, Result, Strip};

use crate::error::Error;

/// The ranks that decode together, in the order of their strips.
#[derive(Clone, Debug)]
pub struct Strips {
    /// The ranks.
    pub group: Group,
}

impl Strips {
    /// The layers of `base`, which see this rank's strip.
    pub fn of<'a>(&self, base: &'a dyn Provider) -> StripProvider<'a> {
        StripProvider { base, strip: Arc::new(self.clone()) }
    }

    /// This rank's rows of latents `[B, C, f, h, w]`, of which the first rank gives the whole.
    ///
    /// # Errors
    /// A rank does not come.
    pub fn deal(&self, latents: Tensor<5>) -> comm::Result<Tensor<5>> {
        let (group, rows) = (self.group.named("the latents of a strip"), latents.dims()[3]);
        if group.rank() > 0 {
            return group.recv(0);
        }
        let part = |rank| latents.clone().slice_dim(3, share(rows, rank, group.size()));
        (1..group.size()).try_for_each(|peer| group.send(peer, part(peer)))?;
        Ok(part(0))
    }

    /// The whole frame `[H, W, C]` of the strips of all, on the first rank.
    ///
    /// # Errors
    /// A rank does not come.
    pub fn joined(&self, own: Tensor<3>) -> comm::Result<Option<Tensor<3>>> {
        let group = self.group.named("the strips of a frame");
        if group.rank() > 0 {
            return group.send(0, own).map(|()| None);
        }
        let others = (1..group.size()).map(|peer| group.recv(peer));
        let all = std::iter::once(Ok(own)).chain(others).collect::<comm::Result<Vec<_>>>()?;
        Ok(Some(Tensor::cat(all, 0)))
    }

    /// Rows that a neighbour lends, if there is such a neighbour.
    fn borrowed(&self, from: Option<usize>, rows: usize) -> Result<Option<Tensor<4>>, Error> {
        let Some(peer) = from.filter(|peer| *peer < self.group.size() && rows > 0) else {
            return Ok(None);
        };
        Ok(Some(self.group.named("the edge of a strip").recv(peer)?))
    }

    /// Lends rows to a neighbour, if there is such a neighbour.
    fn lend(&self, to: Option<usize>, edge: impl FnOnce() -> Tensor<4>) -> Result<(), Error> {
        let Some(peer) = to.filter(|peer| *peer < self.group.size()) else { return Ok(()) };
        Ok(self.group.named("the edge of a strip").send(peer, edge())?)
    }
}

impl ImageStrip for Strips {
    fn halo(&self, images: &[Tensor<3>], [above, below]: [usize; 2]) -> Result<Halo> {
        let Some(first) = images.first() else {
            return Ok(Halo { images: Vec::new(), rows: [0; 2] });
        };
        let height = first.dims()[0];
        let rows = |start, count| {
            let part = |image: &Tensor<3>| image.clone().narrow(0, start, count);
            Tensor::stack::<4>(images.iter().map(part).collect(), 0)
        };
        let rank = self.group.rank();
        let (higher, lower) = (rank.checked_sub(1), Some(rank + 1));
        if below > 0 {
            self.lend(higher, || rows(0, below))?;
        }
        if above > 0 {
            self.lend(lower, || rows(height - above, above))?;
        }
        let edges = [self.borrowed(higher, above)?, self.borrowed(lower, below)?];
        let rows = [&edges[0], &edges[1]].map(|edge| edge.as_ref().map_or(0, |it| it.dims()[1]));
        let edge = |at: usize, image: usize| {
            edges[at].as_ref().map(|edge| edge.clone().narrow(0, image, 1).squeeze_dim::<3>(0))
        };
        let extended = images.iter().enumerate().map(|(at, image)| {
            let parts = [edge(0, at), Some(image.clone()), edge(1, at)];
            Tensor::cat(parts.into_iter().flatten().collect(), 0)
        });
        Ok(Halo { images: extended.collect(), rows })
    }

    fn gather(&self, own: Tensor<3>) -> Result<Vec<Tensor<3>>> {
        let group = self.group.named("what all strips have");
        Ok(group.all_gather(own, &[1]).map_err(Error::from)?)
    }
}

/// A provider whose layers see a strip of every image.
pub struct StripProvider<'a> {
    base: &'a dyn Provider,
    strip: Arc<Strips>,
}

impl Provider for StripProvider<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.base.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.base.has(name)
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(self.base)
    }

    fn strip(&self) -> Strip {
        Some(Arc::clone(&self.strip) as Arc<dyn ImageStrip>)
    }
}
