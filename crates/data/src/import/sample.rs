//! The files of one sample, as its tensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};

use super::{Features, Finish, Source};
use crate::store::{
    AUDIO_LATENTS, Bucket, LATENTS, MASK, Origin, REF_LATENTS, RefOrigin, Sample, TEXT,
};
use crate::torch::Object;

/// The embedding of a caption for the sound, where that is another than the video's.
pub const TEXT_AUDIO: &str = "text_audio";

/// Frames per second where a file does not say.
const FRAME_RATE: f64 = 24.0;

type Map = BTreeMap<String, Object>;

/// Makes a sample of its files.
///
/// # Errors
/// A file is missing or holds something else; the reason names it.
pub(super) fn read(
    files: &BTreeMap<Source, PathBuf>,
    (id, source_hash): (String, String),
    model: &mut dyn Finish,
) -> Result<Sample, String> {
    let (factors, mut tensors) = (model.factors(), BTreeMap::new());
    let conditions = files.get(&Source::Conditions).ok_or("it has no file in `conditions`")?;
    texts(&mut tensors, open(conditions)?, model).map_err(|reason| of(conditions, &reason))?;
    let mut clip = None;
    if let Some(path) = files.get(&Source::Latents) {
        let video = Video::of(open(path)?, factors).map_err(|reason| of(path, &reason))?;
        tensors.insert(LATENTS.to_owned(), video.latents.clone());
        clip = Some(video);
    }
    let mut reference = None;
    if let Some(path) = files.get(&Source::References) {
        let video = Video::of(open(path)?, factors).map_err(|reason| of(path, &reason))?;
        reference = Some(RefOrigin { bucket: video.bucket, fps: video.fps });
        tensors.insert(REF_LATENTS.to_owned(), video.latents);
    }
    if let Some(path) = files.get(&Source::AudioLatents) {
        let sound = sound(open(path)?).map_err(|reason| of(path, &reason))?;
        tensors.insert(AUDIO_LATENTS.to_owned(), sound);
    }
    if let (Some(path), Some(video)) = (files.get(&Source::Masks), &clip) {
        let mask = mask(open(path)?, &video.latents).map_err(|reason| of(path, &reason))?;
        tensors.insert(MASK.to_owned(), mask);
    }
    if clip.is_none() && !tensors.contains_key(AUDIO_LATENTS) {
        return Err("it has no file in `latents` or `audio_latents`".to_owned());
    }
    let nothing = Bucket { frames: 0, height: 0, width: 0 };
    let (bucket, fps) = clip.map_or((nothing, FRAME_RATE), |own| (own.bucket, own.fps));
    let origin = Origin { id, source_hash, caption: String::new(), fps, bucket, reference };
    Ok(Sample { origin, tensors })
}

fn open(path: &Path) -> Result<Map, String> {
    let object = Object::read(path).map_err(|error| error.to_string())?;
    object.map().ok_or_else(|| of(path, "it holds no dict"))
}

fn of(path: &Path, reason: &str) -> String {
    format!("{}: {reason}", path.display())
}

/// Latents of a clip.
struct Video {
    /// `[C, f, h, w]`.
    latents: TensorData,
    bucket: Bucket,
    fps: f64,
}

impl Video {
    fn of(mut map: Map, factors: [usize; 3]) -> Result<Video, String> {
        let latents = tensor(&mut map, "latents")?;
        let latents = match latents.shape()[..] {
            [_, _, _, _] => latents,
            // `[f · h · w, C]` in older datasets.
            [tokens, channels] => {
                let size = ["num_frames", "height", "width"].map(|key| whole(&map, key));
                let [frames, height, width] = size;
                let grid = [frames?, height?, width?];
                match grid.iter().try_fold(1_usize, |all, own| all.checked_mul(*own)) {
                    Some(all) if all == tokens => {}
                    _ => return Err(format!("its {tokens} tokens are no {grid:?}")),
                }
                turned(&latents, [tokens, channels], &[channels, grid[0], grid[1], grid[2]])?
            }
            _ => return Err(format!("its `latents` are {:?}, not [C, f, h, w]", latents.shape())),
        };
        let shape = latents.shape();
        if shape.contains(&0) {
            return Err("its `latents` are empty".to_owned());
        }
        let bucket = Bucket {
            frames: 1 + factors[0] * (shape[1] - 1),
            height: factors[1] * shape[2],
            width: factors[2] * shape[3],
        };
        let fps = number(&map, "fps")?.unwrap_or(FRAME_RATE);
        match fps.is_finite() && fps > 0.0 {
            true => Ok(Video { latents, bucket, fps }),
            false => Err(format!("its `fps` is {fps}")),
        }
    }
}

/// `[rows, columns]` the other way round, in another shape.
fn turned(values: &TensorData, size: [usize; 2], shape: &[usize]) -> Result<TensorData, String> {
    let [rows, columns] = size;
    let bytes = values.bytes();
    let wide = bytes.len() / (rows * columns).max(1);
    let mut all = Vec::with_capacity(bytes.len());
    for column in 0..columns {
        for row in 0..rows {
            all.extend(&bytes[(row * columns + column) * wide..][..wide]);
        }
    }
    let bytes = burn::tensor::Bytes::from_bytes_vec(all);
    Ok(TensorData::from_bytes(bytes, shape.to_vec(), values.dtype()))
}

/// Latents of a sound, `[C, t, bins]`.
fn sound(mut map: Map) -> Result<TensorData, String> {
    let latents = tensor(&mut map, "latents")?;
    match latents.shape()[..] {
        [channels, steps, bins] if channels * steps * bins > 0 => Ok(latents),
        _ => Err(format!("its `latents` are {:?}, not [C, t, bins]", latents.shape())),
    }
}

/// What the model reads of a caption: made of its features, or the features of the tokens that count, for the video and
/// for the sound.
fn texts(
    tensors: &mut BTreeMap<String, TensorData>,
    mut map: Map,
    model: &mut dyn Finish,
) -> Result<(), String> {
    let counts = numbers(&tensor(&mut map, "prompt_attention_mask")?)?;
    let counts: Vec<bool> = counts.into_iter().map(|own| own != 0.0).collect();
    let own =
        ["video_prompt_embeds", "prompt_embeds"].into_iter().find(|key| map.contains_key(*key));
    let own = own.ok_or("it holds neither `video_prompt_embeds` nor `prompt_embeds`")?;
    let video = features(&mut map, own, &counts)?;
    let audio = match map.get("audio_prompt_embeds") {
        None | Some(Object::None) => None,
        Some(_) => Some(features(&mut map, "audio_prompt_embeds", &counts)?),
    };
    let both = Features {
        // Older datasets have one for both.
        audio: audio.clone().unwrap_or_else(|| video.clone()),
        video: video.clone(),
        counts: counts.clone(),
    };
    if let Some(text) = model.text(&both).map_err(|cause| cause.to_string())? {
        tensors.insert(TEXT.to_owned(), text);
        return Ok(());
    }
    tensors.insert(TEXT.to_owned(), valid(&video, &counts));
    tensors.extend(audio.map(|own| (TEXT_AUDIO.to_owned(), valid(&own, &counts))));
    Ok(())
}

/// The features of all tokens of a caption, `[L, D]`.
fn features(map: &mut Map, key: &str, counts: &[bool]) -> Result<TensorData, String> {
    let embeds = tensor(map, key)?;
    let [rows, width] = embeds.shape()[..] else {
        return Err(format!("its `{key}` are {:?}, not [L, D]", embeds.shape()));
    };
    let (kept, marks) = (counts.iter().filter(|own| **own).count(), counts.len());
    match rows != marks || kept == 0 || width == 0 {
        true => Err(format!("`{key}` has {rows} tokens, {kept} of {marks} of which count")),
        false => Ok(embeds),
    }
}

/// Those of the tokens that count.
fn valid(embeds: &TensorData, counts: &[bool]) -> TensorData {
    let [rows, width] = [0, 1].map(|axis| embeds.shape()[axis]);
    let row = embeds.bytes().len() / rows;
    let lines = embeds.bytes().chunks_exact(row).zip(counts).filter(|(_, own)| **own);
    let bytes: Vec<u8> = lines.flat_map(|(line, _)| line.to_vec()).collect();
    let kept = counts.iter().filter(|own| **own).count();
    let bytes = burn::tensor::Bytes::from_bytes_vec(bytes);
    TensorData::from_bytes(bytes, vec![kept, width], embeds.dtype())
}

/// Which latents are generated, `[f, h, w]`: there 1 means given, here it means generated.
fn mask(mut map: Map, latents: &TensorData) -> Result<TensorData, String> {
    let mask = tensor(&mut map, "mask")?;
    if mask.shape()[..] != latents.shape()[1..] {
        let (own, clip) = (mask.shape(), latents.shape());
        return Err(format!("its `mask` is {own:?}, but the latents of its clip are {clip:?}"));
    }
    let generated = numbers(&mask)?.into_iter().map(|own| if own > 0.5 { 0.0 } else { 1.0 });
    let generated: Vec<f32> = generated.collect();
    if generated.iter().all(|own| *own == 0.0) {
        return Err("its `mask` leaves nothing to be generated".to_owned());
    }
    Ok(TensorData::new(generated, mask.shape().to_vec()).convert_dtype(latents.dtype()))
}

/// A tensor of a type that is stored.
fn tensor(map: &mut Map, key: &str) -> Result<TensorData, String> {
    match map.remove(key) {
        Some(Object::Tensor(own)) => Ok(match own.dtype() {
            DType::F64 => own.convert_dtype(DType::F32),
            DType::I8 | DType::I16 => own.convert_dtype(DType::I32),
            _ => own,
        }),
        Some(_) => Err(format!("its `{key}` is no tensor")),
        None => Err(format!("it holds no `{key}`")),
    }
}

/// All values as numbers.
fn numbers(values: &TensorData) -> Result<Vec<f32>, String> {
    let values = values.clone().convert::<f32>().try_to_vec();
    values.map_err(|error| error.to_string())
}

/// A number, or a tensor that holds one.
fn number(map: &Map, key: &str) -> Result<Option<f64>, String> {
    match map.get(key) {
        None | Some(Object::None) => Ok(None),
        Some(Object::Integer(own)) => Ok(Some(*own as f64)),
        Some(Object::Number(own)) => Ok(Some(*own)),
        Some(Object::Tensor(own)) => match numbers(own)?[..] {
            [own] => Ok(Some(f64::from(own))),
            _ => Err(format!("its `{key}` is no number")),
        },
        Some(_) => Err(format!("its `{key}` is no number")),
    }
}

fn whole(map: &Map, key: &str) -> Result<usize, String> {
    let own = number(map, key)?.ok_or_else(|| format!("it holds no `{key}`"))?;
    match (1.0..=1e6).contains(&own) && own.fract() == 0.0 {
        true => Ok(own as usize),
        false => Err(format!("its `{key}` is {own}")),
    }
}
