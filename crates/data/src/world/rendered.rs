//! The world as samples to train on: rendered when they are asked for, never stored.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};

use diffusion::Draw;

use super::{Colour, MovingShape, SoundBlocks, SpaceToDepth, Words, World};
use crate::clip::Clip;
use crate::error::{Error, Result};
use crate::loader::Samples;
use crate::store::{
    AUDIO_LATENTS, Bucket, Fingerprint, LATENTS, Origin, REF_LATENTS, Sample, TEXT,
};

/// The first clips of a world as samples.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The world.
    pub world: World,
    /// How many clips of it.
    pub count: usize,
    /// How clips become latents.
    pub codec: SpaceToDepth,
    /// How captions become vectors.
    pub words: Words,
    /// How the tone becomes latents, if there is one.
    pub sound: SoundBlocks,
    /// Whether each clip comes with the same clip in another colour.
    recoloured: bool,
}

impl Rendered {
    /// Samples of a world with the default codecs; the tone is cut into two blocks per frame.
    ///
    /// # Errors
    /// There are none, the world's captions or sizes do not suit the codecs, or two blocks per frame
    /// are no whole number of samples.
    pub fn new(world: World, count: usize) -> Result<Rendered> {
        let options = *world.options();
        let per_block = |rate: u32| f64::from(rate) / options.fps / 2.0;
        let block = options.tone.map_or(1.0, |tone| per_block(tone.sample_rate));
        if block.fract() != 0.0 || count == 0 {
            let what = format!("{count} samples with {block} samples of sound per half frame");
            let remedy = "give at least one, and a sample rate that is a multiple of 2 x fps";
            return Err(Error::World { what, remedy: remedy.to_owned() });
        }
        let (codec, words) = (SpaceToDepth::default(), Words::default());
        codec.grid([options.frames, options.height, options.width])?;
        Ok(Rendered {
            world,
            count,
            codec,
            words,
            sound: SoundBlocks { block: block as usize },
            recoloured: false,
        })
    }

    /// The same samples, each with the same clip in another colour as its reference.
    pub fn recoloured(self) -> Rendered {
        Rendered { recoloured: true, ..self }
    }

    /// The reference of a clip: all the same but for the colour, which is any other of the world's.
    pub fn reference(&self, index: u64) -> Clip {
        let scenes = self.world.scenes();
        let own = scenes[(index % scenes.len() as u64) as usize];
        let mut others: Vec<Colour> = scenes.iter().map(|scene| scene.colour).collect();
        others.retain(|colour| *colour != own.colour);
        others.sort_by_key(|colour| colour.word());
        others.dedup();
        let drawn = Draw::new(0).stream("reference-colour").sample(index).uniform(0..1)[0];
        let at = (drawn * others.len() as f32) as usize;
        let colour = others.get(at).copied().unwrap_or(own.colour);
        self.world.show_scene(MovingShape { colour, ..own }, index).clip
    }

    /// What stands for a dropped caption.
    pub fn null(&self) -> BTreeMap<String, TensorData> {
        BTreeMap::from([(TEXT.to_owned(), self.words.null(&Device::flex()).into_data())])
    }

    /// What the samples depend on beside the world.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new([
            ("video", self.codec.fingerprint()),
            ("text", self.words.fingerprint()),
            ("audio", self.sound.fingerprint()),
        ])
    }

    fn origin(&self, index: usize) -> Origin {
        let options = self.world.options();
        let scenes = self.world.scenes();
        Origin {
            id: format!("shapes/{index}"),
            source_hash: String::new(),
            caption: scenes[index % scenes.len()].to_string(),
            fps: options.fps,
            bucket: Bucket { frames: options.frames, height: options.height, width: options.width },
            reference: None,
        }
    }
}

impl Samples for Rendered {
    fn count(&self) -> usize {
        self.count
    }

    /// All clips have one size.
    fn group(&self, _index: usize) -> String {
        self.origin(0).bucket.to_string()
    }

    fn read(&self, index: usize) -> Result<Sample> {
        let device = Device::flex();
        let shown = self.world.show(index as u64);
        let latents: Tensor<4> = self.codec.encode(&shown.clip, &device)?.squeeze_dim(0);
        let text = self.words.embed(&shown.caption(), &device)?;
        let mut tensors = BTreeMap::from([
            (LATENTS.to_owned(), latents.into_data()),
            (TEXT.to_owned(), text.into_data()),
        ]);
        if self.recoloured {
            let clip = self.reference(index as u64);
            let latents: Tensor<4> = self.codec.encode(&clip, &device)?.squeeze_dim(0);
            tensors.insert(REF_LATENTS.to_owned(), latents.into_data());
        }
        if let Some(tone) = shown.tone {
            let latents: Tensor<2> = self.sound.encode(&tone, &device)?.squeeze_dim(0);
            tensors.insert(AUDIO_LATENTS.to_owned(), latents.into_data());
        }
        Ok(Sample { origin: self.origin(index), tensors })
    }
}
