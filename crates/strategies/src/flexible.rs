//! The strategy that does them all.

use std::cell::Cell;
use std::collections::BTreeMap;

use diffusion::{
    Geometry, NoiseLevels, Reference, ReferenceScale, Region, Scene, TimestepSampler, Tokens,
    Track, TrackKind,
};
use nn::{Prediction, Tracks};
use train::{Batch, Draws, Error, Losses, ModelInputs, Result, Strategy, VideoLatents};

use crate::config::{ConditionKind, FlexibleConfig, ModalityConfig, StrategyConfig};

/// Text-to-video, video-to-video or anything given anything.
pub struct Flexible {
    name: &'static str,
    config: FlexibleConfig,
    geometry: Geometry,
    samplers: Tracks<TimestepSampler>,
    stratified: bool,
    /// Read off the first batch that has a reference; later ones must agree.
    factors: Cell<Option<ReferenceScale>>,
}

impl Flexible {
    /// A strategy for a family of this `geometry`; `samplers` choose the noise of each modality.
    ///
    /// # Errors
    /// Settings that cannot be, or a generated sound without a sampler.
    pub fn new(
        config: &StrategyConfig,
        geometry: Geometry,
        samplers: Tracks<TimestepSampler>,
    ) -> Result<Flexible> {
        let name = config.name();
        let config = config.flexible();
        config.check()?;
        config.modalities().beside(samplers).named().try_map(|(name, (own, sampler))| {
            match own.generated && sampler.is_none() {
                true => {
                    let key = format!("timestep sampler of the {name}");
                    Err(Error::setting(key, "missing", "what is generated needs its own"))
                }
                false => Ok(()),
            }
        })?;
        let (stratified, factors) = (false, Cell::new(None));
        Ok(Flexible { name, config, geometry, samplers, stratified, factors })
    }

    /// The same strategy with the noise levels of a step spread evenly over its samples.
    pub fn stratified(self) -> Flexible {
        Flexible { stratified: true, ..self }
    }

    fn video(&self, config: &ModalityConfig, batch: &Batch, draws: &Draws) -> Result<Track> {
        let latents = batch.video(self.name, &config.source)?;
        let tokens = self.tokens(&config.source, latents)?;
        let context = batch.text(self.name, &config.text)?.clone();
        let mut track = Track::new(kind(config), tokens, context);
        track.size = self.geometry.size_condition(&latents.values);
        track.beside = batch.beside.clone().map(|own| nn::patchify(own, self.geometry.patch));
        self.fix(&mut track, config, batch, draws)?;
        // Those that are not drawn now are held to it too: what the first batch says is said for all.
        for (index, (_, source)) in references(config).enumerate() {
            let own = batch.video(self.name, source)?;
            self.agreed(source, &latents.values, &own.values, index)?;
        }
        for (index, source) in chosen_references(config, draws) {
            let own = batch.video(self.name, &source)?;
            let Tokens { values: tokens, positions, .. } = self.tokens(&source, own)?;
            let factors = self.agreed(&source, &latents.values, &own.values, index)?;
            let time = self.geometry.coordinates.time;
            let positions = factors.align(time, positions, &track.positions);
            track.refer(Reference { tokens, positions });
        }
        Ok(track)
    }

    /// The latents of a source as tokens.
    fn tokens(&self, source: &str, latents: &VideoLatents) -> Result<Tokens> {
        self.geometry.video(&latents.values, &latents.rates).map_err(|_| Error::Shape {
            what: format!("source `{source}`"),
            got: format!("{:?} latents", &latents.values.dims()[2..]),
            want: format!("the model takes patches of {:?}", self.geometry.patch),
        })
    }

    fn audio(&self, config: &ModalityConfig, batch: &Batch, draws: &Draws) -> Result<Track> {
        let tokens = self.geometry.audio(batch.audio(self.name, &config.source)?);
        let context = batch.text(self.name, &config.text)?.clone();
        let mut track = Track::new(kind(config), tokens, context);
        self.fix(&mut track, config, batch, draws)?;
        for (_, source) in chosen_references(config, draws) {
            let own = self.geometry.audio(batch.audio(self.name, &source)?);
            track.refer(Reference { tokens: own.values, positions: own.positions });
        }
        Ok(track)
    }

    /// Fixes what conditions give, drawn for every sample by itself.
    fn fix(
        &self,
        track: &mut Track,
        config: &ModalityConfig,
        batch: &Batch,
        draws: &Draws,
    ) -> Result<()> {
        let tokens = track.tokens();
        for (index, condition) in config.conditions.iter().enumerate() {
            let Some(masks) = self.masks(track, &condition.kind, batch)? else { continue };
            let mut chosen = vec![false; track.samples() * tokens];
            let drawn = draws.uniform(&format!("condition.{index}"));
            for (sample, unit) in drawn.into_iter().enumerate() {
                let (mask, fixed) = (masks.of(sample), track.fixed(sample));
                let leaves_something = fixed.iter().zip(mask).any(|(fixed, more)| !fixed && !more);
                // A condition that gives a whole clip away would leave nothing to learn from it: the
                // first frame of a picture, a prefix as long as the clip.
                if f64::from(unit) < condition.probability && leaves_something {
                    chosen[sample * tokens..][..tokens].copy_from_slice(mask);
                }
            }
            track.fix(&chosen);
        }
        Ok(())
    }

    /// Which tokens a condition gives; none for one that gives none of the track's own.
    fn masks(&self, track: &Track, kind: &ConditionKind, batch: &Batch) -> Result<Option<Masks>> {
        let Geometry { patch, factors, .. } = self.geometry;
        let region = match kind {
            ConditionKind::FirstFrame {} => Region::Prefix(1),
            ConditionKind::Prefix { frames } => Region::Prefix(*frames),
            ConditionKind::Suffix { frames } => Region::Suffix(*frames),
            ConditionKind::Keyframes { frames } => Region::Frames(frames.clone()),
            ConditionKind::Rectangle { rows, columns } => Region::rectangle(
                rows[0]..rows[1],
                columns[0]..columns[1],
                [patch[1] * factors[1], patch[2] * factors[2]],
            ),
            ConditionKind::Mask { source } => {
                let mask = batch.mask(self.name, source)?;
                let [_, found] = mask.dims();
                if found != track.tokens() {
                    return Err(Error::Shape {
                        what: format!("mask `{source}`"),
                        got: format!("of {found} tokens"),
                        want: format!("the latents have {}", track.tokens()),
                    });
                }
                let values = mask.clone().into_data();
                let given = values.iter::<f32>().map(|value| value > 0.5).collect();
                return Ok(Some(Masks::Each { given, tokens: found }));
            }
            ConditionKind::Reference { .. } => return Ok(None),
        };
        Ok(Some(Masks::Alike(region.mask(track.grid))))
    }

    /// The factors of a reference, which stay those of the first batch.
    fn agreed(
        &self,
        source: &str,
        target: &burn::tensor::Tensor<5>,
        own: &burn::tensor::Tensor<5>,
        index: usize,
    ) -> Result<ReferenceScale> {
        let size = |latents: &burn::tensor::Tensor<5>| {
            let [_, _, frames, rows, columns] = latents.dims();
            [frames, rows, columns]
        };
        let factors =
            ReferenceScale::between(size(target), size(own)).map_err(|err| match err {
                diffusion::Error::Reference { reference, want, target } => Error::Shape {
                    what: format!("reference `{source}`"),
                    got: format!("{reference:?} latents"),
                    want: format!("{want} {target:?} of the target"),
                },
                other => other.into(),
            })?;
        // What the trained model is told about is its first reference.
        if index > 0 {
            return Ok(factors);
        }
        match self.factors.get() {
            Some(earlier) if earlier != factors => Err(Error::Shape {
                what: format!("reference `{source}`"),
                got: format!("{} times smaller and {} times slower", factors.space, factors.time),
                want: format!("it was {} and {} before", earlier.space, earlier.time),
            }),
            _ => {
                self.factors.set(Some(factors));
                Ok(factors)
            }
        }
    }
}

/// Which tokens are given.
enum Masks {
    /// The same in every sample.
    Alike(Vec<bool>),
    /// Sample by sample.
    Each { given: Vec<bool>, tokens: usize },
}

impl Masks {
    fn of(&self, sample: usize) -> &[bool] {
        match self {
            Masks::Alike(mask) => mask,
            Masks::Each { given, tokens } => &given[sample * tokens..][..*tokens],
        }
    }
}

fn kind(config: &ModalityConfig) -> TrackKind {
    if config.generated { TrackKind::Generated } else { TrackKind::Given }
}

/// The sources of references, each with how often it is given.
fn references(config: &ModalityConfig) -> impl Iterator<Item = (f64, &String)> {
    config.conditions.iter().filter_map(|condition| match &condition.kind {
        ConditionKind::Reference { source } => Some((condition.probability, source)),
        _ => None,
    })
}

/// References are drawn once for all samples: they change how many tokens there are.
fn chosen_references(config: &ModalityConfig, draws: &Draws) -> Vec<(usize, String)> {
    let drawn = references(config).enumerate().filter(|(index, (probability, _))| {
        let unit = draws.shared(&format!("reference.{index}")).uniform(0..1)[0];
        f64::from(unit) < *probability
    });
    drawn.map(|(index, (_, source))| (index, source.clone())).collect()
}

impl Strategy for Flexible {
    fn name(&self) -> &'static str {
        self.name
    }

    fn sources(&self) -> Vec<String> {
        self.config.sources()
    }

    fn optional(&self) -> Option<String> {
        self.config.optional().map(str::to_owned)
    }

    fn scene(&self, batch: &Batch, draws: &Draws) -> Result<Scene> {
        let mut modalities = self.config.modalities();
        if self.config.optional().is_some_and(|source| !batch.fields.contains_key(source)) {
            modalities.audio = None;
        }
        let modalities = modalities.named();
        let tracks = modalities.try_map(|(name, config)| match name {
            "video" => self.video(config, batch, &draws.below(name)),
            _ => self.audio(config, batch, &draws.below(name)),
        })?;
        Ok(tracks.into())
    }

    fn levels(&self, scene: &Scene, draws: &Draws) -> Result<Tracks<NoiseLevels>> {
        let draws = draws.below("level");
        let tracks = scene.tracks().beside(self.samplers).named();
        Ok(tracks.map(|(name, (track, sampler))| {
            let level = |sample: usize| match (track.kind, sampler) {
                (TrackKind::Generated, Some(sampler)) => {
                    let draw = draws.sample(name, sample);
                    match draws.part(sample).filter(|_| self.stratified) {
                        Some((part, parts)) => sampler.level_in(part, parts, draw, track.tokens()),
                        None => sampler.level(draw, track.tokens()),
                    }
                }
                _ => 0.0,
            };
            NoiseLevels::per_sample((0..track.samples()).map(level).collect())
        }))
    }

    fn loss(&self, prediction: &Prediction, inputs: &ModelInputs) -> Losses {
        inputs.losses(prediction, self.config.modalities().map(|config| config.weight))
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = BTreeMap::from([("strategy".to_owned(), self.name.to_owned())]);
        if let Some(ReferenceScale { space, time }) = self.factors.get() {
            let mut tell = |key: &str, factor: usize| {
                if factor != 1 {
                    metadata.insert(key.to_owned(), factor.to_string());
                }
            };
            // Two names for one value: readers of older files know the second.
            tell("reference_spatial_scale_factor", space);
            tell("reference_downscale_factor", space);
            tell("reference_temporal_scale_factor", time);
        }
        metadata
    }
}
