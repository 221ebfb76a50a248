//! Ranks that encode for the first one, which alone writes the dataset.
//!
//! The first rank tells which clips it wants, by their place in a list that all ranks make alike; each rank encodes one
//! and sends its tensors. What a rank cannot encode the first one tries itself, and says what is wrong as if it were alone.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

use burn::tensor::{Device, Int, Tensor, TensorData};
use comm::{Group, Parcel, Values};
use data::Clip;
use data::media::Waveform;
use data::preprocess::{Cause, Encode, Helpers, Tensors};
use data::store::{Fingerprint, hash_parts};
use engine::FolderEncoder;

use crate::failure::{Failure, Outcome};

/// How long the first rank may be busy with what only it does, or another with one clip.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 3600);

fn failed(error: comm::Error) -> Failure {
    Failure::Rank(error.to_string())
}

/// Refuses ranks that have other things to do.
fn agree(group: &Group, list: &[impl Debug]) -> Outcome {
    let told: Vec<String> = list.iter().map(|own| format!("{own:?}")).collect();
    let parts: Vec<&[u8]> = told.iter().map(String::as_bytes).collect();
    let words = hash_parts(&parts).into_bytes().into_iter().map(f32::from);
    let own = Tensor::<1>::from_floats(words.collect::<Vec<_>>().as_slice(), &Device::flex());
    let all = group.named("what there is to encode").all_gather(own, &[]).map_err(failed)?;
    let all: Vec<Vec<f32>> = all.into_iter().map(|own| own.into_data().iter().collect()).collect();
    match all.iter().position(|own| *own != all[0]) {
        None => Ok(()),
        Some(rank) => Err(Failure::Refused(format!(
            "rank {rank} finds other clips or captions than rank 0; give every rank the same files and arguments"
        ))),
    }
}

/// Encodes what the first rank asks for, until it asks for nothing more.
///
/// # Errors
/// The first rank is gone, or has other things to do.
pub(crate) fn help<T: Debug>(
    group: &Group,
    list: &[T],
    mut make: impl FnMut(&T) -> Option<Tensors>,
) -> Outcome<ExitCode> {
    agree(group, list)?;
    loop {
        let asked = group.named(PLACE).recv_parcels(0).map_err(failed)?;
        let Some(place) = asked.first().and_then(number) else { return Ok(ExitCode::SUCCESS) };
        let busy = group.busy("encoding", LONGEST);
        let made = list.get(place).and_then(&mut make);
        drop(busy);
        let parcels = match made {
            Some(tensors) => tensors.into_iter().map(|(name, data)| parcel(&name, data)).collect(),
            None => Vec::new(),
        };
        group.named(MADE).send_parcels(0, parcels).map_err(failed)?;
    }
}

const PLACE: &str = "what to encode";
const MADE: &str = "what was encoded";

/// The encoder of the first rank, with the others as helpers.
pub(crate) struct Led {
    encoder: FolderEncoder,
    group: Group,
    asked: usize,
}

impl Led {
    /// The first of these ranks, all of which have the same list.
    ///
    /// # Errors
    /// They have not.
    pub(crate) fn new(encoder: FolderEncoder, group: &Group, list: &[impl Debug]) -> Outcome<Led> {
        if group.size() > 1 {
            agree(group, list)?;
        }
        Ok(Led { encoder, group: group.clone(), asked: 0 })
    }

    /// Tells the others that there is nothing more to do.
    ///
    /// # Errors
    /// One of them is gone.
    pub(crate) fn finish(mut self) -> Outcome {
        self.take().map_err(|cause| Failure::Rank(cause.to_string()))?;
        let group = self.group.named(PLACE);
        (1..group.size()).try_for_each(|rank| group.send_parcels(rank, Vec::new())).map_err(failed)
    }

    /// The embeddings of no caption.
    ///
    /// # Errors
    /// They cannot be made.
    pub(crate) fn null_text(&mut self) -> engine::Result<BTreeMap<String, TensorData>> {
        self.encoder.null_text()
    }
}

impl Encode for Led {
    fn fingerprint(&self) -> Fingerprint {
        self.encoder.fingerprint()
    }

    fn factors(&self) -> [usize; 3] {
        self.encoder.factors()
    }

    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause> {
        let _busy = (self.group.size() > 1).then(|| self.group.busy("encoding", LONGEST));
        self.encoder.clip(clip)
    }

    fn shown(&mut self, clip: &Clip) -> Result<BTreeMap<String, TensorData>, Cause> {
        self.encoder.shown(clip)
    }

    fn sound(&mut self, sound: &Waveform, seconds: f64) -> Result<Option<TensorData>, Cause> {
        let _busy = (self.group.size() > 1).then(|| self.group.busy("encoding", LONGEST));
        self.encoder.sound(sound, seconds)
    }

    fn text(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>, Cause> {
        let _busy = (self.group.size() > 1).then(|| self.group.busy("encoding", LONGEST));
        self.encoder.text(caption)
    }

    fn helpers(&mut self) -> Option<&mut dyn Helpers> {
        (self.group.size() > 1).then_some(self)
    }
}

impl Helpers for Led {
    fn count(&self) -> usize {
        self.group.size() - 1
    }

    fn begin(&mut self, places: &[usize]) -> Result<(), Cause> {
        let group = self.group.named(PLACE);
        for (at, place) in places.iter().enumerate() {
            let data = TensorData::new(vec![*place as i64], [1]);
            let values: Tensor<1, Int> = Tensor::from_data(data, &Device::flex());
            let parcel =
                Parcel { name: "".into(), shape: vec![1], values: Values::Integers(values) };
            group.send_parcels(at + 1, vec![parcel])?;
        }
        self.asked = places.len();
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<Option<Tensors>>, Cause> {
        let group = self.group.named(MADE);
        let asked = std::mem::take(&mut self.asked);
        let take = |rank| {
            let parcels = group.recv_parcels(rank)?;
            let tensors: Option<Tensors> = parcels.into_iter().map(tensor).collect();
            Ok(tensors.filter(|own| !own.is_empty()))
        };
        (1..=asked).map(take).collect()
    }
}

/// A place that was asked for.
fn number(parcel: &Parcel) -> Option<usize> {
    match &parcel.values {
        Values::Integers(values) => {
            values.to_data().iter::<i64>().next().and_then(|place| usize::try_from(place).ok())
        }
        Values::Floats(_) | Values::Bytes(_) | Values::Nothing => None,
    }
}

/// Floats of any type as they travel.
fn parcel(name: &str, data: TensorData) -> Parcel {
    let (shape, dtype) = (data.shape().to_vec(), data.dtype());
    let values = Tensor::<1>::from_data(
        TensorData::from_bytes(data.bytes().clone(), [shape.iter().product::<usize>()], dtype),
        (&Device::flex(), dtype),
    );
    Parcel { name: name.into(), shape, values: Values::Floats(values) }
}

/// What was sent; none of what is no tensor.
fn tensor(Parcel { name, shape, values }: Parcel) -> Option<(String, TensorData)> {
    let Values::Floats(values) = values else { return None };
    let data = values.into_data();
    let dtype = data.dtype();
    Some((name.to_string(), TensorData::from_bytes(data.bytes().clone(), shape, dtype)))
}
