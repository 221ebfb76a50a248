//! Clips and captions to what a model is trained on, with the encoders of its folder.

mod fingerprint;
mod sizes;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use data::Clip;
use data::import::{Features, Finish};
use data::media::{Frame, Waveform};
use data::preprocess::{Cause, Encode};
use data::store::{BESIDE, Fingerprint, IMAGE, TEXT};
use families::{Condition, Description, EntersAs, Text, TextRules};
use folder::{Component, ModelFolder, Storage, agree};
use nn::Weights;

pub use self::sizes::ClipSizes;
use crate::error::{Error, Result};
use crate::finite;
use crate::scene::picture_channels;
use crate::sizes::check_sound;
use crate::sound::SoundParts;
use crate::source_image::SourceImage;
use crate::text::TextEncoder;
use crate::vision::Vision;

/// How a folder's encoders are opened.
#[derive(Clone, Debug)]
pub struct EncoderSetup {
    /// Where to compute.
    pub device: Device,
    /// The type of what is encoded. The encoders compute as in inference, with the weights as they
    /// are stored.
    pub dtype: FloatDType,
}

/// The VAEs and the text encoder of a diffusers folder. Weights are read when they are first needed.
pub struct FolderEncoder {
    setup: EncoderSetup,
    description: Description,
    text: TextEncoder,
    vae: Component,
    sound: SoundParts,
    vision: Option<Vision>,
    sizes: ClipSizes,
    fingerprint: Fingerprint,
}

impl FolderEncoder {
    /// Opens the encoders of a folder and checks them against their configs and the transformer's.
    ///
    /// # Errors
    /// The folder is of no family we have, or a part of it is missing, damaged or unsupported.
    pub fn open(model: &Path, setup: &EncoderSetup) -> Result<FolderEncoder> {
        let folder = ModelFolder::open(model)?;
        let description = families::describe(&folder)?;
        let sizes = sizes::of(&description)?;
        let text = TextEncoder::open(&folder, 0)?;
        if let Text::Encoders { key, width } = &description.text {
            let key = format!("{key} of transformer");
            agree(("width of what text_encoder gives", text.width()), (&key, *width))?;
        }
        let vae = Component::new(folder.weights("vae")?, Storage::STORED, &[], |weights| {
            description.vae.declare(weights)
        })?;
        let vision = match description.image_tokens {
            Some(_) => Some(Vision::open(&folder)?),
            None => None,
        };
        let sound = SoundParts::open(&folder, &description)?;
        let heard = description.sound.as_ref();
        let fingerprint = fingerprint::of(&folder, text.rules(), vision.is_some(), heard)?;
        let setup = setup.clone();
        Ok(FolderEncoder { setup, description, text, vae, sound, vision, sizes, fingerprint })
    }

    /// What clips the model takes.
    pub fn sizes(&self) -> ClipSizes {
        self.sizes
    }

    /// How captions are embedded. [`TextRules::context`] makes of stored tokens what the transformer is
    /// given.
    pub fn text_rules(&self) -> TextRules {
        self.text.rules()
    }

    /// What stands for a dropped caption: the empty one, embedded, by key.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn null_text(&mut self) -> Result<BTreeMap<String, TensorData>> {
        self.embedded("")
    }

    /// Lets go of the weights; they are read again when they are next needed.
    pub fn close(&mut self) {
        self.text.close();
        self.vae.close();
        self.sound.close();
        self.vision.iter_mut().for_each(Vision::close);
    }

    fn embedded(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>> {
        let EncoderSetup { device, dtype } = &self.setup;
        let rules = self.text.rules();
        let tokens = self.text.embed(caption, &rules, device)?.valid();
        Ok(BTreeMap::from([(TEXT.to_owned(), tokens.cast(*dtype).into_data())]))
    }

    fn latents(&mut self, clip: &Clip) -> Result<TensorData> {
        let EncoderSetup { device, dtype } = self.setup.clone();
        let frames = self.description.geometry.latent_frames(clip.size()[0]);
        frames.map_err(|err| Error::Unknown(err.to_string()))?;
        let latents = self.encode(pixels(clip, &device))?;
        Ok(latents.squeeze_dim::<4>(0).cast(dtype).into_data())
    }

    /// Latents `[C, t, bins]` of a sound, as many as a clip of so many seconds has in a request.
    fn heard(&mut self, sound: &Waveform, seconds: f64) -> Result<Option<TensorData>> {
        let EncoderSetup { device, dtype } = self.setup.clone();
        let Some(codec) = &self.description.sound else { return Ok(None) };
        let steps = check_sound(self.description.geometry.clock.steps(seconds))?;
        let heard = (&sound.split()[..], sound.sample_rate);
        let latents = self.sound.encode(codec, heard, steps, &device)?;
        Ok(Some(latents.squeeze_dim::<3>(0).cast(dtype).into_data()))
    }

    /// Latents `[1, C, f, h, w]` of pixels `[1, 3, F, H, W]` from -1 to 1.
    fn encode(&mut self, pixels: Tensor<5>) -> Result<Tensor<5>> {
        let store = self.vae.open(&self.setup.device)?;
        let latents = self.description.vae.encode_clip(&Weights::new(store), pixels)?;
        finite::check(&latents, "the encoder of the VAE", store)?;
        Ok(latents)
    }

    /// What the model sees of the first frame of a clip and, if it was made for both, of the last: as channels
    /// beside the noise, and by its image encoder.
    fn pictures(&mut self, clip: &Clip) -> Result<BTreeMap<String, TensorData>> {
        let EncoderSetup { device, dtype } = self.setup.clone();
        let mut all = BTreeMap::new();
        if self.description.conditions.enters(Condition::Image) != Some(EntersAs::Channels) {
            return Ok(all);
        }
        let [frames, height, width] = clip.size();
        // Fixed places for image tokens are places for two pictures.
        let with_last = matches!(self.description.image_tokens, Some(Some(_))) && frames > 1;
        let places = if with_last { vec![0, frames - 1] } else { vec![0] };
        let whole = pixels(clip, &device);
        let given = places.iter().map(|at| whole.clone().slice_dim(2, *at..*at + 1)).collect();
        let description = self.description.clone();
        let beside =
            picture_channels(given, frames, &description, &mut |pixels| self.encode(pixels))?;
        all.insert(BESIDE.to_owned(), beside.squeeze_dim::<4>(0).cast(dtype).into_data());
        if let Some(vision) = &mut self.vision {
            let picture = |at: &usize| {
                let frame = Frame::new(height, width, clip.frame(*at).to_vec())?;
                Ok::<_, Error>(SourceImage::from_frame(&frame))
            };
            let pictures = places.iter().map(picture).collect::<Result<Vec<_>>>()?;
            let tokens = vision.encode(&pictures.iter().collect::<Vec<_>>(), &device)?;
            all.insert(IMAGE.to_owned(), tokens.squeeze_dim::<2>(0).cast(dtype).into_data());
        }
        Ok(all)
    }
}

/// Pixels `[1, 3, F, H, W]` of a clip, from -1 to 1.
fn pixels(clip: &Clip, device: &Device) -> Tensor<5> {
    let pixels: Tensor<5> = clip.to_tensor(device).permute([3, 0, 1, 2]).unsqueeze_dim(0);
    pixels * 2.0 - 1.0
}

impl Encode for FolderEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    fn factors(&self) -> [usize; 3] {
        self.description.geometry.factors
    }

    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause> {
        Ok(self.latents(clip)?)
    }

    fn shown(&mut self, clip: &Clip) -> Result<BTreeMap<String, TensorData>, Cause> {
        Ok(self.pictures(clip)?)
    }

    fn sound(&mut self, sound: &Waveform, seconds: f64) -> Result<Option<TensorData>, Cause> {
        Ok(self.heard(sound, seconds)?)
    }

    fn text(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>, Cause> {
        Ok(self.embedded(caption)?)
    }
}

impl Finish for FolderEncoder {
    fn factors(&self) -> [usize; 3] {
        self.description.geometry.factors
    }

    fn text(&mut self, features: &Features) -> Result<Option<TensorData>, Cause> {
        let device = self.setup.device.clone();
        let dtype = features.video.dtype();
        let rows = |own: &TensorData| -> Tensor<3> {
            Tensor::<2>::from_data(own.clone().convert::<f32>(), &device).unsqueeze()
        };
        let counts: Vec<f32> =
            features.counts.iter().map(|own| f32::from(u8::from(*own))).collect();
        let length = counts.len();
        let mask = Tensor::from_data(TensorData::new(counts, [1, length]), &device);
        let both = [rows(&features.video), rows(&features.audio)];
        let text = self.text.connected(both, &mask, &device)?;
        Ok(text.map(|own| own.squeeze_dim::<2>(0).into_data().convert_dtype(dtype)))
    }
}
