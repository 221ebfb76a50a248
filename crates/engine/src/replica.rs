//! Ranks that make a request together: replicas deal its samples, the first rank gets what they make.

use std::ops::Range;
use std::time::Duration;

use burn::tensor::{Device, Int, Tensor, TensorData};
use comm::{Axis, Busy, Group, Mesh, Parcel, Values, share};
use data::media::{Frame, Waveform};
use nn::{CacheReport, FirstBlockCache};

use crate::error::{Error, Result};
use crate::pipeline::{Frames, Latents, PipelineOutput};
use crate::progress::Progress;
use crate::request::Request;

/// How long ranks wait for one that encodes or decodes, which is announced: a whole clip on one core.
const LONG_WORK: Duration = Duration::from_secs(6 * 3600);

/// What this rank does for a request.
pub(crate) struct Replica {
    mesh: Mesh,
    samples: usize,
}

/// The samples of a replica.
pub(crate) struct Deal {
    pub(crate) samples: Range<usize>,
}

impl Deal {
    /// The prompts that they are made of.
    pub(crate) fn prompts(&self, request: &Request) -> Range<usize> {
        self.samples.start / request.count..(self.samples.end - 1) / request.count + 1
    }
}

impl Replica {
    pub(crate) fn of(mesh: &Mesh, samples: usize) -> Replica {
        Replica { mesh: mesh.clone(), samples }
    }

    /// Those of one kind of place in all replicas.
    fn peers(&self) -> &Group {
        self.mesh.axis(Axis::Data)
    }

    /// Whether this rank speaks for its replica.
    pub(crate) fn leads(&self) -> bool {
        self.mesh.replica().rank() == 0
    }

    /// Whether this rank gets everything.
    pub(crate) fn owns(&self) -> bool {
        self.leads() && self.peers().rank() == 0
    }

    /// Its samples; none where there are fewer samples than replicas.
    pub(crate) fn deal(&self) -> Option<Deal> {
        let samples = share(self.samples, self.peers().rank(), self.peers().size());
        (!samples.is_empty()).then_some(Deal { samples })
    }

    /// Says how far this replica's steps are, from 0 to 1.
    pub(crate) fn tell(&self, done: f64) {
        if self.leads() {
            self.peers().tell_progress(done);
        }
    }

    /// How far the slowest replica is that has samples.
    pub(crate) fn slowest(&self) -> f64 {
        let all = self.peers().progress().into_iter().take(self.samples);
        all.map(|done| done.unwrap_or(0.0)).fold(1.0, f64::min)
    }

    /// Announces work that other ranks wait for.
    pub(crate) fn busy(&self, what: &str) -> Busy {
        self.mesh.world().busy(what, LONG_WORK)
    }

    /// Where a leader's frames go, unless it is the first one; `first` is the number of its first sample.
    pub(crate) fn relay(&self, first: usize) -> Option<Relay> {
        (!self.owns()).then(|| Relay { group: self.peers().clone(), first })
    }

    /// Hands on what this replica made, or takes what the others did. One that was interrupted says so, and whoever
    /// gets everything hears all others out, so that no message is left for what they do next.
    ///
    /// # Errors
    /// A rank failed, a frame cannot be kept, or a replica was interrupted.
    pub(crate) fn collect(
        &self,
        made: Result<Option<PipelineOutput>>,
        (progress, frames): (&mut dyn Progress, &mut dyn Frames),
    ) -> Result<PipelineOutput> {
        let mut is_stopped = matches!(made, Err(Error::Interrupted));
        let own = if is_stopped { PipelineOutput::default() } else { made?.unwrap_or_default() };
        let ended =
            |is_stopped, whole| if is_stopped { Err(Error::Interrupted) } else { Ok(whole) };
        if !self.leads() {
            return ended(is_stopped, own);
        }
        if !self.owns() {
            let parcels = if is_stopped { stopped() } else { own.parcels() };
            self.peers().send_parcels(0, parcels)?;
            return ended(is_stopped, own);
        }
        let mut all = vec![own];
        let percent = |done: f64| (100.0 * done) as usize;
        if self.slowest() < 1.0 && !is_stopped {
            progress.begin("wait for other ranks", percent(1.0));
        }
        for peer in 1..self.peers().size() {
            let mut show = || progress.reach(percent(self.slowest()));
            let kept: &mut dyn Frames = if is_stopped { &mut Dropped } else { &mut *frames };
            match self.take(peer, &mut show, kept) {
                Err(Error::Interrupted) => is_stopped = true,
                taken => all.push(taken?),
            }
        }
        ended(is_stopped, PipelineOutput::joined(all))
    }

    /// Everything that another replica made; shows how far it is meanwhile.
    fn take(
        &self,
        peer: usize,
        show: &mut dyn FnMut(),
        frames: &mut dyn Frames,
    ) -> Result<PipelineOutput> {
        loop {
            let parcels = self.peers().recv_parcels_while(peer, show)?;
            match parcels.first().map_or("", |parcel| &*parcel.name) {
                FRAME => {
                    let message = Message::of(parcels)?;
                    let [height, width, _] = message.shape[..] else { return Err(damaged()) };
                    let frame = Frame::new(height, width, message.values)?;
                    frames.frame(message.numbers[0], frame)?;
                }
                SOUND => {
                    let Message { numbers: [sample, rate], shape, values: samples } =
                        Message::of(parcels)?;
                    let [_, channels] = shape[..] else { return Err(damaged()) };
                    frames
                        .sound(sample, Waveform { sample_rate: rate as u32, channels, samples })?;
                }
                STOPPED => return Err(Error::Interrupted),
                _ => return PipelineOutput::of(parcels),
            }
        }
    }
}

/// What a replica says that was interrupted.
fn stopped() -> Vec<Parcel> {
    vec![Parcel { name: STOPPED.into(), shape: Vec::new(), values: Values::Nothing }]
}

/// Keeps nothing of what other replicas still send.
struct Dropped;

impl Frames for Dropped {
    fn begin(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> Result<()> {
        Ok(())
    }
}

/// Whether any rank of a group that works in step was asked to stop: all stop at the same place.
///
/// # Errors
/// A rank does not come.
pub(crate) fn agree(group: &Group, interrupted: bool) -> Result<bool> {
    if group.size() == 1 {
        return Ok(interrupted);
    }
    let flag = [f32::from(u8::from(interrupted))];
    let flag = Tensor::<1>::from_floats(flag, &Device::flex());
    let sum = group.named("whether to stop").all_reduce(flag)?;
    Ok(sum.into_data().iter::<f32>().any(|flags| flags > 0.0))
}

/// Adds up numbers over a group, to the same bits on every rank.
///
/// # Errors
/// A rank does not come.
pub(crate) fn sum(group: &Group, own: [f64; 2]) -> nn::Result<[f64; 2]> {
    if group.size() == 1 {
        return Ok(own);
    }
    let all = group.named("how much the first block changed").all_gather(halves(&own), &[]);
    let all = all.map_err(|err| nn::Error::outside(parallel::Error::from(err)))?;
    let mut sums = [0.0; 2];
    for part in all {
        sums.iter_mut().zip(whole(part)).for_each(|(sum, own)| *sum += own);
    }
    Ok(sums)
}

/// What a step cache saved on this rank so far; of ranks that share branches, the first counts a step of one branch.
pub(crate) fn counted(
    so_far: Option<CacheReport>,
    cache: Option<&FirstBlockCache>,
    mesh: &Mesh,
) -> Option<CacheReport> {
    let counts = mesh.axis(Axis::Cfg).rank() == 0;
    so_far.zip(cache).map(|(sum, cache)| sum.and(cache.report(counts)))
}

/// The same of all ranks that share branches, each of which had passes of its own.
///
/// # Errors
/// A rank does not come.
pub(crate) fn summed(own: Option<CacheReport>, mesh: &Mesh) -> Result<Option<CacheReport>> {
    let group = mesh.axis(Axis::Cfg);
    let Some(own) = own.filter(|_| group.size() > 1) else { return Ok(own) };
    let all = group.named("what a cache saved").all_gather(numbers_of(own), &[])?;
    Ok(all.into_iter().map(report_of).reduce(CacheReport::and))
}

/// Numbers that travel as f32: what one leaves of an f64 goes beside it.
fn halves(numbers: &[f64]) -> Tensor<1> {
    let halves = numbers.iter().flat_map(|number| {
        let near = *number as f32;
        [near, (number - f64::from(near)) as f32]
    });
    Tensor::from_floats(halves.collect::<Vec<_>>().as_slice(), &Device::flex())
}

/// The numbers that were made [`halves`].
fn whole(halves: Tensor<1>) -> Vec<f64> {
    let halves: Vec<f64> = halves.into_data().iter::<f32>().map(f64::from).collect();
    halves.chunks(2).map(|pair| pair.iter().sum()).collect()
}

fn numbers_of(CacheReport { passes, skipped, drift }: CacheReport) -> Tensor<1> {
    halves(&[passes as f64, skipped as f64, drift])
}

fn report_of(numbers: Tensor<1>) -> CacheReport {
    let numbers = whole(numbers);
    let at = |place: usize| numbers.get(place).copied().unwrap_or(0.0);
    CacheReport { passes: at(0) as usize, skipped: at(1) as usize, drift: at(2) }
}

/// Sends what a replica decodes to the first one.
pub(crate) struct Relay {
    group: Group,
    first: usize,
}

impl Frames for Relay {
    fn begin(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn sound(&mut self, sample: usize, sound: Waveform) -> Result<()> {
        let numbers = [self.first + sample, sound.sample_rate as usize];
        let shape = vec![sound.samples.len() / sound.channels, sound.channels];
        let values = sound.samples;
        Ok(self.group.send_parcels(0, Message { numbers, shape, values }.parcels(SOUND))?)
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()> {
        let (height, width) = frame.size();
        let (shape, values) = (vec![height, width, 3], frame.values().to_vec());
        let message = Message { numbers: [self.first + sample, 0], shape, values };
        Ok(self.group.send_parcels(0, message.parcels(FRAME))?)
    }
}

const FRAME: &str = "frame";
const SOUND: &str = "sound";
const STOPPED: &str = "stopped";

/// A frame or a sound on its way: the sample, the rate of a sound, and values.
struct Message {
    numbers: [usize; 2],
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Message {
    fn parcels(self, name: &str) -> Vec<Parcel> {
        let device = Device::flex();
        let numbers = self.numbers.map(|number| number as i64);
        let numbers: Tensor<1, Int> = Tensor::from_ints(numbers, &device);
        let count = self.values.len();
        let values = Tensor::from_data(TensorData::new(self.values, [count]), &device);
        vec![
            Parcel { name: name.into(), shape: vec![2], values: Values::Integers(numbers) },
            Parcel { name: "".into(), shape: self.shape, values: Values::Floats(values) },
        ]
    }

    fn of(parcels: Vec<Parcel>) -> Result<Message> {
        let Ok([numbers, Parcel { shape, values, .. }]) = <[Parcel; 2]>::try_from(parcels) else {
            return Err(damaged());
        };
        let (Values::Integers(numbers), Values::Floats(values)) = (numbers.values, values) else {
            return Err(damaged());
        };
        let numbers: Vec<i64> = numbers.into_data().iter::<i64>().collect();
        let [first, second] = numbers[..] else { return Err(damaged()) };
        let values = values.into_data().iter::<f32>().collect();
        Ok(Message { numbers: [first as usize, second as usize], shape, values })
    }
}

fn damaged() -> Error {
    Error::Unknown("a message between ranks is not what was sent; this is a bug".to_owned())
}

/// A tensor, or its absence.
fn parcel<const D: usize>(name: &str, tensor: Option<&Tensor<D>>) -> Parcel {
    let Some(tensor) = tensor else {
        return Parcel { name: name.into(), shape: Vec::new(), values: Values::Nothing };
    };
    let shape = tensor.dims().to_vec();
    let values = Values::Floats(tensor.clone().reshape([shape.iter().product::<usize>()]));
    Parcel { name: name.into(), shape, values }
}

/// The tensor of a parcel, unless it is absent.
fn tensor<const D: usize>(parcel: Parcel) -> Result<Option<Tensor<D>>> {
    let shape: Result<[usize; D], _> = parcel.shape.try_into();
    match (parcel.values, shape) {
        (Values::Nothing, _) => Ok(None),
        (Values::Floats(values), Ok(shape)) => Ok(Some(values.reshape(shape))),
        _ => Err(damaged()),
    }
}

impl PipelineOutput {
    fn parcels(&self) -> Vec<Parcel> {
        let latents = match &self.latents {
            None => parcel::<5>("latents", None),
            Some(Latents::Picture(latents)) => parcel("latents", Some(latents)),
            Some(Latents::Clip(latents)) => parcel("latents", Some(latents)),
        };
        let audio = parcel("audio_latents", self.audio_latents.as_ref());
        let cache = parcel("cache", self.cache.map(numbers_of).as_ref());
        vec![latents, audio, parcel("unpasted", self.unpasted.as_ref()), cache]
    }

    fn of(parcels: Vec<Parcel>) -> Result<PipelineOutput> {
        let Ok([latents, audio, unpasted, cache]) = <[Parcel; 4]>::try_from(parcels) else {
            return Err(damaged());
        };
        let latents = match latents.shape.len() {
            4 => tensor(latents)?.map(Latents::Picture),
            _ => tensor(latents)?.map(Latents::Clip),
        };
        let (audio_latents, unpasted) = (tensor(audio)?, tensor(unpasted)?);
        let cache = tensor(cache)?.map(report_of);
        Ok(PipelineOutput { latents, audio_latents, unpasted, cache })
    }

    /// What all replicas made, in their order.
    fn joined(all: Vec<PipelineOutput>) -> PipelineOutput {
        fn join<const D: usize>(parts: Vec<Tensor<D>>) -> Option<Tensor<D>> {
            (!parts.is_empty()).then(|| Tensor::cat(parts, 0))
        }
        let (mut pictures, mut clips) = (Vec::new(), Vec::new());
        let (mut audio, mut unpasted) = (Vec::new(), Vec::new());
        let cache = all.iter().filter_map(|own| own.cache).reduce(CacheReport::and);
        for own in all {
            match own.latents {
                Some(Latents::Picture(latents)) => pictures.push(latents),
                Some(Latents::Clip(latents)) => clips.push(latents),
                None => {}
            }
            audio.extend(own.audio_latents);
            unpasted.extend(own.unpasted);
        }
        let latents = join(pictures).map(Latents::Picture).or(join(clips).map(Latents::Clip));
        PipelineOutput { latents, audio_latents: join(audio), unpasted: join(unpasted), cache }
    }
}
