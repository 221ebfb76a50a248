//! Where ranks meet in a step: gradients are added up once, and what must not differ is agreed on. One rank meets
//! nobody.
//!
//! Ranks that work on the same samples hold parts of one gradient, and replicas gradients of different samples: all
//! of them are added up together, in rank order, so that every rank holds the same bits. Losses are added up over
//! replicas alone, as the ranks of a replica have the same.

use std::collections::BTreeMap;
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor, TensorData};
use comm::{Axis, Busy, Group, Mesh};

use crate::checkpoint::Progress;
use crate::error::{Error, Result};
use crate::role::Trained;

/// Numbers that travel together: a message for each small tensor would cost more than its values.
const BUCKET: usize = 1 << 20;

/// How long a rank may be busy with what only it does: a validation, a checkpoint, a report.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The ranks of a run, as one of them sees them.
#[derive(Clone, Debug)]
pub struct Ranks(Mesh);

impl Ranks {
    /// One rank.
    pub fn alone() -> Ranks {
        Ranks(Mesh::solo())
    }

    /// The ranks of a mesh: replicas along its data axis, each of which works on its own samples.
    pub fn over(mesh: Mesh) -> Ranks {
        Ranks(mesh)
    }

    /// Whether this rank keeps what the run leaves: checkpoints, log, clips, page.
    pub fn is_first(&self) -> bool {
        self.world().rank() == 0
    }

    /// How many replicas there are, and which of them this rank belongs to.
    pub fn replica(&self) -> (usize, usize) {
        let data = self.0.axis(Axis::Data);
        (data.rank(), data.size())
    }

    /// All of them.
    pub fn world(&self) -> &Group {
        self.0.world()
    }

    /// The ranks by what they share.
    pub fn mesh(&self) -> &Mesh {
        &self.0
    }

    /// Announces work that the others wait for.
    pub fn busy(&self, what: &str) -> Option<Busy> {
        (self.world().size() > 1).then(|| self.world().busy(what, LONGEST))
    }

    /// Adds up numbers over the replicas.
    pub(crate) fn sum(&self, label: &str, numbers: &mut [f64]) -> Result<()> {
        let rows = rows(self.0.axis(Axis::Data), label, numbers)?;
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = rows.iter().map(|row| row[at]).sum();
        }
        Ok(())
    }

    /// What every replica says, one after another.
    pub(crate) fn texts(&self, label: &str, own: &str) -> Result<String> {
        let data = self.0.axis(Axis::Data);
        if data.size() == 1 {
            return Ok(own.to_owned());
        }
        // A row of none would have no type.
        let bytes: Vec<f64> = own.bytes().chain([b'\n']).map(f64::from).collect();
        let all = data.named(label).all_gather(row(&bytes), &[0])?;
        let bytes: Vec<u8> = all.into_iter().flat_map(numbers).map(|byte| byte as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether any rank says so.
    pub(crate) fn any(&self, label: &str, own: bool) -> Result<bool> {
        let rows = rows(self.world(), label, &[f64::from(u8::from(own))])?;
        Ok(rows.iter().any(|row| row[0] > 0.0))
    }

    /// The norm of a role's gradients that all ranks clip by: not finite if it is so on any of them, so that all
    /// skip an update or none does.
    pub(crate) fn norm(&self, role: &Trained) -> Result<f64> {
        let label = format!("the norm of the gradients of the {}", role.name());
        let norm = match role.sharding() {
            None => role.gradient_norm(),
            Some(sharding) => role.norm_of(&rows(sharding.copy(), &label, &role.squares())?),
        };
        let rows = rows(self.world(), &label, &[norm])?;
        let all_finite = rows.iter().all(|row| row[0].is_finite());
        Ok(if all_finite { rows[0][0] } else { f64::NAN })
    }

    /// Adds up the gradients of a role: one exchange a step, however many micro-batches there were.
    pub(crate) fn gradients(&self, role: &mut Trained) -> Result<()> {
        if self.world().size() == 1 || role.add_up()? {
            return Ok(());
        }
        let label = format!("the gradients of the {}", role.name());
        self.complete(&label, role)?;
        let gradients = role.gradients_mut();
        let group = self.world().named(label);
        let mut left = std::mem::take(gradients).into_iter().peekable();
        while left.peek().is_some() {
            let (mut names, mut parts, mut count) = (Vec::new(), Vec::new(), 0);
            while let Some((name, part)) = left.next_if(|_| count < BUCKET) {
                count += part.dims()[0];
                names.push(name);
                parts.push(part);
            }
            let lengths: Vec<usize> = parts.iter().map(|part| part.dims()[0]).collect();
            let sum = group.all_reduce(Tensor::cat(parts, 0))?;
            gradients.extend(names.into_iter().zip(split(&sum, &lengths)));
        }
        Ok(())
    }

    /// How far every rank is with what it writes of a checkpoint.
    pub(crate) fn progress(&self, own: &Progress) -> Result<Vec<Progress>> {
        let rows = rows(self.world(), "what is written of a checkpoint", &own.numbers())?;
        Ok(rows.iter().map(|row| Progress::of(row)).collect())
    }

    /// Gives a role zeros for the gradients that only other ranks have: whether a parameter took part may depend
    /// on the samples.
    fn complete(&self, label: &str, role: &mut Trained) -> Result<()> {
        let learnt: BTreeMap<String, Tensor<1>> =
            role.learnt().map(|(name, own)| (name.to_owned(), own.values.clone())).collect();
        let has = |name| f64::from(u8::from(role.gradients().contains_key(name)));
        let own: Vec<f64> = learnt.keys().map(has).collect();
        let rows = rows(self.world(), label, &own)?;
        for (at, (name, values)) in learnt.into_iter().enumerate() {
            if own[at] == 0.0 && rows.iter().any(|row| row[at] > 0.0) {
                role.gradients_mut().insert(name, values.zeros_like());
            }
        }
        Ok(())
    }

    /// What the first rank says, on all of them.
    pub(crate) fn told_by_first(&self, label: &str, text: Option<&str>) -> Result<Option<String>> {
        if self.world().size() == 1 {
            return Ok(text.map(str::to_owned));
        }
        let said = self.is_first().then(|| {
            let bytes = text.unwrap_or_default().bytes().map(f64::from);
            let flag = f64::from(u8::from(text.is_some()));
            row(&std::iter::once(flag).chain(bytes).collect::<Vec<_>>())
        });
        let said = numbers(self.world().named(label).broadcast(0, said)?);
        let bytes: Vec<u8> = said[1..].iter().map(|byte| *byte as u8).collect();
        Ok((said[0] > 0.0).then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Refuses ranks that would not do the same.
    ///
    /// # Errors
    /// One of the facts is another one on some rank.
    pub fn agree(&self, facts: &[(&str, u64)]) -> Result<()> {
        // Halves of it fit a float without loss.
        let halves = |number: u64| [(number >> 32) as f64, f64::from(number as u32)];
        let own: Vec<f64> = facts.iter().flat_map(|(_, number)| halves(*number)).collect();
        let rows = rows(self.world(), "what ranks begin with", &own)?;
        for (rank, other) in rows.iter().enumerate() {
            let differs = |at: &usize| other[2 * at..2 * at + 2] != rows[0][2 * at..2 * at + 2];
            if let Some(at) = (0..facts.len()).find(differs) {
                return Err(Error::Apart { rank, what: facts[at].0.to_owned() });
            }
        }
        Ok(())
    }
}

/// The numbers of every rank of a group.
fn rows(group: &Group, label: &str, own: &[f64]) -> Result<Vec<Vec<f64>>> {
    if group.size() == 1 {
        return Ok(vec![own.to_vec()]);
    }
    let all = group.named(label).all_gather(row(own), &[])?;
    Ok(all.into_iter().map(numbers).collect())
}

/// Numbers as they travel.
fn row(numbers: &[f64]) -> Tensor<1> {
    let data = TensorData::new(numbers.to_vec(), [numbers.len()]);
    Tensor::from_data(data, (&Device::flex(), DType::F64))
}

fn numbers(row: Tensor<1>) -> Vec<f64> {
    row.into_data().iter::<f64>().collect()
}

/// A row of tensors as those it was made of.
fn split(row: &Tensor<1>, lengths: &[usize]) -> Vec<Tensor<1>> {
    let mut start = 0;
    let part = |length: &usize| {
        start += length;
        row.clone().narrow(0, start - length, *length)
    };
    lengths.iter().map(part).collect()
}
