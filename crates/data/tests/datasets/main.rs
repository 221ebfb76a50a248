//! Datasets on disk: made from clips, stored, read again in batches.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod clips;
mod masks;
mod shards;
mod torch;

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use data::store::{Bucket, Fingerprint, LATENTS, Origin, Sample, TEXT};
use diffusion::Draw;

/// The encoders of the tests.
fn encoders() -> Fingerprint {
    Fingerprint::new([("video", "vae one".to_owned()), ("text", "t5 one".to_owned())])
}

/// Random latents of the given shape and a text of the given length, a function of the name.
fn sample(id: &str, shape: [usize; 4], length: usize) -> Sample {
    let draw = Draw::new(1).stream(id);
    let count = shape.iter().product();
    let latents = TensorData::new(draw.stream("latents").normal(0..count), shape);
    let text = TensorData::new(draw.stream("text").normal(0..length * 3), [length, 3]);
    let [_, f, h, w] = shape;
    let origin = Origin {
        id: id.to_owned(),
        source_hash: format!("hash of {id}"),
        caption: format!("caption of {id}"),
        fps: 16.0,
        bucket: Bucket { frames: f, height: h * 8, width: w * 8 },
        reference: None,
    };
    let tensors = [(LATENTS, latents), (TEXT, text)].map(|(key, tensor)| (key.to_owned(), tensor));
    Sample { origin, tensors: BTreeMap::from(tensors) }
}

/// Two samples are the same to the bit.
fn assert_same(a: &Sample, b: &Sample) {
    assert_eq!(a.origin, b.origin);
    assert_eq!(a.tensors.keys().collect::<Vec<_>>(), b.tensors.keys().collect::<Vec<_>>());
    for (key, tensor) in &a.tensors {
        let other = &b.tensors[key];
        assert_eq!((tensor.shape(), tensor.dtype()), (other.shape(), other.dtype()), "{key}");
        assert_eq!(tensor.bytes()[..], other.bytes()[..], "{key}");
    }
}
